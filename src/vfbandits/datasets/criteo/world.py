"""A world in the shape of Criteo's data, in which every arm's click probability is known.

Users are drawn from a Gaussian copula fitted to the aggregates of ``marginals.py``: gaps by
their patterns, integers by their quantiles and rank correlations.  The log is uniform over 40 arms,
so replay is unbiased, and since p(click | user, arm) is known, so are regret and relative CTR.

From the data: the users, the least-squares effect of a user's numbers on clicks, and each arm's
click rate.  Not from the data, because aggregates do not show it: how users and arms interact.
logit p = logit(effect of the user) + b_arm + s'Bv, with s the user's standardised features, v the
arm's, B drawn at random and scaled so that the last term has standard deviation ``interaction``.
b_arm is solved for, so that interaction moves no arm's click rate, only for whom it is high.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.context import Split
from vfbandits.datasets.copula import Copula, Marginal, even_levels
from vfbandits.datasets.criteo.marginals import Marginals, load_marginals
from vfbandits.datasets.logged import LoggedRounds
from vfbandits.errors import DatasetError

WIDTHS = {"p1": 3, "p2": 3, "p3": 3, "p4": 2, "p5": 2}
CALIBRATION_USERS = 20_000
NEWTON_STEPS = 30
ROUNDS_PER_BATCH = 1_000
LEAST = 0.01  # a linear fit of a probability leaves [0, 1] for some users


@dataclass(frozen=True, slots=True, eq=False)
class CriteoUsers:
    """Users as rows.

    Attributes
    ----------
    numbers
        I1..I13 as in the file, (n, 13); NaN where missing.
    features
        log(1 + I − minimum), standardised by the law they are drawn from; 0 where missing.
    effects
        Probability of a click by the least-squares fit to the user's numbers alone, (n,).
    """

    numbers: Matrix = field(repr=False)
    features: Matrix = field(repr=False)
    effects: Vector = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class ClickRound:
    """One round; named as the rounds of ``simulate/world.py``, so that the same players play it.

    ``contexts`` is the user (dim,), ``blocks`` each participant's part of it, ``rewards`` the
    reward of each arm (0 or 1) and ``expected`` its probability of 1, (n_arms,).
    """

    contexts: Vector = field(repr=False)
    blocks: dict[str, Vector] = field(repr=False)
    rewards: Vector
    expected: Vector
    arms: tuple[int, ...]
    arm_features: Matrix


@dataclass(frozen=True, slots=True)
class ClickRates:
    """Click rates of three players: one at random, the best single arm's, and the optimum."""

    random: float
    best_arm: float
    optimum: float


class CriteoWorld:
    """A world drawn from ``rng``: the same generator state gives the same world.

    >>> world = CriteoWorld(np.random.default_rng(0))
    >>> log = world.log(1_000, np.random.default_rng(1))
    >>> log.users.shape, world.n_arms, round(float(log.clicks.mean()), 1)
    ((1000, 13), 40, 0.3)
    """

    def __init__(
        self,
        rng: np.random.Generator,
        *,
        interaction: float = 0.7,
        widths: Mapping[str, int] | None = None,
    ) -> None:
        if interaction < 0.0:
            raise DatasetError(f"interaction must be at least 0, got {interaction}")
        self.marginals = load_marginals()
        self.split = Split.of(WIDTHS if widths is None else widths)
        n_features = len(self.marginals.numbers)
        if self.split.dim != n_features:
            raise DatasetError(f"widths must add up to {n_features}, got {self.split.dim}")
        triples = self.marginals.triples.astype(np.float64)
        self.arm_features: Matrix = (triples - triples.mean(axis=0)) / triples.std(axis=0)
        self.arms = tuple(range(len(triples)))
        users = sample_users(CALIBRATION_USERS, rng)
        self._interaction = rng.standard_normal((n_features, 3)) @ self.arm_features.T
        spread = float((users.features @ self._interaction).std())
        self._interaction *= interaction / spread
        self._arm_effects = self._calibrate(users)

    @property
    def n_arms(self) -> int:
        """The 40 most common labels."""
        return len(self.arms)

    def probabilities(self, users: CriteoUsers) -> Matrix:
        """p(click | user, arm), exactly, (n_users, n_arms)."""
        clicks: Matrix = expit(self._without_arms(users) + self._arm_effects)
        return clicks

    def rounds(self, horizon: int, rng: np.random.Generator) -> Iterator[ClickRound]:
        """Rounds to play online; the rewards of all arms are drawn, independently."""
        columns = {name: self.split.columns(name) for name in self.split.names}
        for start in range(0, horizon, ROUNDS_PER_BATCH):
            users = sample_users(min(ROUNDS_PER_BATCH, horizon - start), rng)
            expected = self.probabilities(users)
            rewards = (rng.random(expected.shape) < expected).astype(np.float64)
            for user, reward, mean in zip(users.features, rewards, expected, strict=True):
                blocks = {name: user[part] for name, part in columns.items()}
                yield ClickRound(
                    user,
                    blocks,
                    rewards=reward,
                    expected=mean,
                    arms=self.arms,
                    arm_features=self.arm_features,
                )

    def log(self, n_rounds: int, rng: np.random.Generator) -> LoggedRounds:
        """Rounds of a policy that took arms uniformly at random, each with probability 1/40."""
        users = sample_users(n_rounds, rng)
        arms: NDArray[np.intp] = rng.integers(self.n_arms, size=n_rounds)
        expected = np.take_along_axis(self.probabilities(users), arms[:, None], axis=1)[:, 0]
        clicks = (rng.random(n_rounds) < expected).astype(np.float64)
        return LoggedRounds(users.features, arms, clicks)

    def click_rates(self, n_users: int, rng: np.random.Generator) -> ClickRates:
        """What there is to gain: means over ``n_users`` of exact probabilities."""
        expected = self.probabilities(sample_users(n_users, rng))
        by_arm = expected.mean(axis=0)
        return ClickRates(
            float(by_arm.mean()), float(by_arm.max()), float(expected.max(axis=1).mean())
        )

    def _without_arms(self, users: CriteoUsers) -> Matrix:
        alone = logit(np.clip(users.effects, LEAST, 1.0 - LEAST))
        together: Matrix = alone[:, None] + users.features @ self._interaction
        return together

    def _calibrate(self, users: CriteoUsers) -> Vector:
        """b_arm such that the mean over users is the arm's click rate in the data (Newton)."""
        base = self._without_arms(users)
        effects = np.zeros(self.n_arms)
        for _ in range(NEWTON_STEPS):
            clicks = expit(base + effects)
            slope = (clicks * (1.0 - clicks)).mean(axis=0)
            step = (self.marginals.arm_click_rates - clicks.mean(axis=0)) / slope
            effects += step
            if np.abs(step).max() < 1e-12:
                break
        return effects


def sample_users(n_users: int, rng: np.random.Generator) -> CriteoUsers:
    """Independent users."""
    marginals, law = load_marginals(), _law()
    numbers = law.copula.sample(n_users, rng)
    pattern = rng.choice(len(marginals.patterns), size=n_users, p=marginals.pattern_shares)
    is_missing = marginals.patterns[pattern]
    logs = np.log1p(numbers - law.low)
    effects = np.where(
        is_missing, marginals.missing_effects, logs / law.log_range * marginals.effects
    ).sum(axis=1)
    return CriteoUsers(
        np.where(is_missing, np.nan, numbers),
        np.where(is_missing, 0.0, (logs - law.log_mean) / law.log_std),
        marginals.intercept + effects,
    )


@dataclass(frozen=True, slots=True)
class _Law:
    """The copula, and of each column minimum, range, mean and deviation after the logarithm."""

    copula: Copula
    low: Vector
    log_range: Vector
    log_mean: Vector
    log_std: Vector


@cache
def _law() -> _Law:
    facts: Marginals = load_marginals()
    columns = tuple(Marginal(c.levels, c.quantiles, zeros=c.zeros) for c in facts.numbers.values())
    low = np.array([column.low for column in columns])
    high = np.array([facts.numbers[name].quantiles[-1] for name in facts.numbers])
    logs = np.log1p(np.stack([column.quantile(even_levels()) for column in columns], axis=1) - low)
    return _Law(
        Copula(columns, facts.spearman),
        low,
        np.log1p(high - low),
        logs.mean(axis=0),
        logs.std(axis=0),
    )
