"""How much each further owner helps: relative CTR of a masked federation on its first m owners.

Online play: the rows come in random order, the bandit takes an arm, and the reward is 1 if it is
the row's class.  Relative CTR is the mean reward over 1/K, which uniform random play gets exactly.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from vfbandits.core.arrays import Vector
from vfbandits.core.bandit import Bandit, BanditOptions
from vfbandits.core.decision import Decision
from vfbandits.core.policy import LinTS, LinUCB
from vfbandits.core.policy.base import Policy
from vfbandits.core.round import Federation
from vfbandits.datasets.owned import OwnedSet
from vfbandits.datasets.owners import load_owned

POLICIES: tuple[Policy, ...] = (LinUCB(), LinTS())


@dataclass(frozen=True, slots=True)
class OwnersCell:
    """One run; all that it depends on, so that the same cell gives the same row anywhere.

    ``n_rounds`` None plays every row once.  The masks come from ``seed`` too: nothing is secret.
    """

    name: str
    policy: Policy
    n_owners: int
    seed: int
    ridge: float = 1.0
    n_rounds: int | None = None
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class OwnersRow:
    """The result of a cell."""

    name: str
    policy: str
    n_owners: int
    owners: tuple[str, ...]
    seed: int
    n_rounds: int
    reward: float
    relative_ctr: float


def owners_cells(
    name: str,
    *,
    policies: Sequence[Policy] = POLICIES,
    n_seeds: int = 5,
    n_rounds: int | None = None,
    folder: Path | None = None,
) -> Iterator[OwnersCell]:
    """The grid of one data set: each policy with the first 1, 2, … owners, and several shuffles."""
    n_owners = len(_loaded(name, folder).owners)
    for policy in policies:
        for count in range(1, n_owners + 1):
            for seed in range(n_seeds):
                yield OwnersCell(name, policy, count, seed, n_rounds=n_rounds, folder=folder)


def play_owners(cell: OwnersCell) -> OwnersRow:
    """Play one cell."""
    data = _loaded(cell.name, cell.folder)
    order_seed, mask_seed = np.random.SeedSequence(cell.seed).spawn(2)
    order = np.random.default_rng(order_seed).permutation(len(data.labels))[: cell.n_rounds]
    owners = data.first_owners(cell.n_owners)
    player = _Player(data, owners, cell, np.random.default_rng(mask_seed))
    total = 0.0
    for row, label in zip(data.features[order], data.labels[order], strict=True):
        decision = player.decide(row)
        reward = float(decision.index == label)
        player.bandit.reward(decision, reward)
        total += reward
    mean = total / len(order)
    policy = type(cell.policy).__name__
    return OwnersRow(
        name=cell.name,
        policy=policy,
        n_owners=cell.n_owners,
        owners=owners,
        seed=cell.seed,
        n_rounds=len(order),
        reward=mean,
        relative_ctr=mean * data.n_arms,
    )


class _Player:
    """A federation of the owners; a single owner plays without masks."""

    def __init__(
        self, data: OwnedSet, owners: tuple[str, ...], cell: OwnersCell, rng: np.random.Generator
    ) -> None:
        options: BanditOptions = {
            "layout": "disjoint",
            "intercept": True,
            "ridge": cell.ridge,
            "seed": cell.seed,
        }
        self._parts = {name: data.owners[name] for name in owners}
        self._arms = tuple(range(data.n_arms))
        self._federation: Federation | None = None
        widths = {name: data.widths[name] for name in owners}
        if len(owners) == 1:
            self.bandit = Bandit(cell.policy, dim=widths[owners[0]], **options)
        else:
            self._federation = Federation(cell.policy, widths=widths, entropy=rng.bytes, **options)
            self.bandit = self._federation.bandit

    def decide(self, row: Vector) -> Decision:
        blocks = {name: row[part] for name, part in self._parts.items()}
        if self._federation is None:
            (alone,) = blocks.values()
            return self.bandit.decide(alone, arms=self._arms)
        return self._federation.decide(blocks, arms=self._arms)


@lru_cache(maxsize=2)
def _loaded(name: str, folder: Path | None) -> OwnedSet:
    return load_owned(name, folder=folder)
