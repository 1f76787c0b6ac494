"""Plays logged rounds to a bandit or a federation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from vfbandits.core.bandit import Bandit, BanditOptions
from vfbandits.core.decision import Decision
from vfbandits.core.policy import Policy
from vfbandits.core.round import Federation
from vfbandits.errors import SettingError
from vfbandits.evaluate.log import Indices, LoggedBandit

Agent: TypeAlias = Bandit | Federation
MakeAgent: TypeAlias = Callable[[], Agent]


@dataclass(frozen=True, slots=True)
class AgentFactory:
    """Makes agents for a log, in any process: a federation if ``mask`` names a family of masks.

    ``widths`` are the participants' numbers of columns, or one number for all columns.
    """

    policy: Policy
    widths: dict[str, int] | int
    options: BanditOptions
    mask: str | None = None

    def __call__(self) -> Agent:
        """A new one, which has learnt nothing."""
        if isinstance(self.widths, dict):
            mask = self.mask or "blockwise"
            return Federation(self.policy, widths=self.widths, mask=mask, **self.options)
        return Bandit(self.policy, dim=self.widths, **self.options)


class LogPlayer:
    """Lets ``agent`` see the rounds of ``log``.  A federation gets each owner's columns."""

    def __init__(self, agent: Agent, log: LoggedBandit) -> None:
        self.agent = agent
        self.log = log
        self._bandit = agent.bandit if isinstance(agent, Federation) else agent
        _refuse_misfit(agent, self._bandit, log)

    def decide(self, number: int) -> Decision:
        """Choose among the arms that were offered in round ``number``."""
        return self._decide(number, None if self.log.offered is None else self.log.offer(number))

    def decide_many(self, rounds: slice) -> list[Decision]:
        """Choose in several rounds, learning nothing in between."""
        if not self.log.has_one_offer:
            return [self.decide(number) for number in range(rounds.start, rounds.stop)]
        contexts = self.log.contexts[rounds]
        arms, features = self.log.arms, self.log.arm_features
        if isinstance(self.agent, Federation):
            blocks = self.log.blocks(contexts)
            return self.agent.decide_many(blocks, arms=arms, arm_features=features)
        return self.agent.decide_many(contexts, arms=arms, arm_features=features)

    def reward(self, decision: Decision, number: int) -> None:
        """Learn the logged reward of round ``number`` for a decision that matched the log."""
        self._bandit.reward(decision, float(self.log.rewards[number]))

    def forget(self, decision: Decision) -> None:
        """Learn nothing from a decision."""
        self._bandit.forget(decision)

    def learn(self, number: int) -> None:
        """Learn what the log did in round ``number``: a round with the logged arm alone on offer.

        So an agent learns from arms that it would not have chosen, through its public API.
        """
        only = self.log.chosen[number : number + 1]
        self.reward(self._decide(number, only), number)

    def _decide(self, number: int, offer: Indices | None) -> Decision:
        log = self.log
        contexts, arms, features = log.contexts[number], log.arms, log.features_of(number)
        if offer is not None:
            contexts = contexts[offer] if log.layout == "per_arm" else contexts
            arms = tuple(arms[index] for index in offer)
            features = None if features is None else features[offer]
        if isinstance(self.agent, Federation):
            return self.agent.decide(log.blocks(contexts), arms=arms, arm_features=features)
        return self.agent.decide(np.ascontiguousarray(contexts), arms=arms, arm_features=features)


def _refuse_misfit(agent: Agent, bandit: Bandit, log: LoggedBandit) -> None:
    if bandit.layout.layout != log.layout:
        raise SettingError(
            f"the target must have the log's layout {log.layout!r}, got {bandit.layout.layout!r}"
        )
    if bandit.dim != log.dim:
        raise SettingError(f"the target must take contexts of width {log.dim}, got {bandit.dim}")
    if isinstance(agent, Federation) and dict(agent.split.items()) != log.widths:
        raise SettingError(
            f"the target must have the log's participants {log.widths}, "
            f"got {dict(agent.split.items())}"
        )
