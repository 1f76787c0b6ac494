"""Cumulative regret: what a player lost against one who knows theta_star.

A player is a bandit in its seat: a plain one that sees some columns of the contexts, or a
federation that gets them behind masks.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from vfbandits.core.arrays import Vector
from vfbandits.core.bandit import Bandit
from vfbandits.core.decision import Decision
from vfbandits.core.round import Federation
from vfbandits.simulate.steps import counted
from vfbandits.simulate.world import WorldRound

MAX_POINTS = 500


class Player(Protocol):
    """Plays rounds of a world."""

    def decide(self, given: WorldRound) -> Decision:
        """Choose an arm."""
        ...

    def reward(self, decision: Decision, value: float) -> bool:
        """Learn what it gave."""
        ...


@dataclass(frozen=True, slots=True)
class CentralPlayer:
    """A plain bandit on ``columns`` of the context, and no others."""

    bandit: Bandit
    columns: NDArray[np.intp]

    def decide(self, given: WorldRound) -> Decision:
        """Choose an arm from the visible columns."""
        contexts = given.contexts
        if len(self.columns) < contexts.shape[-1]:
            contexts = contexts[..., self.columns]
        return self.bandit.decide(contexts, arms=given.arms, arm_features=given.arm_features)

    def reward(self, decision: Decision, value: float) -> bool:
        """Learn what it gave."""
        return self.bandit.reward(decision, value)


@dataclass(frozen=True, slots=True)
class FederatedPlayer:
    """A federation of some of the world's participants."""

    federation: Federation

    def decide(self, given: WorldRound) -> Decision:
        """Choose an arm from the blocks of the participants."""
        blocks = {name: given.blocks[name] for name in self.federation.split.names}
        return self.federation.decide(blocks, arms=given.arms, arm_features=given.arm_features)

    def reward(self, decision: Decision, value: float) -> bool:
        """Learn what it gave."""
        return self.federation.reward(decision, value)


def cumulative_regret(player: Player, rounds: Iterable[WorldRound]) -> Vector:
    """Σ (best expected reward − the chosen arm's), after each round; noise does not enter."""
    losses: list[float] = []
    for given in counted(rounds):
        decision = player.decide(given)
        player.reward(decision, float(given.rewards[decision.index]))
        losses.append(float(given.expected.max() - given.expected[decision.index]))
    return np.cumsum(losses)


def kept_rounds(horizon: int) -> NDArray[np.intp]:
    """Round numbers, from 1, at which a curve is kept: at most 500, evenly, and the last.

    >>> kept_rounds(5)
    array([1, 2, 3, 4, 5])
    >>> kept_rounds(1001)[[0, 1, -2, -1]]
    array([   3,    6,  999, 1001])
    """
    step = max(1, math.ceil(horizon / MAX_POINTS))
    rounds = np.arange(step, horizon + 1, step, dtype=np.intp)
    return rounds if rounds[-1] == horizon else np.append(rounds, horizon)
