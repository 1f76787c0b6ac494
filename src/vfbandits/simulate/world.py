"""The paper's synthetic world: contexts on the unit sphere, rewards linear in them.

Contexts and theta_star are N(0, σ²I) vectors scaled to length 1, so σ² (0.05 in the paper) cancels
and does not appear here.  A reward is x·theta_star plus noise of *standard deviation* 0.05: read as
a variance, the paper's claims about partial bandits do not hold.

The worlds of the other two layouts are alike.  ``outer``: unit users, unit arm features that
stay for the whole world, and a unit theta_star for u ⊗ w.  ``disjoint``: unit users, and a unit
theta_star for each arm.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Protocol

import numpy as np

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.context import Split
from vfbandits.core.layout import LAYOUTS
from vfbandits.core.policy.base import at_least_zero
from vfbandits.core.settings import whole
from vfbandits.errors import SettingError

NUMBERS_PER_BATCH = 100_000
ARM_DIM = 5


class Rounds(Protocol):
    """A world that was drawn.  Asked twice, it yields the very same rounds."""

    def rounds(self, horizon: int) -> Iterator["WorldRound"]:
        """The first ``horizon`` rounds."""
        ...


class Scene(Protocol):
    """What a study plays in: the paper's synthetic world, or a table."""

    @property
    def widths(self) -> Mapping[str, int]:
        """Who holds how many features; the first is the active participant."""
        ...

    @property
    def split(self) -> Split:
        """How the features are split over participants."""
        ...

    @property
    def n_arms(self) -> int:
        """Arms in each round."""
        ...

    @property
    def layout(self) -> str:
        """How contexts depend on the arm."""
        ...

    @property
    def arm_dim(self) -> int:
        """Width of the arm features in layout ``outer``; unused elsewhere."""
        ...

    @property
    def best_reward(self) -> float | None:
        """What the best arm gives in every round; None if that differs between rounds."""
        ...

    def draw(self, seed: np.random.SeedSequence) -> Rounds:
        """The world of one seed."""
        ...


@dataclass(frozen=True, slots=True)
class WorldSettings:
    """The number of features of each participant, and how arms and rewards are drawn.

    ``arm_dim`` is the width of the arm features in layout ``outer`` and unused elsewhere.

    >>> WorldSettings(even_widths(100, 5)).split.dim
    100
    """

    widths: Mapping[str, int]
    n_arms: int = 10
    layout: str = "per_arm"
    arm_dim: int = ARM_DIM
    noise: float = 0.05

    def __post_init__(self) -> None:
        """Refuse what makes no world."""
        Split.of(self.widths)
        whole(self.n_arms, "arms")
        whole(self.arm_dim, "arm_dim")
        at_least_zero(self.noise, "noise")
        if self.layout not in LAYOUTS:
            raise SettingError(f"layout must be one of {', '.join(LAYOUTS)}, got {self.layout!r}")

    @property
    def split(self) -> Split:
        """How the features are split over participants."""
        return Split.of(self.widths)

    @property
    def best_reward(self) -> None:
        """Differs between rounds."""
        return None

    def draw(self, seed: np.random.SeedSequence) -> "World":
        """The world of one seed."""
        return World(self, seed)


@dataclass(frozen=True, slots=True, eq=False)
class WorldRound:
    """One round: what participants see, and the reward of each arm.

    Attributes
    ----------
    contexts
        All features, unmasked: (n_arms, dim) in layout "per_arm", (dim,) in the others.
    blocks
        Each participant's columns of them (views).
    rewards, expected
        Reward of each arm with and without its noise, (n_arms,).
    arms, arm_features
        What layouts "disjoint" and "outer" need of the arms.
    """

    contexts: Matrix = field(repr=False)
    blocks: dict[str, Matrix] = field(repr=False)
    rewards: Vector
    expected: Vector
    arms: tuple[int, ...] | None = None
    arm_features: Matrix | None = None


class World:
    """A world drawn from a seed.  Asked twice, it yields the very same rounds.

    Contexts and noise have streams of their own, so a longer run begins with the shorter one.

    >>> world = World(WorldSettings({"shop": 2, "bank": 3}, n_arms=4), np.random.SeedSequence(7))
    >>> first = next(world.rounds(10))
    >>> first.contexts.shape, first.blocks["bank"].shape, first.rewards.shape
    ((4, 5), (4, 3), (4,))
    """

    def __init__(self, settings: WorldSettings, seed: np.random.SeedSequence) -> None:
        self.settings = settings
        self.split = settings.split
        truth, self._context_seed, self._noise_seed = children(seed, 3)
        self.arm_features: Matrix | None = None
        self._arms: tuple[int, ...] | None = None
        self._draw_truth(np.random.default_rng(truth))

    def _draw_truth(self, rng: np.random.Generator) -> None:
        """theta_star, and as ``_response`` the map from contexts to expected rewards."""
        settings, dim, n_arms = self.settings, self.split.dim, self.settings.n_arms
        if settings.layout == "per_arm":
            self.theta_star = unit_rows(rng, (dim,))
            self._response = self.theta_star
        elif settings.layout == "outer":
            self.theta_star = unit_rows(rng, (dim * settings.arm_dim,))
            self.arm_features = unit_rows(rng, (n_arms, settings.arm_dim))
            self._response = self.theta_star.reshape(dim, -1) @ self.arm_features.T
        else:
            self.theta_star = unit_rows(rng, (n_arms, dim))
            self._response = np.ascontiguousarray(self.theta_star.T)
            self._arms = tuple(range(n_arms))

    def rounds(self, horizon: int) -> Iterator[WorldRound]:
        """The first ``horizon`` rounds; memory stays bounded however many there are."""
        return islice(self._endless(), whole(horizon, "rounds"))

    def _endless(self) -> Iterator[WorldRound]:
        context_rng = np.random.default_rng(self._context_seed)
        noise_rng = np.random.default_rng(self._noise_seed)
        dim, n_arms = self.split.dim, self.settings.n_arms
        row = (n_arms, dim) if self.settings.layout == "per_arm" else (dim,)
        n_rounds = max(1, NUMBERS_PER_BATCH // (n_arms * dim))
        columns = {name: self.split.columns(name) for name in self.split.names}
        while True:
            contexts = unit_rows(context_rng, (n_rounds, *row))
            expected = (contexts.reshape(-1, dim) @ self._response).reshape(n_rounds, n_arms)
            noise = noise_rng.standard_normal((n_rounds, n_arms))
            rewards = expected + self.settings.noise * noise
            for rows, reward, mean in zip(contexts, rewards, expected, strict=True):
                blocks = {name: rows[..., part] for name, part in columns.items()}
                yield WorldRound(
                    rows,
                    blocks,
                    rewards=reward,
                    expected=mean,
                    arms=self._arms,
                    arm_features=self.arm_features,
                )


def even_widths(dim: int, n_participants: int) -> dict[str, int]:
    """``dim`` features over participants p1, p2, …, as evenly as it goes; p1 is the active one.

    >>> even_widths(100, 5)
    {'p1': 20, 'p2': 20, 'p3': 20, 'p4': 20, 'p5': 20}
    >>> even_widths(5, 2)
    {'p1': 3, 'p2': 2}
    """
    if whole(dim, "dim") < whole(n_participants, "participants"):
        raise SettingError(
            f"dim must give each of {n_participants} participants a feature, got {dim}"
        )
    least, more = divmod(dim, n_participants)
    return {f"p{i + 1}": least + (i < more) for i in range(n_participants)}


def refuse_unless_seed(seed: object) -> None:
    """A seed is a whole number from 0."""
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise SettingError(f"seed must be a whole number from 0, got {seed!r}")


def children(seed: np.random.SeedSequence, count: int) -> list[np.random.SeedSequence]:
    """Independent seeds below ``seed``: as its ``spawn``, but the same ones each time."""
    return [
        np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, number))
        for number in range(count)
    ]


def unit_rows(rng: np.random.Generator, shape: tuple[int, ...]) -> Matrix:
    """Vectors along the last axis, uniform on the unit sphere."""
    rows = rng.standard_normal(shape)
    rows /= np.sqrt(np.vecdot(rows, rows))[..., None]
    return rows
