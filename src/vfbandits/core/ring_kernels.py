"""Matrix products modulo 2^128, compiled by numba (extra ``fast``).

Of the product of two numbers, low·high and high·low are 64-bit multiplications that wrap, which run
in vector registers; low·low needs all 128 bits, which LLVM has and numba must be asked for.  Import
this module through ``ring``, which knows whether numba is there.
"""

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from vfbandits.core.ring import Words

_WIDE = ir.IntType(128)
_HALF = ir.IntType(64)
_PAIR = types.UniTuple(types.uint64, 2)  # type: ignore[no-untyped-call]


@intrinsic
def _add_product(typing, low, high, a, b):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """(low, high) + a·b for a and b of 64 bits."""

    def build(context, builder, signature, args):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        low, high, a, b = (builder.zext(arg, _WIDE) for arg in args)
        before = builder.or_(low, builder.shl(high, ir.Constant(_WIDE, 64)))
        after = builder.add(before, builder.mul(a, b))
        halves = (
            builder.trunc(after, _HALF),
            builder.trunc(builder.lshr(after, ir.Constant(_WIDE, 64)), _HALF),
        )
        return context.make_tuple(builder, _PAIR, halves)

    return _PAIR(types.uint64, types.uint64, types.uint64, types.uint64), build


@njit(cache=True)
def rows_times(a0: Words, a1: Words, b0: Words, b1: Words, out0: Words, out1: Words) -> None:
    """A B' for planes of rows A (n, k) and B (m, k)."""
    for i in range(len(a0)):
        x0, x1 = a0[i], a1[i]
        for j in range(len(b0)):
            y0, y1 = b0[j], b1[j]
            cross = np.uint64(0)
            for c in range(len(x0)):
                cross += x0[c] * y1[c] + x1[c] * y0[c]
            low = high = np.uint64(0)
            for c in range(len(x0)):
                low, high = _add_product(low, high, x0[c], y0[c])  # type: ignore[call-arg]
            out0[i, j], out1[i, j] = low, high + cross


@njit(cache=True)
def minus_cross_rows(  # noqa: PLR0913, PLR0917  (planes of four matrices and of the result)
    v0: Words,
    v1: Words,
    p0: Words,
    p1: Words,
    w0: Words,
    w1: Words,
    q0: Words,
    q1: Words,
    out0: Words,
    out1: Words,
) -> None:
    """−(V Q' + P W') for planes of rows V, P (n, k) and W, Q (m, k)."""
    for i in range(len(v0)):
        a0, a1, b0, b1 = v0[i], v1[i], p0[i], p1[i]
        for j in range(len(w0)):
            x0, x1, y0, y1 = w0[j], w1[j], q0[j], q1[j]
            cross = np.uint64(0)
            for c in range(len(a0)):
                cross += a0[c] * y1[c] + a1[c] * y0[c] + b0[c] * x1[c] + b1[c] * x0[c]
            low = high = np.uint64(0)
            for c in range(len(a0)):
                low, high = _add_product(low, high, a0[c], y0[c])  # type: ignore[call-arg]
                low, high = _add_product(low, high, b0[c], x0[c])
            out0[i, j] = np.uint64(0) - low
            out1[i, j] = np.uint64(0) - (high + cross) - np.uint64(low != 0)


@njit(cache=True)
def row_products(a0: Words, a1: Words, b0: Words, b1: Words, out0: Words, out1: Words) -> None:
    """a_i·b_i for planes of rows (n, k)."""
    for i in range(len(a0)):
        x0, x1, y0, y1 = a0[i], a1[i], b0[i], b1[i]
        low = high = cross = np.uint64(0)
        for c in range(len(x0)):
            cross += x0[c] * y1[c] + x1[c] * y0[c]
        for c in range(len(x0)):
            low, high = _add_product(low, high, x0[c], y0[c])  # type: ignore[call-arg]
        out0[i], out1[i] = low, high + cross


@njit(cache=True)
def triangle_rows(a0: Words, a1: Words, s0: Words, s1: Words, out0: Words, out1: Words) -> None:
    """As ``ring.triangle_rows``, for planes."""
    for j in range(len(s0)):
        y0, y1 = s0[j, :j], s1[j, :j]
        for i in range(len(a0)):
            x0, x1 = a0[i, :j], a1[i, :j]
            cross = np.uint64(0)
            for c in range(j):
                cross += x0[c] * y1[c] + x1[c] * y0[c]
            low = high = np.uint64(0)
            for c in range(j):
                low, high = _add_product(low, high, x0[c], y0[c])  # type: ignore[call-arg]
            high += cross
            low, high = low << np.uint64(1), (high << np.uint64(1)) | (low >> np.uint64(63))
            low, high = _add_product(low, high, a0[i, j], s0[j, j])  # type: ignore[call-arg]
            out0[i, j] = low
            out1[i, j] = high + a0[i, j] * s1[j, j] + a1[i, j] * s0[j, j]


@njit(cache=True)
def minus_cross_triangle(  # noqa: PLR0913, PLR0917  (planes of four matrices and of the result)
    v0: Words,
    v1: Words,
    p0: Words,
    p1: Words,
    s0: Words,
    s1: Words,
    q0: Words,
    q1: Words,
    out0: Words,
    out1: Words,
) -> None:
    """As ``ring.minus_cross_triangle``, for planes."""
    for j in range(len(s0)):
        x0, x1, y0, y1 = s0[j, :j], s1[j, :j], q0[j, :j], q1[j, :j]
        for i in range(len(v0)):
            a0, a1, b0, b1 = v0[i, :j], v1[i, :j], p0[i, :j], p1[i, :j]
            cross = np.uint64(0)
            for c in range(j):
                cross += a0[c] * y1[c] + a1[c] * y0[c] + b0[c] * x1[c] + b1[c] * x0[c]
            low = high = np.uint64(0)
            for c in range(j):
                low, high = _add_product(low, high, a0[c], y0[c])  # type: ignore[call-arg]
                low, high = _add_product(low, high, b0[c], x0[c])
            high += cross
            low, high = low << np.uint64(1), (high << np.uint64(1)) | (low >> np.uint64(63))
            low, high = _add_product(low, high, v0[i, j], q0[j, j])  # type: ignore[call-arg]
            low, high = _add_product(low, high, p0[i, j], s0[j, j])
            high += v0[i, j] * q1[j, j] + v1[i, j] * q0[j, j]
            high += p0[i, j] * s1[j, j] + p1[i, j] * s0[j, j]
            out0[i, j] = np.uint64(0) - low
            out1[i, j] = np.uint64(0) - high - np.uint64(low != 0)


@njit(cache=True)
def gram(v0: Words, v1: Words, out0: Words, out1: Words) -> None:
    """Add the lower triangle of V'V to ``out``, for planes of rows V (n, k)."""
    for c in range(len(v0)):
        start = 0
        for i in range(v0.shape[1]):
            x0, x1, y0, y1 = v0[c, i], v1[c, i], v0[c, : i + 1], v1[c, : i + 1]
            z0, z1 = out0[start : start + i + 1], out1[start : start + i + 1]
            for j in range(i + 1):
                z0[j], z1[j] = _add_product(z0[j], z1[j], x0, y0[j])  # type: ignore[call-arg]
                z1[j] += x0 * y1[j] + x1 * y0[j]
            start += i + 1


@njit(cache=True)
def times(a0: Words, a1: Words, b0: Words, b1: Words, out0: Words, out1: Words) -> None:
    """Add A B to ``out`` for planes of A (n, k) and B (k, m)."""
    for i in range(len(a0)):
        z0, z1 = out0[i], out1[i]
        for c in range(len(b0)):
            x0, x1, y0, y1 = a0[i, c], a1[i, c], b0[c], b1[c]
            for j in range(len(y0)):
                z0[j], z1[j] = _add_product(z0[j], z1[j], x0, y0[j])  # type: ignore[call-arg]
                z1[j] += x0 * y1[j] + x1 * y0[j]


@njit(cache=True)
def add(a: Words, b: Words, out: Words) -> None:
    """A + b for words (2, n)."""
    for i in range(a.shape[1]):
        low = a[0, i] + b[0, i]
        out[1, i] = a[1, i] + b[1, i] + np.uint64(low < a[0, i])
        out[0, i] = low


@njit(cache=True)
def subtract(a: Words, b: Words, out: Words) -> None:
    """A − b for words (2, n)."""
    for i in range(a.shape[1]):
        out[1, i] = a[1, i] - b[1, i] - np.uint64(a[0, i] < b[0, i])
        out[0, i] = a[0, i] - b[0, i]


@njit(cache=True)
def shifted_down(a: Words, bits: int, out: Words) -> None:
    """The whole part of a / 2^bits for words (2, n)."""
    down, up = np.uint64(bits), np.uint64(64 - bits)
    for i in range(a.shape[1]):
        out[0, i] = (a[0, i] >> down) | (a[1, i] << up)
        out[1, i] = a[1, i] >> down


@njit(cache=True)
def reopen(one: Words, other: Words, cut: int, fraction: int, offset: int, out: Words) -> None:
    """As ``ring.reopen``, for cut shares (2, n)."""
    keep = (np.uint64(1) << np.uint64(64 - cut)) - np.uint64(1)
    down, up = np.uint64(fraction - cut), np.uint64(64 - fraction + cut)
    lift = np.uint64(offset)
    back = lift >> down
    for i in range(one.shape[1]):
        total = one[0, i] + other[0, i]
        high = one[1, i] + other[1, i] + np.uint64(total < one[0, i])
        low = total + lift
        high = (high + np.uint64(low < lift)) & keep
        low, high = (low >> down) | (high << up), high >> down
        out[0, i] = low - back
        out[1, i] = high - np.uint64(low < back)


@njit(cache=True)
def add_rows(a0: Words, a1: Words, out0: Words, out1: Words) -> None:
    """Add the rows of planes (n, m) to ``out`` (m,)."""
    for k in range(len(a0)):
        for j in range(len(out0)):
            low = out0[j] + a0[k, j]
            out1[j] += a1[k, j] + np.uint64(low < out0[j])
            out0[j] = low
