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
def add_rows(a0: Words, a1: Words, out0: Words, out1: Words) -> None:
    """Add the rows of planes (n, m) to ``out`` (m,)."""
    for k in range(len(a0)):
        for j in range(len(out0)):
            low = out0[j] + a0[k, j]
            out1[j] += a1[k, j] + np.uint64(low < out0[j])
            out0[j] = low


@njit(cache=True)
def open_side(one: Words, other: Words, mask: Words, out: Words) -> None:
    """One + other − 2·mask for words (2, n)."""
    for i in range(one.shape[1]):
        low = one[0, i] + other[0, i]
        high = one[1, i] + other[1, i] + np.uint64(low < one[0, i])
        twice = mask[0, i] << np.uint64(1)
        out[1, i] = high - (mask[1, i] << np.uint64(1)) - (mask[0, i] >> np.uint64(63))
        out[1, i] -= np.uint64(low < twice)
        out[0, i] = low - twice


@njit(cache=True)
def reopen_side(  # noqa: PLR0913, PLR0917
    one: Words,
    other: Words,
    mask: Words,
    base: Words,
    down: int,
    keep: int,
    offset: int,
    out: Words,
) -> None:
    """As ``sides.reopen_side``, for shares (2, n) and a mask and base that may be longer."""
    drop, up = np.uint64(down), np.uint64(64 - down)
    kept = np.uint64(keep)
    lift = np.uint64(offset)
    back = lift >> drop
    for i in range(one.shape[1]):
        total = one[0, i] + other[0, i]
        high = one[1, i] + other[1, i] + np.uint64(total < one[0, i])
        low = total + lift
        high = (high + np.uint64(low < lift)) & kept
        if down:
            low, high = (low >> drop) | (high << up), high >> drop
        high -= np.uint64(low < back)
        low -= back
        twice = mask[0, i] << np.uint64(1)
        high -= (mask[1, i] << np.uint64(1)) + (mask[0, i] >> np.uint64(63))
        high -= np.uint64(low < twice)
        low -= twice
        out[0, i] = low + base[0, i]
        out[1, i] = high + base[1, i] + np.uint64(out[0, i] < low)


@njit(cache=True)
def combined(  # noqa: PLR0913, PLR0917
    rows: Words,
    v: Words,
    window: Words,
    weights: Words,
    n: int,
    rho: Words,
    down: int,
    out: Words,
) -> None:
    """As ``sides.combined``, shifted down; ``down`` is from 1 to 63, or 0."""
    drop, up = np.uint64(down), np.uint64(64 - down)
    v0, v1 = v[0], v[1]
    for i in range(out.shape[1]):
        a0, a1 = rows[0, i], rows[1, i]
        cross = np.uint64(0)
        for c in range(len(v0)):
            cross += a0[c] * v1[c] + a1[c] * v0[c]
        low, high = rho[0, i], rho[1, i]
        for c in range(len(v0)):
            low, high = _add_product(low, high, a0[c], v0[c])  # type: ignore[call-arg]
        high += cross
        if n:
            less = much = np.uint64(0)
            for k in range(n):
                x0, x1 = window[0, k, i], window[1, k, i]
                less, much = _add_product(less, much, x0, weights[0, k])  # type: ignore[call-arg]
                much += x0 * weights[1, k] + x1 * weights[0, k]
            high -= much + np.uint64(low < less)
            low -= less
        if down:
            out[0, i], out[1, i] = (low >> drop) | (high << up), high >> drop
        else:
            out[0, i], out[1, i] = low, high


@njit(cache=True)
def scaled_rows(scalars: Words, rows: Words, out: Words) -> None:
    """Each row of (2, n, d) times its scalar of (2, n)."""
    for k in range(rows.shape[1]):
        x0, x1, y0, y1 = scalars[0, k], scalars[1, k], rows[0, k], rows[1, k]
        z0, z1 = out[0, k], out[1, k]
        for j in range(len(y0)):
            z0[j], z1[j] = _add_product(np.uint64(0), np.uint64(0), x0, y0[j])  # type: ignore[call-arg]
            z1[j] += x0 * y1[j] + x1 * y0[j]


@njit(cache=True)
def chebyshev_shares(
    place: int, half_bits: int, bits: int, guard: int, coefficients: Words, out: Words
) -> None:
    """As ``FunctionTable.share`` for one number: coefficients (2, n_functions, size)."""
    n, size = coefficients.shape[1], coefficients.shape[2]
    x = np.int64(place) - (np.int64(1) << np.int64(half_bits))
    shift = np.uint64(half_bits - 1)
    before = np.int64(1) << np.int64(bits + guard)
    last = x << np.int64(bits + guard - half_bits)
    half = np.int64(1) << np.int64(guard - 1)
    for j in range(size):
        whole = (before + half) >> np.int64(guard)
        t0, t1 = np.uint64(whole), np.uint64(whole >> np.int64(63))
        for k in range(n):
            c0, c1 = coefficients[0, k, j], coefficients[1, k, j]
            if j == 0:
                out[0, k] = out[1, k] = np.uint64(0)
            out[0, k], out[1, k] = _add_product(out[0, k], out[1, k], t0, c0)  # type: ignore[call-arg]
            out[1, k] += t0 * c1 + t1 * c0
        # x·last of up to 105 bits, and the whole part of its quotient by 2^shift.
        low = high = np.uint64(0)
        low, high = _add_product(low, high, np.uint64(abs(x)), np.uint64(abs(last)))  # type: ignore[call-arg]
        if (x < 0) != (last < 0) and (low | high):
            rest = low & ((np.uint64(1) << shift) - np.uint64(1))
            quotient = (low >> shift) | (high << (np.uint64(64) - shift))
            following = -np.int64(quotient) - np.int64(rest != 0)
        else:
            following = np.int64((low >> shift) | (high << (np.uint64(64) - shift)))
        before, last = last, following - before
