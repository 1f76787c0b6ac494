"""Noise on what leaves a passive participant: one table of its configuration file."""

from typing import Annotated, Literal

from msgspec import Meta

from vfbandits.core.noise import MAX_DELTA, MAX_EPSILON, MIN_DELTA, MIN_EPSILON, VectorNoise
from vfbandits.settings.values import Positive, Settings


class NoiseSettings(Settings, frozen=True, kw_only=True):
    """Gaussian noise on each vector before it is masked; without this table there is none.

    Attributes
    ----------
    epsilon
        Epsilon of the release of one vector, however often it is requested.
    delta
        Delta of the same release.
    clip
        Largest Euclidean norm of a vector; longer ones are scaled down to it.
    unit
        Unit that epsilon is for: "vector".  Every other vector of the same user, such as the one
        after a feature changed, costs epsilon again.
    """

    epsilon: Annotated[float, Meta(ge=MIN_EPSILON, le=MAX_EPSILON)]
    delta: Annotated[float, Meta(ge=MIN_DELTA, le=MAX_DELTA)]
    clip: Positive
    unit: Literal["vector"]

    @property
    def terms(self) -> VectorNoise:
        """The same, as a mechanism."""
        return VectorNoise(self.epsilon, self.delta, self.clip)
