"""Layout ``outer``: contexts u ⊗ w_a from one user vector and arm features that the caller knows.

(R ⊗ I)(u ⊗ w) = (Ru) ⊗ w, so a mask acts on the user's features alone and a participant sends one
vector for each decision, whatever the number of arms.  With ``intercept`` the context is
[1; u] ⊗ [1; w_a], which adds effects of the arm alone and of the user alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from vfbandits.core.arrays import Matrix, Vector, as_array, frobenius
from vfbandits.core.decision import ArmId
from vfbandits.core.estimate import OuterStatistics
from vfbandits.core.layout.base import Arms, as_arms, refuse_empty, refuse_too_long
from vfbandits.core.layout.shared import SharedLearner
from vfbandits.core.move import Move
from vfbandits.core.reward import Observation
from vfbandits.core.settings import LearnerSettings
from vfbandits.errors import ArmError


@dataclass(frozen=True, slots=True, eq=False)
class OuterRound:
    """A round of one user and arms with features."""

    statistics: OuterStatistics
    arms: Arms
    user: Vector = field(repr=False)

    def observation(self, index: int) -> Observation:
        """The user's vector times the chosen arm's."""
        return Observation(np.kron(self.user, self.statistics.W[index]))


class OuterLearner(SharedLearner):
    """Contexts are user vectors (dim,); arm features are rows (n_arms, arm_dim)."""

    def __init__(
        self, dim: int, arm_dim: int, settings: LearnerSettings, *, intercept: bool
    ) -> None:
        self.arm_dim = arm_dim
        self.intercept = int(intercept)
        super().__init__(dim, (dim + self.intercept) * (arm_dim + self.intercept), settings)

    def open_round(
        self, contexts: ArrayLike, *, arms: Sequence[ArmId] | None, arm_features: ArrayLike | None
    ) -> OuterRound:
        """Contexts (dim,), arm features (n_arms, arm_dim)."""
        user = as_array(contexts, ndim=1, width=self.dim, what="contexts")
        length = frobenius(user, what="contexts")
        return self._round(user, length, *self._arms(arms, arm_features))

    def open_rounds(
        self, contexts: ArrayLike, *, arms: Sequence[ArmId] | None, arm_features: ArrayLike | None
    ) -> Sequence[OuterRound]:
        """Contexts (n_rounds, dim); all rounds have the same arms."""
        users = as_array(contexts, ndim=2, width=self.dim, what="contexts")
        frobenius(users, what="contexts")
        checked = self._arms(arms, arm_features)
        lengths: list[float] = np.linalg.norm(users, axis=1).tolist()
        pairs = zip(users, lengths, strict=True)
        return [self._round(user, length, *checked) for user, length in pairs]

    def lift(self, move: Move) -> Move:
        """R acts on u in [1; u] ⊗ [1; w]."""
        factor = self.arm_dim + self.intercept
        return move.lifted(before=self.intercept * factor, factor=factor)

    def _arms(
        self, arms: Sequence[ArmId] | None, arm_features: ArrayLike | None
    ) -> tuple[Matrix, float, Arms]:
        if arm_features is None:
            raise ArmError(f"layout 'outer' needs arm_features (n_arms, {self.arm_dim}), got none")
        W = as_array(arm_features, ndim=2, width=self.arm_dim, what="arm_features")
        refuse_empty(W)
        if self.intercept:
            W = np.hstack([np.ones((len(W), 1)), W])
        ids = None if arms is None else as_arms(arms, len(W))
        return W, frobenius(W, what="arm_features"), ids

    def _round(
        self, user: Vector, user_length: float, W: Matrix, length: float, arms: Arms
    ) -> OuterRound:
        if self.intercept:
            user = np.concatenate([[1.0], user])
            user_length = math.hypot(1.0, user_length)
        # ‖u ⊗ w‖ = ‖u‖·‖w‖; lengths whose squares are finite have a finite product.
        if user_length * length > self._longest:
            of_arms = np.linalg.norm(W, axis=1)
            refuse_too_long(user_length * of_arms, self.state.settings, "contexts ⊗ arm_features")
        return OuterRound(OuterStatistics(self.state, user, W, length), arms, user)
