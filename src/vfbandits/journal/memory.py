"""A journal in memory: for tests and simulations, under the same contract as those on a disk."""

import logging
import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vfbandits.campaign.events import Erased, Event, Found, LossAccepted, SetAside
from vfbandits.core.decision import EventId
from vfbandits.core.snapshot import Snapshot
from vfbandits.errors import JournalError, SnapshotError
from vfbandits.journal.base import (
    Damage,
    damaged_end,
    newest_whole,
    refuse_bare_compaction,
    refuse_compacted,
    refuse_future,
    refuse_uncovered,
    refuse_unknown,
    superfluous,
)
from vfbandits.journal.codec import IDENTITY_BYTES, Codec, refuse_other_key
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.lookup import sorted_out
from vfbandits.journal.record import encode
from vfbandits.journal.witness import Head, Loss, loss_after, lost

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class MemoryDisk:
    """The state that outlives a closed journal; it is full at ``capacity`` records."""

    capacity: int | None = None
    records: list[bytes | None] = field(default_factory=list, repr=False)
    snapshots: dict[int, bytes] = field(default_factory=dict, repr=False)
    names: dict[int, list[int]] = field(default_factory=dict, repr=False)
    damaged: list[tuple[int, bytes | None]] = field(default_factory=list, repr=False)
    compacted_to: int = 0
    is_taken: bool = False
    identity: bytes = field(default_factory=lambda: os.urandom(IDENTITY_BYTES), repr=False)
    key_check: bytes | None = field(default=None, repr=False)
    is_new: bool = True


class MemoryJournal:
    """A journal that lives as long as its disk.

    >>> from vfbandits.campaign.events import Forgotten
    >>> disk = MemoryDisk()
    >>> journal = MemoryJournal(disk)
    >>> journal.append([Forgotten("a"), Forgotten("b")])
    2
    >>> journal.close()
    >>> list(MemoryJournal(disk).read(after=1))
    [(2, Forgotten(event_id='b'))]
    """

    is_quick = False

    def __init__(
        self,
        disk: MemoryDisk | None = None,
        *,
        key: JournalKey | None = None,
        accept_loss: str | None = None,
    ) -> None:
        self._disk = disk = MemoryDisk() if disk is None else disk
        if disk.is_taken:
            raise JournalError(
                "the journal is open for writing somewhere else; a journal has one writer"
            )
        if disk.is_new:
            disk.key_check = None if key is None else key.check(disk.identity)
        refuse_other_key(key, identity=disk.identity, check=disk.key_check, log="in memory")
        loss = _find_loss(disk)
        if loss is not None and accept_loss is None:
            raise lost(loss, log="in memory", advice="Restore it")
        disk.is_taken, disk.is_new = True, False
        self._codec = Codec(disk.identity, key)
        self._is_open, self._has_failed = True, False
        self._guard = threading.Lock()
        self._damage = Damage(self._drop_damaged_end(), self._drop_lost_snapshots())
        if loss is not None and accept_loss is not None:
            accepted = LossAccepted(loss.expected, loss.found, loss.why, accept_loss, time.time())
            self.append([accepted])

    @property
    def last_position(self) -> int:
        """Position of the last record."""
        return len(self._disk.records)

    @property
    def compacted_to(self) -> int:
        """Position up to which only some records are kept."""
        return self._disk.compacted_to

    @property
    def damage(self) -> Damage:
        """Damage that was found since the journal was opened."""
        return self._damage

    def append(self, events: Sequence[Event]) -> int:
        """Add events to the journal, all or none."""
        self._refuse_unless_open()
        if self._has_failed:
            raise JournalError(
                "a write to the journal has failed before; close it and open it again"
            )
        records = [encode(event) for event in events]
        capacity = self._disk.capacity
        with self._guard:
            if capacity is not None and self.last_position + len(records) > capacity:
                self._has_failed = True
                raise JournalError(
                    f"the journal cannot be written: it is full at {capacity} records"
                )
            names = enumerate(self._codec.names.of_events(events), start=self.last_position + 1)
            self._disk.records.extend(self._codec.seal(records, after=self.last_position))
            for position, name in names:
                if name is not None:
                    self._disk.names.setdefault(name, []).append(position)
            return self.last_position

    def read(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """All events after ``after``."""
        self._refuse_unless_open()
        refuse_compacted(after, self.compacted_to)
        for position in range(after + 1, self.last_position + 1):
            yield position, self._codec.open(self._disk.records[position - 1], position)

    def remains(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Events that compaction has kept."""
        self._refuse_unless_open()
        kept = self._disk.records[after : self.compacted_to]
        for position, record in enumerate(kept, start=after + 1):
            if record is not None:
                yield position, self._codec.open(record, position)

    def find(self, event_id: EventId) -> Found:
        """All events of one decision."""
        return self.find_many([event_id])[event_id]

    def find_many(self, ids: Sequence[EventId]) -> dict[EventId, Found]:
        """All events of several decisions."""
        self._refuse_unless_open()
        names, records = {self._codec.names.of(key) for key in ids}, self._disk.records
        with self._guard:
            positions = sorted(p for name in names for p in self._disk.names.get(name, ()))
            found = [(position, records[position - 1]) for position in positions]
        opened = [(position, self._codec.open(record, position)) for position, record in found]
        return sorted_out(opened, ids)

    def save_snapshot(self, position: int, snapshot: Snapshot) -> None:
        """Keep a snapshot, the one before it, and the first."""
        self._refuse_unless_open()
        refuse_future(position, self.last_position)
        data = self._codec.seal_snapshot(position, snapshot)
        with self._guard:
            self._disk.snapshots[position] = data
            for old in superfluous(self._disk.snapshots):
                del self._disk.snapshots[old]

    def snapshot_positions(self) -> list[int]:
        """Positions of all snapshots, newest first."""
        self._refuse_unless_open()
        with self._guard:
            return sorted(self._disk.snapshots, reverse=True)

    def load_snapshot(self, position: int) -> Snapshot:
        """The snapshot of a position."""
        self._refuse_unless_open()
        data = self._disk.snapshots.get(position)
        if data is None:
            raise SnapshotError(f"the snapshot of position {position} is gone")
        return self._codec.open_snapshot(data, position)

    def latest_snapshot(self) -> tuple[int, Snapshot] | None:
        """The newest undamaged snapshot."""
        found, passed_over = newest_whole(self.snapshot_positions(), self.load_snapshot)
        self._damage = Damage(self._damage.records, self._damage.snapshots + passed_over)
        return found

    def set_aside(self, records: Mapping[int, SetAside]) -> None:
        """Replace damaged records; the disk keeps their bytes."""
        self._refuse_unless_open()
        refuse_unknown(records, self.last_position)
        with self._guard:
            for position, event in sorted(records.items()):
                (sealed,) = self._codec.seal([encode(event)], after=position - 1)
                self._disk.damaged.append((position, self._disk.records[position - 1]))
                self._disk.records[position - 1] = sealed

    def erase(self, records: Mapping[int, Erased | SetAside]) -> None:
        """Replace records, and delete those that were kept as damaged."""
        self._refuse_unless_open()
        refuse_unknown(records, self.last_position)
        with self._guard:
            for position, event in sorted(records.items()):
                (sealed,) = self._codec.seal([encode(event)], after=position - 1)
                self._disk.records[position - 1] = sealed
            self._disk.damaged.clear()

    def compact(self, position: int, *, keep: Collection[int]) -> int:
        """Drop records up to ``position`` except those at ``keep``."""
        self._refuse_unless_open()
        with self._guard:
            disk = self._disk
            refuse_bare_compaction(position, disk.snapshots, disk.compacted_to)
            before = disk.records[:position]
            kept = [record if n in keep else None for n, record in enumerate(before, start=1)]
            disk.records[:position] = kept
            disk.compacted_to = position
            for old in [older for older in disk.snapshots if older < position]:
                del disk.snapshots[old]
            self._drop_lost_names()
            return kept.count(None) - before.count(None)

    def retire(self, positions: Sequence[int], *, covered_by: int) -> None:
        """Drop these records, and snapshots before ``covered_by``."""
        self._refuse_unless_open()
        with self._guard:
            disk = self._disk
            refuse_uncovered(positions, covered_by, disk.snapshots, disk.compacted_to)
            for position in positions:
                disk.records[position - 1] = None
            disk.compacted_to = covered_by
            for old in [older for older in disk.snapshots if older < covered_by]:
                del disk.snapshots[old]
            self._drop_lost_names()

    def close(self) -> None:
        """Release the journal for the next writer."""
        if self._is_open:
            self._is_open = self._disk.is_taken = False

    def _drop_damaged_end(self) -> int:
        records = self._disk.records
        positions = range(len(records), self.compacted_to, -1)
        torn = damaged_end((position, records[position - 1]) for position in positions)
        del records[len(records) - len(torn) :]
        if torn:
            self._drop_lost_names()
            _log.warning("%d records lost at the end, journal ends at %d", len(torn), len(records))
        return len(torn)

    def _drop_lost_names(self) -> None:
        records = self._disk.records
        there = {position for position, record in enumerate(records, start=1) if record is not None}
        self._disk.names = {
            name: kept
            for name, positions in self._disk.names.items()
            if (kept := [position for position in positions if position in there])
        }

    def _drop_lost_snapshots(self) -> int:
        lost = [position for position in self._disk.snapshots if position > self.last_position]
        for position in lost:
            del self._disk.snapshots[position]
        return len(lost)

    def _refuse_unless_open(self) -> None:
        if not self._is_open:
            raise JournalError("the journal is closed")


def _find_loss(disk: MemoryDisk) -> Loss | None:
    records, last = disk.records, len(disk.records)
    positions = range(last, disk.compacted_to, -1)
    torn = damaged_end((position, records[position - 1]) for position in positions)
    head, end = Head(last), last - len(torn)
    return loss_after(head, last=end, compacted_to=last, record_at=lambda position: None)
