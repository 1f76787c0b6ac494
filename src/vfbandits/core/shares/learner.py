"""A learner whose state is secret-shared, for a ``Bandit`` that decides by the released arm.

The contexts of a round are shared and compared where they are gathered; the bandit is handed a
reference to the slot.  Its policy sees which arm was released and nothing else.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Never

import numpy as np
from numpy.typing import ArrayLike

from vfbandits.core.arrays import Matrix, PlainBlock, Vector
from vfbandits.core.decision import ArmId
from vfbandits.core.estimate import ArmStatistics
from vfbandits.core.layout.base import Arms, as_arms, refuse_arm_features
from vfbandits.core.move import Move
from vfbandits.core.policy import LinGreedy, LinTS
from vfbandits.core.policy.base import Policy, Scored
from vfbandits.core.reward import Observation
from vfbandits.core.sampler import Draws, Sampler
from vfbandits.core.shares.active import Event, Opened
from vfbandits.core.shares.local import LocalShares
from vfbandits.core.shares.terms import MAX_REWARD
from vfbandits.core.snapshot import AnyArray, Record
from vfbandits.core.state import State
from vfbandits.errors import RewardError, SettingError, SnapshotError

_HIDDEN = "is not released under protection 'shares': the active participant learns the arm alone"


@dataclass(frozen=True, slots=True)
class ReleasedPolicy:
    """The policy that runs on secret shares, as the bandit of the active participant sees it."""

    policy: LinTS | LinGreedy

    def score(self, statistics: ArmStatistics, rng: Draws) -> Scored:
        """All of the probability on the released arm.  Scores stay secret: they are NaN."""
        del rng
        if not isinstance(statistics, ReleasedArm):
            raise SettingError("wanted a round on secret shares")
        chances = np.zeros(statistics.n_arms)
        chances[statistics.arm] = 1.0
        hidden = np.full(statistics.n_arms, np.nan)
        if isinstance(self.policy, LinGreedy):
            return Scored(hidden, chances, uniform=self.policy.epsilon)
        return Scored(hidden, chances, law=HiddenLaw())

    def plain(self) -> LinTS | LinGreedy:
        """The policy of a plain twin, which draws in the same space."""
        if isinstance(self.policy, LinTS):
            return dataclasses.replace(self.policy, space="parameter")
        return self.policy

    @property
    def posterior_scale(self) -> float:
        """The v of LinTS; 0 without noise."""
        return self.policy.posterior_scale if isinstance(self.policy, LinTS) else 0.0


def released(policy: Policy) -> ReleasedPolicy:
    """A policy that can decide on secret shares; others are refused.

    >>> released(LinGreedy(epsilon=0.1)).posterior_scale
    0.0
    """
    match policy:
        case LinTS(space="arm"):
            raise SettingError(
                "protection 'shares' draws LinTS in parameter space, with noise that no party "
                "knows; got space 'arm', which needs the covariance of the arms in the open"
            )
        case LinTS() | LinGreedy():
            return ReleasedPolicy(policy)
    raise SettingError(
        "protection 'shares' decides by LinTS or LinGreedy, got "
        f"{type(policy).__name__}: it would need means or widths of the arms in the open"
    )


class HiddenLaw:
    """The law of the scores, which nobody knows."""

    n_draws = 1

    def draw_scores(self, rng: Draws, count: int) -> Matrix:
        """Refused: a Monte Carlo estimate would need means and covariances in the open."""
        raise SettingError(f"the probability of an arm {_HIDDEN}; floor=… gives a lower bound")


@dataclass(frozen=True, slots=True)
class ReleasedArm:
    """What the active participant knows of a round: how many arms there are, and the best."""

    n_arms: int
    arm: int
    ridge: float
    n_updates: int

    magnitude = 0.0

    @property
    def means(self) -> Vector:
        """NaN: means stay secret."""
        return np.full(self.n_arms, np.nan)

    @property
    def widths(self) -> Never:
        """Refused."""
        raise SettingError(f"the width of an arm {_HIDDEN}")

    @property
    def log_det_ratio(self) -> Never:
        """Refused."""
        raise SettingError(f"the information gathered {_HIDDEN}")

    def sampler(self, space: str) -> Sampler:
        """Refused."""
        raise SettingError(f"a joint draw in {space} space {_HIDDEN}")


@dataclass(frozen=True, slots=True)
class SharesRound:
    """A round whose best arm was released."""

    statistics: ReleasedArm
    arms: Arms
    local: LocalShares
    opened: Opened

    def observation(self, index: int) -> Observation:
        """A reference to the slot; both servers keep shares of the context of that arm."""
        return Observation(np.array(self.local.pick(self.opened, index), dtype=np.float64))


class SharesLearner:
    """One state for all arms, of which each server has a share."""

    n_arms = 0
    n_dropped = 0
    n_repairs = 0

    def __init__(self, local: LocalShares) -> None:
        self.local = local
        self.dim = local.terms.dim
        self._gathered: Opened | None = None
        self._n_updates = 0

    def gather(self, blocks: Sequence[PlainBlock]) -> Vector:
        """Share and compare the contexts of a round; returns the reference for ``open_round``."""
        self._gathered = self.local.decide(blocks)
        return np.array(self._gathered.event, dtype=np.float64)

    def open_round(
        self, contexts: ArrayLike, *, arms: Sequence[ArmId] | None, arm_features: ArrayLike | None
    ) -> SharesRound:
        """The round that was gathered last; ``contexts`` is its reference."""
        refuse_arm_features(arm_features)
        opened, self._gathered = self._gathered, None
        if opened is None or _event(np.asarray(contexts)) != opened.event:
            raise SettingError("a round on secret shares is opened once, after it was gathered")
        ids = None if arms is None else as_arms(arms, opened.n_arms)
        ridge = self.local.terms.ridge
        statistics = ReleasedArm(opened.n_arms, opened.arm, ridge, self._n_updates)
        return SharesRound(statistics, ids, self.local, opened)

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

    def learn_many(self, observations: Sequence[Observation], rewards: Vector) -> None:
        """One after the other; a reward that is too large is found before the first is learnt."""
        largest = float(np.abs(rewards).max(initial=0.0))
        if largest > MAX_REWARD:
            raise RewardError(
                f"a reward on secret shares must be at most {MAX_REWARD:g} in size, got {largest}"
            )
        for observation, reward in zip(observations, rewards, strict=True):
            self.learn(observation, float(reward))

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
        raise SettingError(f"what was learnt {_HIDDEN}")

    def state_of(self, arm: ArmId | None) -> State | None:
        """None: no party has a state."""
        del arm
        return None

    def drop(self, arms: Iterable[ArmId]) -> int:
        """No arm has a state of its own."""
        del arms
        return 0

    def pack(self) -> tuple[dict[str, object], dict[str, AnyArray | list[AnyArray]]]:
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
