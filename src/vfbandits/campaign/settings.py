"""Settings of a campaign that may change while it runs, and how they are kept in its journal."""

import json
import math
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Final, TypeGuard

from vfbandits.campaign.comparison import MIN_EVENTS
from vfbandits.core.anytime import ALPHA
from vfbandits.core.policy import Policy
from vfbandits.core.policy.base import share
from vfbandits.core.policy.registry import describe, make_policy
from vfbandits.core.reward import REWARD_LIMIT, as_reward
from vfbandits.errors import RewardError, SettingError

DEFAULT: Final = "default"  # the campaign that is meant when none is named
LEARN: Final = "learn"
SHADOW: Final = "shadow"
FROZEN: Final = "frozen"
MODES: Final = (LEARN, SHADOW, FROZEN)
EARLIEST: Final = "earliest"
GUARDRAIL: Final = "guardrail"
SUM: Final = "sum"
AGGREGATIONS: Final = (EARLIEST, SUM)
ALL: Final = "all"
CHOSEN: Final = "chosen"
REWARD_BOUND: Final = 1e6
REWARD_WAIT_S: Final = 600.0


@dataclass(frozen=True, slots=True)
class Guardrail:
    """When a policy that loses against the holdback is switched to the baseline.

    Attributes
    ----------
    enabled
        Whether the policy is watched; that needs a holdback as well.
    alpha
        Probability that a policy is ever stopped which loses no more than ``margin``; at most 0.5.
    margin
        Loss per event that is tolerated, in the unit of the rewards.
    min_events
        Settled events that each group needs before anything is said.

    Examples
    --------
    >>> Guardrail(alpha=0.0)
    Traceback (most recent call last):
        ...
    vfbandits.errors.SettingError: alpha must be above 0 and at most 0.5, got 0.0
    """

    enabled: bool = True
    alpha: float = ALPHA
    margin: float = 0.0
    min_events: int = MIN_EVENTS

    def __post_init__(self) -> None:
        """Refuse invalid values."""
        if not isinstance(self.enabled, bool):
            raise SettingError(f"enabled must be true or false, got {self.enabled!r}")
        if not 0.0 < self.alpha <= 0.5:
            raise SettingError(f"alpha must be above 0 and at most 0.5, got {self.alpha!r}")
        if not 0.0 <= self.margin <= REWARD_LIMIT:
            raise SettingError(f"margin must be from 0 to {REWARD_LIMIT:g}, got {self.margin!r}")
        if self.min_events < 2 or self.min_events % 1:
            raise SettingError(f"min_events must be a whole number from 2, got {self.min_events!r}")
        object.__setattr__(self, "min_events", int(self.min_events))  # JSON may have said 100.0


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
        Fraction of events that get the baseline.
    reward_wait_s, default_reward
        How long a reward is waited for, None for ever; and what is learnt if none comes, None
        for nothing.
    aggregation
        "earliest" or "sum".
    activation_wait_s
        How long a held event waits for its activation, in seconds.
    reward_min, reward_max
        Bounds of every reward: one outside is refused, and so is such a ``default_reward``; a sum
        is learnt as the bound that it exceeds.
    guardrail
        When the campaign is switched to its baseline.
    log_contexts
        Whose contexts the journal keeps: those of the "chosen" arm, of "all" arms, or of all arms
        in a fraction of events.

    Examples
    --------
    >>> from vfbandits import LinUCB
    >>> settings = CampaignSettings(LinUCB(beta=1.0))
    >>> settings.changed({"mode": "frozen", "policy": {"beta": 0.5}}).policy
    LinUCB(beta=0.5)
    >>> settings.changed({"policy": {"name": "lingreedy", "epsilon": 0.1}}).policy
    LinGreedy(epsilon=0.1)
    >>> CampaignSettings.unpack(settings.pack()) == settings
    True
    """

    policy: Policy
    floor: float = 0.0
    mode: str = LEARN
    holdback: float = 0.0
    reward_wait_s: float | None = REWARD_WAIT_S
    default_reward: float | None = 0.0
    aggregation: str = EARLIEST
    activation_wait_s: float = 3600.0
    reward_min: float = -REWARD_BOUND
    reward_max: float = REWARD_BOUND
    guardrail: Guardrail = field(default_factory=Guardrail)
    log_contexts: str | float = CHOSEN
    described: dict[str, object] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        """Refuse invalid values."""
        if self.mode not in MODES:
            raise SettingError(f"mode must be one of {', '.join(MODES)}, got {self.mode!r}")
        if self.aggregation not in AGGREGATIONS:
            wanted = ", ".join(AGGREGATIONS)
            raise SettingError(f"aggregation must be one of {wanted}, got {self.aggregation!r}")
        share(self.floor, "floor")
        share(self.holdback, "holdback")
        for name in ("reward_wait_s", "activation_wait_s"):
            value = getattr(self, name)
            if value is None and name == "reward_wait_s":
                continue
            if not (_is_number(value) and value > 0.0):
                raise SettingError(f"{name} must be a number of seconds above 0, got {value!r}")
        self._check_bounds()
        _refuse_log_contexts(self.log_contexts)
        object.__setattr__(self, "described", describe(self.policy))

    def _check_bounds(self) -> None:
        for name in ("reward_min", "reward_max", "default_reward"):
            value = getattr(self, name)
            if not (_is_number(value) or (value is None and name == "default_reward")):
                raise SettingError(f"{name} must be a finite number, got {value!r}")
        least, most = self.reward_min, self.reward_max
        if not -REWARD_LIMIT <= least < most <= REWARD_LIMIT:
            raise SettingError(
                f"reward_min must be below reward_max, both within {REWARD_LIMIT:g} of 0, "
                f"got {least!r} and {most!r}"
            )
        if self.default_reward is not None and not least <= self.default_reward <= most:
            raise SettingError(
                f"default_reward must be from reward_min {least:g} to reward_max {most:g}, "
                f"got {self.default_reward!r}"
            )

    @property
    def logged_fraction(self) -> float:
        """Of events whose record keeps the contexts of all arms.

        >>> from vfbandits import LinUCB
        >>> [CampaignSettings(LinUCB(), log_contexts=x).logged_fraction
        ...  for x in ("chosen", "all", 0.1)]
        [0.0, 1.0, 0.1]
        """
        if isinstance(self.log_contexts, str):
            return 1.0 if self.log_contexts == ALL else 0.0
        return self.log_contexts

    def as_reward(self, value: float) -> float:
        """A reward that may be learnt; a RewardError outside the bounds.

        >>> from vfbandits import LinUCB
        >>> CampaignSettings(LinUCB(), reward_max=1.0).as_reward(1e100)
        Traceback (most recent call last):
            ...
        vfbandits.errors.RewardError: a reward must be from -1e+06 to 1 (...), got 1e+100
        """
        reward = as_reward(value)
        if not self.reward_min <= reward <= self.reward_max:
            raise RewardError(
                f"a reward must be from {self.reward_min:g} to {self.reward_max:g} "
                f"(reward_min, reward_max), got {reward:g}"
            )
        return reward

    def within(self, value: float) -> float:
        """A sum of rewards, or the bound that it exceeds."""
        return min(max(value, self.reward_min), self.reward_max)

    def bounded(self, most: float, *, why: str) -> "CampaignSettings":
        """The same with rewards of at most ``most`` in size; default bounds become that.

        >>> from vfbandits import LinUCB
        >>> CampaignSettings(LinUCB(), reward_min=0.0).bounded(16.0, why="here").reward_max
        16.0
        >>> CampaignSettings(LinUCB(), reward_max=20.0).bounded(16.0, why="here")
        Traceback (most recent call last):
            ...
        vfbandits.errors.SettingError: reward_max must be at most 16 in size here, got 20
        """
        bounds = {"reward_min": self.reward_min, "reward_max": self.reward_max}
        for name, value in bounds.items():
            if abs(value) == REWARD_BOUND:
                bounds[name] = math.copysign(most, value)
            elif not abs(value) <= most:
                raise SettingError(f"{name} must be at most {most:g} in size {why}, got {value:g}")
        return replace(self, reward_min=bounds["reward_min"], reward_max=bounds["reward_max"])

    def changed(self, changes: dict[str, object]) -> "CampaignSettings":
        """These settings with some changed; ``policy`` and ``guardrail`` by their parameters."""
        known = [f.name for f in fields(self) if f.init]
        unknown = [name for name in changes if name not in known]
        if unknown:
            raise SettingError(f"settings are {', '.join(known)}, got {', '.join(unknown)}")
        others = dict(changes)
        parameters = others.pop("policy", None)
        if parameters is not None:
            if not isinstance(parameters, dict):
                raise SettingError(
                    f"policy takes the policy's parameters by name, got {type(parameters).__name__}"
                )
            others["policy"] = _with(self.policy, parameters)
        guardrail = others.pop("guardrail", None)
        if guardrail is not None:
            if not isinstance(guardrail, dict):
                raise SettingError(
                    f"guardrail takes its settings by name, got {type(guardrail).__name__}"
                )
            others["guardrail"] = _with_guardrail(self.guardrail, guardrail)
        return replace(self, **others)  # type: ignore[arg-type]  # __post_init__ checks them

    def pack(self) -> bytes:
        """For the journal."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.init}
        parts = {"policy": self.described, "guardrail": asdict(self.guardrail)}
        return json.dumps({**values, **parts}, sort_keys=True).encode()

    @classmethod
    def unpack(cls, data: bytes) -> "CampaignSettings":
        """From the journal."""
        values = json.loads(data)
        if "reward_min" not in values:  # written before there were bounds
            default = values["default_reward"] or 0.0
            values["reward_min"] = min(-REWARD_BOUND, default)
            values["reward_max"] = max(REWARD_BOUND, default)
        policy = values.pop("policy")
        values["guardrail"] = Guardrail(**values.get("guardrail", {}))
        return cls(make_policy(policy.pop("name"), policy), **values)


def _with_guardrail(guardrail: Guardrail, changes: dict[str, object]) -> Guardrail:
    known = [f.name for f in fields(guardrail)]
    unknown = [name for name in changes if name not in known]
    if unknown:
        raise SettingError(
            f"settings of the guardrail are {', '.join(known)}, got {', '.join(unknown)}"
        )
    try:
        return replace(guardrail, **changes)  # type: ignore[arg-type]  # __post_init__ checks them
    except SettingError as error:
        raise SettingError(f"guardrail.{error}") from None


def _is_number(value: object) -> TypeGuard[float]:
    if isinstance(value, bool) or not isinstance(value, float | int):
        return False
    return math.isfinite(value)


def _refuse_log_contexts(value: object) -> None:
    if isinstance(value, str) and value in (ALL, CHOSEN):
        return
    if _is_number(value) and 0.0 <= value <= 1.0:
        return
    raise SettingError(
        f"log_contexts must be {ALL!r}, {CHOSEN!r} or a fraction of events from 0 to 1, "
        f"got {value!r}"
    )


def _with(policy: Policy, parameters: dict[str, object]) -> Policy:
    """The policy with other parameters, or with another ``name`` a policy with these."""
    described = describe(policy)
    name = str(described.pop("name"))
    parameters = dict(parameters)
    wanted = str(parameters.pop("name", name))
    if wanted != name:
        return make_policy(wanted, parameters)
    unknown = [key for key in parameters if key not in described]
    if unknown:
        raise SettingError(
            f"parameters of {name} are {', '.join(described)}, got {', '.join(unknown)}"
        )
    return make_policy(name, {**described, **parameters})
