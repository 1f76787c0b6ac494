"""An inbox in memory: for tests and simulations, under the same contract as that in a database."""

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
    """One event in a drawer."""

    id: int
    key: bytes
    record: bytes = field(repr=False)
    taken_at: float | None = None
    is_aside: bool = False


@dataclass(slots=True)
class InboxRecords:
    """What stays when an inbox is closed; several inboxes may share one."""

    identity: bytes = b"a drawer"
    slips: dict[bytes, QueuedRecord] = field(default_factory=dict, repr=False)
    n_put: int = 0
    guard: threading.Lock = field(default_factory=threading.Lock, repr=False)


class MemoryInbox:
    """An inbox that lives as long as its drawer.

    >>> from vfbandits.campaign.events import Activated
    >>> drawer = InboxRecords()
    >>> first, second = MemoryInbox(drawer), MemoryInbox(drawer)
    >>> first.put([Activated("a", 60.0)]), second.put([Activated("a", 90.0)])
    ([Activated(event_id='a', due=60.0, at=0.0)], [Activated(event_id='a', due=60.0, at=0.0)])
    >>> len(second.waiting(10))
    1
    """

    def __init__(
        self,
        drawer: InboxRecords,
        *,
        key: JournalKey | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._drawer = drawer
        self._codec = InboxCodec(drawer.identity, key)
        self._clock = clock
        self._is_closed = False

    def put(self, events: Sequence[Arrival]) -> list[Arrival]:
        """Keep events; under each key the first one stands."""
        self._refuse_if_closed()
        return [self._put(event) for event in events]

    def find_many(self, ids: Sequence[EventId]) -> dict[EventId, list[Arrival]]:
        """What waits of several decisions."""
        self._refuse_if_closed()
        places = {self._codec.place_of(event_id) for event_id in ids}
        found: dict[EventId, list[Arrival]] = {event_id: [] for event_id in ids}
        for slip in self._waiting():
            if slip.key[:PART_BYTES] in places:
                event = self._codec.open(slip.record, slip.key)
                event_id = event_id_of(event)
                if event_id is not None and event_id in found:
                    found[event_id].append(event)
        return found

    def waiting(self, most: int) -> list[Waiting]:
        """The first events that wait."""
        self._refuse_if_closed()
        return [self._open(slip) for slip in self._waiting()[:most]]

    def take(self, ids: Sequence[int]) -> None:
        """Let them wait no more."""
        for slip in self._those(ids):
            slip.taken_at = self._clock()

    def set_aside(self, ids: Sequence[int]) -> None:
        """Keep them, for ever."""
        for slip in self._those(ids):
            slip.taken_at, slip.is_aside = self._clock(), True

    def is_used(self) -> bool:
        """Whether anything is there."""
        return bool(self._drawer.slips)

    def prune(self, *, older_s: float, most: int) -> int:
        """Drop what was taken so long ago."""
        before = self._clock() - older_s
        with self._drawer.guard:
            slips = self._drawer.slips
            old = [
                key
                for key, slip in slips.items()
                if slip.taken_at is not None and slip.taken_at < before and not slip.is_aside
            ][:most]
            for key in old:
                del slips[key]
        return len(old)

    def retire(self, *, before: float, most: int) -> int:
        """Drop what was set aside before a time."""
        slips = self._all()
        found = [(slip.id, self._open(slip).event) for slip in slips]
        aside = {slip.id for slip in slips if slip.is_aside}
        old = {*older_than(before, found)} & aside
        gone = [slip.key for slip in slips if slip.id in old][:most]
        with self._drawer.guard:
            for key in gone:
                self._drawer.slips.pop(key, None)
        return len(gone)

    def decisions_of(self, user: str) -> list[EventId]:
        """Ids of all decisions for a user."""
        self._refuse_if_closed()
        events = (self._open(slip).event for slip in self._all())
        return [one.event_id for one in events if isinstance(one, Decided) and one.user == user]

    def erase(self, ids: Sequence[EventId]) -> None:
        """Drop all of these decisions, and what nobody can read."""
        self._refuse_if_closed()
        places = {self._codec.place_of(event_id) for event_id in ids}
        gone = [
            slip.key
            for slip in self._all()
            if slip.key[:PART_BYTES] in places or self._open(slip).event is None
        ]
        with self._drawer.guard:
            for key in gone:
                self._drawer.slips.pop(key, None)

    def copied(self) -> Iterator[Copied]:
        """All that is in it, for a copy."""
        self._refuse_if_closed()
        for slip in self._all():
            taken = math.inf if slip.is_aside else slip.taken_at
            yield Copied(self._open(slip).event, taken)

    def close(self) -> None:
        """Use it no more."""
        self._is_closed = True

    def _put(self, event: Arrival) -> Arrival:
        key = self._codec.key_of(event)
        record = self._codec.seal(event, key)
        with self._drawer.guard:
            there = self._drawer.slips.get(key)
            if there is None:
                self._drawer.n_put += 1
                self._drawer.slips[key] = QueuedRecord(self._drawer.n_put, key, record)
                return event
        return self._codec.open(there.record, key)

    def _all(self) -> list[QueuedRecord]:
        with self._drawer.guard:
            return sorted(self._drawer.slips.values(), key=lambda slip: slip.id)

    def _waiting(self) -> list[QueuedRecord]:
        return [slip for slip in self._all() if slip.taken_at is None]

    def _open(self, slip: QueuedRecord) -> Waiting:
        try:
            return Waiting(slip.id, self._codec.open(slip.record, slip.key))
        except JournalError as error:
            return Waiting(slip.id, None, str(error))

    def _those(self, ids: Sequence[int]) -> list[QueuedRecord]:
        wanted = set(ids)
        return [slip for slip in self._waiting() if slip.id in wanted]

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise JournalError("the inbox is closed")
