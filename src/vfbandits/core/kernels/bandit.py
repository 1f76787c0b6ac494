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

from vfbandits.core.arrays import Counts, Matrix, Vector

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
def project_and_copy(X: Matrix, direction: Vector, out: Vector, copy: Matrix) -> None:
    """Products of the rows of X (n, dim) with ``direction``, and X itself, in one pass."""
    for a in range(len(X)):
        row, kept = X[a], copy[a]
        total = 0.0
        for i in range(len(direction)):
            x = row[i]
            total += x * direction[i]
            kept[i] = x
        out[a] = total


@njit(cache=True, fastmath=_LOOSE)
def half_products(U: Matrix, X: Matrix, Z: Matrix) -> None:
    """Z = X U' for rows X (n, dim), U upper triangular; four rows share each pass over U."""
    n, dim = X.shape
    whole = n - n % 4
    for a in range(0, whole, 4):
        for j in range(dim):
            row = U[j, j:]
            x0, x1, x2, x3 = X[a, j:], X[a + 1, j:], X[a + 2, j:], X[a + 3, j:]
            s0 = s1 = s2 = s3 = 0.0
            for i in range(len(row)):
                u = row[i]
                s0 += u * x0[i]
                s1 += u * x1[i]
                s2 += u * x2[i]
                s3 += u * x3[i]
            Z[a, j], Z[a + 1, j], Z[a + 2, j], Z[a + 3, j] = s0, s1, s2, s3
    for a in range(whole, n):
        for j in range(dim):
            row, x = U[j, j:], X[a, j:]
            s = 0.0
            for i in range(len(row)):
                s += row[i] * x[i]
            Z[a, j] = s


@njit(cache=True, fastmath=_LOOSE)
def squared_widths(U: Matrix, X: Matrix, out: Vector) -> None:
    """x'(U + U')x for rows X (n, dim), U upper triangular."""
    n, dim = X.shape
    Z = np.empty((n, dim))
    half_products(U, X, Z)
    for a in range(n):
        total = 0.0
        for i in range(dim):
            total += X[a, i] * Z[a, i]
        out[a] = max(2.0 * total, 0.0)


@njit(cache=True, fastmath=_LOOSE)
def arm_factor(U: Matrix, X: Matrix, scale: float, tolerance: float, L: Matrix) -> None:
    """Factor in arm order of X(U + U')X' / scale, as ``factor.arm_order_factor``; L comes zero."""
    n, dim = X.shape
    Z = np.empty((n, dim))
    half_products(U, X, Z)
    C = np.empty((n, n))
    for a in range(n):
        for b in range(n):
            total = 0.0
            for i in range(dim):
                total += Z[a, i] * X[b, i]
            C[a, b] = total
    for j in range(n):
        variance = 2.0 * C[j, j] / scale
        pivot = variance
        for k in range(j):
            pivot -= L[j, k] * L[j, k]
        if pivot <= tolerance * variance:
            continue
        root = math.sqrt(pivot)
        L[j, j] = root
        for i in range(j + 1, n):
            rest = (C[i, j] + C[j, i]) / scale
            for k in range(j):
                rest -= L[i, k] * L[j, k]
            L[i, j] = rest / root


@njit(cache=True, fastmath=_LOOSE)
def update(
    A: Matrix, U: Matrix, b: Vector, theta: Vector, x: Vector, reward: float, most: float
) -> tuple[float, float]:
    """Learn one reward: A, U, b, theta in place; returns x'A⁻¹x from before and ‖theta‖² now.

    Where ‖x‖² is above ``most``, nothing changes and the first is −1.
    """
    dim = len(x)
    square = 0.0
    for i in range(dim):
        square += x[i] * x[i]
    if not square <= most:
        return -1.0, 0.0
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
    squares = 0.0
    for j in range(dim):
        x_j, s_j = x[j], Sx[j] * shrink
        row, A_row, x_tail, S_tail = U[j, j:], A[j, j:], x[j:], Sx[j:]
        for i in range(len(row)):
            A_row[i] += x_tail[i] * x_j
            row[i] -= S_tail[i] * s_j
        row[0] += 0.5 * Sx[j] * s_j
        b[j] += reward * x_j
        theta[j] += error * s_j
        squares += theta[j] * theta[j]
    return q, squares


@njit(cache=True, fastmath=_LOOSE)
def update_root(
    A: Matrix, G: Matrix, b: Vector, theta: Vector, x: Vector, reward: float, most: float
) -> tuple[float, float]:
    """Learn one reward with Potter's update of G = F', C-ordered; returns what ``update`` does."""
    dim = len(x)
    square = 0.0
    for i in range(dim):
        square += x[i] * x[i]
    if not square <= most:
        return -1.0, 0.0
    f = np.empty(dim)
    Ff = np.zeros(dim)
    q = 0.0
    error = reward
    for j in range(dim):
        row = G[j]
        total = 0.0
        for i in range(dim):
            total += row[i] * x[i]
        f[j] = total
        q += total * total
        error -= x[j] * theta[j]
        for i in range(dim):
            Ff[i] += row[i] * total
    shrink = 1.0 / (1.0 + q + math.sqrt(1.0 + q))
    gain = error / (1.0 + q)
    squares = 0.0
    for j in range(dim):
        row, A_row, x_tail, x_j = G[j], A[j, j:], x[j:], x[j]
        step = shrink * f[j]
        for i in range(dim):
            row[i] -= step * Ff[i]
        for i in range(len(A_row)):
            A_row[i] += x_tail[i] * x_j
        b[j] += reward * x_j
        theta[j] += gain * Ff[j]
        squares += theta[j] * theta[j]
    return q, squares


@njit(cache=True, fastmath=_LOOSE)
def turn_blocks(X: Matrix, turns: Vector, widths: Counts, out: Matrix) -> None:
    """Rows of X (n, dim), block by block times a square matrix; ``turns`` holds them flat."""
    for a in range(len(X)):
        column = 0
        place = 0
        for width in widths:
            row = out[a, column : column + width]
            row[:] = 0.0
            whole = width - width % 4
            for k in range(0, whole, 4):  # four at a time: a quarter of the passes over the row
                first = column + k
                x0, x1, x2, x3 = X[a, first], X[a, first + 1], X[a, first + 2], X[a, first + 3]
                t0 = turns[place : place + width]
                t1 = turns[place + width : place + 2 * width]
                t2 = turns[place + 2 * width : place + 3 * width]
                t3 = turns[place + 3 * width : place + 4 * width]
                for i in range(width):
                    row[i] += x0 * t0[i] + x1 * t1[i] + x2 * t2[i] + x3 * t3[i]
                place += 4 * width
            for k in range(whole, width):
                x = X[a, column + k]
                turn = turns[place : place + width]
                for i in range(width):
                    row[i] += x * turn[i]
                place += width
            column += width


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
