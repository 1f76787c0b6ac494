"""A journal as a table that ``vfb evaluate`` reads: one row for each decision with its reward.

=============  =======================================================================
position       of the decision in the journal
event_id       and ``user``, ``arm``: text; ``index`` is the arm's place among those offered
reward         that was learnt; ``probability`` with which the arm was shown, if logged
at             seconds since 1970, and ``rewarded_at``
epoch          of the masks; ``contributors`` whose features counted
group          "policy", or the reason for which another arm was shown than the policy's
due            until when a reward was waited for, in seconds since 1970
held           true while the decision waits to be activated: its arm is not shown yet
reward_id      the application's id of the reward; null without one
reports        rewards that came and were not learnt, each with ``reward_id``, ``value``,
               ``why`` and ``at``
offered        ids of the arms on offer
x_0, x_1 …     the masked context of the user (layouts "disjoint" and "outer")
=============  =======================================================================

What is known of the arms is a list of numbers, arm by arm in the order of ``offered``:
``offered_features`` (layout "outer"), or ``offered_contexts``, masked (layout "per_arm").  They are
null where the journal has the chosen arm's context only (``log_contexts``): that is not enough to
judge another policy.  Contexts of the chosen arms are columns ``chosen_0, chosen_1 …``, for other
uses.

Contexts are mapped to the masks in force at the end, so that all rows are comparable, whatever
``epoch`` they were decided in.  None has the intercept.
"""

from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vfbandits.campaign.answer import decode_answer
from vfbandits.campaign.carry import moved_offer
from vfbandits.campaign.events import (
    Activated,
    Decided,
    Event,
    MasksChanged,
    Reported,
    Retracted,
    Rewarded,
)
from vfbandits.campaign.model import remask
from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.bandit import Bandit
from vfbandits.core.decision import EventId
from vfbandits.core.layout import build_learner
from vfbandits.core.move import Move, Remask
from vfbandits.errors import JournalError
from vfbandits.evaluate.offers import OFFERED, OFFERED_CONTEXTS, OFFERED_FEATURES
from vfbandits.evaluate.parquet import write_frames
from vfbandits.journal.base import JournalReader

if TYPE_CHECKING:
    import polars as pl

ROWS_PER_BATCH = 20_000
ENTRIES_PER_BATCH = 20_000_000


@dataclass(frozen=True, slots=True)
class Export:
    """Counts of rows that were written, and of decisions without a reward or with a retracted one.

    ``evaluable`` rows have all that ``vfb evaluate`` needs; ``layout`` is None where contexts were
    not asked for, or their layout is unknown.
    """

    rows: int
    without_reward: int
    without_probability: int
    evaluable: int
    layout: str | None
    retracted: int = 0


@dataclass(slots=True)
class _Index:
    """What a first pass over the journal finds, by the decision's position, and the moves."""

    last: int
    rewards: dict[int, Rewarded] = field(default_factory=dict)
    activations: dict[int, Activated] = field(default_factory=dict)
    reports: dict[int, list[Reported]] = field(default_factory=dict)
    moves: list[tuple[int, Matrix]] = field(default_factory=list)
    retracted: set[int] = field(default_factory=set)
    n_decisions: int = 0
    has_offers: bool = False


def export_log(
    reader: JournalReader,
    out: Path,
    *,
    contexts: bool | None = None,
    unrewarded: float | None = None,
) -> Export:
    """Write a Parquet file, whole or not at all, for its owner only.

    Contexts are written or not; None writes those that ``vfb evaluate`` can use, and True the
    chosen arms' as well.  Decisions without a reward are left out, or get ``unrewarded``.
    """
    index = _index(reader)
    frames = _Frames(reader, index, contexts=contexts, unrewarded=unrewarded)
    _write(frames, out)
    return Export(
        rows=frames.n_rows,
        without_reward=index.n_decisions - len(index.rewards) - len(index.retracted),
        retracted=len(index.retracted),
        without_probability=frames.n_without_probability,
        evaluable=frames.n_evaluable,
        layout=frames.layout,
    )


def _index(reader: JournalReader) -> _Index:
    index = _Index(reader.last_position)
    decided: dict[EventId, int] = {}  # a name may be used again: the latest of it
    for position, event in _events(reader, index.last):
        match event:
            case Decided():
                decided[event.event_id] = position
                index.n_decisions += 1
                index.has_offers |= event.offered is not None
            case Rewarded() if event.event_id in decided:
                index.rewards[decided[event.event_id]] = event
            case Retracted() if event.event_id in decided:
                index.rewards.pop(decided[event.event_id], None)
                index.retracted.add(decided[event.event_id])
            case Activated() if event.event_id in decided:
                index.activations[decided[event.event_id]] = event
            case Reported() if event.event_id in decided:
                index.reports.setdefault(decided[event.event_id], []).append(event)
            case MasksChanged():
                index.moves.append((position, event.matrix))
    return index


def _events(reader: JournalReader, last: int) -> Iterator[tuple[int, Event]]:
    for position, event in chain(reader.remains(), reader.read(reader.compacted_to)):
        if position > last:
            return
        yield position, event


class _Frames:
    """The rows of the table, in batches."""

    def __init__(
        self,
        reader: JournalReader,
        index: _Index,
        *,
        contexts: bool | None,
        unrewarded: float | None,
    ) -> None:
        self.n_rows = self.n_without_probability = self.n_evaluable = 0
        self._reader, self._index, self._unrewarded = reader, index, unrewarded
        self._contexts: _Contexts | None = None
        if contexts or (contexts is None and reader.latest_snapshot() is not None):
            self._contexts = _Contexts.of(reader, index, with_chosen=bool(contexts))

    @property
    def layout(self) -> str | None:
        """Of the contexts that are written."""
        return None if self._contexts is None else self._contexts.layout

    def __iter__(self) -> "Iterator[pl.DataFrame]":
        """Data frames, at least one: it may be empty."""
        for some in _batches(self._wanted()):
            self.n_rows += len(some)
            self.n_without_probability += sum(event.probability is None for _, event in some)
            if self._contexts is not None:
                self.n_evaluable += self._contexts.count_evaluable(some)
            yield self._frame(some)

    def _wanted(self) -> Iterator[tuple[int, Decided]]:
        for position, event in _events(self._reader, self._index.last):
            if not isinstance(event, Decided) or position in self._index.retracted:
                continue
            if self._unrewarded is not None or position in self._index.rewards:
                yield position, event

    def _frame(self, rows: list[tuple[int, Decided]]) -> "pl.DataFrame":
        import polars as pl  # noqa: PLC0415  (an extra)

        rewards = [self._index.rewards.get(position) for position, _ in rows]
        values = [self._unrewarded if r is None else r.value for r in rewards]
        events = [event for _, event in rows]
        columns = {
            "position": pl.Series([position for position, _ in rows], dtype=pl.Int64),
            "event_id": pl.Series([_text(e.event_id) for e in events], dtype=pl.String),
            "user": pl.Series(
                [None if e.user is None else _text(e.user) for e in events], dtype=pl.String
            ),
            "arm": pl.Series([_text(e.arm) for e in events], dtype=pl.String),
            "index": pl.Series([e.index for e in events], dtype=pl.Int64),
            "reward": pl.Series(values, dtype=pl.Float64),
            "probability": pl.Series([e.probability for e in events], dtype=pl.Float64),
            "at": pl.Series([e.at for e in events], dtype=pl.Float64),
            "rewarded_at": pl.Series([r and r.at for r in rewards], dtype=pl.Float64),
            "epoch": pl.Series([e.epoch for e in events], dtype=pl.Int64),
            "contributors": pl.Series(
                [[_text(name) for name in e.contributors] for e in events],
                dtype=pl.List(pl.String),
            ),
            "group": pl.Series([_text(e.group) for e in events], dtype=pl.String),
            "reward_id": pl.Series([_source(r) for r in rewards], dtype=pl.String),
            **self._wait_columns(rows),
        }
        if self._contexts is not None:
            columns |= self._contexts.columns(rows)
        return pl.DataFrame(columns)

    def _wait_columns(self, rows: list[tuple[int, Decided]]) -> "dict[str, pl.Series]":
        """The columns about the wait for a reward."""
        import polars as pl  # noqa: PLC0415

        shown = [self._index.activations.get(position) for position, _ in rows]
        pairs = list(zip(shown, (event for _, event in rows), strict=True))
        report = {"reward_id": pl.String, "value": pl.Float64, "why": pl.String, "at": pl.Float64}
        reports = [
            [
                {"reward_id": _text(r.reward_id), "value": r.value, "why": _text(r.why), "at": r.at}
                for r in self._index.reports.get(position, ())
            ]
            for position, _ in rows
        ]
        return {
            "due": pl.Series([e.due if a is None else a.due for a, e in pairs], dtype=pl.Float64),
            "held": pl.Series([e.held and a is None for a, e in pairs], dtype=pl.Boolean),
            "reports": pl.Series(reports, dtype=pl.List(pl.Struct(report))),
        }


def _batches(rows: Iterator[tuple[int, Decided]]) -> Iterator[list[tuple[int, Decided]]]:
    """At least one batch, which may be empty; their size is bounded."""
    some: list[tuple[int, Decided]] = []
    n_entries = 0
    is_first = True
    for row in rows:
        some.append(row)
        n_entries += 0 if row[1].offered is None else row[1].offered.rows.size
        if len(some) == ROWS_PER_BATCH or n_entries >= ENTRIES_PER_BATCH:
            yield some
            some, n_entries, is_first = [], 0, False
    if some or is_first:
        yield some


@dataclass(frozen=True, slots=True)
class _Contexts:
    """How contexts become columns.

    ``moves`` map contexts to the last masks, and ``lifted`` the vectors that decisions learn from.
    """

    layout: str
    dim: int
    skipped: int
    with_chosen: bool
    with_offers: bool
    positions: list[int]
    moves: list[Remask]
    lifted: list[Move]

    @classmethod
    def of(cls, reader: JournalReader, index: _Index, *, with_chosen: bool) -> "_Contexts":
        """From any snapshot: the layout never changes."""
        latest = reader.latest_snapshot()
        if latest is None:
            raise JournalError("contexts need a snapshot, which has their layout, got none")
        bandit = Bandit.restore(latest[1])
        layout = bandit.layout
        lift = build_learner(layout, bandit.settings).lift
        moves = [remask(matrix) for _, matrix in index.moves]
        is_disjoint = layout.layout == "disjoint"
        return cls(
            layout=layout.layout,
            dim=len(moves[-1].R) if moves else bandit.dim,
            skipped=int(layout.intercept and is_disjoint),
            with_chosen=with_chosen and not is_disjoint,
            with_offers=index.has_offers,
            positions=[position for position, _ in index.moves],
            moves=moves,
            lifted=[lift(move) for move in moves],
        )

    def count_evaluable(self, rows: list[tuple[int, Decided]]) -> int:
        """How many decisions have the contexts of all arms."""
        if self.layout == "disjoint":
            return len(rows)
        return sum(event.offered is not None for _, event in rows)

    def columns(self, rows: list[tuple[int, Decided]]) -> "dict[str, pl.Series]":
        """The columns of contexts."""
        import polars as pl  # noqa: PLC0415

        arms = [_arms_of(event) for _, event in rows]
        made = {OFFERED: pl.Series(arms, dtype=pl.List(pl.String))}
        if self.layout == "disjoint":
            made |= _numbered("x_", self._chosen(rows), self.dim)
        elif self.with_offers and self.layout == "outer":
            users = [None if block is None else block[0] for block in self._offered(rows)]
            made |= _numbered("x_", users, self.dim)
            made[OFFERED_FEATURES] = _lists(
                None if e.offered is None else e.offered.arm_features for _, e in rows
            )
        elif self.with_offers:
            made[OFFERED_CONTEXTS] = _lists(self._offered(rows))
        if self.with_chosen:
            chosen = self._chosen(rows)
            made |= _numbered("chosen_", chosen, len(chosen[0]) if chosen else 0)
        return made

    def _chosen(self, rows: list[tuple[int, Decided]]) -> list[Vector]:
        """The vector that each decision learns from."""
        blocks: list[Vector] = []
        for n_before, some in groupby(rows, key=lambda row: bisect(self.positions, row[0])):
            contexts = np.array([event.x for _, event in some])
            for move in self.lifted[n_before:]:
                contexts = move.vector(contexts.T).T  # R x for all rows
            blocks.extend(contexts[:, self.skipped :])
        return blocks

    def _offered(self, rows: list[tuple[int, Decided]]) -> list[Matrix | None]:
        """Contexts of all arms; None where they were not kept."""
        blocks: list[Matrix | None] = []
        for position, event in rows:
            offered = event.offered
            for move in self.moves[bisect(self.positions, position) :]:
                offered = None if offered is None else moved_offer(offered, move)
            blocks.append(None if offered is None else offered.rows)
        return blocks


def _arms_of(event: Decided) -> list[str] | None:
    """Ids of the arms on offer, in their order where it is known; None without an answer."""
    if event.offered is not None:
        return [_text(arm) for arm in event.offered.arms]
    if not event.answer:
        return None
    return [_text(arm.id) for arm in decode_answer(event.answer).ranking]


def _numbered(prefix: str, rows: Sequence[Vector | None], width: int) -> "dict[str, pl.Series]":
    """A column for each number of equally long rows; null for a row that is None."""
    import polars as pl  # noqa: PLC0415

    table = np.full((len(rows), width), np.nan)
    for place, row in enumerate(rows):
        if row is not None:
            table[place] = row
    return {
        f"{prefix}{place}": pl.Series(np.ascontiguousarray(column)).fill_nan(None)
        for place, column in enumerate(table.T)
    }


def _lists(blocks: Iterable[Matrix | None]) -> "pl.Series":
    import polars as pl  # noqa: PLC0415

    lists = [None if block is None else pl.Series(block.ravel()) for block in blocks]
    return pl.Series(lists, dtype=pl.List(pl.Float64))


def _write(frames: _Frames, out: Path) -> None:
    import polars as pl  # noqa: PLC0415

    try:
        write_frames(frames, out)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise JournalError(f"{out} cannot be written: {error}") from error


def _source(reward: Rewarded | None) -> str | None:
    return None if reward is None or reward.reward_id is None else _text(reward.reward_id)


def _text(value: object) -> str:
    """As text that every reader can read: half a surrogate pair becomes a question mark."""
    return str(value).encode(errors="replace").decode()
