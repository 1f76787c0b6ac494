"""A study: contestants × seeds, in one kind of world."""

from dataclasses import dataclass

import numpy as np

from vfbandits.core.arrays import Vector
from vfbandits.core.bandit import BanditOptions
from vfbandits.core.context import Split
from vfbandits.core.policy import LinTS, LinUCB, Policy
from vfbandits.core.settings import whole
from vfbandits.errors import SettingError, VFBanditsError
from vfbandits.simulate.contestant import Contestant, line_up
from vfbandits.simulate.regret import Player, cumulative_regret, kept_rounds
from vfbandits.simulate.world import (
    Rounds,
    Scene,
    WorldSettings,
    children,
    even_widths,
    refuse_unless_seed,
)

PAPER_POLICIES: tuple[Policy, ...] = (LinUCB(beta=0.5), LinTS(posterior_scale=0.01))
PAPER_WORLD = WorldSettings(even_widths(100, 5))


@dataclass(frozen=True, slots=True)
class Study:
    """What is compared, where, how long and how often.  The defaults are the paper's.

    Attributes
    ----------
    horizon
        Rounds in each run, T.
    ridge, discount, floor, intercept
        As for ``Bandit``; every contestant has the same.
    n_seeds, first_seed
        Each seed makes a world of its own, which all contestants see.

    Examples
    --------
    >>> study = Study()
    >>> len(study.contestants), study.seeds, study.world.split.dim, study.horizon
    (8, (0, 1, 2, 3, 4), 100, 5000)
    """

    contestants: tuple[Contestant, ...] = tuple(
        contestant for policy in PAPER_POLICIES for contestant in line_up(policy)
    )
    world: Scene = PAPER_WORLD
    horizon: int = 5_000
    ridge: float = 1.0
    discount: float = 1.0
    floor: float = 0.0
    intercept: bool = False
    n_seeds: int = 5
    first_seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what would fail later, in another process."""
        whole(self.horizon, "rounds")
        whole(self.n_seeds, "seeds")
        refuse_unless_seed(self.first_seed)
        if not self.contestants:
            raise SettingError("a study needs at least one contestant, got none")
        names = [contestant.name for contestant in self.contestants]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise SettingError(f"each contestant needs a name of its own, got {twice[0]!r} twice")
        for contestant in self.contestants:
            self._rehearse(contestant)

    def _rehearse(self, contestant: Contestant) -> None:
        """Build the contestant on a miniature, one feature each, to find errors before the run."""
        miniature = Split.of(dict.fromkeys(self.world.widths, 1))
        try:
            self._seat(contestant, miniature, np.random.SeedSequence(0))
        except VFBanditsError as error:
            raise SettingError(f"contestant {contestant.name!r}: {error}") from error

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, one for each repetition."""
        return tuple(range(self.first_seed, self.first_seed + self.n_seeds))

    @property
    def _options(self) -> BanditOptions:
        return {
            "layout": self.world.layout,
            "arm_dim": self.world.arm_dim if self.world.layout == "outer" else None,
            "ridge": self.ridge,
            "discount": self.discount,
            "floor": self.floor,
            "intercept": self.intercept,
        }

    def world_of(self, seed: int) -> Rounds:
        """The world of one seed."""
        return self.world.draw(children(np.random.SeedSequence(seed), 2)[0])

    def player(self, contestant: Contestant, seed: int) -> Player:
        """A contestant, untaught, for one seed."""
        child = children(np.random.SeedSequence(seed), 2)[1]
        return self._seat(contestant, self.world.split, child)

    def _seat(self, contestant: Contestant, split: Split, seed: np.random.SeedSequence) -> Player:
        return contestant.seat(split, seed, self._options, n_arms=self.world.n_arms)

    def play(self, contestant: Contestant, seed: int) -> Vector:
        """Cumulative regret of one contestant in one seed's world, at the kept rounds."""
        rounds = self.world_of(seed).rounds(self.horizon)
        regret = cumulative_regret(self.player(contestant, seed), rounds)
        kept: Vector = regret[kept_rounds(self.horizon) - 1]
        return kept
