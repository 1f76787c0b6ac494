"""From the name of a layout to its learner."""

from dataclasses import dataclass

from vfbandits.core.layout.base import Learner
from vfbandits.core.layout.disjoint import DisjointLearner
from vfbandits.core.layout.outer import OuterLearner
from vfbandits.core.layout.per_arm import PerArmLearner
from vfbandits.core.settings import LearnerSettings, whole
from vfbandits.errors import SettingError

LAYOUTS = ("per_arm", "outer", "disjoint")
MAX_ARMS = 100_000


@dataclass(frozen=True, slots=True)
class LayoutSettings:
    """Which layout, how wide the contexts are, and what ``outer`` and ``disjoint`` add."""

    dim: int
    layout: str = "per_arm"
    arm_dim: int | None = None
    intercept: bool = False
    max_arms: int = MAX_ARMS

    def __post_init__(self) -> None:
        """Refuse settings that do not go together."""
        whole(self.dim, "dim")
        whole(self.max_arms, "max_arms")
        if self.layout not in LAYOUTS:
            raise SettingError(f"layout must be one of {', '.join(LAYOUTS)}, got {self.layout!r}")
        if self.layout == "outer":
            whole(self.arm_dim, "arm_dim (the width of arm_features, for layout 'outer')")
        elif self.arm_dim is not None:
            raise SettingError(f"arm_dim goes with layout 'outer', got layout {self.layout!r}")
        if self.intercept and self.layout == "per_arm":
            raise SettingError("intercept goes with 'outer' and 'disjoint', got layout 'per_arm'")


def build_learner(layout: LayoutSettings, settings: LearnerSettings) -> Learner:
    """An untaught learner."""
    if layout.layout == "outer" and layout.arm_dim is not None:
        return OuterLearner(layout.dim, layout.arm_dim, settings, intercept=layout.intercept)
    if layout.layout == "disjoint":
        return DisjointLearner(
            layout.dim, settings, intercept=layout.intercept, max_arms=layout.max_arms
        )
    return PerArmLearner(layout.dim, settings)
