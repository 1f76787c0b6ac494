"""The covariance form of the state: theta and S, of which Lambda⁻¹ = S − V'V.

V has a row for each reward since the last fold, and h a number for each row:

    decide   q = x·(Lx) − |Vx|²,   m = x·theta + h·(Vx)
    reward   v = Sx − V'(Vx),  s = 1/√(1 + q),  V gets the row s·v, and h gets s·(r − m)
    fold     S ← S − V'V,  theta ← theta + V'h

with L the lower triangle of S, doubled off the diagonal: x'Lx = x'Sx for half of the products, and
x_a'Lx_b + x_b'Lx_a = 2 x_a'Sx_b.  A policy that reads means alone needs x·(theta + V'h) and no S.

This file has what the parties compute alike.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.linalg import block_diag

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.ring import FRACTION, Words, add, decode, encode, shifted_up
from vfbandits.core.shares.sides import FINE_BITS, PRODUCT_BITS

MEAN_BITS = PRODUCT_BITS + FINE_BITS - FRACTION
"""Bits after the point of a share of a mean: of products with one fine factor."""
FORM_BITS = MEAN_BITS + FINE_BITS - FRACTION
"""Bits after the point of a share of x_a'Lambda⁻¹x_b: of products with two fine factors."""
MIN_SQUARE = 2.0**-36
"""A smaller q is rounding: the context is zero, and so is its width."""


class HeldCovariance(NamedTuple):
    """One server's side of the state; the two sides add up to twice the values."""

    S: Words
    theta: Words
    V: Words
    h: Words


def revealed(active: HeldCovariance, helper: HeldCovariance, ridge: float) -> tuple[Vector, Matrix]:
    """Theta and Lambda⁻¹ from both sides of the state."""
    S, theta, V, h = (0.5 * decode(add(*sides)) for sides in zip(active, helper, strict=True))
    n = len(S) // S.shape[1]
    parts = zip(np.split(S, n), np.split(V, n, axis=1), strict=True)
    inverse = block_diag(*((block - part.T @ part) / ridge for block, part in parts))
    return (theta + h @ V) / math.sqrt(ridge), inverse


def identity(dim: int) -> Words:
    """The S of a state that has learnt nothing."""
    return encode(np.eye(dim), bound=1.0, what="a unit matrix")


def joined(M: Words) -> Words:
    """The lower triangle of M + M', row by row."""
    i, j = np.tril_indices(M.shape[1])
    return add(M[:, i, j], M[:, j, i])


def as_fine(words: Words) -> Words:
    """A number with one fine factor less than others that it is added to."""
    return shifted_up(words, FINE_BITS - FRACTION)


def widths_of(squares: Vector) -> Vector:
    """√q; a q that is no more than rounding is 0.

    >>> widths_of(np.array([0.25, 2.0**-40, -(2.0**-40)]))
    array([0.5, 0. , 0. ])
    """
    return np.sqrt(np.where(squares < MIN_SQUARE, 0.0, squares))


def covariance_of(forms: Vector, n_arms: int) -> Matrix:
    """C from 2C, of which ``forms`` is the lower triangle."""
    C = np.zeros((n_arms, n_arms))
    i, j = np.tril_indices(n_arms)
    C[i, j] = C[j, i] = 0.5 * forms
    return C
