"""Joint draws of the arms' deviations from their estimates, N(0, C) with C = X Lambda⁻¹ X'.

A sampler keeps all it needs, so that it can be asked again after the state has moved on: that is
how a decision tells, when somebody wants to know, how likely its arm was.
"""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from scipy.linalg.blas import dgemm, dgemv

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


@dataclass(frozen=True, slots=True)
class ParameterSampler:
    """Draws XFz with FF' = Lambda⁻¹: O(dim² + n_arms·dim) for one, whatever the number of arms.

    Behind a mask Q the law is the same; the arms are the same when z is turned by Q as well.
    """

    X: Matrix = field(repr=False)
    root: RootLoan = field(repr=False)
    weight: float

    def draw(self, rng: Draws) -> Vector:
        """One draw, from dim normals."""
        theta = dgemv(self.weight, self.root.F, rng.standard_normal(len(self.root.F)))
        draw: Vector = dgemv(1.0, self.X.T, theta, trans=1)
        return draw

    def draw_many(self, rng: Draws, count: int) -> Matrix:
        """Independent draws, (count, n_arms)."""
        Z = np.ascontiguousarray(rng.standard_normal((count, len(self.root.F))))
        Theta = dgemm(self.weight, self.root.F, Z.T)
        draws: Matrix = dgemm(1.0, self.X.T, Theta, trans_a=1).T
        return draws
