"""The Cholesky factor that is unique in arm order, also when arms coincide.

Arms may be equal, zero or linearly dependent, and then the covariance C of their scores is
singular.  Any square root of C gives draws of the right law, but most depend on a basis or on
rounding.  This one goes row by row in the order of the arms, and a pivot below a relative
tolerance counts as zero: that arm brings no randomness of its own.  C is made of inner products,
so the factor is the same, up to rounding, before and after a mask.
"""

import numpy as np
from scipy.linalg.lapack import dpotrf

from vfbandits.core.arrays import Matrix

PIVOT_TOLERANCE = 1e-10


def arm_order_factor(C: Matrix, *, noise: float = 0.0) -> Matrix:
    """Lower triangular L with LL' = C, for a covariance C (n, n) of any rank.

    A pivot below ``noise`` counts as zero: C is known no better.

    >>> arm_order_factor(np.array([[4.0, 4.0, 0.0], [4.0, 4.0, 0.0], [0.0, 0.0, 9.0]]))
    array([[2., 0., 0.],
           [2., 0., 0.],
           [0., 0., 3.]])
    """
    L, failed = dpotrf(C, lower=1, clean=1)
    if not failed:
        pivots = np.diagonal(L)
        if (pivots * pivots > PIVOT_TOLERANCE * np.diagonal(C) + noise).all():
            return L  # type: ignore[no-any-return]
    return _row_by_row(C, noise)


def _row_by_row(C: Matrix, noise: float) -> Matrix:
    n = len(C)
    L = np.zeros_like(C)
    for i in range(n):
        column = C[i:, i] - L[i:, :i] @ L[i, :i]
        if column[0] > PIVOT_TOLERANCE * C[i, i] + noise:
            L[i:, i] = column / np.sqrt(column[0])
    return L
