"""A ridge model of the rewards, cross-fitted: no round is predicted by a model that saw it.

Rewards are centred on their mean, and every coefficient shrinks alike: an arm with few rounds
falls back to the mean, and a rotation of the contexts changes no prediction, so the model may be
fitted on masked contexts as well as on plain ones.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.settings import LearnerSettings, whole
from vfbandits.errors import SettingError
from vfbandits.evaluate.log import Indices, LoggedBandit

MODELS = ("auto", "shared", "arm")


@dataclass(frozen=True, slots=True)
class RewardModel:
    """How rewards are modelled.

    "shared": one ridge for all arms, on [1; x_a] (layout "per_arm"), [1; u] ⊗ [1; w_a] ("outer")
    or the user's vector and the arm's own level ("disjoint").  "arm": a ridge for each arm, on
    [1; x].  "auto": "arm" in layout "disjoint", otherwise "shared".
    """

    kind: str = "auto"
    ridge: float = 1.0
    n_folds: int = 5

    def __post_init__(self) -> None:
        """Refuse unknown models and impossible numbers."""
        if self.kind not in MODELS:
            raise SettingError(f"model must be one of {', '.join(MODELS)}, got {self.kind!r}")
        LearnerSettings(ridge=self.ridge)
        if whole(self.n_folds, "folds") < 2:
            raise SettingError(f"folds must be a whole number from 2, got {self.n_folds}")

    def predict(self, log: LoggedBandit, rng: np.random.Generator) -> Matrix:
        """Modelled rewards of all arms in all rounds, (n, n_arms), each fold by the others."""
        if len(log) < self.n_folds:
            raise SettingError(f"{self.n_folds} folds need as many rounds, got {len(log)}")
        folds = rng.permutation(np.arange(len(log)) % self.n_folds)
        modelled = np.empty((len(log), log.n_arms))
        for fold in range(self.n_folds):
            inside = np.flatnonzero(folds == fold)
            self._fit_predict(log, np.flatnonzero(folds != fold), inside, modelled)
        return modelled

    def _fit_predict(
        self, log: LoggedBandit, train: Indices, test: Indices, modelled: Matrix
    ) -> None:
        centre = float(log.rewards[train].mean())
        rewards = log.rewards[train] - centre
        own = self.kind == "arm" or (self.kind == "auto" and log.layout == "disjoint")
        if not own:
            rows = np.empty((len(train), _width(log)))
            for arm in np.unique(log.chosen[train]):
                here = log.chosen[train] == arm
                rows[here] = _rows(log, train[here], arm)
            shared = self._solve(rows, rewards)
        for arm in range(log.n_arms):
            if own:
                here = log.chosen[train] == arm
                theta = self._solve(_own_rows(log, train[here], arm), rewards[here])
                modelled[test, arm] = centre + _own_rows(log, test, arm) @ theta
            else:
                modelled[test, arm] = centre + _rows(log, test, arm) @ shared

    def _solve(self, rows: Matrix, rewards: Vector) -> Vector:
        gram = rows.T @ rows + self.ridge * np.eye(rows.shape[1])
        return np.asarray(solve(gram, rows.T @ rewards, assume_a="pos"))


def _own_rows(log: LoggedBandit, rounds: Indices, arm: int) -> Matrix:
    contexts = log.contexts[rounds, arm] if log.layout == "per_arm" else log.contexts[rounds]
    return _with_one(contexts)


def _rows(log: LoggedBandit, rounds: Indices, arm: int) -> Matrix:
    features = log.features_of(rounds)
    if features is not None:
        users = _with_one(log.contexts[rounds])
        of_arm = _with_one(features[:, arm] if features.ndim == 3 else features[arm][None])
        return np.asarray((users[:, :, None] * of_arm[:, None, :]).reshape(len(users), -1))
    rows = _own_rows(log, rounds, arm)
    if log.layout == "disjoint":
        level = np.zeros((len(rows), log.n_arms))
        level[:, arm] = 1.0
        rows = np.hstack([rows, level])
    return rows


def _width(log: LoggedBandit) -> int:
    if log.arm_features is not None:
        return (log.dim + 1) * (int(log.arm_features.shape[-1]) + 1)
    return log.dim + 1 + (log.n_arms if log.layout == "disjoint" else 0)


def _with_one(rows: Matrix) -> Matrix:
    return np.hstack([np.ones((len(rows), 1)), rows])
