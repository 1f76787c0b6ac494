"""The Learner protocol: contexts of a round in, arm statistics out, rewards learnt."""

import math
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias

from numpy.typing import ArrayLike

from vfbandits.core.arrays import Matrix, Vector, as_array, frobenius
from vfbandits.core.decision import ArmId
from vfbandits.core.estimate import ArmStatistics
from vfbandits.core.move import Move
from vfbandits.core.reward import Observation
from vfbandits.core.settings import LearnerSettings
from vfbandits.core.snapshot import AnyArray, Record, Rows
from vfbandits.core.state import State
from vfbandits.errors import ArmError, ContextError

Arms: TypeAlias = tuple[ArmId, ...] | None


class Round(Protocol):
    """One round, ready for a policy."""

    @property
    def statistics(self) -> ArmStatistics:
        """What the policy sees."""
        ...

    @property
    def arms(self) -> Arms:
        """Ids in the caller's order; None where positions are the ids."""
        ...

    def observation(self, index: int) -> Observation:
        """What to keep of the arm at ``index`` until its reward comes."""
        ...


class Learner(Protocol):
    """States of one layout, and how contexts become rounds of it."""

    dim: int

    @property
    def n_arms(self) -> int:
        """Arms with a state of their own; 0 where all share one."""
        ...

    @property
    def n_repairs(self) -> int:
        """How often numbers were too large for float64 and a state was put right."""
        ...

    @property
    def n_dropped(self) -> int:
        """How many arms' states were dropped."""
        ...

    def open_round(
        self, contexts: ArrayLike, *, arms: Sequence[ArmId] | None, arm_features: ArrayLike | None
    ) -> Round:
        """Check one round's input; changes nothing."""
        ...

    def open_rounds(
        self, contexts: ArrayLike, *, arms: Sequence[ArmId] | None, arm_features: ArrayLike | None
    ) -> Sequence[Round]:
        """Check the input of several rounds, the first axis of ``contexts``; changes nothing."""
        ...

    def own(self, observation: Observation) -> Observation:
        """An observation from elsewhere, if a round of this learner could have left it."""
        ...

    def learn(self, observation: Observation, reward: float) -> None:
        """One reward."""
        ...

    def learn_many(self, observations: Sequence[Observation], rewards: Vector) -> None:
        """Several rewards, in their order, as one update of higher rank."""
        ...

    def unlearn(self, observation: Observation, reward: float) -> None:
        """Take back one reward that was learnt; as ``State.downdate``."""
        ...

    def lift(self, move: Move) -> Move:
        """A move of the contexts as a move of this layout's states."""
        ...

    def move(self, move: Move) -> None:
        """Carry every state along a move of the contexts."""
        ...

    def states(self) -> dict[ArmId | None, State]:
        """Every state, by the arm it belongs to (None: all arms share it)."""
        ...

    def state_of(self, arm: ArmId | None) -> State | None:
        """The state that learns from an observation of ``arm``, if there is one."""
        ...

    def drop(self, arms: Iterable[ArmId]) -> int:
        """Drop the states of these arms; returns how many there were."""
        ...

    def pack(self) -> tuple[dict[str, object], dict[str, AnyArray | Rows]]:
        """Header and arrays of all states; a list holds rows that nobody changes."""
        ...

    def unpack(self, record: Record, arrays: dict[str, AnyArray]) -> None:
        """Take the states that ``pack`` gave."""
        ...


_ONLY_TEXT = {str}


def as_arms(arms: Sequence[ArmId], n_arms: int | None = None) -> tuple[ArmId, ...]:
    """Arm ids, checked: not empty, each once, and as many as there are rows."""
    ids = tuple(arms.tolist() if hasattr(arms, "tolist") else arms)
    if not ids:
        raise ArmError("a round needs at least one arm, got none")
    if {*map(type, ids)} != _ONLY_TEXT and any(
        isinstance(arm, bool) or not isinstance(arm, int | str) for arm in ids
    ):
        kinds = sorted({type(arm).__name__ for arm in ids})
        raise ArmError(f"arm ids must be whole numbers or text, got {', '.join(kinds)}")
    if len(set(ids)) != len(ids):
        twice = sorted({str(arm) for arm in ids if ids.count(arm) > 1})
        raise ArmError(f"each arm id may come once, got {', '.join(twice)} more than once")
    if n_arms is not None and len(ids) != n_arms:
        raise ArmError(f"{n_arms} arms have contexts, got {len(ids)} arm ids")
    return ids


def own_vector(observation: Observation, *, width: int) -> Vector:
    """The context of an observation from elsewhere, checked."""
    what = "a recalled context"
    x = as_array(observation.x, ndim=1, width=width, what=what)
    frobenius(x, what=what)
    return x


def refuse_arm_features(arm_features: ArrayLike | None) -> None:
    """Layout ``per_arm`` has no use for them."""
    if arm_features is not None:
        raise ArmError("layout 'per_arm' has the arm in its contexts; got arm_features as well")


def refuse_empty(rows: Matrix) -> None:
    """A round needs an arm."""
    if rows.shape[-2] == 0:
        raise ArmError("a round needs at least one arm, got none")


def refuse_too_long(lengths: Vector, settings: LearnerSettings, what: str) -> None:
    """Refuse contexts beside which float64 cannot see the prior: ``settings.max_square``.

    >>> import numpy as np
    >>> refuse_too_long(np.array([2.0, 1.7e9]), LearnerSettings(ridge=1.0), "contexts")
    Traceback (most recent call last):
    vfbandits.errors.ContextError: contexts must have ‖x‖²/ridge of at most 1e+12, got about 3e+18 \
at row 1: scale the features, or raise the ridge
    """
    longest = int(lengths.argmax())
    if not lengths[longest] <= math.sqrt(settings.max_square):
        exponent = 2.0 * math.log10(lengths[longest]) - math.log10(settings.ridge)
        about = f"{10.0 ** (exponent % 1.0):.0f}e+{math.floor(exponent)}"
        raise ContextError(
            f"{what} must have ‖x‖²/ridge of at most {settings.max_square / settings.ridge:.0e}, "
            f"got about {about} at row {longest}: scale the features, or raise the ridge"
        )
