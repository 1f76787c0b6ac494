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
def times(a0: Words, a1: Words, b0: Words, b1: Words, out0: Words, out1: Words) -> None:
    """Add A B to ``out`` for planes of A (n, k) and B (k, m)."""
    for i in range(len(a0)):
        z0, z1 = out0[i], out1[i]
        for c in range(len(b0)):
            x0, x1, y0, y1 = a0[i, c], a1[i, c], b0[c], b1[c]
            for j in range(len(y0)):
                z0[j], z1[j] = _add_product(z0[j], z1[j], x0, y0[j])  # type: ignore[call-arg]
                z1[j] += x0 * y1[j] + x1 * y0[j]
