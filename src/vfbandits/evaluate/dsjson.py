"""Event logs of Azure Personalizer and Vowpal Wabbit ("dsjson") as a table for ``vfb evaluate``.

A log has one JSON object per line and event: the context ``c`` with one namespace for each of its
keys and the actions in ``_multi``; the ranking ``a``, numbers of actions from 1, with the
probabilities ``p``; the outcomes ``o``; and the label made from them, ``_label_cost``,
``_label_Action`` and ``_label_probability``.  A reward is minus a cost.

The table has the columns of ``vfb journal export``.  Features are flattened and hashed as the
facade of that service does it, so that a server with the same scalings sees the same numbers.

Left out, and counted: events that were not activated, rewards without their event, events without
a reward unless one is given for them, and exact repetitions of a line, so that overlapping logs can
be concatenated.  If events were dropped from the log with different probabilities (``pdrop``),
those that were dropped less often are thinned out by a hash of their ids until the probability is
the same for all: otherwise some kinds of events would count more than others.
"""

import gzip
import hashlib
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from vfbandits.core.arrays import Vector
from vfbandits.core.reward import REWARD_LIMIT
from vfbandits.errors import SettingError
from vfbandits.evaluate.parquet import write_frames
from vfbandits.features.named import NamedRows, Pair, flatten

if TYPE_CHECKING:
    import polars as pl

LONGEST: Final = 64.0  # of a row, as long as a federation takes it by default
MAX_LINE_BYTES: Final = 64 << 20  # a small packed file may have a line that fills the memory
CONTEXT: Final = "FromUrl"  # the namespace that the service gave to ``contextFeatures``
ACTION: Final = "j"  # and to the features of an action
ROWS_PER_BATCH: Final = 20_000
ENTRIES_PER_BATCH: Final = 1_000_000
_DRAW, _DROPPED = "_draw", "_dropped"
_ACTION_PARTS: Final = frozenset({"i", ACTION})


class _Outcome(msgspec.Struct, frozen=True):
    value: object = msgspec.field(default=None, name="v")
    is_taken: bool = msgspec.field(default=False, name="ActionTaken")
    deferred: bool | None = msgspec.field(default=None, name="DeferredAction")


class _Event(msgspec.Struct, frozen=True):
    """A line; other keys are ignored."""

    event_id: str = msgspec.field(default="", name="EventId")
    context: dict[str, object] | None = msgspec.field(default=None, name="c")
    ranking: list[int] = msgspec.field(default_factory=list, name="a")
    probabilities: list[float] = msgspec.field(default_factory=list, name="p")
    outcomes: list[_Outcome] = msgspec.field(default_factory=list, name="o")
    timestamp: str | None = msgspec.field(default=None, name="Timestamp")
    cost: float | None = msgspec.field(default=None, name="_label_cost")
    probability: float | None = msgspec.field(default=None, name="_label_probability")
    action: int | None = msgspec.field(default=None, name="_label_Action")
    index: int | None = msgspec.field(default=None, name="_labelIndex")
    is_skipped: bool = msgspec.field(default=False, name="_skipLearn")
    is_deferred: bool = msgspec.field(default=False, name="DeferredAction")
    dropped: float = msgspec.field(default=0.0, name="pdrop")
    slots: object = msgspec.field(default=None, name="_outcomes")

    @property
    def is_active(self) -> bool:
        """Whether the action was shown, as far as the log shows."""
        if self.is_skipped:
            return False
        shown = any(one.is_taken or one.deferred is False for one in self.outcomes)
        return not self.is_deferred or shown


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """A row of the table."""

    line: int
    event_id: str
    arms: tuple[str, ...]
    index: int
    reward: float
    probability: float
    at: float | None
    context: Vector = field(repr=False)
    features: Vector | None = field(repr=False)
    dropped: float


@dataclass(slots=True)
class Import:
    """What was written, and what was not."""

    rows: int = 0
    inactive: int = 0
    without_reward: int = 0
    without_event: int = 0
    repeated: int = 0
    thinned: int = 0


def import_dsjson(
    log: Path,
    out: Path,
    *,
    own: NamedRows,
    arms: NamedRows | None = None,
    unrewarded: float | None = None,
    on_line: Callable[[int], None] = lambda number: None,
) -> Import:
    """Write a Parquet file, whole or not at all, for its owner only; a log may be of any size.

    ``own`` hashes the context, and ``arms`` the features of actions, for layout "outer".  An event
    without a reward gets ``unrewarded``, or is left out.
    """
    import polars as pl  # noqa: PLC0415  (an extra)

    made = Import()
    frames = _Frames(_Reader(log, own, arms, unrewarded, made).rows(on_line))
    try:
        write_frames(frames.read(), out, select=frames.thinned)
        made.rows = pl.scan_parquet(out).select(pl.len()).collect().item()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise SettingError(f"{out} cannot be written: {error}") from error
    made.thinned = frames.n_rows - made.rows
    return made


class _Frames:
    """Rows as frames, in batches; surplus rows are removed at the end."""

    def __init__(self, rows: Iterator[_Row]) -> None:
        self._rows = rows
        self.n_rows = 0
        self._most_dropped = 0.0

    def read(self) -> "Iterator[pl.DataFrame]":
        batch: list[_Row] = []
        n_entries = 0
        for row in self._rows:
            self.n_rows += 1
            self._most_dropped = max(self._most_dropped, row.dropped)
            batch.append(row)
            n_entries += row.context.size + (0 if row.features is None else row.features.size)
            if len(batch) >= ROWS_PER_BATCH or n_entries >= ENTRIES_PER_BATCH:
                yield _frame(batch)
                batch, n_entries = [], 0
        if batch:
            yield _frame(batch)

    def thinned(self, rows: "pl.LazyFrame") -> "pl.LazyFrame":
        """Rows that were all dropped with the same probability, the largest that occurs."""
        import polars as pl  # noqa: PLC0415

        kept = (1.0 - self._most_dropped) / (1.0 - pl.col(_DROPPED))
        return rows.filter(pl.col(_DRAW) < kept).drop(_DRAW, _DROPPED)


@dataclass(frozen=True, slots=True)
class _Reader:
    log: Path
    own: NamedRows
    arms: NamedRows | None
    unrewarded: float | None
    made: Import

    def rows(self, on_line: Callable[[int], None]) -> Iterator[_Row]:
        decode = msgspec.json.Decoder(_Event).decode
        number = n_rows = 0
        seen: set[bytes] = set()
        try:
            for number, line in enumerate(self._lines(), start=1):
                on_line(number)
                text = line.removeprefix(BOM_UTF8).strip()
                if not text:
                    continue
                event = decode(text)
                digest = hashlib.blake2b(text, digest_size=16).digest()
                if event.event_id and digest in seen:
                    self.made.repeated += 1
                    continue
                seen.add(digest)
                row = self._row(number, event)
                if row is not None:
                    n_rows += 1
                    yield row
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._fault(number, f"must be an event in JSON, but {error}") from None
        except (OSError, EOFError, zlib.error) as error:
            raise SettingError(f"{self.log} must be a log to read, got: {error}") from error
        if not n_rows:
            raise SettingError(
                f"{self.log.name} must have events that were shown and have a reward, got none "
                f"among {number} lines"
            )

    def _lines(self) -> Iterator[bytes]:
        is_packed = self.log.suffix == ".gz"
        with gzip.open(self.log) if is_packed else self.log.open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES + 1):
                if len(line) > MAX_LINE_BYTES:
                    raise SettingError(
                        f"lines of {self.log.name} must have at most {MAX_LINE_BYTES} bytes, got "
                        "a longer one"
                    )
                yield line

    def _row(self, number: int, event: _Event) -> _Row | None:
        context = event.context
        if event.slots is not None or (context is not None and "_slots" in context):
            raise self._fault(number, "must be an event of one slot, got one of several")
        if context is None:  # a reward that found no event
            self.made.without_event += 1
            return None
        if not event.is_active:
            self.made.inactive += 1
            return None
        reward = self._reward(event, number)
        if reward is None:
            self.made.without_reward += 1
            return None
        actions = self._actions(context, number)
        names = tuple(_name(action, place) for place, action in enumerate(actions))
        if len(set(names)) < len(names):
            raise self._fault(number, "must have actions of different ids, got one twice")
        index = self._index(event, len(actions), number)
        return _Row(
            line=number,
            event_id=event.event_id,
            arms=names,
            index=index,
            reward=reward,
            probability=self._probability(event, index, number),
            at=self._at(event, number),
            context=self.own.free_rows([_context_pairs(context)], longest=LONGEST)[0],
            features=self._features(names, actions),
            dropped=self._dropped(event, number),
        )

    def _actions(self, context: dict[str, object], number: int) -> list[dict[str, object]]:
        actions = context.get("_multi")
        if not isinstance(actions, list) or not actions:
            raise self._fault(number, "must have actions in c._multi, got none")
        other = next((one for one in actions if not isinstance(one, dict)), None)
        if other is not None or None in actions:
            raise self._fault(number, f"must have objects in c._multi, got {other!r:.40}")
        return actions

    def _features(self, names: tuple[str, ...], actions: list[dict[str, object]]) -> Vector | None:
        """The features of all actions, concatenated."""
        if self.arms is None:
            return None
        pairs = [
            [("id", name), *_action_pairs(one)] for name, one in zip(names, actions, strict=True)
        ]
        return self.arms.free_rows(pairs, longest=LONGEST).ravel()

    def _index(self, event: _Event, n_actions: int, number: int) -> int:
        """Place of the chosen action: that of the label, or the first of the ranking."""
        labels = {event.index, None if event.action is None else event.action - 1} - {None}
        if len(labels) > 1:
            raise self._fault(number, "must have one chosen action, got two different labels")
        ranked = event.ranking[0] - 1 if event.ranking else None
        index = next(iter(labels), ranked)
        if index is None:
            raise self._fault(number, "must name the chosen action by _label_Action or a, got none")
        if not 0 <= index < n_actions:
            raise self._fault(number, f"must choose one of {n_actions} actions, got {index + 1}")
        return index

    def _probability(self, event: _Event, index: int, number: int) -> float:
        """The probability of the chosen action: that of the label, or its entry in ``p``."""
        value = event.probability
        if value is None:
            pairs = zip(event.ranking, event.probabilities, strict=False)
            value = dict(pairs).get(index + 1)
        if value is None or not 0.0 < value <= 1.0:
            raise self._fault(number, f"must have a probability in (0, 1], got {value}")
        return value

    def _reward(self, event: _Event, number: int) -> float | None:
        """Minus the cost; without a label the earliest outcome."""
        values = [one.value for one in event.outcomes if isinstance(one.value, int | float)]
        reward = -event.cost if event.cost is not None else next(iter(values), self.unrewarded)
        if reward is not None and not -REWARD_LIMIT <= reward <= REWARD_LIMIT:
            raise self._fault(
                number, f"must have a reward within ±{REWARD_LIMIT:g}, got {reward!r:.40}"
            )
        return None if reward is None else float(reward) + 0.0  # no negative zero

    def _at(self, event: _Event, number: int) -> float | None:
        if event.timestamp is None:
            return None
        try:
            return datetime.fromisoformat(event.timestamp).timestamp()
        except ValueError:
            raise self._fault(
                number, f"must have a Timestamp of ISO 8601, got {event.timestamp!r:.40}"
            ) from None

    def _dropped(self, event: _Event, number: int) -> float:
        if not 0.0 <= event.dropped < 1.0:
            raise self._fault(number, f"must have a pdrop in [0, 1), got {event.dropped}")
        return event.dropped

    def _fault(self, number: int, what: str) -> SettingError:
        return SettingError(f"{self.log.name}, line {number}: {what}")


def _name(action: dict[str, object], place: int) -> str:
    """The id of an action; its number where the log has none."""
    described = action.get("i")
    name = described.get("id") if isinstance(described, dict) else None
    name = action.get("_tag") if name is None else name
    return str(place + 1 if name is None else name)


def _context_pairs(context: dict[str, object]) -> list[Pair]:
    others = {name: value for name, value in context.items() if name != CONTEXT}
    return [*flatten(context.get(CONTEXT)), *flatten(others)]


def _action_pairs(action: dict[str, object]) -> list[Pair]:
    others = {name: value for name, value in action.items() if name not in _ACTION_PARTS}
    return [*flatten(action.get(ACTION)), *flatten(others)]


def _fraction(event_id: str) -> float:
    """A number in [0, 1) from an id, always the same."""
    digest = hashlib.blake2b(event_id.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) / 2.0**64


def _frame(rows: list[_Row]) -> "pl.DataFrame":
    import polars as pl  # noqa: PLC0415  (an extra)

    text = [row.event_id.encode(errors="replace").decode() for row in rows]
    arms = [[arm.encode(errors="replace").decode() for arm in row.arms] for row in rows]
    columns = {
        "position": pl.Series([row.line for row in rows], dtype=pl.Int64),
        "event_id": pl.Series(text, dtype=pl.String),
        "arm": pl.Series(
            [some[row.index] for some, row in zip(arms, rows, strict=True)], dtype=pl.String
        ),
        "index": pl.Series([row.index for row in rows], dtype=pl.Int64),
        "reward": pl.Series([row.reward for row in rows], dtype=pl.Float64),
        "probability": pl.Series([row.probability for row in rows], dtype=pl.Float64),
        "at": pl.Series([row.at for row in rows], dtype=pl.Float64),
        "offered": pl.Series(arms, dtype=pl.List(pl.String)),
        _DRAW: pl.Series([_fraction(row.event_id) for row in rows], dtype=pl.Float64),
        _DROPPED: pl.Series([row.dropped for row in rows], dtype=pl.Float64),
    }
    features = [row.features for row in rows]
    if features[0] is not None:
        lists = [None if one is None else pl.Series(one) for one in features]
        columns["offered_features"] = pl.Series(lists, dtype=pl.List(pl.Float64))
    contexts = np.array([row.context for row in rows])
    for place, column in enumerate(contexts.T):
        columns[f"x_{place}"] = pl.Series(np.ascontiguousarray(column))
    return pl.DataFrame(columns)
