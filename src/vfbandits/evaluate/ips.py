"""IPS: inverse propensity scoring (Horvitz and Thompson 1952)."""

import numpy as np

from vfbandits.core.arrays import Vector
from vfbandits.evaluate.terms import Terms


def ips(weights: Vector, rewards: Vector) -> Terms:
    """Mean of w·r.

    Unbiased if the logged probabilities are right and positive wherever the target's are.  Its
    variance grows with the weights and with the *level* of rewards, not only with their spread.

    >>> ips(np.array([2.0, 0.0]), np.array([3.0, 5.0])).value
    3.0
    """
    return Terms(np.zeros(len(rewards)), weights * rewards, np.ones(len(rewards)))
