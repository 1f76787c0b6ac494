"""The Journal protocol: durable records of events, and snapshots of the model.

Every journal guarantees the following, which ``tests/contracts/test_journal.py`` checks:

* When ``append`` returns, all its events are durable, in that order, at positions 1, 2, 3 …
  without gaps.  When it raises, nothing was acknowledged: after the journal is opened again, it
  has all of the events or none (a disk can fail after it has written), never a part.  After a
  failed write a journal refuses further writes until it is opened again.
* Damage is never silent.  Damaged or missing records at the *end* raise a ``JournalLossError``
  when the journal is opened, and nothing is changed.  With ``accept_loss`` they are dropped,
  logged, counted in ``damage``, and a ``LossAccepted`` is the next record.  Damage before the end
  raises a ``RecordError`` that names the position, when that record is read.
* A journal has one writer at a time: a second one is refused when it opens the journal.  The
  number of readers is not limited.
* A journal that was created with a key is encrypted completely, and opens with that key only.
* ``find`` sees all durable records, and appends do not wait for it.

A journal may be used from several threads.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from vfbandits.campaign.events import Erased, Event, Found, SetAside
from vfbandits.core.decision import EventId
from vfbandits.core.snapshot import Snapshot
from vfbandits.errors import JournalError, SnapshotError
from vfbandits.journal.record import is_whole

SNAPSHOTS_KEPT = 2
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Damage:
    """Known losses of a journal: zeros unless a disk failed or its files were changed.

    ``records`` were lost from the end.  ``snapshots`` were damaged, or of a position that the
    journal has lost; the model is then built from an older snapshot and more records.
    """

    records: int = 0
    snapshots: int = 0


class JournalReader(Protocol):
    """A journal for reading, while its writer may be running."""

    @property
    def last_position(self) -> int:
        """Position of the last durable record; 0 in an empty journal."""
        ...

    @property
    def compacted_to(self) -> int:
        """Position up to which only the records of ``remains`` are kept; 0 if all are."""
        ...

    @property
    def damage(self) -> Damage:
        """Damage that was found since the journal was opened."""
        ...

    def read(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """All events after position ``after``, in order, each with its position.

        An ``after`` before ``compacted_to`` is refused: start from a snapshot there.
        """
        ...

    def remains(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Events after ``after`` and up to ``compacted_to`` that compaction has kept."""
        ...

    def find(self, event_id: EventId) -> Found:
        """All events of one decision, in order, each with its position.

        Empty if there never were any, or compaction has dropped them.
        """
        ...

    def find_many(self, ids: Sequence[EventId]) -> dict[EventId, Found]:
        """The same for several decisions in one batch; the answer has every id."""
        ...

    def snapshot_positions(self) -> list[int]:
        """Positions of all snapshots, newest first."""
        ...

    def load_snapshot(self, position: int) -> Snapshot:
        """The snapshot of ``position``; a ``SnapshotError`` if it is missing or damaged."""
        ...

    def latest_snapshot(self) -> tuple[int, Snapshot] | None:
        """The newest undamaged snapshot and its position; None if there is none."""
        ...

    def close(self) -> None:
        """Release all resources; safe to call twice."""
        ...


class Journal(JournalReader, Protocol):
    """A journal for its one writer."""

    @property
    def is_quick(self) -> bool:
        """Whether ``append`` waits for no disk or network, so that an event loop may call it."""
        ...

    def append(self, events: Sequence[Event]) -> int:
        """Make events durable, all or none; returns the last position."""
        ...

    def save_snapshot(self, position: int, snapshot: Snapshot) -> None:
        """Keep the model in its state after the record at ``position``.

        The newest two snapshots are kept, and the first, of position 0.  After a failure the
        journal is unchanged and usable.
        """
        ...

    def set_aside(self, records: Mapping[int, SetAside]) -> None:
        """Replace damaged or missing records, and keep the damaged ones aside; all or none."""
        ...

    def erase(self, records: Mapping[int, Erased | SetAside]) -> None:
        """Replace records, of which no byte is kept; all or none.

        Records and snapshots that were kept as damaged are deleted too, since they may belong to
        any user.  A call without records completes an earlier erasure that was interrupted.
        """
        ...

    def compact(self, position: int, *, keep: Collection[int]) -> int:
        """Drop records up to ``position``, which has a snapshot, except those at ``keep``.

        Older snapshots are deleted too.  All or nothing; returns the number of dropped records.
        """
        ...

    def retire(self, positions: Sequence[int], *, covered_by: int) -> None:
        """Drop these records, few enough for one transaction, while the journal is in use.

        The snapshot of ``covered_by`` covers them, and the journal is then compacted up to there:
        all other records stay, and older snapshots are deleted.
        """
        ...


def refuse_uncovered(
    positions: Collection[int], covered_by: int, snapshots: Collection[int], compacted_to: int
) -> None:
    """Refuse to drop records that no snapshot covers."""
    newest = max(positions, default=0)
    if covered_by not in snapshots or covered_by < max(newest, compacted_to):
        raise JournalError(
            f"records up to {newest} may be dropped if a snapshot of position "
            f"{max(newest, compacted_to)} or later covers them, got position {covered_by}"
        )


def refuse_unknown(positions: Collection[int], last: int) -> None:
    """Refuse to replace records at positions that the journal has not reached."""
    wrong = [position for position in positions if not 0 < position <= last]
    if wrong:
        raise JournalError(f"records to replace are from 1 to {last}, got {wrong[0]}")


def damaged_end(newest_first: Iterable[tuple[int, object]]) -> list[int]:
    """Positions of the records after the last undamaged one, newest first.

    >>> damaged_end([(3, b"torn"), (2, b"")])
    [3, 2]
    """
    damaged = []
    for position, record in newest_first:
        if is_whole(record):
            break
        damaged.append(position)
    return damaged


def superfluous(positions: Iterable[int]) -> list[int]:
    """Positions of snapshots that need not be kept: all but the newest two and the first.

    >>> superfluous([0, 5, 9, 12])
    [5]
    """
    newest_first = sorted(positions, reverse=True)
    return [position for position in newest_first[SNAPSHOTS_KEPT:] if position > 0]


def newest_whole(
    positions: Iterable[int], load: Callable[[int], Snapshot]
) -> tuple[tuple[int, Snapshot] | None, int]:
    """The first undamaged snapshot of ``positions``, and the number of damaged ones before it."""
    passed_over = 0
    for position in positions:
        try:
            return (position, load(position)), passed_over
        except SnapshotError as error:
            passed_over += 1
            _log.warning("damaged snapshot of position %d skipped: %s", position, error)
    return None, passed_over


def refuse_future(position: int, last: int) -> None:
    """Refuse a snapshot of a position that the journal has not reached."""
    if not 0 <= position <= last:
        raise JournalError(f"a snapshot needs a position from 0 to {last}, got {position}")


def refuse_compacted(after: int, compacted_to: int) -> None:
    """Refuse to read from a position after which records were dropped."""
    if after < compacted_to:
        raise JournalError(
            f"the journal was compacted up to {compacted_to}: wanted an undamaged snapshot of "
            f"that position or a later one to start from, got position {after}"
        )


def refuse_bare_compaction(position: int, snapshots: Collection[int], compacted_to: int) -> None:
    """Refuse a compaction that no later snapshot covers."""
    if position not in snapshots or position <= compacted_to:
        raise JournalError(
            f"a journal is compacted up to a snapshot after position {compacted_to}, got {position}"
        )
