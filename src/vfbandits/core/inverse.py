"""A⁻¹ kept as one triangle: what LinUCB and the greedy policies read.

The symmetric inverse S is stored as T with S = T + T', T lower triangular (its diagonal is half
of S's).  Then x'Sx = 2 x'Tx, and the triangular product costs half of a full one; an update
touches half of the memory, and no rounding can make S unsymmetric, which is what lets a full
matrix drift.
"""

import numpy as np
from scipy.linalg.blas import dgemm, dsymm, dsymv, dsyr, dsyrk, dtrmm
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs

from vfbandits.core import kernels
from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.factor import PIVOT_TOLERANCE, arm_order_factor
from vfbandits.errors import NumericalError


class InverseForm:
    """S = A⁻¹ by its triangle, for A = ridge·I at first.

    Attributes
    ----------
    T
        (dim, dim), Fortran order; the strict upper triangle means nothing.
    """

    __slots__ = ("T", "_diagonal", "upper")

    name = "inverse"

    def __init__(self, dim: int, ridge: float) -> None:
        self.load(np.asfortranarray(np.eye(dim) * (0.5 / ridge)))

    def load(self, array: Matrix) -> None:
        """Take ``array`` as T; it is changed in place from now on."""
        self.T = array
        self.upper = array.T
        self._diagonal = array.reshape(-1, order="A")[:: len(array) + 1]

    @property
    def array(self) -> Matrix:
        """What a snapshot keeps of this form."""
        return self.T

    def trace(self) -> float:
        """Sum of the eigenvalues of S."""
        return 2.0 * float(self._diagonal.sum())

    def squared_widths(self, X: Matrix) -> Vector:
        """Quadratic forms x'Sx, one for each row of X (n, dim)."""
        if kernels.compiled is not None and X.size <= kernels.SMALL_PRODUCT:
            squares: Vector = np.empty(len(X))
            kernels.compiled.squared_widths(self.upper, X, squares)
            return squares
        TX = dtrmm(1.0, self.T, X.T, lower=1)
        squares = np.vecdot(TX.T, X)
        squares *= 2.0
        return np.maximum(squares, 0.0, out=squares)

    def covariance(self, X: Matrix) -> Matrix:
        """X S X' for the rows of X (n, dim): XTX' and its transpose."""
        half: Matrix = dgemm(1.0, dtrmm(1.0, self.T, X.T, lower=1), X.T, trans_a=1)
        return half + half.T

    def factor(self, X: Matrix, scale: float) -> Matrix:
        """L with LL' = X S X' / scale, unique in arm order, for the rows of X (n, dim)."""
        if kernels.compiled is not None and X.size <= kernels.SMALL_PRODUCT:
            L = np.zeros((len(X), len(X)))
            kernels.compiled.arm_factor(self.upper, X, scale, PIVOT_TOLERANCE, L)
            return L
        return arm_order_factor(self.covariance(X) / scale)

    def times(self, x: Vector) -> Vector:
        """S x."""
        Sx: Vector = dsymv(1.0, self.T, x, lower=1)
        Sx += self._diagonal * x
        return Sx

    def update(self, x: Vector) -> tuple[Vector, float]:
        """Follow A + xx' (Sherman and Morrison); returns S x and x'Sx from before."""
        Sx = self.times(x)
        q = max(float(x.dot(Sx)), 0.0)
        shrink = -1.0 / (1.0 + q)
        dsyr(shrink, Sx, a=self.T, lower=1, overwrite_a=1)
        self._diagonal -= (0.5 * shrink) * (Sx * Sx)
        return Sx, q

    def update_many(self, X: Matrix) -> float:
        """Follow A + X'X for rows X (n, dim) (Woodbury); returns log det of the growth."""
        SX = dsymm(1.0, self.T, X.T, lower=1)
        SX += self._diagonal[:, None] * X.T
        M = dgemm(1.0, SX, X.T, trans_a=1)
        M[np.diag_indices_from(M)] += 1.0
        L, failed = dpotrf(M, lower=1, clean=1)
        if failed:
            raise NumericalError(f"a batch of {len(X)} rewards left no positive definite update")
        half, _ = dpotrs(L, np.asfortranarray(SX.T), lower=1)
        # S − SX' M⁻¹ XS, made symmetric by taking one triangle of it.
        change = dgemm(1.0, SX, half)
        self.T -= np.tril(change)
        self._diagonal += 0.5 * np.diagonal(change)
        return 2.0 * float(np.log(np.diagonal(L)).sum())

    def refactor(self, A: Matrix) -> float:
        """Start afresh from the lower triangle of A; returns log det A."""
        np.copyto(self.T, A)
        factor, failed = dpotrf(self.T, lower=1, overwrite_a=1)
        if failed:
            raise NumericalError("Lambda is no longer positive definite: are contexts too large?")
        log_det = 2.0 * float(np.log(np.diagonal(factor)).sum())
        inverse, _ = dpotri(factor, lower=1, overwrite_c=1)
        self.load(inverse)
        self._diagonal *= 0.5
        return log_det


def add_outer(A: Matrix, X: Matrix) -> None:
    """Lower triangle of A (Fortran order) plus X'X, in place."""
    if len(X) == 1:
        dsyr(1.0, X[0], a=A, lower=1, overwrite_a=1)
    else:
        dsyrk(1.0, X.T, beta=1.0, c=A, lower=1, overwrite_c=1)
