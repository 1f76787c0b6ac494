"""What a decision leaves behind to learn from, and the reward that comes for it."""

import math
from numbers import Real
from typing import NamedTuple

from vfbandits.core.arrays import Vector
from vfbandits.core.decision import ArmId
from vfbandits.core.move import Move
from vfbandits.errors import RewardError

REWARD_LIMIT = 1e100


class Observation(NamedTuple):
    """What a decision leaves behind to learn from: the chosen context, and the arm's own model.

    Only learners look into it, and what writes it to a disk.  A bandit keeps it for the reward.
    """

    x: Vector
    model: ArmId | None = None

    def moved(self, lifted: Move) -> "Observation":
        """As it is after a move of the contexts, which the learner has lifted to its own."""
        return Observation(lifted.vector(self.x), self.model)

    def __repr__(self) -> str:
        """Without the context."""
        return f"Observation(model={self.model!r})"


def _as_float(value: object) -> float:
    return float(value) if isinstance(value, Real) else math.nan


def as_reward(value: object) -> float:
    """``value`` as a finite float."""
    number = value if type(value) is float else _as_float(value)
    if abs(number) <= REWARD_LIMIT:
        return number
    raise RewardError(f"a reward must be a finite number up to {REWARD_LIMIT:g}, got {value!r}")
