"""The Policy protocol: one method."""

from typing import NamedTuple, Protocol

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.estimate import ArmStatistics
from vfbandits.core.sampler import Draws
from vfbandits.errors import SettingError


class ScoreLaw(Protocol):
    """The law that one round's scores were drawn from."""

    @property
    def n_draws(self) -> int:
        """How many draws a Monte Carlo estimate of a probability takes."""
        ...

    def draw_scores(self, rng: Draws, count: int) -> Matrix:
        """Independent draws of all scores, (count, n_arms)."""
        ...


class Scored(NamedTuple):
    """Scores of one round, and how the arm follows from them.

    By default the arm is the first of the best scores.  With ``probabilities`` it is drawn from
    them.  With ``law`` the scores themselves were drawn, and probabilities are estimated from it.
    ``uniform`` is the fraction of rounds in which the policy picks any arm, all alike.
    """

    values: Vector
    probabilities: Vector | None = None
    law: ScoreLaw | None = None
    uniform: float = 0.0


class Policy(Protocol):
    """Scores for the arms of a round, from their statistics alone.

    Write your own: one method, and it works behind every mask and in every layout.

    >>> import vfbandits as vfb
    >>> class Cautious:
    ...     def score(self, statistics, rng):
    ...         return Scored(statistics.means - statistics.widths)
    >>> vfb.Bandit(Cautious(), dim=2).decide([[3.0, 0.0], [1.0, 0.0]]).arm
    1
    """

    def score(self, statistics: ArmStatistics, rng: Draws) -> Scored:
        """One score per arm; randomness comes from ``rng`` and nowhere else."""
        ...


def at_least_zero(value: float, what: str) -> float:
    """``value`` if it is a finite number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e100:
        raise SettingError(f"{what} must be a number of at least 0, got {value!r}")
    return value


def share(value: float, what: str) -> float:
    """``value`` if it is a fraction: a number from 0 to 1."""
    if at_least_zero(value, what) > 1:
        raise SettingError(f"{what} must be between 0 and 1, got {value!r}")
    return value
