"""An inbox in memory: for tests and simulations, under the same contract as one in a database."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from vfbandits.campaign.events import Decided
from vfbandits.core.decision import EventId
from vfbandits.errors import JournalError
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.inbox.base import Arrival, Copied, Waiting, older_than
from vfbandits.journal.inbox.codec import PART_BYTES, InboxCodec
from vfbandits.journal.lookup import event_id_of


@dataclass(slots=True)
class QueuedRecord:
    """One event in an inbox."""

    id: int
    key: bytes
    record: bytes = field(repr=False)
    taken_at: float | None = None
    is_aside: bool = False


@dataclass(slots=True)
class InboxRecords:
    """The state that outlives a closed inbox; several inboxes may share it."""

    identity: bytes = b"an inbox in memory"
    by_key: dict[bytes, QueuedRecord] = field(default_factory=dict, repr=False)
    n_put: int = 0
    guard: threading.Lock = field(default_factory=threading.Lock, repr=False)


class MemoryInbox:
    """An inbox that lives as long as its records.

    >>> from vfbandits.campaign.events import Activated
    >>> records = InboxRecords()
    >>> first, second = MemoryInbox(records), MemoryInbox(records)
    >>> first.put([Activated("a", 60.0)]), second.put([Activated("a", 90.0)])
    ([Activated(event_id='a', due=60.0, at=0.0)], [Activated(event_id='a', due=60.0, at=0.0)])
    >>> len(second.waiting(10))
    1
    """

    def __init__(
        self,
        records: InboxRecords,
        *,
        key: JournalKey | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._records = records
        self._codec = InboxCodec(records.identity, key)
        self._clock = clock
        self._is_closed = False

    def put(self, events: Sequence[Arrival]) -> list[Arrival]:
        """Keep events, under each key the first one only."""
        self._refuse_if_closed()
        return [self._put(event) for event in events]

    def find_many(self, ids: Sequence[EventId]) -> dict[EventId, list[Arrival]]:
        """Waiting events of several decisions."""
        places = {self._codec.place_of(event_id) for event_id in ids}
        found: dict[EventId, list[Arrival]] = {event_id: [] for event_id in ids}
        for queued in self._waiting():
            if queued.key[:PART_BYTES] in places:
                event = self._codec.open(queued.record, queued.key)
                event_id = event_id_of(event)
                if event_id is not None and event_id in found:
                    found[event_id].append(event)
        return found

    def waiting(self, most: int) -> list[Waiting]:
        """The first events that wait."""
        return [self._open(queued) for queued in self._waiting()[:most]]

    def take(self, ids: Sequence[int]) -> None:
        """Mark events as taken."""
        for queued in self._those(ids):
            queued.taken_at = self._clock()

    def set_aside(self, ids: Sequence[int]) -> None:
        """Mark events as refused; they are kept until ``retire``."""
        for queued in self._those(ids):
            queued.taken_at, queued.is_aside = self._clock(), True

    def is_used(self) -> bool:
        """Whether there is any event."""
        self._refuse_if_closed()
        return bool(self._records.by_key)

    def prune(self, *, older_s: float, most: int) -> int:
        """Drop events that were taken ``older_s`` ago."""
        self._refuse_if_closed()
        before = self._clock() - older_s
        with self._records.guard:
            by_key = self._records.by_key
            old = [
                key
                for key, queued in by_key.items()
                if queued.taken_at is not None and queued.taken_at < before and not queued.is_aside
            ][:most]
            for key in old:
                del by_key[key]
        return len(old)

    def retire(self, *, before: float, most: int) -> int:
        """Drop set-aside events from before a time."""
        queue = self._all()
        found = [(queued.id, self._open(queued).event) for queued in queue]
        aside = {queued.id for queued in queue if queued.is_aside}
        old = {*older_than(before, found)} & aside
        gone = [queued.key for queued in queue if queued.id in old][:most]
        with self._records.guard:
            for key in gone:
                self._records.by_key.pop(key, None)
        return len(gone)

    def decisions_of(self, user: str) -> list[EventId]:
        """Ids of all decisions for a user."""
        events = (self._open(queued).event for queued in self._all())
        return [one.event_id for one in events if isinstance(one, Decided) and one.user == user]

    def erase(self, ids: Sequence[EventId]) -> None:
        """Delete all events of these decisions, and all unreadable ones."""
        places = {self._codec.place_of(event_id) for event_id in ids}
        gone = [
            queued.key
            for queued in self._all()
            if queued.key[:PART_BYTES] in places or self._open(queued).event is None
        ]
        with self._records.guard:
            for key in gone:
                self._records.by_key.pop(key, None)

    def copied(self) -> Iterator[Copied]:
        """All events in it, for a copy."""
        for queued in self._all():
            taken = math.inf if queued.is_aside else queued.taken_at
            yield Copied(self._open(queued).event, taken)

    def close(self) -> None:
        """Refuse further calls."""
        self._is_closed = True

    def _put(self, event: Arrival) -> Arrival:
        key = self._codec.key_of(event)
        record = self._codec.seal(event, key)
        with self._records.guard:
            there = self._records.by_key.get(key)
            if there is None:
                self._records.n_put += 1
                self._records.by_key[key] = QueuedRecord(self._records.n_put, key, record)
                return event
        return self._codec.open(there.record, key)

    def _all(self) -> list[QueuedRecord]:
        self._refuse_if_closed()
        with self._records.guard:
            return sorted(self._records.by_key.values(), key=lambda queued: queued.id)

    def _waiting(self) -> list[QueuedRecord]:
        return [queued for queued in self._all() if queued.taken_at is None]

    def _open(self, queued: QueuedRecord) -> Waiting:
        try:
            return Waiting(queued.id, self._codec.open(queued.record, queued.key))
        except JournalError as error:
            return Waiting(queued.id, None, str(error))

    def _those(self, ids: Sequence[int]) -> list[QueuedRecord]:
        wanted = set(ids)
        return [queued for queued in self._waiting() if queued.id in wanted]

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise JournalError("the inbox is closed")
