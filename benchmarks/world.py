"""The world all contestants play in: everything is drawn before a clock starts."""

from dataclasses import dataclass, field

import numpy as np

from benchmarks.contestant import Matrix, Task

NOISE = 0.05
POOL_BYTES = 16_000_000
POOL_ROUNDS = 2_000


@dataclass(slots=True)
class World:
    """Contexts of unit norm, cycled through; the noise never repeats.

    A pool stands in for an endless stream, because a thousand rounds of (1000, 1000) would be
    8 GB.  It is larger than the second-level cache, so no contestant finds its contexts warm.
    """

    pool: tuple[Matrix, ...]
    means: list[list[float]]
    best: list[float]
    rng: np.random.Generator = field(repr=False)

    def noise(self, rounds: int) -> list[float]:
        """Draw the noise of the coming rounds."""
        drawn: list[float] = (NOISE * self.rng.standard_normal(rounds)).tolist()
        return drawn


def sample_world(task: Task) -> World:
    """Draw theta_star and the pool; equal for every contestant that is given the same task."""
    rng = np.random.default_rng(task.seed)
    theta_star = _unit_rows(rng, 1, task.dim)[0]
    rounds = min(POOL_ROUNDS, max(2, POOL_BYTES // (8 * task.n_arms * task.dim)))
    pool = tuple(_unit_rows(rng, task.n_arms, task.dim) for _ in range(rounds))
    means = [(contexts @ theta_star).tolist() for contexts in pool]
    return World(pool, means, [max(row) for row in means], rng)


def _unit_rows(rng: np.random.Generator, rows: int, dim: int) -> Matrix:
    drawn = rng.standard_normal((rows, dim))
    unit: Matrix = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return unit
