"""LinTS: scores drawn from the posterior of the arms' rewards.

The paper draws theta and compares x'theta.  Drawing the scores of all arms jointly has the same
law, and in arm space it uses inner products only: with the same normals, a masked and a plain run
choose the same arms.
"""

from dataclasses import dataclass
from typing import Final, Literal

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.estimate import ArmStatistics
from vfbandits.core.policy.base import Scored, at_least_zero
from vfbandits.core.sampler import Draws, Sampler
from vfbandits.core.settings import whole
from vfbandits.errors import SettingError

MAX_DRAWS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class PosteriorLaw:
    """N(means, scale²·C): what LinTS drew its scores from."""

    means: Vector
    scale: float
    sampler: Sampler
    n_draws: int

    def draw_scores(self, rng: Draws, count: int) -> Matrix:
        """Independent draws of all scores, (count, n_arms)."""
        return self.means + self.scale * self.sampler.draw_many(rng, count)


@dataclass(frozen=True, slots=True)
class LinTS:
    """Scores ~ N(X theta, posterior_scale²·X Lambda⁻¹ X'), drawn jointly.

    ``space`` says where the draw is made.  "arm": one normal per arm, O(K·dim² + K³), and masked
    equals plain decision for decision.  "parameter": dim normals, O(dim² + K·dim), equal in
    distribution.  "auto": "arm" up to K = dim, then "parameter".  Only arms that share a theta
    and come with their own contexts (layout ``per_arm``) have the choice; elsewhere the draw is
    path-equal anyway.  ``n_draws`` is the size of the Monte Carlo behind ``probability``.

    >>> LinTS(posterior_scale=0.01).space
    'auto'
    """

    posterior_scale: float = 0.1
    space: Literal["auto", "arm", "parameter"] = "auto"
    n_draws: int = 1_000

    def __post_init__(self) -> None:
        """Refuse what is no scale, space or number of draws."""
        at_least_zero(self.posterior_scale, "posterior_scale")
        if self.space not in ("auto", "arm", "parameter"):
            raise SettingError(f"space must be 'auto', 'arm' or 'parameter', got {self.space!r}")
        draws: object = self.n_draws
        if isinstance(draws, float) and draws.is_integer():  # JSON may have said 1000.0
            draws = int(draws)
        if whole(draws, "n_draws") > MAX_DRAWS:
            raise SettingError(f"n_draws must be at most {MAX_DRAWS}, got {draws!r:.40}")
        object.__setattr__(self, "n_draws", draws)

    def score(self, statistics: ArmStatistics, rng: Draws) -> Scored:
        """One joint posterior draw."""
        means = statistics.means
        sampler = statistics.sampler(self.space)
        law = PosteriorLaw(means, self.posterior_scale, sampler, self.n_draws)
        return Scored(means + self.posterior_scale * sampler.draw(rng), law=law)
