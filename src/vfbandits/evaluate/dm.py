"""DM, the direct method: ask a model of the rewards."""

import numpy as np

from vfbandits.core.arrays import Matrix
from vfbandits.evaluate.terms import Terms


def dm(probabilities: Matrix, modelled: Matrix) -> Terms:
    """Mean over rounds of Σ_a π(a)·q(a), with q the ``modelled`` rewards, (n, n_arms) both.

    No weights, so little variance; as biased as the model is, and no interval around it knows.

    >>> dm(np.array([[0.5, 0.5]]), np.array([[1.0, 3.0]])).value
    2.0
    """
    n = len(modelled)
    return Terms(np.vecdot(probabilities, modelled), np.zeros(n), np.ones(n))
