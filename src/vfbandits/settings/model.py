"""The bandit that a configuration file describes."""

from typing import Annotated

from msgspec import Meta

from vfbandits.core.bandit import Bandit
from vfbandits.core.layout import MAX_ARMS
from vfbandits.core.policy import Policy
from vfbandits.core.shares.slots import SlotLearner
from vfbandits.errors import ConfigError
from vfbandits.protocol.roster import Roster
from vfbandits.settings.policy import PolicySettings
from vfbandits.settings.values import AtLeastOne, Count, Fraction, Positive

DAY_S = 86_400.0
MAX_PENDING = 100_000


class ModelSettings(PolicySettings, frozen=True, kw_only=True):
    """The bandit at the active participant; its width comes from the roster.

    Attributes
    ----------
    ridge
        Ridge regularisation.
    discount
        Factor on the weight of earlier rewards at each new one; below 1 the past is forgotten.
    floor
        Fraction of decisions made at random.
    seed
        Seed of the policy's random draws; without it each start differs.
    max_arms
        Maximum number of arms with a model (layout disjoint).
    arm_expiry_days
        Days after which an arm that is not shown loses its model (layout disjoint).
    max_pending
        Maximum number of pending decisions in memory; the others are read from the journal.
    """

    ridge: Positive = 1.0
    discount: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    floor: Fraction = 0.0
    seed: Count | None = None
    max_arms: AtLeastOne = MAX_ARMS
    arm_expiry_days: Positive | None = None
    max_pending: AtLeastOne = MAX_PENDING

    @property
    def arm_expiry_s(self) -> float | None:
        """Seconds after which an arm that is not shown loses its model; None for never."""
        return None if self.arm_expiry_days is None else self.arm_expiry_days * DAY_S

    def build(self, roster: Roster, *, seed: int | None = None) -> Bandit:
        """A new bandit, with the layout and the width of the roster."""
        terms = roster.terms
        if self.arm_expiry_days is not None and terms.layout != "disjoint":
            raise ConfigError(
                "arm_expiry_days goes with layout 'disjoint', where arms have models of their own, "
                f"got layout {terms.layout!r}"
            )
        policy = self._policy_for(roster)
        bandit = Bandit(
            policy,
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
        if terms.shares is not None:
            bandit.learn_with(SlotLearner(roster.share_terms))
        return bandit

    def _policy_for(self, roster: Roster) -> Policy:
        """The policy, as it runs at the roster's protection level."""
        rules = roster.terms.shares
        if rules is None:
            return self.policy
        for name, pinned, ours in (
            ("ridge", rules.ridge, self.ridge),
            ("discount", 1.0, self.discount),
        ):
            if pinned != ours:
                raise ConfigError(
                    f"{name} under [model] must be {pinned:g} under protection 'shares', as the "
                    f"roster's terms say, got {ours:g}"
                )
        return SlotLearner(roster.share_terms).plan(self.policy).policy
