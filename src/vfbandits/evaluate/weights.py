"""Importance weights: how much more the target likes a logged arm than the log did."""

import numpy as np

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.errors import SettingError
from vfbandits.evaluate.log import LoggedBandit


def importance_weights(
    log: LoggedBandit, probabilities: Matrix, *, clip: float | None = None
) -> Vector:
    """Target's probability of the logged arm over the log's, (n,), none above ``clip``.

    Their mean is 1 in expectation if the log may play every arm that the target may.  Clipping
    trades variance for a bias towards zero (rewards that are not negative).
    """
    wanted = (len(log), log.n_arms)
    if probabilities.shape != wanted:
        raise SettingError(f"target probabilities must be {wanted}, got {probabilities.shape}")
    if not (probabilities >= 0.0).all() or not np.allclose(probabilities.sum(axis=1), 1.0):
        raise SettingError("target probabilities must be at least 0 and sum to 1 in every round")
    weights = probabilities[np.arange(len(log)), log.chosen] / log.probabilities
    if clip is None:
        return np.asarray(weights)
    if not clip > 0.0:
        raise SettingError(f"clip must be a positive number, got {clip!r}")
    return np.minimum(weights, clip)


def effective_size(weights: Vector) -> float:
    """(Σw)² / Σw²: as many equally weighted rounds would say as much (Kish 1965).

    >>> effective_size(np.array([1.0, 1.0, 0.0, 0.0]))
    2.0
    """
    squares = float(weights @ weights)
    return float(weights.sum()) ** 2 / squares if squares else 0.0
