"""Confidence intervals by resampling rounds.

Rounds are drawn with replacement, and the estimate is computed again on each resampled log.
The target and the reward model are held fixed: intervals say how much the *rounds that were
logged* matter, and nothing about what else might have been learnt.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.settings import whole
from vfbandits.errors import SettingError
from vfbandits.evaluate.terms import Terms, influences, standard_errors, values

METHODS = ("percentile", "bca", "studentised")
_ENTRIES_PER_BATCH = 500_000


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """How intervals are made.

    "percentile": quantiles of the resampled estimates.  "bca": the same, corrected for bias and
    skewness (Efron 1987).  "studentised": quantiles of (estimate − value) / standard error, the
    slowest, and the best where weights are heavy.
    """

    method: str = "bca"
    confidence: float = 0.95
    n_resamples: int = 1_000

    def __post_init__(self) -> None:
        """Refuse unknown methods and impossible numbers."""
        if self.method not in METHODS:
            raise SettingError(f"interval must be one of {', '.join(METHODS)}, got {self.method!r}")
        if not 0.0 < self.confidence < 1.0:
            raise SettingError(f"confidence must be between 0 and 1, got {self.confidence!r}")
        whole(self.n_resamples, "resamples")

    def interval(self, terms: Terms, rng: np.random.Generator) -> tuple[float, float]:
        """Lower and upper end; both are the value where all rounds agree."""
        columns = terms.columns
        value = terms.value
        if np.ptp(influences(columns)) <= 1e-12 * max(1.0, abs(value)):
            return value, value
        tails = np.array([0.5 - self.confidence / 2.0, 0.5 + self.confidence / 2.0])
        estimates, errors = self._resample(columns, rng)
        if self.method == "studentised":
            return _studentised(value, terms.standard_error, estimates, errors, tails)
        if self.method == "bca":
            tails = _corrected(columns, value, estimates, tails)
        low, high = np.quantile(estimates, tails)
        return float(low), float(high)

    def _resample(self, columns: Matrix, rng: np.random.Generator) -> tuple[Vector, Vector]:
        n = len(columns)
        estimates, errors = np.empty(self.n_resamples), np.zeros(self.n_resamples)
        size = max(1, _ENTRIES_PER_BATCH // n)
        for start in range(0, self.n_resamples, size):
            part = slice(start, min(start + size, self.n_resamples))
            drawn = columns[rng.integers(n, size=(part.stop - start, n))]
            estimates[part] = values(drawn.mean(axis=1))
            if self.method == "studentised":
                errors[part] = standard_errors(drawn)
        return estimates, errors


def _studentised(
    value: float, error: float, estimates: Vector, errors: Vector, tails: Vector
) -> tuple[float, float]:
    # A resample in which all rounds agree has no standard error, and is left out.
    keep = errors > 1e-12 * error
    low, high = np.quantile((estimates[keep] - value) / errors[keep], tails)
    return value - float(high) * error, value - float(low) * error


def _corrected(columns: Matrix, value: float, estimates: Vector, tails: Vector) -> Vector:
    """The tails that BCa reads the quantiles at."""
    below = float((estimates < value).mean() + 0.5 * (estimates == value).mean())
    n = len(estimates)
    shift = ndtri(min(max(below, 0.5 / n), 1.0 - 0.5 / n))
    pulls = influences(columns)
    acceleration = (pulls**3).sum() / (6.0 * (pulls**2).sum() ** 1.5)
    z = shift + ndtri(tails)
    return np.asarray(ndtr(shift + z / np.maximum(1.0 - acceleration * z, 1e-3)))
