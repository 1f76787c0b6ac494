"""Inverse-gap weighting (SquareCB, Foster and Rakhlin 2020) on the ridge estimate.

Every arm keeps a probability that is known exactly and never zero: what off-policy evaluation of
the log asks for.
"""

from dataclasses import dataclass

from vfbandits.core.decision import first_best
from vfbandits.core.estimate import ArmStatistics
from vfbandits.core.policy.base import Scored, at_least_zero
from vfbandits.core.sampler import Draws


@dataclass(frozen=True, slots=True)
class InverseGap:
    """Arm a is drawn with probability 1 / (K + gamma·gap_a), the best one with what is left.

    gap_a is how far the estimate of a is below the best.  gamma = scale·n^exponent, n the number
    of rewards learnt (at least 1): it grows, so exploration fades.

    >>> InverseGap(scale=20.0)
    InverseGap(scale=20.0, exponent=0.5)
    """

    scale: float = 10.0
    exponent: float = 0.5

    def __post_init__(self) -> None:
        """Refuse what is no schedule."""
        at_least_zero(self.scale, "scale")
        at_least_zero(self.exponent, "exponent")

    def score(self, statistics: ArmStatistics, rng: Draws) -> Scored:
        """The estimates, with the probabilities that follow from their gaps."""
        del rng
        means = statistics.means
        best = first_best(means, statistics.magnitude)
        gamma = self.scale * max(statistics.n_updates, 1) ** self.exponent
        gaps = (means[best] - means).clip(min=0.0)
        probabilities = 1.0 / (statistics.n_arms + gamma * gaps)
        probabilities[best] = 0.0
        probabilities[best] = 1.0 - probabilities.sum()
        return Scored(means, probabilities=probabilities)
