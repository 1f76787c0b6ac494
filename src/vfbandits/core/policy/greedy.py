"""LinGreedy: the best estimate, or now and then any arm."""

from dataclasses import dataclass

from vfbandits.core.estimate import ArmStatistics
from vfbandits.core.policy.base import Scored, share
from vfbandits.core.sampler import Draws


@dataclass(frozen=True, slots=True)
class LinGreedy:
    """Score = mean; with probability ``epsilon`` an arm is drawn uniformly (ε-greedy).

    >>> LinGreedy(epsilon=0.1)
    LinGreedy(epsilon=0.1)
    """

    epsilon: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is no fraction."""
        share(self.epsilon, "epsilon")

    def score(self, statistics: ArmStatistics, rng: Draws) -> Scored:
        """The estimates themselves."""
        del rng
        return Scored(statistics.means, uniform=self.epsilon)
