"""Joint draws of the arms' deviations from their estimates, N(0, C) with C = X Lambda⁻¹ X'.

A sampler keeps all it needs, so that it can be asked again after the state has moved on: that is
how a decision tells, when somebody wants to know, how likely its arm was.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg.blas import dgemm, dgemv

from vfbandits.core import kernels
from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.root import RootLoan


class Draws(Protocol):
    """The part of a NumPy ``Generator`` that policies use."""

    def standard_normal(self, size: int | tuple[int, ...], /) -> Matrix:
        """Independent N(0, 1)."""
        ...

    def random(self) -> float:
        """Uniform in [0, 1)."""
        ...


class Sampler(Protocol):
    """Draws from N(0, C) for the arms of one round."""

    def draw(self, rng: Draws) -> Vector:
        """One draw, (n_arms,)."""
        ...

    def draw_many(self, rng: Draws, count: int) -> Matrix:
        """Independent draws, (count, n_arms)."""
        ...


@dataclass(frozen=True, slots=True)
class FactorSampler:
    """Draws Lz from a factor L of C, (n_arms, n_factors); the same arms masked and plain."""

    L: Matrix

    def draw(self, rng: Draws) -> Vector:
        """One draw, from as many normals as L has columns."""
        draw: Vector = dgemv(1.0, self.L, rng.standard_normal(self.L.shape[1]))
        return draw

    def draw_many(self, rng: Draws, count: int) -> Matrix:
        """Independent draws, (count, n_arms)."""
        draws: Matrix = rng.standard_normal((count, self.L.shape[1])) @ self.L.T
        return draws


@dataclass(frozen=True, slots=True)
class IndependentSampler:
    """Draws for arms that share no parameter: C is diagonal, (n_arms,) widths are its root."""

    widths: Vector

    def draw(self, rng: Draws) -> Vector:
        """One draw, from one normal per arm."""
        return self.widths * rng.standard_normal(len(self.widths))

    def draw_many(self, rng: Draws, count: int) -> Matrix:
        """Independent draws, (count, n_arms)."""
        return self.widths * rng.standard_normal((count, len(self.widths)))


class ParameterSampler:
    """Draws XFz with FF' = Lambda⁻¹: O(dim² + n_arms·dim) for one, whatever the number of arms.

    Behind a mask Q the law is the same; the arms are the same when z is turned by Q as well.  The
    caller may reuse the buffer of X before a probability is asked for, so the first draw, which
    is made immediately, takes a copy on its way.
    """

    __slots__ = ("_X", "_is_copy", "_root", "_weight")

    def __init__(self, X: Matrix, root: RootLoan, weight: float) -> None:
        self._X = X
        self._is_copy = False
        self._root = root
        self._weight = weight

    def draw(self, rng: Draws) -> Vector:
        """One draw, from dim normals."""
        F = self._root.F
        theta: Vector = dgemv(self._weight, F, rng.standard_normal(len(F)))
        if not self._is_copy and kernels.compiled is not None:
            copy, draw = np.empty(self._X.shape), np.empty(len(self._X))
            kernels.compiled.project_and_copy(self._X, theta, draw, copy)
            self._keep(copy)
            return draw
        if not self._is_copy:
            self._keep(self._X.copy())
        return np.asarray(dgemv(1.0, self._X.T, theta, trans=1))

    def draw_many(self, rng: Draws, count: int) -> Matrix:
        """Independent draws, (count, n_arms)."""
        F = self._root.F
        Z = np.ascontiguousarray(rng.standard_normal((count, len(F))))
        Theta = dgemm(self._weight, F, Z.T)
        draws: Matrix = dgemm(1.0, self._X.T, Theta, trans_a=1).T
        return draws

    def _keep(self, copy: Matrix) -> None:
        self._X, self._is_copy = copy, True
