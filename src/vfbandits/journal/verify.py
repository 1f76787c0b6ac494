"""Verify that a journal is undamaged, and that its snapshots equal the fold of its records.

Every record is read and applied again.  At each snapshot the model must equal it to the last bit,
except for what a restart may change: the policy, the floor, and the policy's random state, which is
not learnt.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from vfbandits.campaign.events import Erased, Event, Forgotten, MasksChanged, Resized, SetAside
from vfbandits.campaign.model import MakeMove, Model, remask
from vfbandits.core.snapshot import Snapshot
from vfbandits.errors import JournalError, VFBanditsError
from vfbandits.journal.base import JournalReader
from vfbandits.journal.recover import is_older, restore_from
from vfbandits.journal.snapshot import json_in_pieces

MAX_PROBLEMS = 20
_MAY_CHANGE = ("policy", "rng")


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of a verification.

    Attributes
    ----------
    last, compacted_to
        Positions: of the last record, and up to which only some were kept.
    counts
        Records that were read, by kind.
    first_at, last_at
        Times of the first and the last record that has one, in seconds since 1970.
    folded_from
        Position of the snapshot from which records were applied; None if there was none.
    snapshots
        Positions whose snapshot equals the fold, or began it.
    n_open
        Pending decisions at the end; None if the fold did not reach it.
    problems
        One sentence each, at most ``MAX_PROBLEMS``.
    """

    last: int
    compacted_to: int
    counts: dict[str, int]
    first_at: float | None
    last_at: float | None
    folded_from: int | None
    snapshots: tuple[int, ...]
    n_open: int | None
    problems: tuple[str, ...]


def verify(
    reader: JournalReader,
    *,
    make_move: MakeMove = remask,
    on_step: Callable[[int], None] = lambda done: None,
) -> Verification:
    """Verify a journal up to its present end; its writer may go on meanwhile.

    >>> from vfbandits.campaign.events import Forgotten
    >>> from vfbandits.journal.memory import MemoryJournal
    >>> journal = MemoryJournal()
    >>> journal.append([Forgotten("a")])
    1
    >>> verify(journal).counts
    {'Forgotten': 1}
    """
    return _Check(reader, make_move).run(on_step)


@dataclass(slots=True)
class _Check:
    """One pass over a journal; ``model`` is None until a snapshot is found to fold from."""

    reader: JournalReader
    make_move: MakeMove
    model: Model | None = None
    folded_from: int | None = None
    counts: Counter[str] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)
    agreeing: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def run(self, on_step: Callable[[int], None]) -> Verification:
        last, compacted_to = self.reader.last_position, self.reader.compacted_to
        snapshots = set(self.reader.snapshot_positions())
        if missing := self.reader.damage.records:
            self.problems.append(
                f"the journal was acknowledged up to {last + missing}, got an end at {last}"
            )
        for _, event in _walk(self.reader.remains, 0, compacted_to, self.problems):
            self._count(event)
        self._compare(compacted_to, snapshots)
        for position, event in _walk(self.reader.read, compacted_to, last, self.problems):
            self._count(event)
            self._apply(position, event)
            self._compare(position, snapshots)
            on_step(position)
        at_end = self.model is not None and self.model.position == last
        n_open = self.model.n_pending if self.model and at_end else None
        if len(self.problems) >= MAX_PROBLEMS:
            self.problems[MAX_PROBLEMS - 1 :] = ["and more: reading was given up"]
        return Verification(
            last=last,
            compacted_to=compacted_to,
            counts=dict(self.counts),
            first_at=self.times[0] if self.times else None,
            last_at=self.times[-1] if self.times else None,
            folded_from=self.folded_from,
            snapshots=tuple(self.agreeing),
            n_open=n_open,
            problems=tuple(self.problems),
        )

    def _count(self, event: Event | None) -> None:
        if event is None:
            return
        self.counts[type(event).__name__] += 1
        at = time_of(event)
        if at is not None:
            self.times[1:] = [at]

    def _apply(self, position: int, event: Event | None) -> None:
        if self.model is None:
            return
        is_covered = isinstance(event, SetAside | Erased) and event.covered_by is not None
        if event is None or is_covered:
            self.model = None  # until the next snapshot
            return
        try:
            self.model.apply(position, event)
        except JournalError as error:
            self.problems.append(str(error))
            self.model = None

    def _compare(self, position: int, snapshots: set[int]) -> None:
        if position not in snapshots:
            return
        try:
            stored = self.reader.load_snapshot(position)
            restored = restore_from(self.reader, position, stored, make_move=self.make_move)
        except VFBanditsError as error:
            if position in self.reader.snapshot_positions():  # else its writer deleted it
                self.problems.append(f"snapshot of position {position}: {error}")
            return
        if self.model is None:
            self.model = restored
            self.folded_from = position if self.folded_from is None else self.folded_from
        elif (
            part := difference(self.model.snapshot(), _of_this_version(stored, restored))
        ) is not None:
            self.problems.append(
                f"snapshot of position {position} must equal the events up to it, "
                f"got a different {part}"
            )
            return
        self.agreeing.append(position)


def time_of(event: Event) -> float | None:
    """When an event happened, in seconds since 1970; None if it does not say."""
    return None if isinstance(event, MasksChanged | Forgotten | Resized | Erased) else event.at


def difference(one: Snapshot, other: Snapshot) -> str | None:
    """The first part in which two snapshots of a model differ; None if all that was learnt agrees.

    Exact: numbers must be the same bits.
    """
    mine, theirs = _learnt(one), _learnt(other)
    for name in sorted(mine.keys() | theirs.keys()):
        if mine.get(name) != theirs.get(name):
            return name
    return None


def _of_this_version(stored: Snapshot, restored: Model) -> Snapshot:
    """A snapshot with the counts that this version writes."""
    return restored.snapshot() if is_older(stored) else stored


def _learnt(snapshot: Snapshot) -> dict[str, object]:
    header = json.loads("".join(json_in_pieces(dict(snapshot.header))))
    parts = {name: value for name, value in header.items() if name not in _MAY_CHANGE}
    if isinstance(parts.get("options"), dict):
        parts["options"] = {**parts["options"], "floor": None}
    arrays = {
        f"array {name}": (array.shape, array.tobytes()) for name, array in snapshot.arrays.items()
    }
    return {**parts, **arrays}


def _walk(
    read: Callable[[int], Iterator[tuple[int, Event]]], after: int, last: int, problems: list[str]
) -> Iterator[tuple[int, Event | None]]:
    """Events after ``after`` and up to ``last``; None where a record is damaged or missing."""
    while after < last and len(problems) < MAX_PROBLEMS:
        try:
            for position, event in read(after):
                if position > last:
                    return
                after = position
                yield position, event
        except JournalError as error:
            problems.append(str(error))
            after += 1
            yield after, None
        else:
            return
