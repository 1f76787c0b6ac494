"""Replay: let a learning policy walk through the log (Li et al. 2010, 2011).

In each round the policy chooses; where its arm is the logged one the round counts and the policy
learns from it, otherwise the round is skipped.  On a *uniform* log the rounds
that count are distributed as in a live run of that many rounds, learning included.  On any other
log the matched rounds are too often those that the logging policy liked, and the value is biased.
"""

from dataclasses import dataclass, field

import numpy as np

from vfbandits.core.arrays import Vector
from vfbandits.evaluate.log import Indices, LoggedBandit
from vfbandits.evaluate.player import Agent, LogPlayer
from vfbandits.evaluate.terms import Terms
from vfbandits.simulate.steps import counted


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """The result of a replay: the rounds that counted, their rewards, and whether it is unbiased.

    ``seen`` are the logged rewards of all rounds that were tried.  ``is_uniform`` says whether
    the log was uniform; if not, the value is biased.
    """

    rounds: Indices = field(repr=False)
    seen: Vector = field(repr=False)
    is_uniform: bool

    @property
    def rewards(self) -> Vector:
        """Rewards of the rounds that counted."""
        return self.seen[self.rounds]

    @property
    def n_matched(self) -> int:
        """Rounds that counted."""
        return len(self.rounds)

    @property
    def value(self) -> float:
        """Mean reward of the matched rounds; NaN where there is none."""
        return float(self.rewards.mean()) if self.n_matched else float("nan")

    @property
    def terms(self) -> Terms:
        """For the bootstrap, which takes the path that was learnt as given."""
        counts = np.zeros(len(self.seen))
        counts[self.rounds] = 1.0
        return Terms(np.zeros(len(self.seen)), counts * self.seen, counts)


def replay(
    agent: Agent,
    log: LoggedBandit,
    *,
    horizon: int | None = None,
) -> Replay:
    """Replay ``log`` to ``agent``, which learns; stop after ``horizon`` matched rounds.

    Rounds are ``counted``.
    """
    player = LogPlayer(agent, log)
    matched: list[int] = []
    seen = 0
    for number in counted(range(len(log))):
        if horizon is not None and len(matched) >= horizon:
            break
        decision = player.decide(number)
        seen += 1
        if decision.arm == log.arms[log.chosen[number]]:
            player.reward(decision, number)
            matched.append(number)
        else:
            player.forget(decision)
    rounds = np.array(matched, dtype=np.intp)
    return Replay(rounds, log.rewards[:seen], log.is_uniform)
