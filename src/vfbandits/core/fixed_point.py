"""Real numbers as whole numbers modulo 2^64, where pads can hide them perfectly.

Numbers keep f = 62 − ⌈log₂(M·B)⌉ bits after the point, for M participants and a bound B on each
number, so that a sum of M of them never wraps.  The ring itself wraps silently, which is why
anything above the bound is refused before it is sent.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from vfbandits.core.arrays import Matrix
from vfbandits.errors import SecureSumError, SettingError

Ring = NDArray[np.uint64]
LARGEST_ERROR = 1e-12


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """The code for sums of ``n_terms`` numbers, each at most ``bound`` in size.

    >>> code = FixedPoint(n_terms=3, bound=1024.0)
    >>> code.fraction_bits
    50
    >>> code.decode(code.encode(np.array([0.25])) + code.encode(np.array([-1.5])))
    array([-1.25])
    """

    n_terms: int
    bound: float

    def __post_init__(self) -> None:
        """Refuse a bound that leaves too few bits after the point."""
        if not 0.0 < self.bound < math.inf:
            raise SettingError(f"bound must be a positive number, got {self.bound!r}")
        if self.largest_error > LARGEST_ERROR:
            raise SettingError(
                f"bound {self.bound:g} for {self.n_terms} participants leaves an error of "
                f"{self.largest_error:.1e} in the sum, wanted at most {LARGEST_ERROR}"
            )

    @property
    def fraction_bits(self) -> int:
        """Bits after the point."""
        return 62 - math.ceil(math.log2(self.n_terms * self.bound))

    @property
    def largest_error(self) -> float:
        """Largest error of a sum: half a unit for each term, and the final rounding."""
        unit = math.ldexp(1.0, -self.fraction_bits)
        return self.n_terms * (unit / 2.0 + self.bound * 2.0**-53)

    def encode(self, values: Matrix) -> Ring:
        """Nearest whole numbers of units; refuses what does not fit."""
        largest = float(np.abs(values).max(initial=0.0))
        if not largest <= self.bound:
            what = "a value that is not finite" if not math.isfinite(largest) else "a larger one"
            raise SecureSumError(
                f"secure sums take values up to the declared bound {self.bound:g}, got {what}; "
                "nothing was sent"
            )
        return np.rint(np.ldexp(values, self.fraction_bits)).astype(np.int64).view(np.uint64)

    def decode(self, total: Ring) -> Matrix:
        """The sum as real numbers."""
        return np.ldexp(total.view(np.int64).astype(np.float64), -self.fraction_bits)
