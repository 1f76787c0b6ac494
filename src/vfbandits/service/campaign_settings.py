"""Settings of a campaign that may change while it runs, and how they are kept in its log."""

import json
import math
from dataclasses import dataclass, field, fields, replace
from typing import Final

from vfbandits.core.policy import Policy
from vfbandits.core.policy.base import share
from vfbandits.core.policy.registry import describe, make_policy
from vfbandits.core.reward import REWARD_LIMIT
from vfbandits.errors import SettingError

DEFAULT: Final = "default"  # the campaign that is meant when none is named
LEARN: Final = "learn"
SHADOW: Final = "shadow"
FROZEN: Final = "frozen"
MODES: Final = (LEARN, SHADOW, FROZEN)
EARLIEST: Final = "earliest"
SUM: Final = "sum"
AGGREGATIONS: Final = (EARLIEST, SUM)


@dataclass(frozen=True, slots=True)
class CampaignSettings:
    """How a campaign decides and what it makes of rewards.

    Attributes
    ----------
    policy, floor
        As a bandit's.
    mode
        "learn"; "shadow": the baseline is shown, and learnt from; "frozen": nothing is learnt.
    holdback
        Share of events that get the baseline.
    reward_wait_s, default_reward
        How long a reward is waited for, and what is learnt if none comes; None for nothing.
    aggregation
        "earliest" or "sum".
    activation_wait_s
        How long an event that is held is kept.

    Examples
    --------
    >>> from vfbandits import LinUCB
    >>> settings = CampaignSettings(LinUCB(beta=1.0))
    >>> settings.changed({"mode": "frozen", "policy": {"beta": 0.5}}).policy
    LinUCB(beta=0.5)
    >>> CampaignSettings.unpack(settings.pack()) == settings
    True
    """

    policy: Policy
    floor: float = 0.0
    mode: str = LEARN
    holdback: float = 0.0
    reward_wait_s: float = 600.0
    default_reward: float | None = 0.0
    aggregation: str = EARLIEST
    activation_wait_s: float = 3600.0
    described: dict[str, object] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        if self.mode not in MODES:
            raise SettingError(f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        if self.aggregation not in AGGREGATIONS:
            wanted = ", ".join(AGGREGATIONS)
            raise SettingError(f"aggregation must be one of {wanted}, got {self.aggregation!r}")
        share(self.floor, "floor")
        share(self.holdback, "holdback")
        for name in ("reward_wait_s", "activation_wait_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise SettingError(f"{name} must be a number of seconds above 0, got {value!r}")
        if self.default_reward is not None and not abs(self.default_reward) <= REWARD_LIMIT:
            raise SettingError(
                f"default_reward must be a finite number up to {REWARD_LIMIT:g}, "
                f"got {self.default_reward!r}"
            )
        object.__setattr__(self, "described", describe(self.policy))

    def changed(self, changes: dict[str, object]) -> "CampaignSettings":
        """These settings with some others; of the policy, its parameters."""
        known = [f.name for f in fields(self) if f.init]
        unknown = [name for name in changes if name not in known]
        if unknown:
            raise SettingError(f"settings are {', '.join(known)}, got {', '.join(unknown)}")
        others = dict(changes)
        parameters = others.pop("policy", None)
        if parameters is not None:
            if not isinstance(parameters, dict):
                raise SettingError("policy takes the policy's parameters by name")
            others["policy"] = _with(self.policy, parameters)
        return replace(self, **others)  # type: ignore[arg-type]  # __post_init__ checks them

    def pack(self) -> bytes:
        """For the log."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.init}
        return json.dumps({**values, "policy": self.described}, sort_keys=True).encode()

    @classmethod
    def unpack(cls, data: bytes) -> "CampaignSettings":
        """From the log."""
        values = json.loads(data)
        policy = values.pop("policy")
        return cls(make_policy(policy.pop("name"), policy), **values)


def _with(policy: Policy, parameters: dict[str, object]) -> Policy:
    described = describe(policy)
    name = str(described.pop("name"))
    unknown = [key for key in parameters if key not in described]
    if unknown:
        raise SettingError(
            f"parameters of {name} are {', '.join(described)}, got {', '.join(unknown)}"
        )
    return make_policy(name, {**described, **parameters})
