"""SNIPS: self-normalised IPS (Swaminathan and Joachims 2015)."""

import numpy as np

from vfbandits.core.arrays import Vector
from vfbandits.evaluate.terms import Terms


def snips(weights: Vector, rewards: Vector) -> Terms:
    """Σ w·r / Σ w.

    A weighted mean, so it never leaves the range of the rewards and a constant added to all of
    them is added to it.  Consistent; its bias falls like 1/n.

    >>> snips(np.array([2.0, 1.0]), np.array([3.0, 6.0])).value
    4.0
    """
    return Terms(np.zeros(len(rewards)), weights * rewards, weights)
