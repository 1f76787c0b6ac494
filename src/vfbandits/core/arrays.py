"""Array types, and the checks at the boundary where arrays come in.

``PlainBlock`` and ``MaskedBlock`` are the same array to Python and two types to the checker:
only a mask share turns the first into the second, and only the second may leave its owner.
"""

import math
from typing import NewType, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg.blas import ddot

from vfbandits.errors import ContextError

Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]
Counts: TypeAlias = NDArray[np.int64]
PlainBlock = NewType("PlainBlock", NDArray[np.float64])
MaskedBlock = NewType("MaskedBlock", NDArray[np.float64])

FLOAT = np.dtype(np.float64)
ARRAY = np.ndarray


def as_array(value: ArrayLike, *, ndim: int, width: int, what: str) -> Matrix:
    """``value`` as C-ordered float64 with ``ndim`` axes, the last of them ``width`` long."""
    if type(value) is not ARRAY or value.dtype is not FLOAT or not value.flags.c_contiguous:
        value = _convert(value, what)
    if value.ndim != ndim or value.shape[-1] != width:
        wanted = ", ".join(["n"] * (ndim - 1) + [str(width)])
        raise ContextError(f"{what} must have shape ({wanted}), got {value.shape}")
    return value


def frobenius(values: Matrix, *, what: str) -> float:
    """Euclidean length of all entries together; refuses what is not finite.

    One pass serves twice: the sum of squares is finite exactly when every entry is finite and
    none is so large that inner products would overflow.
    """
    flat = values.reshape(-1)
    squares = ddot(flat, flat) if flat.size else 0.0
    if not math.isfinite(squares):
        raise ContextError(_what_is_not_finite(values, what))
    return math.sqrt(squares)


def _convert(value: ArrayLike, what: str) -> Matrix:
    try:
        raw = np.asarray(value)
    except ValueError as error:
        raise ContextError(f"{what} must be a rectangular array of numbers") from error
    if raw.dtype.kind not in "fiub":
        raise ContextError(f"{what} must hold real numbers, got dtype {raw.dtype}")
    return np.ascontiguousarray(raw, dtype=np.float64)


def _what_is_not_finite(values: Matrix, what: str) -> str:
    bad = np.argwhere(~np.isfinite(values))
    if not len(bad):
        return f"{what} must be small enough to square (below 1e150), got larger entries"
    where = tuple(int(i) for i in bad[0])
    return f"{what} must be finite, got NaN or infinity in {len(bad)} entries, first at {where}"
