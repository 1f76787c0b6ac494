"""Layout ``disjoint``: a model for each arm, all on the same user vector (Li et al. 2010)."""

import math
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from vfbandits.core.arrays import Vector, as_array, frobenius
from vfbandits.core.decision import ArmId
from vfbandits.core.estimate import DisjointStatistics
from vfbandits.core.layout.base import as_arms, own_vector, refuse_too_long
from vfbandits.core.move import Move, moved
from vfbandits.core.reward import Observation
from vfbandits.core.settings import LearnerSettings
from vfbandits.core.snapshot import AnyArray, Record, Rows
from vfbandits.core.state import ARRAYS, FACTS, State
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
    """Contexts are user vectors (dim,); an arm's state is made when its first reward comes.

    At most ``max_arms`` states are kept; past that the arm whose last reward is the oldest goes,
    and starts from the prior should it get another one.
    """

    def __init__(
        self, dim: int, settings: LearnerSettings, *, intercept: bool, max_arms: int
    ) -> None:
        self.dim = dim
        self.intercept = int(intercept)
        self.max_arms = max_arms
        self.n_repairs = 0
        self.n_dropped = 0
        self._n_updates = 0
        self._settings = settings
        self._longest = math.sqrt(settings.max_square)
        self._states: OrderedDict[ArmId, State] = OrderedDict()  # by their last reward
        self._fresh = State(dim + self.intercept, settings)

    @property
    def n_arms(self) -> int:
        """Arms with a state of their own."""
        return len(self._states)

    def open_round(
        self, contexts: ArrayLike, *, arms: Sequence[ArmId] | None, arm_features: ArrayLike | None
    ) -> DisjointRound:
        """Contexts (dim,), arms by id."""
        ids = arm_ids(arms, arm_features)
        user = as_array(contexts, ndim=1, width=self.dim, what="contexts")
        return self._round(user, ids)

    def open_rounds(
        self, contexts: ArrayLike, *, arms: Sequence[ArmId] | None, arm_features: ArrayLike | None
    ) -> Sequence[DisjointRound]:
        """Contexts (n_rounds, dim); all rounds have the same arms."""
        ids = arm_ids(arms, arm_features)
        users = as_array(contexts, ndim=2, width=self.dim, what="contexts")
        return [self._round(user, ids) for user in users]

    def own(self, observation: Observation) -> Observation:
        """An observation of one arm's state."""
        x = own_vector(observation, width=self._fresh.dim)
        if observation.model is None:
            raise ArmError(f"a recalled decision teaches an arm's own model, got {observation!r}")
        return Observation(x, observation.model)

    def learn(self, observation: Observation, reward: float) -> None:
        """One reward for one arm's model."""
        state = self._state(observation)
        n_repairs = state.n_repairs
        state.update(observation.x, reward)
        self._n_updates += 1
        self.n_repairs += state.n_repairs - n_repairs

    def learn_many(self, observations: Sequence[Observation], rewards: Vector) -> None:
        """One update for each arm that occurs, of as high a rank as it has rewards."""
        groups: dict[ArmId | None, list[int]] = {}
        for position, observation in enumerate(observations):
            groups.setdefault(observation.model, []).append(position)
        for positions in groups.values():
            X = np.array([observations[position].x for position in positions])
            state = self._state(observations[positions[0]])
            n_repairs = state.n_repairs
            state.update_many(X, rewards[positions])
            self._n_updates += len(positions)
            self.n_repairs += state.n_repairs - n_repairs

    def unlearn(self, observation: Observation, reward: float) -> None:
        """Take back one reward of one arm's model; with its last reward the model goes as well."""
        arm = observation.model
        if arm is None or arm not in self._states:
            raise SettingError(f"a reward to take back must have been learnt, got arm {arm!r}")
        state = self._states[arm]
        state.downdate(observation.x, reward)
        self._n_updates -= 1
        if state.n_updates == 0:
            del self._states[arm]

    def drop(self, arms: Iterable[ArmId]) -> int:
        """Drop the states of these arms; returns how many there were."""
        dropped = sum(self._states.pop(arm, None) is not None for arm in arms)
        self.n_dropped += dropped
        return dropped

    def lift(self, move: Move) -> Move:
        """R acts on u in [1; u]."""
        return move.lifted(before=self.intercept, factor=1)

    def move(self, move: Move) -> None:
        """Carry every arm's state along a move of the contexts."""
        lifted = self.lift(move)
        before = sum(state.n_repairs for state in self._states.values())
        for arm, state in self._states.items():
            self._states[arm] = moved(state, lifted)
        self.n_repairs += sum(state.n_repairs for state in self._states.values()) - before
        self._fresh = moved(self._fresh, lifted)
        self.dim = self._fresh.dim - self.intercept

    def states(self) -> dict[ArmId | None, State]:
        """The states of all arms that have learnt something."""
        return {arm: state for arm, state in self._states.items()}  # noqa: C416  (wider keys)

    def state_of(self, arm: ArmId | None) -> State | None:
        """The state of one arm, if it has learnt something."""
        return None if arm is None else self._states.get(arm)

    def pack(self) -> tuple[dict[str, object], dict[str, AnyArray | Rows]]:
        """Counts, a row of facts for each arm, and arrays with a row for each arm.

        Nothing is copied: a state makes itself new arrays before it next learns.
        """
        lent = [(arm, *state.lend()) for arm, state in self._states.items()]
        arms: list[object] = [(arm, *facts) for arm, facts, _ in lent]
        columns = zip(*[arrays for _, _, arrays in lent], strict=True)
        rows: dict[str, AnyArray | Rows] = {
            name: list(column) for name, column in zip(ARRAYS, columns, strict=False)
        }
        counts = {
            "n_updates": self._n_updates,
            "n_repairs": self.n_repairs,
            "n_dropped": self.n_dropped,
        }
        return {"arms": arms, **counts}, rows

    def unpack(self, record: Record, arrays: dict[str, AnyArray]) -> None:
        """Take the states that ``pack`` gave."""
        self._states = OrderedDict()
        dim = self._fresh.dim
        shapes = {name: (dim, dim) if name in ("A", "form") else (dim,) for name in ARRAYS}
        for position, item in enumerate(record.items("arms")):
            arm, facts = _facts_of(item, position, dim)
            parts = {name: _row(arrays, name, position, shape) for name, shape in shapes.items()}
            self._states[arm] = State.unpack(facts, parts, self._settings)
        self._n_updates = record.integer("n_updates")
        self.n_repairs = record.integer("n_repairs")
        self.n_dropped = record.integer("n_dropped")

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
            n_updates=self._n_updates,
        )
        return DisjointRound(statistics, arms, user)

    def _state(self, observation: Observation) -> State:
        """The state that learns from an observation; it is the last to go from now on."""
        arm = observation.model
        if arm is None:
            raise ArmError("layout 'disjoint' learns for one arm at a time, got no arm")
        state = self._states.get(arm)
        if state is None:
            if len(self._states) >= self.max_arms:
                self._states.popitem(last=False)
                self.n_dropped += 1
            self._states[arm] = state = State(self._fresh.dim, self._settings)
        else:
            self._states.move_to_end(arm)
        return state


def _facts_of(item: object, position: int, dim: int) -> tuple[ArmId, Record]:
    """An arm and its state's header, from a row of facts."""
    match item:
        case [int() | str() as arm, *facts] if len(facts) == len(FACTS):
            return arm, Record({"dim": dim, **dict(zip(FACTS, facts, strict=True))})
    raise SnapshotError(f"the snapshot needs an arm's header at {position}")


def _row(arrays: dict[str, AnyArray], name: str, position: int, shape: tuple[int, ...]) -> AnyArray:
    """Row ``position`` of a stack, in the order in which the state has it in memory."""
    stack = arrays.get(name)
    size = math.prod(shape)
    if stack is None or stack.ndim != 2 or len(stack) <= position or stack.shape[1] != size:
        raise SnapshotError(f"the snapshot needs {size} values of arm {position} in {name!r}")
    row: AnyArray = stack[position].reshape(shape, order="F")
    return row


def arm_ids(arms: Sequence[ArmId] | None, arm_features: ArrayLike | None) -> tuple[ArmId, ...]:
    """The ids of a round's arms, which must be given."""
    if arm_features is not None:
        raise ArmError("layout 'disjoint' knows arms by id only; got arm_features as well")
    if arms is None:
        raise ArmError("layout 'disjoint' needs arms=[...], the ids of this round's arms, got none")
    return as_arms(arms)
