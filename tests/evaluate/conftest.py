"""A world small enough to know every expectation in closed form, and logs made in it."""

from dataclasses import dataclass

import numpy as np
import pytest

from vfbandits.evaluate.log import LoggedBandit


@dataclass(frozen=True)
class DiscreteWorld:
    """Users of a few kinds; reward of arm a for kind s is N(means[s, a], noise²).

    ``logging`` and ``target`` are probabilities (n_kinds, n_arms); kinds are equally frequent.
    """

    means: np.ndarray
    logging: np.ndarray
    target: np.ndarray
    noise: float = 0.5

    @property
    def value(self):
        return float((self.target * self.means).sum(axis=1).mean())

    def ips_variance(self, n):
        """Var = (E[w²r²] − V²) / n, with E over kinds, arms and noise."""
        squares = self.target**2 / self.logging * (self.means**2 + self.noise**2)
        return (squares.sum(axis=1).mean() - self.value**2) / n

    def sample(self, n, rng):
        """A log of n rounds, contexts one-hot in the kind, and the target's probabilities."""
        kinds = rng.integers(len(self.means), size=n)
        cumulative = self.logging[kinds].cumsum(axis=1)
        chosen = (rng.random(n)[:, None] > cumulative[:, :-1]).sum(axis=1)
        log = LoggedBandit.of(
            np.eye(len(self.means))[kinds],
            chosen,
            rewards=self.means[kinds, chosen] + self.noise * rng.standard_normal(n),
            probabilities=self.logging[kinds, chosen],
            arms=range(self.means.shape[1]),
        )
        return log, self.target[kinds]


@pytest.fixture(scope="session")
def world():
    """Three kinds, three arms; rewards with interaction, and a log that prefers the wrong arms."""
    return DiscreteWorld(
        means=np.array([[1.0, 0.2, 0.5], [0.1, 0.9, 0.4], [0.3, 0.6, 1.2]]),
        logging=np.array([[0.2, 0.5, 0.3], [0.5, 0.2, 0.3], [0.4, 0.4, 0.2]]),
        target=np.array([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]),
    )


@pytest.fixture(scope="session")
def uniform_world(world):
    return DiscreteWorld(world.means, np.full((3, 3), 1 / 3), world.target)


@pytest.fixture(scope="session")
def level_world(world):
    """The same with 5 added to every reward: what IPS suffers from and the others do not."""
    return DiscreteWorld(world.means + 5.0, world.logging, world.target)
