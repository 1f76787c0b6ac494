"""Intervals that hold at all times together, so that looking often is allowed.

A confidence sequence: with probability 1 - alpha *every* interval of the sequence holds the mean,
from the first look to the last.  An ordinary 95 % interval holds at one look that was fixed
beforehand; watched throughout, it is wrong sooner or later.

This is the asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas
("Time-uniform central limit theory and asymptotic confidence sequences", 2024, equation 9): the
normal mixture of Robbins with an estimated variance.  It needs no bounds on the numbers.  Its
assumption is that of the central limit theorem: there are enough numbers, each of a finite
variance and none that outweighs the others.
"""

import math
from typing import Final

ALPHA: Final = 0.05
BEST_AT: Final = 5_000.0


def standard_errors(n: float, *, alpha: float = ALPHA, best_at: float = BEST_AT) -> float:
    """Half the width of the interval after ``n`` values, in standard errors of their mean.

    It is tightest after ``best_at`` values, which must be fixed beforehand, and at most a quarter
    wider from a tenth of that to two hundred times as many.

    >>> [round(standard_errors(n), 2) for n in (100, 5_000, 100_000)]
    [6.42, 3.04, 3.35]
    """
    odds = -2.0 * math.log(alpha)
    time = n * (odds + math.log(odds) + 1.0) / best_at
    return math.sqrt((1.0 + 1.0 / time) * (math.log1p(time) + odds))
