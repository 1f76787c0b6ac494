"""Functions of a secret number, by tables that are used once.

The servers open q + λ modulo a power of two M, in units of 2^-44.  λ is uniform there and known to
the dealer only, so what is opened is uniform and says nothing about q.  Its top bits name a
segment, its low bits are a place t in that segment.  In each segment q = start + t, and the dealer,
who knows the start, fits f(start + t) by a polynomial in t and shares its coefficients.  t is
public, so the polynomial is linear in the coefficients: each server computes its share of f(q)
without a message.

Beside the numbers that q can be, M has room for one segment that q never reaches.  So each segment
holds one range of possible numbers at most.  Where a range begins within a segment, the polynomial
is fitted to the range alone: below it f may have a pole.
"""

from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from vfbandits.core import kernels
from vfbandits.core.arrays import Matrix
from vfbandits.core.ring import CUT, FRACTION, Words, add, cut, encode, open_short, rows_times
from vfbandits.errors import SharesError

Function: TypeAlias = Callable[[Matrix], Matrix]
Numbers: TypeAlias = NDArray[np.uint64]

ERROR = 2.0**-43
"""A polynomial is nearer than this to its function."""
SLACK = 2.0**-16
"""How far rounding may take q below 0 or above its limit."""
MAX_COEFFICIENT = 64.0
MAX_DEGREE = 32
MAX_LIMIT = 2.0**10

# Segments are 1/2, 1 or 2 long; in longer ones a fit to a part of a segment is ill-conditioned.
_SEGMENT_BITS = (FRACTION - 1, FRACTION, FRACTION + 1)
_GUARD_BITS = 16
_RANK_TOLERANCE = 3e-15
_EXTRA_NODES = 8


class FunctionTable:
    """Functions on [0, limit], as polynomials on segments of equal length.

    Attributes
    ----------
    functions
        They take an array of numbers from −SLACK on.  Their poles are at −1 or below.
    shape
        Of the coefficients for one q: (segments, functions, degree + 1).

    >>> table = function_table((lambda q: 1.0 / (1.0 + q),), 3.0)
    >>> mask = np.array([12345], np.uint64)
    >>> opened = mask + np.uint64(2**44)  # q = 1
    >>> from vfbandits.core.ring import decode
    >>> decode(table.share(opened, table.coefficients(mask)), bits=88).round(9)
    array([[0.5]])
    """

    __slots__ = ("_limit", "_numbers", "_period_bits", "_segment_bits", "functions", "shape")

    def __init__(self, functions: tuple[Function, ...], limit: float) -> None:
        if not 0.0 < limit <= MAX_LIMIT:
            raise SharesError(f"a table has a limit from 0 to {MAX_LIMIT:g}, got {limit:g}")
        self.functions = functions
        self._numbers: dict[int, tuple[int, int, int, int, int]] = {}
        plans = []
        for bits in _SEGMENT_BITS:
            length = 2.0 ** (bits - FRACTION)
            degree = _least_degree(functions, length)
            period = FRACTION + int(np.ceil(np.log2(limit + length + 2.0 * SLACK)))
            plans.append(((degree + 1) << (period - bits), period, bits, degree))
        _, self._period_bits, self._segment_bits, degree = min(plans)
        n_segments = 1 << (self._period_bits - self._segment_bits)
        self.shape = (n_segments, len(functions), degree + 1)

    def __repr__(self) -> str:
        """Sizes."""
        return f"FunctionTable(shape={self.shape})"

    def coefficients(self, masks: Numbers) -> Words:
        """The dealer's: coefficients for each λ, (n, *shape), which it shares."""
        return np.stack([self._fitted(int(mask)) for mask in masks], axis=1)

    def share(self, opened: Numbers, coefficients: Words, *, bits: int = 2 * FRACTION) -> Words:
        """A server's shares of all functions of each q, (n, functions).

        ``opened`` is q + λ of each, and ``coefficients`` the server's shares of what was dealt.
        Results have ``bits`` after the point.
        """
        if coefficients.shape != (2, len(opened), *self.shape):
            raise SharesError(
                f"wanted coefficients of shape {self.shape} for each of {len(opened)} numbers, got "
                f"{coefficients.shape[1:]}"
            )
        result = np.empty((2, len(opened), len(self.functions)), np.uint64)
        loops = kernels.load_ring()
        for k, number in enumerate(opened.tolist()):
            segment, place = self._place(number)
            part = np.ascontiguousarray(coefficients[:, k, segment])
            if loops is None:
                result[:, k] = rows_times(self._basis(place, bits - FRACTION), part)[:, 0]
                continue
            share = np.empty((2, len(self.functions)), np.uint64)
            half_bits = self._segment_bits - 1
            loops.chebyshev_shares(place, half_bits, bits - FRACTION, _GUARD_BITS, part, share)
            result[:, k] = share
        return result

    def cut_share(
        self, one: Numbers, other: Numbers, coefficients: Words, rho: Words, *, bits: int
    ) -> Words:
        """As ``share`` for the one q of which these are short shares: cut, and under words ρ."""
        if one.shape != (1,) or other.shape != (1,):
            raise SharesError(
                f"wanted one short share of each server, got {one.size}, {other.size}"
            )
        loops = kernels.load_covariance()
        if loops is None or coefficients.shape[1:] != self.shape:
            opened = open_short(one, other, bits=bits)
            return cut(add(self.share(opened, coefficients[:, None], bits=bits)[:, 0], rho))
        out = np.empty(rho.shape, np.uint64)
        loops.open_and_cut(one, other, *self.numbers(bits), coefficients, rho, out)
        return out

    def numbers(self, bits: int) -> tuple[int, int, int, int, int]:
        """What a compiled loop needs to know of this table, for shares with ``bits``."""
        numbers = self._numbers.get(bits)
        if numbers is None:
            sizes = (self._period_bits, self._segment_bits)
            numbers = (bits - FRACTION - CUT, *sizes, bits - FRACTION, _GUARD_BITS)
            self._numbers[bits] = numbers
        return numbers

    def _place(self, opened: int) -> tuple[int, int]:
        number = opened & ((1 << self._period_bits) - 1)
        return number >> self._segment_bits, number & ((1 << self._segment_bits) - 1)

    def _basis(self, place: int, bits: int) -> Words:
        """Chebyshev polynomials at a place of a segment, (1, degree + 1).

        Whole numbers throughout, as in the compiled loop: a share times a unit more would be any
        number, and each server may have another machine.
        """
        half_bits = self._segment_bits - 1
        fraction = bits + _GUARD_BITS
        x = place - (1 << half_bits)
        before, last = 1 << fraction, x << (fraction - half_bits)
        values = [before, last]
        for _ in range(self.shape[2] - 2):
            before, last = last, (x * last >> (half_bits - 1)) - before
            values.append(last)
        whole = np.array(values) + (1 << (_GUARD_BITS - 1)) >> _GUARD_BITS
        return np.stack((whole.view(np.uint64), (whole >> 63).view(np.uint64)))[:, None]

    def _fitted(self, mask: int) -> Words:
        n_segments, _, size = self.shape
        unit = 2.0**-FRACTION
        period, length = 1 << self._period_bits, 1 << self._segment_bits
        starts = [(i * length - mask) % period for i in range(n_segments)]
        nodes, to_coefficients = _interpolation(size)
        spread = (nodes + 1.0) * (0.5 * length * unit)
        q = np.array(starts)[:, None] * unit + spread
        values = np.stack([function(q) for function in self.functions], axis=1)
        fitted = values @ to_coefficients
        for i, start in enumerate(starts):
            if start + length > period - SLACK / unit:
                fitted[i] = self._fitted_part((start - period) * unit, length * unit)
        return encode(fitted, bound=MAX_COEFFICIENT, what="coefficients")

    def _fitted_part(self, start: float, length: float) -> Matrix:
        """Coefficients of polynomials on [start, start + length) that need to fit from 0 on only.

        Many do so equally well; the least coefficients lose the least in fixed point.
        """
        size = self.shape[2]
        nodes, _ = _interpolation(size + _EXTRA_NODES)
        begin = min(-SLACK, start + length - 2.0 * SLACK)
        q = begin + (nodes + 1.0) * (0.5 * (start + length - begin))
        basis = chebyshev.chebvander(2.0 * (q - start) / length - 1.0, size - 1)
        values = np.stack([function(q) for function in self.functions], axis=1)
        solution = np.linalg.lstsq(basis, values, rcond=_RANK_TOLERANCE)[0]
        return np.asarray(solution.T, dtype=np.float64)


@cache
def function_table(functions: tuple[Function, ...], limit: float) -> FunctionTable:
    """The table of these functions, planned once; the same object for the same arguments."""
    return FunctionTable(functions, limit)


@cache
def _interpolation(size: int) -> tuple[Matrix, Matrix]:
    """Chebyshev nodes, and the matrix that takes values there to coefficients."""
    nodes = chebyshev.chebpts1(size)
    inverse = np.linalg.inv(chebyshev.chebvander(nodes, size - 1))
    return nodes, np.asarray(inverse.T, dtype=np.float64)


def _least_degree(functions: tuple[Function, ...], length: float) -> int:
    """The degree with which every function is near enough on [0, length], where it is steepest."""
    dense = np.linspace(-1.0, 1.0, 257)
    wanted = np.stack([f((dense + 1.0) * 0.5 * length) for f in functions])
    for degree in range(1, MAX_DEGREE + 1):
        nodes, to_coefficients = _interpolation(degree + 1)
        values = np.stack([f((nodes + 1.0) * 0.5 * length) for f in functions])
        found = chebyshev.chebval(dense, (values @ to_coefficients).T)
        if np.abs(found - wanted).max() < 0.5 * ERROR:
            return degree
    raise SharesError(f"a function needs a degree above {MAX_DEGREE} on segments of {length:g}")
