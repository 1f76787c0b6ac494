"""A parity trial: a federation against its plain twin in a simulated world."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from vfbandits.core.layout import MAX_ARMS
from vfbandits.core.policy.base import Policy, share
from vfbandits.core.round import Federation
from vfbandits.core.settings import whole
from vfbandits.simulate.parity import ParityReport, ParityRound, parity
from vfbandits.simulate.threads import one_thread
from vfbandits.simulate.world import World, WorldSettings, children, refuse_unless_seed


@dataclass(frozen=True, slots=True)
class ParityTrial:
    """All that a parity run needs; the same trial gives the same report.

    ``missing`` is the probability that a passive participant is absent in a round, independently of
    the others.  The mask is drawn from ``seed`` too: in a trial nothing is secret.  At protection
    level "shares" the first passive participant is the helper.
    """

    policy: Policy
    world: WorldSettings
    mask: str = "blockwise"
    aggregation: str = "plain"
    protection: str | None = None
    release: str | None = None
    accept_leak: tuple[str, ...] = ()
    horizon: int = 1_000
    ridge: float = 1.0
    discount: float = 1.0
    floor: float = 0.0
    missing: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what makes no trial; what makes no federation is refused when it is built."""
        whole(self.horizon, "rounds")
        share(self.missing, "missing")
        refuse_unless_seed(self.seed)

    def run(self, *, on_round: Callable[[int], None] | None = None) -> ParityReport:
        """Play all rounds; ``on_round`` is called with the number of each, from 0."""
        with one_thread():
            return parity(self.federation, self.rounds(), on_round=on_round)

    def federation(self) -> Federation:
        """The masked side, untaught."""
        mask_seed = children(np.random.SeedSequence(self.seed), 3)[1]
        return Federation(
            self.policy,
            widths=self.world.widths,
            mask=self.mask,
            aggregation=self.aggregation,
            protection=self.protection,
            helper=self.world.split.passive[0] if self.protection == "shares" else None,
            release=self.release,
            accept_leak=self.accept_leak,
            max_arms=self.world.n_arms if self.protection == "shares" else MAX_ARMS,
            entropy=np.random.default_rng(mask_seed).bytes,
            layout=self.world.layout,
            arm_dim=self.world.arm_dim if self.world.layout == "outer" else None,
            ridge=self.ridge,
            discount=self.discount,
            floor=self.floor,
            seed=self.seed,
        )

    def rounds(self) -> Iterator[ParityRound]:
        """The world's rounds, without the blocks of absent participants."""
        world_seed, _, missing_seed = children(np.random.SeedSequence(self.seed), 3)
        rng = np.random.default_rng(missing_seed)
        world = World(self.world, world_seed)
        for given in world.rounds(self.horizon):
            gone = rng.random(len(world.split.passive)) < self.missing
            absent = {n for n, away in zip(world.split.passive, gone, strict=True) if away}
            yield ParityRound(
                {name: block for name, block in given.blocks.items() if name not in absent},
                given.rewards,
                given.arms,
                given.arm_features,
                given.expected,
            )
