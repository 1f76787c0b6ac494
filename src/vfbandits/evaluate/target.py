"""A frozen target: taught by the first part of a log, weighed on the rest.

The estimators by weights and by models ask with which probability the target *would* play each
arm.  That question has an answer only for a policy that stays as it is, and the answer is fair
only on rounds that the policy did not learn from.
"""

import numpy as np

from vfbandits.core.arrays import Matrix
from vfbandits.core.policy.base import at_least_zero
from vfbandits.errors import SettingError
from vfbandits.evaluate.log import LoggedBandit
from vfbandits.evaluate.player import Agent, LogPlayer

ROUNDS_PER_BATCH = 256


def split_log(log: LoggedBandit, *, train_share: float) -> tuple[LoggedBandit | None, LoggedBandit]:
    """The first rounds, to learn from, and the rest; None where there is nothing to learn from."""
    if at_least_zero(train_share, "train_share") >= 1:
        raise SettingError(f"train_share must be in [0, 1), got {train_share!r}")
    n_first = int(train_share * len(log))
    first = log.select(slice(0, n_first)) if n_first else None
    return first, log.select(slice(n_first, None))


def teach(agent: Agent, log: LoggedBandit) -> Agent:
    """Let ``agent`` learn every logged round, in order, whatever it would have chosen."""
    player = LogPlayer(agent, log)
    for number in range(len(log)):
        player.learn(number)
    return agent


def target_probabilities(agent: Agent, log: LoggedBandit) -> Matrix:
    """The probability of ``agent``, as it is now, to play each arm of each round, (n, n_arms).

    Zero for arms that were not on offer.

    Exact for LinUCB, LinGreedy and InverseGap; for LinTS the fractions of ``n_draws`` Monte Carlo
    draws, unbiased, so that unclipped weights made of them are.  The agent learns nothing.
    """
    player = LogPlayer(agent, log)
    rows = np.zeros((len(log), log.n_arms))
    for start in range(0, len(log), ROUNDS_PER_BATCH):
        rounds = slice(start, min(start + ROUNDS_PER_BATCH, len(log)))
        decisions = player.decide_many(rounds)
        for number, decision in enumerate(decisions, start=start):
            rows[number, log.offer(number)] = decision.propensity.probabilities()
        for decision in decisions:
            player.forget(decision)
    return rows
