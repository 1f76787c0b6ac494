"""DR: doubly robust, a model corrected by weighted residuals (Dudík, Langford and Li 2011)."""

import numpy as np

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.evaluate.log import LoggedBandit
from vfbandits.evaluate.terms import Terms


def dr(log: LoggedBandit, probabilities: Matrix, modelled: Matrix, weights: Vector) -> Terms:
    """DM + mean of w·(r − q(chosen arm)).

    Unbiased whatever the model, if the logged probabilities are right and the model did not see
    the round (cross-fitting).  The better the model, the smaller the residuals and the variance.
    """
    base, residuals = _parts(log, probabilities, modelled)
    return Terms(base, weights * residuals, np.ones(len(log)))


def sndr(log: LoggedBandit, probabilities: Matrix, modelled: Matrix, weights: Vector) -> Terms:
    """DM + Σ w·(r − q(chosen arm)) / Σ w: DR with a self-normalised correction."""
    base, residuals = _parts(log, probabilities, modelled)
    return Terms(base, weights * residuals, weights)


def _parts(log: LoggedBandit, probabilities: Matrix, modelled: Matrix) -> tuple[Vector, Vector]:
    base = np.vecdot(probabilities, modelled)
    return base, log.rewards - modelled[np.arange(len(log)), log.chosen]
