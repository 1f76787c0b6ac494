"""A learner whose state is secret-shared, for a ``Bandit`` that decides by what is released.

The contexts of a round are shared and compared where they are gathered; the bandit is handed a
reference to the slot.  Its policy sees the arm, or the statistics, that were released.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from vfbandits.core.arrays import PlainBlock, Vector
from vfbandits.core.decision import ArmId
from vfbandits.core.layout.base import Arms, as_arms, refuse_arm_features
from vfbandits.core.mask import MaskShare
from vfbandits.core.move import Move
from vfbandits.core.reward import Observation
from vfbandits.core.shares.active import Event, Opened
from vfbandits.core.shares.local import LocalShares
from vfbandits.core.shares.offer import ArmBlocks, Offer, checked_arms
from vfbandits.core.shares.released import (
    ReleasedArm,
    ReleasedStatistics,
    ReleasedUnits,
    released_statistics,
)
from vfbandits.core.shares.terms import MAX_REWARD
from vfbandits.core.snapshot import AnyArray, Record, Rows
from vfbandits.core.state import State
from vfbandits.errors import RewardError, SettingError, SnapshotError


@dataclass(frozen=True, slots=True)
class SharesRound:
    """A round whose best arm, or whose statistics, were released."""

    statistics: ReleasedArm | ReleasedStatistics | ReleasedUnits
    arms: Arms
    local: LocalShares
    opened: Opened

    def observation(self, index: int) -> Observation:
        """A reference to the slot; both servers keep shares of the context of that arm."""
        return Observation(np.array(self.local.pick(self.opened, index), dtype=np.float64))


class HiddenState:
    """What every learner refuses whose state no party has."""

    n_arms = 0
    n_dropped = 0
    n_repairs = 0

    def unlearn(self, observation: Observation, reward: float) -> None:
        """Refused."""
        raise SettingError("protection 'shares' cannot take a reward back: contexts are not kept")

    def lift(self, move: Move) -> Move:
        """Refused, as ``move`` is."""
        raise SettingError(f"protection 'shares' has no {type(move).__name__.lower()} of masks yet")

    def move(self, move: Move) -> None:
        """Refused: the state would have to be turned in shares."""
        self.lift(move)

    def states(self) -> dict[ArmId | None, State]:
        """Refused."""
        raise SettingError(
            "what was learnt is not released under protection 'shares': each server has a share"
        )

    def state_of(self, arm: ArmId | None) -> State | None:
        """None: no party has a state."""
        del arm
        return None

    def drop(self, arms: Iterable[ArmId]) -> int:
        """No arm has a state of its own."""
        del arms
        return 0


class SharesLearner(HiddenState):
    """A state of which each server has a share."""

    def __init__(self, local: LocalShares) -> None:
        self.local = local
        self.dim = sum(local.terms.widths)
        self.blocks = ArmBlocks(local.terms.max_arms)
        self._gathered: Opened | None = None
        self._n_updates = 0
        self._largest_reward = 0.0

    def hand_over(
        self, widths: Sequence[int], origins: Sequence[int], rotations: Sequence[MaskShare]
    ) -> None:
        """Go on with new secrets, and with these participants; references stay good."""
        self.local.hand_over(widths, origins, rotations)
        self.dim = sum(widths)
        self._gathered = None

    def gather(
        self,
        blocks: Sequence[PlainBlock],
        arms: Sequence[ArmId] | None = None,
        arm_features: ArrayLike | None = None,
    ) -> Vector:
        """Share and compare the contexts of a round; returns the reference for ``open_round``."""
        ids, features = checked_arms(self.local.terms, arms, arm_features)
        offer = None
        self.local.check(blocks)
        if self.local.terms.layout == "disjoint" and ids is not None:
            offer = self.blocks.offer(ids)
        elif features is not None:
            offer = Offer(features=features)
        self._gathered = self.local.decide(blocks, offer)
        return np.array(self._gathered.event, dtype=np.float64)

    def open_round(
        self, contexts: ArrayLike, *, arms: Sequence[ArmId] | None, arm_features: ArrayLike | None
    ) -> SharesRound:
        """The round that was gathered last; ``contexts`` is its reference."""
        if self.local.terms.layout != "outer":  # otherwise ``gather`` has them
            refuse_arm_features(arm_features)
        opened, self._gathered = self._gathered, None
        if opened is None or _event(np.asarray(contexts)) != opened.event:
            raise SettingError("a round on secret shares is opened once, after it was gathered")
        ids = None if arms is None else as_arms(arms, opened.n_arms)
        return SharesRound(self._released(opened), ids, self.local, opened)

    def _released(self, opened: Opened) -> ReleasedArm | ReleasedStatistics | ReleasedUnits:
        terms = self.local.terms
        if opened.statistics is None:
            return ReleasedArm(opened.n_arms, opened.arm, terms.ridge, self._n_updates)
        return released_statistics(
            terms,
            opened.statistics,
            opened.rows.offer,
            n_updates=self._n_updates,
            largest_reward=self._largest_reward,
        )

    def open_rounds(
        self, contexts: ArrayLike, *, arms: Sequence[ArmId] | None, arm_features: ArrayLike | None
    ) -> Sequence[SharesRound]:
        """Refused: rounds are gathered one by one."""
        raise SettingError("rounds on secret shares are opened one by one")

    def noise_of(self, observation: Observation) -> Vector:
        """The noise of a decision of this window, behind the rotations."""
        return self.local.noise(_event(observation.x))

    def own(self, observation: Observation) -> Observation:
        """Refused: a reference is good for the servers that hold its shares only."""
        raise SettingError("a decision on secret shares is not recalled: servers keep its context")

    def learn(self, observation: Observation, reward: float) -> None:
        """One reward, by messages between the two servers."""
        self.local.learn(_event(observation.x), reward)
        self._n_updates += 1
        self._largest_reward = max(self._largest_reward, abs(reward))

    def learn_many(self, observations: Sequence[Observation], rewards: Vector) -> None:
        """One after the other; a reward that is too large is found before the first is learnt."""
        largest = float(np.abs(rewards).max(initial=0.0))
        if largest > MAX_REWARD:
            raise RewardError(
                f"a reward on secret shares must be at most {MAX_REWARD:g} in size, got {largest}"
            )
        for observation, reward in zip(observations, rewards, strict=True):
            self.learn(observation, float(reward))

    def pack(self) -> tuple[dict[str, object], dict[str, AnyArray | Rows]]:
        """Refused: a restored copy would use slots for a second time."""
        raise SnapshotError(
            "a federation on secret shares is not saved, copied or pickled: a copy would use the "
            "same words for other values"
        )

    def unpack(self, record: Record, arrays: dict[str, AnyArray]) -> None:
        """Refused, as ``pack`` is."""
        del record, arrays
        self.pack()


def _event(reference: Vector) -> Event:
    window, slot = (int(part) for part in reference)
    return window, slot
