"""The bandit that a configuration file describes."""

from dataclasses import dataclass

from vfbandits.core.bandit import Bandit
from vfbandits.core.layout import MAX_ARMS
from vfbandits.core.policy import Policy
from vfbandits.core.policy.registry import POLICIES
from vfbandits.errors import ConfigError
from vfbandits.protocol.roster import Roster
from vfbandits.settings.policy import policy_from
from vfbandits.settings.table import Table

DAY_S = 86_400.0
MAX_PENDING = 100_000


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The bandit at the active participant; its width comes from the roster.

    ``max_pending`` decisions that wait for a reward are kept in memory; the others are found in
    the journal.
    """

    policy: Policy
    ridge: float = 1.0
    discount: float = 1.0
    floor: float = 0.0
    seed: int | None = None
    max_arms: int = MAX_ARMS
    arm_expiry_days: float | None = None
    max_pending: int = MAX_PENDING

    @property
    def arm_expiry_s(self) -> float | None:
        """For how long an arm's own model is kept that is not shown; None for ever."""
        return None if self.arm_expiry_days is None else self.arm_expiry_days * DAY_S

    def build(self, roster: Roster, *, seed: int | None = None) -> Bandit:
        """A bandit that has learnt nothing, for the roster's layout and width."""
        terms = roster.terms
        if self.arm_expiry_days is not None and terms.layout != "disjoint":
            raise ConfigError(
                "arm_expiry_days goes with layout 'disjoint', where arms have models of their own, "
                f"got layout {terms.layout!r}"
            )
        return Bandit(
            self.policy,
            dim=roster.split.dim,
            layout=terms.layout,
            arm_dim=terms.arm_dim or None,
            intercept=terms.intercept,
            ridge=self.ridge,
            discount=self.discount,
            floor=self.floor,
            seed=self.seed if seed is None else seed,
            max_arms=self.max_arms,
            max_open=self.max_pending,
        )


def model_from(table: Table) -> ModelSettings:
    """The table [model]."""
    name = table.text("policy", "linucb")
    if name not in POLICIES:
        raise table.wrong("policy", f"one of {', '.join(POLICIES)}", name)
    seed = table.whole("seed", -1)
    expires = table.has("arm_expiry_days")
    days = table.number("arm_expiry_days", 1.0)
    if not days > 0.0:
        raise table.wrong("arm_expiry_days", "a number of days above 0", days)
    max_pending = table.whole("max_pending", MAX_PENDING)
    if max_pending < 1:
        raise table.wrong("max_pending", "a whole number from 1", max_pending)
    parameters = table.rest(tuple(POLICIES[name].__dataclass_fields__))
    settings = ModelSettings(
        policy_from(name, parameters),
        ridge=table.number("ridge", 1.0),
        discount=table.number("discount", 1.0),
        floor=table.number("floor", 0.0),
        seed=None if seed < 0 else seed,
        max_arms=table.whole("max_arms", MAX_ARMS),
        arm_expiry_days=days if expires else None,
        max_pending=max_pending,
    )
    table.close()
    return settings
