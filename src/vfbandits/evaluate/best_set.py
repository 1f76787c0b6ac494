"""The candidates that may be the best: a confidence set, corrected for having chosen among many.

Candidate i is left out if another one is significantly better, by the largest of its studentised
differences

    T_i = max over j of (V_j − V_i) / se(V_j − V_i),

against a quantile of the same maximum under the multiplier bootstrap (Chernozhukov, Chetverikov and
Kato 2013), which keeps the correlations: candidates are judged on the same rounds, and most decide
alike in most of them.  For the true best no difference is positive, so it is left out with
probability at most 1 − confidence, however many there are: the set is a test inverted, as Hsu's
(1981) multiple comparisons with the best.  Candidates j that are far behind i are left out of the
quantile (Andrews and Soares 2010).  A Bonferroni correction would ignore the correlations and keep
more.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.errors import SettingError

# A difference that rests on fewer rounds is not close to normal, and excludes no candidate.
MIN_ROUNDS = 20.0
ROUNDING = 1e-9
_ENTRIES_PER_BATCH = 4_000_000


@dataclass(frozen=True, slots=True, eq=False)
class BestSet:
    """Statements about m candidates that hold simultaneously.

    Attributes
    ----------
    keep
        Which of them may be the best, (m,).
    p_values
        Of "it is the best", (m,): 1 where no other is ahead.  Candidates with at most
        1 − confidence are left out.
    margins
        Half widths of intervals that hold for all values simultaneously, (m,).
    margins_behind
        The same of the differences to the highest estimate, which are known better than the values;
        NaN for one that rests on too few rounds.
    """

    keep: NDArray[np.bool_]
    p_values: Vector = field(repr=False)
    margins: Vector = field(repr=False)
    margins_behind: Vector = field(repr=False)


def best_set(
    values: Vector,
    influences: Matrix,
    *,
    rng: np.random.Generator,
    confidence: float = 0.95,
    n_resamples: int = 2_000,
) -> BestSet:
    """The set, from m estimates and how much each of n rounds pulls them, (n, m).

    >>> rounds = np.random.default_rng(0).standard_normal((1_000, 3))
    >>> best_set(np.array([0.0, 0.1, 1.0]), rounds, rng=np.random.default_rng(1)).keep
    array([False, False,  True])
    """
    if not 0.0 < confidence < 1.0:
        raise SettingError(f"confidence must be between 0 and 1, got {confidence!r}")
    n, m = influences.shape
    centred = influences - influences.mean(axis=0)
    drawn = _resample(centred, n_resamples, rng)
    scale = 1.0 / np.sqrt(n * max(n - 1.0, 1.0))
    of_values = scale * np.linalg.norm(centred, axis=0)
    largest_error = float(of_values.max())
    p_values = np.ones(m)
    for place in range(m):
        apart = centred - centred[:, [place]]
        errors = scale * np.linalg.norm(apart, axis=0)
        # Candidates that decide alike differ by rounding, which is no difference.
        judged = (_rounds_behind(apart) >= MIN_ROUNDS) & (errors > ROUNDING * largest_error)
        ahead = (values - values[place]) / np.where(judged, errors, 1.0)
        # One that is far behind does not affect the maximum, and would only widen the set.
        near = judged & (ahead >= -np.sqrt(np.log(n)))
        if near.any() and ahead[near].max() > 0.0:
            chance = ((drawn[:, near] - drawn[:, [place]]) / errors[near]).max(axis=1)
            p_values[place] = (1.0 + (chance >= ahead[near].max()).sum()) / (n_resamples + 1.0)
    top = int(values.argmax())
    apart = centred - centred[:, [top]]
    behind = scale * np.linalg.norm(apart, axis=0)
    behind[(_rounds_behind(apart) < MIN_ROUNDS) & (np.arange(m) != top)] = np.nan
    return BestSet(
        p_values > 1.0 - confidence,
        p_values,
        _margins(drawn, of_values, confidence),
        _margins(drawn - drawn[:, [top]], behind, confidence),
    )


def _margins(drawn: Matrix, errors: Vector, confidence: float) -> Vector:
    """Half widths that hold simultaneously: a quantile of the largest studentised error."""
    known = errors > 0.0  # which NaN is not
    if not known.any():
        return errors
    largest = np.abs(drawn[:, known] / errors[known]).max(axis=1)
    return np.asarray(float(np.quantile(largest, confidence)) * errors)


def _resample(centred: Matrix, n_resamples: int, rng: np.random.Generator) -> Matrix:
    """Errors of the estimates under the bootstrap, (n_resamples, m): rounds times N(0, 1)."""
    n = len(centred)
    drawn = np.empty((n_resamples, centred.shape[1]))
    size = max(1, _ENTRIES_PER_BATCH // n)
    for start in range(0, n_resamples, size):
        part = slice(start, min(start + size, n_resamples))
        drawn[part] = rng.standard_normal((part.stop - start, n)) @ centred / n
    return drawn


def _rounds_behind(apart: Matrix) -> Vector:
    """How many rounds a difference rests on, (m,): of k equal ones k, and 0 where there is none."""
    squares = apart**2
    fourth = (squares**2).sum(axis=0)
    safe = np.where(fourth > 0.0, fourth, 1.0)
    return np.asarray(np.where(fourth > 0.0, squares.sum(axis=0) ** 2 / safe, 0.0))
