"""Fitting a scaling to a participant's own rows; nothing leaves the process."""

import os
from collections.abc import Mapping, Sequence

import numpy as np

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.mask import Entropy
from vfbandits.errors import FeatureError
from vfbandits.features.scaling import METHODS, RawRows, Scaling

SALT_BYTES = 16
LARGEST = 1e150


def fit_scaling(
    raw: RawRows,
    *,
    numbers: Sequence[str],
    categories: Sequence[str] = (),
    hashed: Mapping[str, int] | None = None,
    rest: int = 0,
    method: str = "standard",
    entropy: Entropy = os.urandom,
) -> Scaling:
    """The scaling of these rows, which scales as scikit-learn's own transformers would.

    ``numbers``, ``categories`` and ``hashed`` name the columns of ``raw``.  Two fits of the same
    rows scale alike and have different digests, since each draws a salt.

    >>> scaling = fit_scaling(RawRows(np.array([[1.0], [3.0]])), numbers=["age"])
    >>> scaling.apply(RawRows(np.array([[1.0], [2.0], [3.0]]))).ravel()
    array([-1.,  0.,  1.])
    """
    if method not in METHODS:
        raise FeatureError(f"scaling is one of {', '.join(METHODS)}, got {method!r}")
    if not len(raw.numbers):
        raise FeatureError("a scaling is fitted on rows, got none")
    bad = int((~(np.abs(raw.numbers) < LARGEST)).any(axis=1).sum())
    if bad:
        raise FeatureError(
            f"a scaling is fitted on numbers below {LARGEST:g}, which can be squared, "
            f"got {bad} rows with larger ones, NaN or infinity"
        )
    centres, spreads = _fit_numbers(raw.numbers, method)
    return Scaling(
        method=method,
        numbers=tuple(numbers),
        centres=centres,
        spreads=spreads,
        one_hot={
            name: _fit_categories(texts) for name, texts in zip(categories, raw.texts, strict=False)
        },
        fitted_rows=len(raw.numbers),
        salt=entropy(SALT_BYTES).hex(),
        hashed=hashed or {},
        rest=rest,
    )


def hash_scaling(
    hashed: Mapping[str, int] | None = None, *, rest: int = 0, entropy: Entropy = os.urandom
) -> Scaling:
    """A scaling that hashes only, so that there is nothing to fit.

    >>> hash_scaling({"page": 64}, rest=128).width
    192
    """
    salt = entropy(SALT_BYTES).hex()
    return Scaling(
        method="none",
        numbers=(),
        centres=np.zeros(0),
        spreads=np.ones(0),
        one_hot={},
        salt=salt,
        hashed=hashed or {},
        rest=rest,
    )


def _fit_numbers(values: Matrix, method: str) -> tuple[Vector, Vector]:
    """Centre and spread of each column; those of scikit-learn's scalers, without the package."""
    n_columns = values.shape[1]
    if method == "none" or not n_columns:
        return np.zeros(n_columns), np.ones(n_columns)
    if method in ("standard", "unit"):
        return _standard(values)
    low = values.min(axis=0)
    scale = 2.0 / _or_one(np.ptp(values, axis=0))
    # scikit-learn multiplies and adds; the same line, written with the point that becomes 0.
    return (1.0 + low * scale) / scale, 1.0 / scale


def _standard(values: Matrix) -> tuple[Vector, Vector]:
    """Mean and standard deviation, to the last bit those of ``StandardScaler``."""
    n = float(len(values))
    means = values.sum(axis=0) / n
    rest = values - means
    correction = rest.sum(axis=0)  # zero but for rounding
    variances = ((rest**2).sum(axis=0) - correction**2 / n) / n
    eps = float(np.finfo(np.float64).eps)
    is_constant = variances <= n * eps * variances + (n * means * eps) ** 2
    return means, np.where(is_constant, 1.0, np.sqrt(variances))


def _or_one(ranges: Vector) -> Vector:
    """Ranges to divide by; a constant column has 1."""
    return np.where(ranges < 10.0 * np.finfo(np.float64).eps, 1.0, ranges)


def _fit_categories(texts: Sequence[str | None]) -> tuple[str, ...]:
    return tuple(sorted({text for text in texts if text is not None}))
