"""Offline replay of featurised Criteo rounds (Li et al. 2010), for all or part of the features.

The bandit decides on every logged round, but learns and is judged only where it took the logged
arm.  That is unbiased when the log took arms uniformly at random.  Criteo's log did not, so here
it is the paper's yardstick and not the truth; ``CriteoWorld.log`` has a uniform one.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.policy.base import Policy
from vfbandits.core.policy.linucb import LinUCB
from vfbandits.datasets.criteo.player import Context, CriteoPlayer, part_of_features
from vfbandits.datasets.criteo.table import CriteoTable
from vfbandits.datasets.logged import LoggedRounds
from vfbandits.simulate.steps import counted

PAPER_POLICY = LinUCB(beta=0.6)


@dataclass(frozen=True, slots=True)
class ReplayRound:
    """One logged round: the user's features (dim,), the arm taken, from 0, and 1.0 for a click."""

    user: Vector = field(repr=False)
    arm: int
    click: float


@dataclass(frozen=True, slots=True)
class ReplayTally:
    """Rounds seen, rounds in which the same arm was taken, and clicks in those."""

    n_rounds: int
    n_matched: int
    n_clicks: int

    @property
    def click_rate(self) -> float:
        """Clicks per matched round; NaN without any."""
        return self.n_clicks / self.n_matched if self.n_matched else math.nan


@dataclass(frozen=True, slots=True)
class ReplayCell:
    """One run; the same cell gives the same tally anywhere.

    ``ratio`` is the fraction of user features that the bandit gets, a random subset for each seed.
    ``n_rounds`` None replays all.
    """

    folder: Path
    policy: Policy = PAPER_POLICY
    ratio: float = 1.0
    seed: int = 0
    context: Context = "addition"
    log: bool = False
    factors: tuple[float, ...] | None = None
    n_rounds: int | None = None


def replay_cell(cell: ReplayCell) -> ReplayTally:
    """Replay one cell."""
    table = CriteoTable.open(cell.folder)
    columns = part_of_features(len(table.facts.columns), cell.ratio, cell.seed)
    batches = table.rounds(factors=cell.factors, log=cell.log)
    return replay(
        islice(rounds(batches, columns), cell.n_rounds),
        table.arm_features,
        cell.policy,
        context=cell.context,
        seed=cell.seed,
    )


def rounds(
    batches: Iterable[LoggedRounds], columns: NDArray[np.intp] | None = None
) -> Iterator[ReplayRound]:
    """Batches of logged rounds one round at a time, with some columns of the users or all."""
    for batch in batches:
        users = batch.users if columns is None else np.ascontiguousarray(batch.users[:, columns])
        for user, arm, click in zip(users, batch.arms, batch.clicks, strict=True):
            yield ReplayRound(user, int(arm), float(click))


def replay(
    logged: Iterable[ReplayRound],
    arm_features: Matrix,
    policy: Policy,
    *,
    context: Context,
    seed: int,
) -> ReplayTally:
    """Replay the log to a new bandit."""
    player: CriteoPlayer | None = None
    n_rounds = n_matched = n_clicks = 0
    for given in counted(logged):
        player = player or CriteoPlayer(
            policy, len(given.user), arm_features, context=context, seed=seed
        )
        n_rounds += 1
        decision = player.decide(given.user)
        if decision.index != given.arm:
            player.bandit.forget(decision)
            continue
        player.bandit.reward(decision, given.click)
        n_matched += 1
        n_clicks += given.click == 1.0
    return ReplayTally(n_rounds, n_matched, n_clicks)


def replay_random(logged: Iterable[ReplayRound], n_arms: int, *, seed: int) -> ReplayTally:
    """The uniform random policy, which the paper divides by.

    Its click rate tends to that of the log as a whole, ``Facts.click_rate``.
    """
    rng = np.random.default_rng(seed)
    n_rounds = n_matched = n_clicks = 0
    for given in logged:
        n_rounds += 1
        if int(rng.integers(n_arms)) == given.arm:
            n_matched += 1
            n_clicks += given.click == 1.0
    return ReplayTally(n_rounds, n_matched, n_clicks)
