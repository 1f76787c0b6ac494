"""A classified table as a bandit whose features have natural owners.

One arm per class, reward 1 for the row's own class.  A log takes arms uniformly at random, so its
propensity is exactly 1/K and replay is unbiased.  Owners are in order: the first is the active
participant, and a study adds the others one at a time.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.datasets.logged import LoggedRounds
from vfbandits.errors import DatasetError


@dataclass(frozen=True, slots=True, eq=False)
class OwnedSet:
    """A data set, ready to play.

    Attributes
    ----------
    owners
        Columns of each owner, side by side and in order.
    features, labels
        Rows (n, dim), standardised by their owners; classes (n,) from 0.
    n_arms
        Number of classes.
    citation, licence
        The credits to give where results are shown.
    """

    name: str
    owners: dict[str, slice]
    features: Matrix = field(repr=False)
    labels: NDArray[np.intp] = field(repr=False)
    n_arms: int
    citation: str
    licence: str

    @property
    def widths(self) -> dict[str, int]:
        """How many columns each owner holds."""
        return {name: part.stop - part.start for name, part in self.owners.items()}

    def first_owners(self, count: int) -> tuple[str, ...]:
        """The first ``count`` owners."""
        if not 1 <= count <= len(self.owners):
            raise DatasetError(f"{self.name} has 1 to {len(self.owners)} owners, got {count}")
        return tuple(self.owners)[:count]

    def log(self, rng: np.random.Generator) -> LoggedRounds:
        """Every row once, in random order, with an arm taken uniformly at random."""
        order = rng.permutation(len(self.labels))
        arms: NDArray[np.intp] = rng.integers(self.n_arms, size=len(order))
        clicks: Vector = (arms == self.labels[order]).astype(np.float64)
        return LoggedRounds(self.features[order], arms, clicks)


def own(blocks: Mapping[str, Matrix]) -> tuple[dict[str, slice], Matrix]:
    """Put the owners' columns side by side, each owner having standardised its own."""
    owners: dict[str, slice] = {}
    start = 0
    for name, block in blocks.items():
        owners[name] = slice(start, start + block.shape[1])
        start += block.shape[1]
    return owners, np.hstack([standardised(block) for block in blocks.values()])


def standardised(block: Matrix) -> Matrix:
    """Columns centred and of equal deviation, such that rows have a mean squared length of 1.

    So no owner outweighs another by the number of its columns, and a ridge means the same for
    few owners and for many.  A column that does not vary becomes 0.
    """
    spread = block.std(axis=0)
    n_varying = int(np.count_nonzero(spread))
    scale = np.where(spread > 0.0, spread, 1.0) * math.sqrt(max(1, n_varying))
    centred: Matrix = (block - block.mean(axis=0)) / scale
    return centred


def balanced(labels: NDArray[np.intp], rng: np.random.Generator) -> NDArray[np.intp]:
    """Rows, in order, such that every class has as many as the rarest."""
    classes, counts = np.unique(labels, return_counts=True)
    chosen = [
        rng.choice(np.flatnonzero(labels == one), size=counts.min(), replace=False)
        for one in classes
    ]
    return np.sort(np.concatenate(chosen))
