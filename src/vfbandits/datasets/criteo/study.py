"""Do more features give more clicks?  Measured in the simulator, where the answer is known.

Online play in a ``CriteoWorld`` with a random part of the user's features, as in the paper's
partial bandits.  Click rates are means of known probabilities, without the noise of clicks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from vfbandits.core.policy.base import Policy
from vfbandits.core.policy.linucb import LinUCB
from vfbandits.datasets.criteo.player import Context, CriteoPlayer, part_of_features
from vfbandits.datasets.criteo.world import CriteoWorld

RATIOS = (0.2, 0.8, 1.0)
PAPER_POLICY = LinUCB(beta=0.6)


@dataclass(frozen=True, slots=True)
class CriteoWorldCell:
    """One run; the same cell gives the same row anywhere.

    The world comes from ``seed``, and so does which part of the features is known: a ratio of the
    13, rounded up.  Cells that differ in ratio alone play the very same rounds.
    """

    policy: Policy = PAPER_POLICY
    ratio: float = 1.0
    seed: int = 0
    horizon: int = 10_000
    context: Context = "product"
    interaction: float = 0.7


@dataclass(frozen=True, slots=True)
class CriteoWorldRow:
    """The result of a cell: click rates of the bandit, at random and at best, over its rounds."""

    policy: str
    context: Context
    ratio: float
    seed: int
    click_rate: float
    random: float
    optimum: float

    @property
    def relative_ctr(self) -> float:
        """Against uniform random play."""
        return self.click_rate / self.random

    @property
    def best_relative_ctr(self) -> float:
        """The largest that any player could have."""
        return self.optimum / self.random


def world_cells(
    policies: Sequence[Policy] = (PAPER_POLICY,),
    *,
    ratios: Sequence[float] = RATIOS,
    contexts: Sequence[Context] = ("addition", "product"),
    n_seeds: int = 5,
    horizon: int = 10_000,
) -> Iterator[CriteoWorldCell]:
    """The grid of policies, contexts, ratios and seeds."""
    for policy in policies:
        for context in contexts:
            for ratio in ratios:
                for seed in range(n_seeds):
                    yield CriteoWorldCell(policy, ratio, seed, horizon, context)


def play_in_world(cell: CriteoWorldCell) -> CriteoWorldRow:
    """Play one cell."""
    world_seed, round_seed = np.random.SeedSequence(cell.seed).spawn(2)
    world = CriteoWorld(np.random.default_rng(world_seed), interaction=cell.interaction)
    columns = part_of_features(world.split.dim, cell.ratio, cell.seed)
    player = CriteoPlayer(
        cell.policy, len(columns), world.arm_features, context=cell.context, seed=cell.seed
    )
    totals = np.zeros(3)
    for given in world.rounds(cell.horizon, np.random.default_rng(round_seed)):
        decision = player.decide(given.contexts[columns])
        player.bandit.reward(decision, float(given.rewards[decision.index]))
        expected = given.expected
        totals += expected[decision.index], expected.mean(), expected.max()
    click_rate, random, optimum = (totals / cell.horizon).tolist()
    policy = type(cell.policy).__name__
    return CriteoWorldRow(
        policy=policy,
        context=cell.context,
        ratio=cell.ratio,
        seed=cell.seed,
        click_rate=click_rate,
        random=random,
        optimum=optimum,
    )
