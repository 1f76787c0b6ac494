"""A journal that keeps the latest decisions in memory, and nothing for a restart.

For parity runs, and for an active participant with ``journal = false``.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence

from vfbandits.campaign.events import Erased, Event, Found, SetAside
from vfbandits.core.decision import EventId
from vfbandits.core.snapshot import Snapshot
from vfbandits.errors import JournalError, SnapshotError
from vfbandits.journal.base import Damage

MAX_DECISIONS = 10_000


class RecentJournal:
    """The events of the latest decisions; implements ``Journal`` without its durability.

    >>> from vfbandits.campaign.events import Forgotten
    >>> journal = RecentJournal(max_decisions=1)
    >>> journal.append([Forgotten("a"), Forgotten("b")])
    2
    >>> journal.find("a"), journal.find("b")
    ([], [(2, Forgotten(event_id='b'))])
    """

    is_quick = True
    compacted_to = 0
    damage = Damage()

    def __init__(self, *, max_decisions: int = MAX_DECISIONS) -> None:
        self.last_position = 0
        self._max_decisions = max_decisions
        self._found: OrderedDict[EventId, Found] = OrderedDict()

    def append(self, events: Sequence[Event]) -> int:
        """Keep events as long as there is room for their decisions; returns the last position."""
        for position, event in enumerate(events, start=self.last_position + 1):
            key = getattr(event, "event_id", None)
            if key is not None:
                self._found.setdefault(key, []).append((position, event))
        while len(self._found) > self._max_decisions:
            self._found.popitem(last=False)
        self.last_position += len(events)
        return self.last_position

    def read(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Refuse, unless there is nothing to read."""
        if after < self.last_position:
            raise JournalError("there is no journal to read: the active participant keeps none")
        return iter(())

    def remains(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Nothing was compacted."""
        del after
        return iter(())

    def find(self, event_id: EventId) -> Found:
        """The events of one decision, as long as it is kept."""
        return [*self._found.get(event_id, ())]

    def find_many(self, ids: Sequence[EventId]) -> dict[EventId, Found]:
        """The same for several decisions."""
        return {event_id: self.find(event_id) for event_id in ids}

    def snapshot_positions(self) -> list[int]:
        """There are none."""
        return []

    def load_snapshot(self, position: int) -> Snapshot:
        """There is none."""
        raise SnapshotError(f"there is no snapshot of position {position}: none are kept")

    def latest_snapshot(self) -> tuple[int, Snapshot] | None:
        """There is none."""
        return None

    def save_snapshot(self, position: int, snapshot: Snapshot) -> None:
        """Keep nothing."""

    def set_aside(self, records: Mapping[int, SetAside]) -> None:
        """Refuse: no record is kept."""
        raise JournalError(f"there is no journal to repair, got {len(records)} records")

    def erase(self, records: Mapping[int, Erased | SetAside]) -> None:
        """Refuse: no record is kept."""
        raise JournalError(f"there is no journal to erase from, got {len(records)} records")

    def compact(self, position: int, *, keep: Collection[int]) -> int:
        """Nothing is to be dropped."""
        del position, keep
        return 0

    def retire(self, positions: Sequence[int], *, covered_by: int) -> None:
        """Nothing is to be dropped."""
        del positions, covered_by

    def close(self) -> None:
        """Nothing is held."""
