"""Featurised rounds on disk: Parquet parts, and a file of facts about them.

User features are kept as the file's integers and scaled when they are read, so that another
scaling needs no new pass over 45 million rows.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.datasets.logged import LoggedRounds
from vfbandits.errors import DatasetError

PART_ROWS = 500_000
FACTS = "facts.json"


@dataclass(frozen=True, slots=True)
class Arm:
    """A label, its counts (a, b, c), and how often it was shown and clicked."""

    label: int
    triple: tuple[int, int, int]
    n_rows: int
    n_clicks: int


@dataclass(frozen=True, slots=True)
class Facts:
    """What was read, what was left out, and the ranges that scaling needs.

    ``minima`` and ``maxima`` are those of ``columns`` over the rows that were kept.
    """

    columns: tuple[str, ...]
    minima: tuple[int, ...]
    maxima: tuple[int, ...]
    arms: tuple[Arm, ...]
    dropped: tuple[str, ...]
    n_rows_read: int
    n_bad_lines: int
    first_bad_lines: tuple[int, ...]

    @property
    def n_rows(self) -> int:
        """Rows that were kept."""
        return sum(arm.n_rows for arm in self.arms)

    @property
    def click_rate(self) -> float:
        """Of the rows that were kept: what a policy that repeats the log's gets."""
        return sum(arm.n_clicks for arm in self.arms) / self.n_rows

    def write(self, folder: Path) -> None:
        """Write facts.json."""
        (folder / FACTS).write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> "Facts":
        """Read facts.json."""
        try:
            values = json.loads((folder / FACTS).read_text(encoding="utf-8"))
            arms = tuple(Arm(**{**a, "triple": tuple(a["triple"])}) for a in values.pop("arms"))
            lists = {name: tuple(v) for name, v in values.items() if isinstance(v, list)}
            return cls(arms=arms, **{**values, **lists})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DatasetError(f"wanted a folder that featurise wrote, got {folder}") from error


@dataclass(frozen=True, slots=True)
class CriteoTable:
    """Rounds that ``featurise`` wrote, in the order of the file."""

    folder: Path
    facts: Facts

    @classmethod
    def open(cls, folder: Path) -> "CriteoTable":
        """Open a folder that ``featurise`` wrote."""
        return cls(folder, Facts.read(folder))

    @property
    def arm_features(self) -> Matrix:
        """The arms' counts (a, b, c), each scaled to [0, 1] over the arms, (n_arms, 3)."""
        triples = np.array([arm.triple for arm in self.facts.arms], dtype=np.float64)
        return scaled(triples, triples.min(axis=0), triples.max(axis=0))

    def rounds(
        self, *, factors: tuple[float, ...] | None = None, log: bool = False
    ) -> Iterator[LoggedRounds]:
        """All rounds, half a million at a time; features scaled to [0, 1], then by ``factors``.

        The paper multiplies each feature with "an individual scaling factor" and does not say
        which; None is 1 for all.  ``log`` takes log(1 + x − minimum) first: counts have such
        tails that otherwise nearly all of a column lies near 0.
        """
        facts = self.facts
        if factors is not None and len(factors) != len(facts.columns):
            raise DatasetError(
                f"wanted a factor for each of {len(facts.columns)} features, got {len(factors)}"
            )
        low, high = np.array(facts.minima, dtype=float), np.array(facts.maxima, dtype=float)
        for path in sorted(self.folder.glob("part-*.parquet")):
            frame = pl.read_parquet(path)
            users = frame.select(facts.columns).to_numpy().astype(np.float64)
            users = (
                scaled(np.log1p(users - low), 0.0 * low, np.log1p(high - low))
                if log
                else (scaled(users, low, high))
            )
            users *= 1.0 if factors is None else np.array(factors)
            clicks = frame["click"].to_numpy().astype(np.float64)
            yield LoggedRounds(
                np.ascontiguousarray(users), frame["arm"].to_numpy().astype(np.intp), clicks
            )


class PartWriter:
    """Gathers rows into Parquet parts of equal length, and the facts that need all rows."""

    def __init__(self, folder: Path, columns: tuple[str, ...], n_arms: int) -> None:
        for old in folder.glob("part-*.parquet"):
            old.unlink()
        (folder / FACTS).unlink(missing_ok=True)
        self._folder = folder
        self._columns = columns
        self._waiting: list[pl.DataFrame] = []
        self._n_waiting = 0
        self._n_parts = 0
        self.rows_of_arm = np.zeros(n_arms, dtype=np.int64)
        self.clicks_of_arm = np.zeros(n_arms, dtype=np.int64)
        self.minima = np.full(len(columns), np.iinfo(np.int64).max)
        self.maxima = np.full(len(columns), np.iinfo(np.int64).min)

    def add(self, rows: pl.DataFrame) -> None:
        """Take rows, and write a part when there are enough."""
        if not rows.height:
            return
        arms, n_arms = rows["arm"].to_numpy(), len(self.rows_of_arm)
        self.rows_of_arm += np.bincount(arms, minlength=n_arms)
        self.clicks_of_arm += np.bincount(arms[rows["click"].to_numpy() == 1], minlength=n_arms)
        numbers = rows.select(self._columns)
        self.minima = np.minimum(self.minima, numbers.min().to_numpy()[0])
        self.maxima = np.maximum(self.maxima, numbers.max().to_numpy()[0])
        self._waiting.append(rows)
        self._n_waiting += rows.height
        while self._n_waiting >= PART_ROWS:
            self._flush()

    def close(self) -> None:
        """Write what is left."""
        if self._n_waiting:
            self._flush()

    def _flush(self) -> None:
        rows = pl.concat(self._waiting)
        path = self._folder / f"part-{self._n_parts:05d}.parquet"
        rows.head(PART_ROWS).write_parquet(path, compression="lz4", statistics=False)
        rest = rows.slice(PART_ROWS)
        self._waiting, self._n_waiting = [rest], rest.height
        self._n_parts += 1


def scaled(values: Matrix, low: Vector, high: Vector) -> Matrix:
    """Each column from [low, high] to [0, 1]; a column that does not vary becomes 0."""
    span = high - low
    return (values - low) / np.where(span > 0, span, 1.0)
