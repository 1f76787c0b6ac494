"""Layout ``disjoint``: a model for each arm, all on the same user vector (Li et al. 2010)."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from vfbandits.core.arrays import Vector, as_array, frobenius
from vfbandits.core.decision import ArmId
from vfbandits.core.estimate import DisjointStatistics
from vfbandits.core.layout.base import as_arms, refuse_too_long
from vfbandits.core.move import Move, moved
from vfbandits.core.reward import Observation
from vfbandits.core.settings import LearnerSettings
from vfbandits.core.snapshot import AnyArray, Record
from vfbandits.core.state import State
from vfbandits.errors import ArmError, SettingError, SnapshotError


@dataclass(frozen=True, slots=True, eq=False)
class DisjointRound:
    """A round of one user and named arms."""

    statistics: DisjointStatistics
    arms: tuple[ArmId, ...]
    user: Vector = field(repr=False)

    def observation(self, index: int) -> Observation:
        """The user's vector, for the chosen arm's model."""
        return Observation(self.user, self.arms[index])


class DisjointLearner:
    """Contexts are user vectors (dim,); an arm's state is made when its first reward comes."""

    def __init__(self, dim: int, settings: LearnerSettings, *, intercept: bool) -> None:
        self.dim = dim
        self.intercept = int(intercept)
        self._settings = settings
        self._longest = math.sqrt(settings.max_square)
        self._states: dict[ArmId, State] = {}
        self._fresh = State(dim + self.intercept, settings)

    def open_round(
        self, contexts: ArrayLike, *, arms: Sequence[ArmId] | None, arm_features: ArrayLike | None
    ) -> DisjointRound:
        """Contexts (dim,), arms by id."""
        ids = _ids(arms, arm_features)
        user = as_array(contexts, ndim=1, width=self.dim, what="contexts")
        return self._round(user, ids)

    def open_rounds(
        self, contexts: ArrayLike, *, arms: Sequence[ArmId] | None, arm_features: ArrayLike | None
    ) -> Sequence[DisjointRound]:
        """Contexts (n_rounds, dim); all rounds have the same arms."""
        ids = _ids(arms, arm_features)
        users = as_array(contexts, ndim=2, width=self.dim, what="contexts")
        return [self._round(user, ids) for user in users]

    def learn(self, observation: Observation, reward: float) -> None:
        """One reward for one arm's model."""
        self._state(observation).update(observation.x, reward)

    def learn_many(self, observations: Sequence[Observation], rewards: Vector) -> None:
        """One update for each arm that occurs, of as high a rank as it has rewards."""
        groups: dict[ArmId | None, list[int]] = {}
        for position, observation in enumerate(observations):
            groups.setdefault(observation.model, []).append(position)
        for positions in groups.values():
            X = np.array([observations[position].x for position in positions])
            self._state(observations[positions[0]]).update_many(X, rewards[positions])

    def unlearn(self, observation: Observation, reward: float) -> None:
        """Take back one reward of one arm's model; with its last reward the model goes as well."""
        arm = observation.model
        if arm is None or arm not in self._states:
            raise SettingError(f"a reward to take back must have been learnt, got arm {arm!r}")
        state = self._states[arm]
        state.downdate(observation.x, reward)
        if state.n_updates == 0:
            del self._states[arm]

    def lift(self, move: Move) -> Move:
        """R acts on u in [1; u]."""
        return move.lifted(before=self.intercept, factor=1)

    def move(self, move: Move) -> None:
        """Carry every arm's state along a move of the contexts."""
        lifted = self.lift(move)
        self._states = {arm: moved(state, lifted) for arm, state in self._states.items()}
        self._fresh = moved(self._fresh, lifted)
        self.dim = self._fresh.dim - self.intercept

    def states(self) -> dict[ArmId | None, State]:
        """The states of all arms that have learnt something."""
        return {arm: state for arm, state in self._states.items()}  # noqa: C416  (wider keys)

    def pack(self) -> tuple[dict[str, object], dict[str, AnyArray]]:
        """Headers and arrays of all states; array names begin with the arm's position."""
        headers: list[object] = []
        arrays: dict[str, AnyArray] = {}
        for position, (arm, state) in enumerate(self._states.items()):
            header, parts = state.pack()
            headers.append({"arm": arm, **header})
            arrays.update({f"{position}/{name}": array for name, array in parts.items()})
        return {"arms": headers}, arrays

    def unpack(self, record: Record, arrays: dict[str, AnyArray]) -> None:
        """Take the states that ``pack`` gave."""
        self._states = {}
        for position, item in enumerate(record.items("arms")):
            if not isinstance(item, dict) or not isinstance(item.get("arm"), int | str):
                raise SnapshotError(f"the snapshot needs an arm's header at {position}")
            prefix = f"{position}/"
            parts = {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
            self._states[item["arm"]] = State.unpack(Record(item), parts, self._settings)

    def _round(self, user: Vector, arms: tuple[ArmId, ...]) -> DisjointRound:
        length = frobenius(user, what="contexts")
        whole = math.hypot(self.intercept, length)
        if whole > self._longest:
            refuse_too_long(np.array([whole]), self._settings, "contexts")
        # Always a copy: the caller may reuse its buffer before the reward comes.
        user = np.concatenate([np.ones(self.intercept), user])
        statistics = DisjointStatistics(
            [self._states.get(arm, self._fresh) for arm in arms],
            user,
            length=length + self.intercept,
            ridge=self._settings.ridge,
            n_updates=sum(state.n_updates for state in self._states.values()),
        )
        return DisjointRound(statistics, arms, user)

    def _state(self, observation: Observation) -> State:
        arm = observation.model
        if arm is None:
            raise ArmError("layout 'disjoint' learns for one arm at a time, got no arm")
        if arm not in self._states:
            self._states[arm] = State(self._fresh.dim, self._settings)
        return self._states[arm]


def _ids(arms: Sequence[ArmId] | None, arm_features: ArrayLike | None) -> tuple[ArmId, ...]:
    if arm_features is not None:
        raise ArmError("layout 'disjoint' knows arms by id only; got arm_features as well")
    if arms is None:
        raise ArmError("layout 'disjoint' needs arms=[...], the ids of this round's arms, got none")
    return as_arms(arms)
