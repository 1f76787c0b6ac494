"""The bandit that a configuration file describes."""

from dataclasses import dataclass

from vfbandits.core.bandit import Bandit
from vfbandits.core.layout import MAX_ARMS
from vfbandits.core.policy import Policy
from vfbandits.core.policy.registry import POLICIES
from vfbandits.protocol.roster import Roster
from vfbandits.store.policy_table import policy_from
from vfbandits.store.table import Table


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The bandit at the active participant; its width comes from the roster."""

    policy: Policy
    ridge: float = 1.0
    discount: float = 1.0
    floor: float = 0.0
    seed: int | None = None
    max_arms: int = MAX_ARMS

    def build(self, roster: Roster, *, seed: int | None = None) -> Bandit:
        """A bandit that has learnt nothing, for the roster's layout and width."""
        terms = roster.terms
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
        )


def model_from(table: Table) -> ModelSettings:
    """The table [model]."""
    name = table.text("policy", "linucb")
    if name not in POLICIES:
        raise table.wrong("policy", f"one of {', '.join(POLICIES)}", name)
    seed = table.whole("seed", -1)
    parameters = table.rest(tuple(POLICIES[name].__dataclass_fields__))
    settings = ModelSettings(
        policy_from(name, parameters),
        ridge=table.number("ridge", 1.0),
        discount=table.number("discount", 1.0),
        floor=table.number("floor", 0.0),
        seed=None if seed < 0 else seed,
        max_arms=table.whole("max_arms", MAX_ARMS),
    )
    table.close()
    return settings
