"""The Journal protocol: a log of events that outlives the process, and snapshots of the model.

What every journal promises, and ``tests/contracts/test_journal.py`` checks:

* What ``append`` has returned for is durable, all of it, in that order, at positions 1, 2, 3 …
  without gaps.  When it raises, nothing was acknowledged: after the log is opened again none of
  the events is there, or all of them (a disk can fail after it has written), never a part.  A
  journal whose write has failed takes no more until it is opened again.
* Damage is never silent.  Damaged or vanished records at the *end* of the log are a
  ``JournalLossError`` when it is opened, and nothing is changed.  With ``accept_loss`` they are
  dropped, logged, counted in ``damage``, and a ``LossAccepted`` is the next record.  Damage before
  the end is a ``RecordError`` that names the position, when that record is read.
* One writer at a time: a second one is refused when it opens the log.  Readers come and go.
* A log that was made with a key is encrypted, all of it, and opens with that key only.

* ``find`` sees what is durable, and appends do not wait for it.

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
    """What was lost, as far as can be told: zeros unless a disk or a person did harm.

    ``records`` were at the end of the log and are gone.  ``snapshots`` were not whole, or of a
    position that the log has lost; the model is then built from an older one and more events.
    """

    records: int = 0
    snapshots: int = 0


class JournalReader(Protocol):
    """A log of events with snapshots, for reading: a writer may be at work meanwhile."""

    @property
    def last_position(self) -> int:
        """Position of the last durable event; 0 in an empty log."""
        ...

    @property
    def compacted_to(self) -> int:
        """Position up to which only what ``remains`` gives is kept; 0 if all is."""
        ...

    @property
    def damage(self) -> Damage:
        """What was found damaged since the log was opened."""
        ...

    def read(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Events behind ``after``, in order, each with its position.

        To begin before ``compacted_to`` is refused: a snapshot must stand for what is gone.
        """
        ...

    def remains(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Events behind ``after`` and up to ``compacted_to``, as far as they were kept."""
        ...

    def find(self, event_id: EventId) -> Found:
        """All events of one decision, in order, each with its position.

        None if there never were any, or compaction has dropped them.
        """
        ...

    def find_many(self, ids: Sequence[EventId]) -> dict[EventId, Found]:
        """The same for several decisions, at once; every id is in the answer."""
        ...

    def snapshot_positions(self) -> list[int]:
        """Positions of all snapshots, newest first."""
        ...

    def load_snapshot(self, position: int) -> Snapshot:
        """The snapshot of ``position``; a ``SnapshotError`` if it is gone or not whole."""
        ...

    def latest_snapshot(self) -> tuple[int, Snapshot] | None:
        """The newest whole snapshot and its position."""
        ...

    def close(self) -> None:
        """Give back what is held; safe to call twice."""
        ...


class Journal(JournalReader, Protocol):
    """A log of events with snapshots, for its one writer."""

    @property
    def is_quick(self) -> bool:
        """Whether ``append`` waits for no disk or network, so that an event loop may call it."""
        ...

    def append(self, events: Sequence[Event]) -> int:
        """Make events durable, all or none; returns the last position."""
        ...

    def save_snapshot(self, position: int, snapshot: Snapshot) -> None:
        """Keep the model as it is after the event at ``position``.

        The newest two stay, and the first, of position 0.  A failure leaves the log as it was,
        and usable.
        """
        ...

    def set_aside(self, records: Mapping[int, SetAside]) -> None:
        """Put these in the place of damaged or missing records, which are kept; all or none."""
        ...

    def erase(self, records: Mapping[int, Erased | SetAside]) -> None:
        """Put these in the place of records, of which no byte stays; all or none.

        Records and snapshots that were kept as damaged go too: nobody can tell whose they are.
        Where nothing is to be replaced, what an erasure before has left undone is finished.
        """
        ...

    def compact(self, position: int, *, keep: Collection[int]) -> int:
        """Drop events up to ``position``, which has a snapshot, but those at ``keep``.

        Older snapshots go too.  All or nothing; returns how many events were dropped.
        """
        ...

    def retire(self, positions: Sequence[int], *, covered_by: int) -> None:
        """Drop these events, few enough for one transaction, while the log is in use.

        The snapshot of ``covered_by`` stands for them, and the log is compacted up to there: all
        other events stay, and older snapshots go.
        """
        ...


def refuse_uncovered(
    positions: Collection[int], covered_by: int, snapshots: Collection[int], compacted_to: int
) -> None:
    """Events go while a log is in use if a snapshot stands for them."""
    newest = max(positions, default=0)
    if covered_by not in snapshots or covered_by < max(newest, compacted_to):
        raise JournalError(
            f"events up to {newest} go if a snapshot stands for them, of {compacted_to} or later, "
            f"got {covered_by}"
        )


def refuse_unknown(positions: Collection[int], last: int) -> None:
    """Records are set aside or erased where the log has had some."""
    wrong = [position for position in positions if not 0 < position <= last]
    if wrong:
        raise JournalError(f"records to replace are from 1 to {last}, got {wrong[0]}")


def damaged_end(newest_first: Iterable[tuple[int, object]]) -> list[int]:
    """Positions of the records behind the last whole one, newest first.

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
    """Those of the snapshots that need not be kept: all but the newest two and the first.

    >>> superfluous([0, 5, 9, 12])
    [5]
    """
    newest_first = sorted(positions, reverse=True)
    return [position for position in newest_first[SNAPSHOTS_KEPT:] if position > 0]


def newest_whole(
    positions: Iterable[int], load: Callable[[int], Snapshot]
) -> tuple[tuple[int, Snapshot] | None, int]:
    """The first snapshot that is whole, and how many before it were not."""
    passed_over = 0
    for position in positions:
        try:
            return (position, load(position)), passed_over
        except SnapshotError as error:
            passed_over += 1
            _log.warning("snapshot of position %d passed over: %s", position, error)
    return None, passed_over


def refuse_future(position: int, last: int) -> None:
    """A snapshot is of a position that the log has reached."""
    if not 0 <= position <= last:
        raise JournalError(f"a snapshot needs a position from 0 to {last}, got {position}")


def refuse_compacted(after: int, compacted_to: int) -> None:
    """To read behind ``after``, everything there must be."""
    if after < compacted_to:
        raise JournalError(
            f"the journal was compacted up to {compacted_to}: wanted a whole snapshot of that "
            f"position or a later one to begin with, got {after}"
        )


def refuse_bare_compaction(position: int, snapshots: Collection[int], compacted_to: int) -> None:
    """A log is compacted up to a snapshot that can stand for what goes."""
    if position not in snapshots or position <= compacted_to:
        raise JournalError(
            f"a journal is compacted up to a snapshot behind {compacted_to}, got {position}"
        )
