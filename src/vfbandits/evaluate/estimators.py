"""Estimators of what a policy would have earned, from a log of another one.

IPS: inverse propensity scoring (Horvitz and Thompson 1952).  SNIPS: self-normalised IPS
(Swaminathan and Joachims 2015).  DM: the direct method, a model of the rewards.  DR: doubly
robust, the model corrected by weighted residuals (Dudík, Langford and Li 2011).
"""

import numpy as np

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.evaluate.log import LoggedBandit
from vfbandits.evaluate.terms import Terms


def ips(weights: Vector, rewards: Vector) -> Terms:
    """Mean of w·r.

    Unbiased if the logged probabilities are right and positive wherever the target's are.  Its
    variance grows with the weights and with the *level* of rewards, not only with their spread.

    >>> ips(np.array([2.0, 0.0]), np.array([3.0, 5.0])).value
    3.0
    """
    return Terms(np.zeros(len(rewards)), weights * rewards, np.ones(len(rewards)))


def snips(weights: Vector, rewards: Vector) -> Terms:
    """Σ w·r / Σ w.

    A weighted mean, so it never leaves the range of the rewards and a constant added to all of
    them is added to it.  Consistent; its bias falls like 1/n.

    >>> snips(np.array([2.0, 1.0]), np.array([3.0, 6.0])).value
    4.0
    """
    return Terms(np.zeros(len(rewards)), weights * rewards, weights)


def dm(probabilities: Matrix, modelled: Matrix) -> Terms:
    """Mean over rounds of Σ_a π(a)·q(a), with q the ``modelled`` rewards, (n, n_arms) both.

    No weights, so little variance; as biased as the model, which its interval leaves out.

    >>> dm(np.array([[0.5, 0.5]]), np.array([[1.0, 3.0]])).value
    2.0
    """
    n = len(modelled)
    return Terms(np.vecdot(probabilities, modelled), np.zeros(n), np.ones(n))


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
