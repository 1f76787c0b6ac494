"""A file in the shape of Criteo's train file, of any length, from the published aggregates.

Integers are drawn from the simulator.  A category takes one of its ten commonest values as often as
the data does; the others are drawn partly log-uniformly, which is Zipf's law, and partly evenly
from a tail that grows with the file, as it does in the data, where most values come once.
"""

from pathlib import Path

import numpy as np
import polars as pl

from vfbandits.datasets.criteo.columns import CATEGORIES, LABEL, NUMBERS
from vfbandits.datasets.criteo.marginals import CategoryFacts, load_marginals
from vfbandits.datasets.criteo.world import sample_users

ROWS_PER_BATCH = 100_000
GROWTH = 0.9  # C3 has 62 thousand values in 137 thousand rows and 10 million in 46 million
STEP = 2_654_435_769


def write_rows(path: Path, n_rows: int, rng: np.random.Generator) -> None:
    """Write ``n_rows`` tab-separated lines, some at a time."""
    columns = {name: _Category(name, n_rows) for name in CATEGORIES}
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("wb") as file:
        for start in range(0, n_rows, ROWS_PER_BATCH):
            count = min(ROWS_PER_BATCH, n_rows - start)
            _frame(count, columns, rng).write_csv(file, separator="\t", include_header=False)
    unfinished.rename(path)


def _frame(n_rows: int, columns: "dict[str, _Category]", rng: np.random.Generator) -> pl.DataFrame:
    users = sample_users(n_rows, rng)
    clicks = rng.random(n_rows) < users.effects
    numbers = pl.DataFrame(users.numbers, schema=NUMBERS, nan_to_null=True)
    return pl.DataFrame(
        [
            pl.Series(LABEL, clicks.astype(np.int8)),
            *numbers.cast(pl.Int64).get_columns(),
            *(column.draw(n_rows, rng) for column in columns.values()),
        ]
    )


class _Category:
    """The values of one column, the commonest first."""

    def __init__(self, name: str, n_rows: int) -> None:
        marginals = load_marginals()
        self._name = name
        self._facts: CategoryFacts = marginals.categories[name]
        growth = max(1.0, (n_rows / marginals.n_rows) ** GROWTH)
        facts = self._facts
        self._n_values = int(facts.n_distinct + facts.n_singletons * (growth - 1.0))
        self._tail = facts.n_singletons / marginals.n_rows
        first = 1_000_003 * int(name[1:])
        self._hex = pl.Series(
            [f"{(first + STEP * i) % 2**32:08x}" for i in range(self._n_values)], dtype=pl.String
        )

    def draw(self, n_rows: int, rng: np.random.Generator) -> pl.Series:
        """Values as text, null where missing."""
        ends = np.cumsum(self._facts.top_shares)
        place = np.searchsorted(ends, rng.random(n_rows) * max(1.0, ends[-1]))
        is_rare = place == len(ends)
        evenly = rng.integers(self._n_values, size=n_rows)
        zipf = np.floor(self._n_values ** rng.random(n_rows)).astype(np.intp) - 1
        rare = np.where(rng.random(n_rows) < self._tail, evenly, zipf)
        values = self._hex.gather(np.minimum(np.where(is_rare, rare, place), self._n_values - 1))
        is_missing = pl.Series(rng.random(n_rows) < self._facts.missing)
        return values.set(is_missing, None).alias(self._name)
