"""What every estimate is made of: three numbers per round.

    value = mean(base) + sum(numerator) / sum(denominator)

IPS has no base and counts 1 in the denominator; SNIPS divides by its weights; DM is all base; DR
has both parts.  One form means one bootstrap and one standard error for all of them.
"""

from dataclasses import dataclass, field

import numpy as np

from vfbandits.core.arrays import Matrix, Vector


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """An estimator applied to a log; each array is (n,)."""

    base: Vector = field(repr=False)
    numerator: Vector = field(repr=False)
    denominator: Vector = field(repr=False)

    @property
    def columns(self) -> Matrix:
        """(n, 3): base, numerator, denominator."""
        return np.column_stack([self.base, self.numerator, self.denominator])

    @property
    def value(self) -> float:
        """The estimate."""
        return float(values(self.columns.mean(axis=0)))

    def over(self, rewards: Vector) -> "Terms":
        """The estimate less the mean of ``rewards``, the log's own: both of the same rounds."""
        return Terms(self.base - rewards, self.numerator, self.denominator)

    @property
    def standard_error(self) -> float:
        """Of the estimate, by the delta method; rounds count as independent."""
        return float(standard_errors(self.columns[None])[0])


def values(means: Matrix) -> Vector:
    """Estimates from means of the columns, (..., 3) to (...).

    Where all weights are zero there is nothing to divide, and the correction counts as zero.
    """
    base, numerator, denominator = np.moveaxis(means, -1, 0)
    safe = np.where(denominator == 0.0, 1.0, denominator)
    return np.asarray(base + np.where(denominator == 0.0, 0.0, numerator / safe))


def influences(columns: Matrix) -> Matrix:
    """How much each round pulls the estimate, (..., n, 3) to (..., n); they sum to zero."""
    means = columns.mean(axis=-2, keepdims=True)
    denominator = np.where(means[..., 2] == 0.0, 1.0, means[..., 2])
    ratio = means[..., 1] / denominator
    pull = (columns[..., 1] - ratio * columns[..., 2]) / denominator
    return np.asarray(columns[..., 0] - means[..., 0] + pull)


def standard_errors(columns: Matrix) -> Vector:
    """(..., n, 3) to (...); zero for a single round."""
    n = columns.shape[-2]
    squares = (influences(columns) ** 2).sum(axis=-1)
    return np.asarray(np.sqrt(squares / (n * max(n - 1, 1))))
