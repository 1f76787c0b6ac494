"""A table as a world: a row is a user, and its label is the best arm."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vfbandits.core.arrays import Matrix
from vfbandits.core.context import Split
from vfbandits.simulate.world import WorldRound


@dataclass(frozen=True, slots=True, eq=False)
class TableWorld:
    """One arm for each class; the reward is 1 for the row's own class and 0 for the others.

    Each seed takes the rows in another random order, every row once.

    Attributes
    ----------
    widths
        Columns of each participant, side by side and in order.
    features, labels
        Scaled rows (n, dim) and the number of each row's class (n,).
    classes
        Names of the classes.
    arm_features
        A row for each class in layout "outer"; None in layout "disjoint".
    """

    widths: Mapping[str, int]
    features: Matrix = field(repr=False)
    labels: NDArray[np.intp] = field(repr=False)
    classes: tuple[str, ...]
    arm_features: Matrix | None = field(default=None, repr=False)

    @property
    def split(self) -> Split:
        """How the features are split over participants."""
        return Split.of(self.widths)

    @property
    def n_arms(self) -> int:
        """Number of classes."""
        return len(self.classes)

    @property
    def layout(self) -> str:
        """By whether the arms have features."""
        return "disjoint" if self.arm_features is None else "outer"

    @property
    def arm_dim(self) -> int:
        """Width of the arm features."""
        return 1 if self.arm_features is None else self.arm_features.shape[1]

    @property
    def best_reward(self) -> float:
        """Of a row's own class."""
        return 1.0

    def draw(self, seed: np.random.SeedSequence) -> "ShuffledTable":
        """The rows in this seed's order."""
        return ShuffledTable(self, np.random.default_rng(seed).permutation(len(self.labels)))


@dataclass(frozen=True, slots=True, eq=False)
class ShuffledTable:
    """A table's rows in one order."""

    world: TableWorld
    order: NDArray[np.intp] = field(repr=False)

    def rounds(self, horizon: int) -> Iterator[WorldRound]:
        """A round for each of the first ``horizon`` rows."""
        world, split = self.world, self.world.split
        columns = {name: split.columns(name) for name in split.names}
        rewards = np.eye(world.n_arms)
        arms = tuple(range(world.n_arms))
        for row in self.order[:horizon]:
            context, reward = world.features[row], rewards[world.labels[row]]
            blocks = {name: context[part] for name, part in columns.items()}
            yield WorldRound(
                context,
                blocks,
                rewards=reward,
                expected=reward,
                arms=arms,
                arm_features=world.arm_features,
            )
