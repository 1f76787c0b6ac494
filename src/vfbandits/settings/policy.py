"""A policy from the keys of a settings file."""

from typing import Literal, TypeAlias

import msgspec

from vfbandits.core.policy import OFUL, Policy
from vfbandits.core.policy.registry import POLICIES, make_policy
from vfbandits.errors import SettingError
from vfbandits.settings.values import AtLeastOne, Settings

PolicyName: TypeAlias = Literal["linucb", "lints", "lingreedy", "inverse_gap"]
PARAMETERS = ("beta", "posterior_scale", "space", "n_draws", "epsilon", "scale", "exponent")


class PolicySettings(Settings, frozen=True, kw_only=True):
    """A policy's name, with its parameters beside it.

    Attributes
    ----------
    policy
        How to explore.
    beta
        linucb: width multiplier, 0.5 by default, or a table with the noise of the rewards.
    posterior_scale
        lints: scale of the draw, 0.1 by default.
    space
        lints: where to draw, "auto" by default.
    n_draws
        lints: number of Monte Carlo draws for a probability, 1000 by default.
    epsilon
        lingreedy: fraction of decisions that pick any arm, 0 by default.
    scale, exponent
        inverse_gap: the schedule of its exploration, 10 and 0.5 by default.
    """

    policy_name: PolicyName = msgspec.field(default="linucb", name="policy")
    beta: float | OFUL | None = None
    posterior_scale: float | None = None
    space: Literal["auto", "arm", "parameter"] | None = None
    n_draws: AtLeastOne | None = None
    epsilon: float | None = None
    scale: float | None = None
    exponent: float | None = None

    def __post_init__(self) -> None:
        """Refuse parameters that the policy does not have."""
        for key in self._given():
            if key not in POLICIES[self.policy_name].__dataclass_fields__:
                owner = next(n for n, kind in POLICIES.items() if key in kind.__dataclass_fields__)
                raise SettingError(
                    f"{key} goes with policy {owner!r}, got policy {self.policy_name!r}"
                )
        self.policy  # noqa: B018  (refuses values)

    @property
    def policy(self) -> Policy:
        """The policy itself."""
        return make_policy(self.policy_name, self._given())

    def _given(self) -> dict[str, object]:
        values = {key: getattr(self, key) for key in PARAMETERS}
        return {key: value for key, value in values.items() if value is not None}
