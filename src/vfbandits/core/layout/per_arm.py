"""Layout ``per_arm``, the paper's: a context row for each arm, one theta for all."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from vfbandits.core.arrays import Matrix, as_array, frobenius
from vfbandits.core.decision import ArmId
from vfbandits.core.estimate import SharedStatistics, shared_statistics_many
from vfbandits.core.layout.base import (
    Arms,
    as_arms,
    refuse_arm_features,
    refuse_empty,
    refuse_too_long,
)
from vfbandits.core.layout.shared import SharedLearner
from vfbandits.core.reward import Observation
from vfbandits.core.settings import LearnerSettings


class PerArmRound(NamedTuple):
    """A round whose arms have a context row each."""

    statistics: SharedStatistics
    arms: Arms

    def observation(self, index: int) -> Observation:
        """The row of the chosen arm: a copy, since the caller may reuse its buffer."""
        return Observation(self.statistics.X[index].copy())


class PerArmLearner(SharedLearner):
    """Contexts are matrices (n_arms, dim)."""

    def __init__(self, dim: int, settings: LearnerSettings) -> None:
        super().__init__(dim, dim, settings)

    def open_round(
        self, contexts: ArrayLike, *, arms: Sequence[ArmId] | None, arm_features: ArrayLike | None
    ) -> PerArmRound:
        """Contexts (n_arms, dim)."""
        refuse_arm_features(arm_features)
        X = as_array(contexts, ndim=2, width=self.dim, what="contexts")
        refuse_empty(X)
        ids = None if arms is None else as_arms(arms, len(X))
        statistics = SharedStatistics(self.state, X)
        self._check_lengths(X, statistics.length)
        return PerArmRound(statistics, ids)

    def open_rounds(
        self, contexts: ArrayLike, *, arms: Sequence[ArmId] | None, arm_features: ArrayLike | None
    ) -> Sequence[PerArmRound]:
        """Contexts (n_rounds, n_arms, dim): one matrix product serves all rounds."""
        refuse_arm_features(arm_features)
        X = as_array(contexts, ndim=3, width=self.dim, what="contexts")
        refuse_empty(X)
        ids = None if arms is None else as_arms(arms, X.shape[1])
        self._check_lengths(X.reshape(-1, self.dim), frobenius(X, what="contexts"))
        return [PerArmRound(one, ids) for one in shared_statistics_many(self.state, X)]

    def _check_lengths(self, X: Matrix, length: float) -> None:
        """Refuse rows that are too long; no row is longer than all of them together."""
        if length > self._longest:
            refuse_too_long(np.linalg.norm(X, axis=1), self.state.settings, "contexts")
