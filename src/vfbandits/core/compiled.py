"""The hot loops for small dimensions, compiled by numba (extra ``fast``).

At d = 20 a call into BLAS costs more than its arithmetic; here one call does a whole stage.  The
pure NumPy path computes the same numbers up to rounding, and the same decisions.  Import this
module through ``kernels``, which knows whether numba is there.

Matrices come as C-ordered upper triangles: row j from its diagonal on is one contiguous run.
Loops run over slices, since numba vectorises those and not indices that start at j.
"""

import math

import numpy as np
from numba import njit

from vfbandits.core.arrays import Matrix, Vector

# Sums may be reordered, which lets them run in vector registers; NaN and infinity keep their rules.
_LOOSE = {"reassoc", "contract", "nsz"}


@njit(cache=True, fastmath=_LOOSE)
def means(X: Matrix, theta: Vector, out: Vector) -> float:
    """X theta for rows X (n, dim); returns the sum of all squares in X."""
    squares = 0.0
    for a in range(len(X)):
        total = 0.0
        for i in range(len(theta)):
            x = X[a, i]
            total += x * theta[i]
            squares += x * x
        out[a] = total
    return squares


@njit(cache=True, fastmath=_LOOSE)
def squared_widths(U: Matrix, X: Matrix, out: Vector) -> None:
    """x'(U + U')x for rows X (n, dim), U upper triangular; four rows share each pass over U."""
    n, dim = X.shape
    whole = n - n % 4
    for a in range(0, whole, 4):
        x0, x1, x2, x3 = X[a], X[a + 1], X[a + 2], X[a + 3]
        t0 = t1 = t2 = t3 = 0.0
        for j in range(dim):
            row = U[j, j:]
            y0, y1, y2, y3 = x0[j:], x1[j:], x2[j:], x3[j:]
            s0 = s1 = s2 = s3 = 0.0
            for i in range(len(row)):
                u = row[i]
                s0 += u * y0[i]
                s1 += u * y1[i]
                s2 += u * y2[i]
                s3 += u * y3[i]
            t0 += s0 * x0[j]
            t1 += s1 * x1[j]
            t2 += s2 * x2[j]
            t3 += s3 * x3[j]
        out[a], out[a + 1] = max(2.0 * t0, 0.0), max(2.0 * t1, 0.0)
        out[a + 2], out[a + 3] = max(2.0 * t2, 0.0), max(2.0 * t3, 0.0)
    for a in range(whole, n):
        x = X[a]
        t = 0.0
        for j in range(dim):
            row, y = U[j, j:], x[j:]
            s = 0.0
            for i in range(len(row)):
                s += row[i] * y[i]
            t += s * x[j]
        out[a] = max(2.0 * t, 0.0)


@njit(cache=True, fastmath=_LOOSE)
def update(A: Matrix, U: Matrix, b: Vector, theta: Vector, x: Vector, reward: float) -> float:
    """Learn one reward: A, U, b and theta in place; returns x'A⁻¹x from before."""
    dim = len(x)
    Sx = np.empty(dim)
    for i in range(dim):
        Sx[i] = U[i, i] * x[i]
    for j in range(dim):
        x_j, row, x_tail, S_tail = x[j], U[j, j:], x[j:], Sx[j:]
        total = 0.0
        for i in range(len(row)):
            S_tail[i] += row[i] * x_j
            total += row[i] * x_tail[i]
        Sx[j] += total - row[0] * x_j
    q = 0.0
    error = reward
    for i in range(dim):
        q += x[i] * Sx[i]
        error -= x[i] * theta[i]
    q = max(q, 0.0)
    shrink = 1.0 / (1.0 + q)
    for j in range(dim):
        x_j, s_j = x[j], Sx[j] * shrink
        row, A_row, x_tail, S_tail = U[j, j:], A[j, j:], x[j:], Sx[j:]
        for i in range(len(row)):
            A_row[i] += x_tail[i] * x_j
            row[i] -= S_tail[i] * s_j
        row[0] += 0.5 * Sx[j] * s_j
        b[j] += reward * x_j
        theta[j] += error * s_j
    return q


@njit(cache=True)
def first_best(scores: Vector, magnitude: float, tolerance: float) -> int:
    """Index of the first score within tolerance of the best; −1 if one is not a finite number."""
    best = scores[0]
    for score in scores:
        if math.isnan(score):
            return -1
        best = max(best, score)
    if math.isinf(best):
        return -1
    least = best - tolerance * (abs(best) + magnitude)
    for a in range(len(scores)):
        if scores[a] >= least:
            return a
    return -1
