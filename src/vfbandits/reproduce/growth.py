"""Growth exponents: value = c · size_1^a · size_2^b …, fitted by least squares on a log scale."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from vfbandits.errors import SettingError


@dataclass(frozen=True, slots=True)
class Exponent:
    """How a value grows with one size; ``error`` is one standard error, None without spare data."""

    value: float
    error: float | None

    def __str__(self) -> str:
        """The value, with its standard error if that is known."""
        if self.error is None:
            return f"{self.value:.2f}"
        return f"{self.value:.2f} ± {self.error:.2f}"


def fit_growth(
    sizes: Mapping[str, Sequence[float]], values: Sequence[float]
) -> dict[str, Exponent]:
    """An exponent for each size.

    >>> fit_growth({"d": [1, 2, 4, 8], "K": [1, 3, 9, 1]}, [5, 60, 720, 320])
    {'d': Exponent(value=2.0, error=0.0), 'K': Exponent(value=1.0, error=0.0)}
    """
    columns = [np.log(np.asarray(size, dtype=np.float64)) for size in sizes.values()]
    design = np.column_stack([np.ones(len(values)), *columns])
    if np.linalg.matrix_rank(design) < design.shape[1]:
        raise SettingError(
            f"growth in {', '.join(sizes)} needs sizes that vary one without the other, "
            f"got {len(values)} values"
        )
    target = np.log(np.asarray(values, dtype=np.float64))
    fitted = np.linalg.lstsq(design, target)[0]
    spare = len(values) - design.shape[1]
    errors: list[float | None] = [None] * design.shape[1]
    if spare > 0:
        residual = target - design @ fitted
        scale = float(residual @ residual) / spare
        variances = scale * np.diagonal(np.linalg.inv(design.T @ design))
        errors = [round(float(error), 9) for error in np.sqrt(variances)]
    return {
        name: Exponent(round(float(slope), 9) + 0.0, error)  # no −0.00
        for name, slope, error in zip(sizes, fitted[1:], errors[1:], strict=True)
    }
