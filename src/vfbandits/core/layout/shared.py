"""One state for all arms: what ``per_arm`` and ``outer`` have in common."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from vfbandits.core.arrays import Vector
from vfbandits.core.decision import ArmId
from vfbandits.core.layout.base import own_vector
from vfbandits.core.move import Move, moved
from vfbandits.core.reward import Observation
from vfbandits.core.settings import LearnerSettings
from vfbandits.core.snapshot import AnyArray, Record, Rows
from vfbandits.core.state import State
from vfbandits.errors import ArmError, SettingError


class SharedLearner:
    """A single state that learns from every arm's rewards; layouts say how rounds are opened."""

    n_arms = 0
    n_dropped = 0

    def __init__(self, dim: int, state_dim: int, settings: LearnerSettings) -> None:
        self.dim = dim
        self.state = State(state_dim, settings)
        self._longest = math.sqrt(settings.max_square)

    @property
    def n_repairs(self) -> int:
        """Of the one state."""
        return self.state.n_repairs

    def own(self, observation: Observation) -> Observation:
        """An observation of the one state."""
        x = own_vector(observation, width=self.state.dim)
        if observation.model is not None:
            raise ArmError(f"a recalled decision teaches the one model, got {observation!r}")
        return Observation(x)

    def learn(self, observation: Observation, reward: float) -> None:
        """One reward."""
        self.state.update(observation.x, reward)

    def learn_many(self, observations: Sequence[Observation], rewards: Vector) -> None:
        """One update of rank n."""
        self.state.update_many(np.array([o.x for o in observations]), rewards)

    def unlearn(self, observation: Observation, reward: float) -> None:
        """Take back one reward."""
        self.state.downdate(observation.x, reward)

    def lift(self, move: Move) -> Move:
        """Contexts and state have the same dimensions, unless a layout says otherwise."""
        return move

    def move(self, move: Move) -> None:
        """Carry the state along a move of the contexts."""
        self.state = moved(self.state, self.lift(move))
        self.dim = len(move.vector(np.zeros(self.dim)))

    def states(self) -> dict[ArmId | None, State]:
        """The one state."""
        return {None: self.state}

    def state_of(self, arm: ArmId | None) -> State | None:
        """The one state."""
        return self.state if arm is None else None

    def drop(self, arms: Iterable[ArmId]) -> int:
        """Refuse: no arm has a state of its own."""
        raise SettingError(f"arms have states of their own in layout 'disjoint', got {[*arms]!r}")

    def pack(self) -> tuple[dict[str, object], dict[str, AnyArray | Rows]]:
        """Header and arrays of the state."""
        header, arrays = self.state.pack()
        return header, {name: array for name, array in arrays.items()}  # noqa: C416  (wider values)

    def unpack(self, record: Record, arrays: dict[str, AnyArray]) -> None:
        """Take the state that ``pack`` gave."""
        self.state = State.unpack(record, arrays, self.state.settings)
