"""A⁻¹ kept as a square root F with A⁻¹ = FF': what Thompson sampling over many arms reads.

Potter's update changes F by one outer product, and it never names a coordinate: when contexts are
turned by Q, the root is QFQ'.  So θ + vFz has the same law behind a mask, and the same value when
z is turned too.
"""

import weakref

import numpy as np
from scipy.linalg import eigh
from scipy.linalg.blas import dgemm, dgemv, dger

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.factor import arm_order_factor
from vfbandits.errors import NumericalError


class RootLoan:
    """F as it was when a decision was made; it stays so however long it is kept."""

    __slots__ = ("F", "__weakref__")

    def __init__(self, F: Matrix) -> None:
        self.F = F


class RootForm:
    """F with FF' = A⁻¹, for A = ridge·I at first.

    Attributes
    ----------
    F
        (dim, dim), Fortran order.
    """

    __slots__ = ("F", "_loan")

    name = "root"

    def __init__(self, dim: int, ridge: float) -> None:
        self.load(np.asfortranarray(np.eye(dim) / np.sqrt(ridge)))

    def load(self, array: Matrix) -> None:
        """Take ``array`` as F; it is changed in place from now on."""
        self.F = array
        self._loan: weakref.ref[RootLoan] | None = None

    @property
    def array(self) -> Matrix:
        """What a snapshot keeps of this form."""
        return self.F

    def lend(self) -> RootLoan:
        """F for a reader that may outlive the next update; a copy is made only if it does."""
        loan = self._loan() if self._loan is not None else None
        if loan is None:
            loan = RootLoan(self.F)
            self._loan = weakref.ref(loan)
        return loan

    def trace(self) -> float:
        """Sum of the eigenvalues of FF'."""
        return float(np.vdot(self.F, self.F))

    def squared_widths(self, X: Matrix) -> Vector:
        """x'A⁻¹x for each row of X (n, dim)."""
        FX = dgemm(1.0, self.F, X.T, trans_a=1)
        squares: Vector = np.vecdot(FX.T, FX.T)
        return squares

    def covariance(self, X: Matrix) -> Matrix:
        """X A⁻¹ X' for the rows of X (n, dim)."""
        FX = dgemm(1.0, self.F, X.T, trans_a=1)
        C: Matrix = dgemm(1.0, FX, FX, trans_a=1)
        return C

    def factor(self, X: Matrix, scale: float) -> Matrix:
        """L with LL' = X A⁻¹ X' / scale, unique in arm order, for the rows of X (n, dim)."""
        return arm_order_factor(self.covariance(X) / scale)

    def times(self, x: Vector) -> Vector:
        """A⁻¹x."""
        y: Vector = dgemv(1.0, self.F, dgemv(1.0, self.F, x, trans=1))
        return y

    def update(self, x: Vector) -> tuple[Vector, float]:
        """Follow A + xx' (Potter); returns A⁻¹x and x'A⁻¹x from before."""
        F = self.own()
        f = dgemv(1.0, F, x, trans=1)
        Ff: Vector = dgemv(1.0, F, f)
        q = float(f.dot(f))
        dger(-1.0 / (1.0 + q + np.sqrt(1.0 + q)), Ff, f, a=F, overwrite_x=0, overwrite_a=1)
        return Ff, q

    def update_many(self, X: Matrix) -> float:
        """Follow A + X'X for rows X (n, dim); returns log det of the growth.

        The symmetric root of I − P(I + P'P)⁻¹P', P = F'X', from the eigenvectors of P'P: with one
        row it is Potter's update.
        """
        F = self.own()
        P = dgemm(1.0, F, X.T, trans_a=1)
        s, U = eigh(dgemm(1.0, P, P, trans_a=1))
        s = np.maximum(s, 0.0)
        W = dgemm(1.0, P, U)
        G = dgemm(1.0, F, W) / (1.0 + s + np.sqrt(1.0 + s))
        dgemm(-1.0, G, W, beta=1.0, c=F, trans_b=1, overwrite_c=1)
        return float(np.log1p(s).sum())

    def refactor(self, A: Matrix) -> float:
        """Start afresh from the lower triangle of A: its symmetric root; returns log det A."""
        w, V = eigh(A, lower=True)
        if w[0] <= 0.0:
            raise NumericalError("Lambda is no longer positive definite: are contexts too large?")
        self.load(dgemm(1.0, np.asfortranarray(V / np.sqrt(w)), V, trans_b=1))
        return float(np.log(w).sum())

    def own(self) -> Matrix:
        """F, free to be changed: a reader that still holds a loan keeps the old array."""
        if self._loan is not None:
            if self._loan() is not None:
                self.F = self.F.copy(order="F")
            self._loan = None
        return self.F
