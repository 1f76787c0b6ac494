"""LinUCB: estimate plus a multiple of the width (equation 1 of the paper)."""

import math
from dataclasses import dataclass

import numpy as np

from vfbandits.core.arrays import Vector
from vfbandits.core.estimate import ArmStatistics
from vfbandits.core.policy.base import Scored, at_least_zero, share
from vfbandits.core.sampler import Draws
from vfbandits.errors import SettingError


@dataclass(frozen=True, slots=True)
class OFUL:
    """The confidence radius of Abbasi-Yadkori, Pál and Szepesvári (2011), theorem 2.

    beta = noise·√(log(det Lambda / det λI) + 2·log(1/delta)) + √λ·norm_bound: with probability
    1 − delta every width covers the truth in every round, if ``norm_bound`` ≥ ‖theta_star‖ and
    rewards are sub-Gaussian with scale ``noise``.  Nothing is promised under forgetting.

    >>> OFUL(noise=0.1, norm_bound=2.0)
    OFUL(noise=0.1, norm_bound=2.0, delta=0.05)
    """

    noise: float
    norm_bound: float = 1.0
    delta: float = 0.05

    def __post_init__(self) -> None:
        """Refuse what is no confidence level."""
        at_least_zero(self.noise, "noise")
        at_least_zero(self.norm_bound, "norm_bound")
        if not 0.0 < share(self.delta, "delta") < 1.0:
            raise SettingError(f"delta must be between 0 and 1, got {self.delta!r}")

    def radius(self, statistics: ArmStatistics) -> float | Vector:
        """Beta now: one number, or one for each arm where arms share nothing."""
        information = statistics.log_det_ratio + 2.0 * math.log(1.0 / self.delta)
        root: float | Vector = np.sqrt(information)
        return self.noise * root + math.sqrt(statistics.ridge) * self.norm_bound


@dataclass(frozen=True, slots=True)
class LinUCB:
    """Score = mean + beta·width; ``beta`` is a constant or an ``OFUL`` schedule.

    >>> LinUCB(beta=0.5)
    LinUCB(beta=0.5)
    >>> LinUCB(beta=OFUL(noise=0.05)).beta.delta
    0.05
    """

    beta: float | OFUL = 0.5

    def __post_init__(self) -> None:
        """Refuse what is no multiplier."""
        if not isinstance(self.beta, OFUL):
            at_least_zero(self.beta, "beta")

    def score(self, statistics: ArmStatistics, rng: Draws) -> Scored:
        """Upper confidence bounds."""
        del rng
        beta = self.beta.radius(statistics) if isinstance(self.beta, OFUL) else self.beta
        return Scored(statistics.means + beta * statistics.widths)
