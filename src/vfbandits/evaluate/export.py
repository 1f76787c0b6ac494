"""A journal as a table that ``vfb evaluate`` reads: one row for each decision with its reward.

=============  =======================================================================
position       of the decision in the journal
decision_id    and ``user``, ``arm``: text; ``index`` is the arm's place among those offered
reward         that was learnt; ``probability`` with which the arm was shown, if logged
at             seconds since 1970, and ``rewarded_at``
epoch          of the masks; ``contributors`` whose features counted
group          "policy", or the reason for which another arm was shown than the policy's
due            until when a reward was waited for, in seconds since 1970
held           true while the decision waits to be activated: nobody was shown it yet
reward_id      what the application called the reward; null if nobody sent it
reports        rewards that came and were not learnt, each with ``reward_id``, ``value``,
               ``why`` and ``at``
x_0, x_1 …     the masked context
=============  =======================================================================

Contexts are carried to the masks in force at the end, so that all rows are alike.  In layout
"disjoint" they are what the arms' models saw, without the intercept.  In the others the journal has
the *chosen* arm's context only, which is not enough to judge another policy: those columns are
called ``chosen_0, chosen_1 …``, and ``vfb evaluate`` does not take them for contexts.
"""

import os
import tempfile
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vfbandits.campaign.events import (
    Activated,
    Decided,
    Event,
    Moved,
    Reported,
    Retracted,
    Rewarded,
)
from vfbandits.campaign.model import remask
from vfbandits.core.arrays import Matrix
from vfbandits.core.bandit import Bandit
from vfbandits.core.decision import DecisionId
from vfbandits.core.layout import build_learner
from vfbandits.core.move import Move
from vfbandits.errors import JournalError
from vfbandits.files import PART, sync_folder
from vfbandits.journal.base import JournalReader

if TYPE_CHECKING:
    import polars as pl

ROWS_PER_BATCH = 20_000
USABLE = "x_"  # begins the names of columns that ``vfb evaluate`` takes for contexts


@dataclass(frozen=True, slots=True)
class Export:
    """What was written, and what was not: it has no reward, or its reward was taken back."""

    rows: int
    without_reward: int
    without_probability: int
    context: str | None
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


def export_log(
    reader: JournalReader,
    out: Path,
    *,
    contexts: bool | None = None,
    unrewarded: float | None = None,
) -> Export:
    """Write a Parquet file, whole or not at all, for its owner only.

    Contexts are written or not; None writes those that ``vfb evaluate`` can use, of layout
    "disjoint".  Decisions without a reward are left out, or get ``unrewarded``.
    """
    index = _index(reader)
    frames = _Frames(reader, index, contexts=contexts, unrewarded=unrewarded)
    _write(frames, out)
    return Export(
        rows=frames.n_rows,
        without_reward=index.n_decisions - len(index.rewards) - len(index.retracted),
        retracted=len(index.retracted),
        without_probability=frames.n_without_probability,
        context=frames.prefix,
    )


def _index(reader: JournalReader) -> _Index:
    index = _Index(reader.last_position)
    decided: dict[DecisionId, int] = {}  # a name may be used again: the latest of it
    for position, event in _events(reader, index.last):
        match event:
            case Decided():
                decided[event.decision_id] = position
                index.n_decisions += 1
            case Rewarded() if event.decision_id in decided:
                index.rewards[decided[event.decision_id]] = event
            case Retracted() if event.decision_id in decided:
                index.rewards.pop(decided[event.decision_id], None)
                index.retracted.add(decided[event.decision_id])
            case Activated() if event.decision_id in decided:
                index.activations[decided[event.decision_id]] = event
            case Reported() if event.decision_id in decided:
                index.reports.setdefault(decided[event.decision_id], []).append(event)
            case Moved():
                index.moves.append((position, event.matrix))
    return index


def _events(reader: JournalReader, last: int) -> Iterator[tuple[int, Event]]:
    for position, event in chain(reader.remains(), reader.read(reader.compacted_to)):
        if position > last:
            return
        yield position, event


class _Frames:
    """The rows of the table, some thousands at a time."""

    def __init__(
        self,
        reader: JournalReader,
        index: _Index,
        *,
        contexts: bool | None,
        unrewarded: float | None,
    ) -> None:
        self.n_rows = self.n_without_probability = 0
        self._reader, self._index, self._unrewarded = reader, index, unrewarded
        self._contexts: _Contexts | None = None
        if contexts or (contexts is None and reader.latest_snapshot() is not None):
            found = _Contexts.of(reader, index)
            self._contexts = found if contexts or found.prefix == USABLE else None

    @property
    def prefix(self) -> str | None:
        """With which the names of context columns begin."""
        return None if self._contexts is None else self._contexts.prefix

    def __iter__(self) -> "Iterator[pl.DataFrame]":
        """Data frames, at least one: it may be empty."""
        rows = self._wanted()
        some = list(islice(rows, ROWS_PER_BATCH))
        while some or not self.n_rows:
            self.n_rows += len(some)
            self.n_without_probability += sum(event.probability is None for _, event in some)
            yield self._frame(some)
            if not some:
                return
            some = list(islice(rows, ROWS_PER_BATCH))

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
            "decision_id": pl.Series([_text(e.decision_id) for e in events], dtype=pl.String),
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
            for place, column in enumerate(self._contexts.of_rows(rows).T):
                columns[f"{self.prefix}{place}"] = pl.Series(np.ascontiguousarray(column))
        return pl.DataFrame(columns)

    def _wait_columns(self, rows: list[tuple[int, Decided]]) -> "dict[str, pl.Series]":
        """What became of the wait for a reward."""
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


@dataclass(frozen=True, slots=True)
class _Contexts:
    """How contexts become columns; ``moves`` carry them to the last masks."""

    prefix: str
    width: int
    skipped: int
    positions: list[int]
    moves: list[Move]

    @classmethod
    def of(cls, reader: JournalReader, index: _Index) -> "_Contexts":
        """From any snapshot: the layout never changes."""
        latest = reader.latest_snapshot()
        if latest is None:
            raise JournalError("contexts need a snapshot, which tells their layout, got none")
        bandit = Bandit.restore(latest[1])
        layout, is_disjoint = bandit.layout, bandit.layout.layout == "disjoint"
        lift = build_learner(layout, bandit.settings).lift
        return cls(
            USABLE if is_disjoint else "chosen_",
            bandit.dim if is_disjoint else 0,
            int(layout.intercept and is_disjoint),
            [position for position, _ in index.moves],
            [lift(remask(matrix)) for _, matrix in index.moves],
        )

    def of_rows(self, rows: list[tuple[int, Decided]]) -> Matrix:
        """One row for each decision, (n, width)."""
        blocks = []
        for n_before, some in groupby(rows, key=lambda row: bisect(self.positions, row[0])):
            contexts = np.array([event.x for _, event in some])
            for move in self.moves[n_before:]:
                contexts = move.vector(contexts.T).T  # R x for all of them at once
            blocks.append(contexts[:, self.skipped :])
        return np.concatenate(blocks) if blocks else np.empty((0, self.width))


def _write(frames: _Frames, out: Path) -> None:
    """Frames as one Parquet file, without ever holding them all."""
    import polars as pl  # noqa: PLC0415

    whole = out.with_name(f".{out.name}.{os.getpid()}{PART}")
    try:
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
            names = []
            for number, frame in enumerate(frames):
                names.append(Path(folder) / f"{number}.parquet")
                frame.write_parquet(names[-1])
            os.close(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
            pl.scan_parquet(names).sink_parquet(whole, sync_on_close="all")
        whole.replace(out)
        sync_folder(out.parent)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise JournalError(f"{out} cannot be written: {error}") from error
    finally:
        whole.unlink(missing_ok=True)


def _source(reward: Rewarded | None) -> str | None:
    return None if reward is None or reward.reward_id is None else _text(reward.reward_id)


def _text(value: object) -> str:
    """As text that every reader can read: half a surrogate pair becomes a question mark."""
    return str(value).encode(errors="replace").decode()
