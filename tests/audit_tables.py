"""Tables that attacks must open, and one that they must not."""

import numpy as np

from vfbandits.audit.result import Level
from vfbandits.audit.view import look


def skewed(rng, n, d):
    """Independent columns, none Gaussian and no two alike."""
    return np.stack([rng.gamma(0.4 * (j + 1), size=n) for j in range(d)], axis=1)


def correlated(rng, n, d):
    """Columns that share factors, with principal axes of clearly different lengths."""
    lengths = np.linspace(1.0, 3.0, d)
    axes, _ = np.linalg.qr(rng.standard_normal((d, d)))
    return (rng.gamma(1.0, size=(n, d)) * lengths) @ axes


def spherical(rng, n, d):
    """A rotation of it has the same law: what a mask hides best."""
    return rng.standard_normal((n, d))


def flags_and_counts(rng, n, d):
    """Flags, a one-hot group of three and counts, then Gaussian columns up to ``d``."""
    group = np.eye(3)[rng.choice(3, size=n, p=[0.5, 0.3, 0.2])]
    columns = [
        rng.random(n) < 0.3,
        rng.random(n) < 0.1,
        *group.T,
        rng.poisson(1.5, n),
        *rng.standard_normal((d - 6, n)),
    ]
    return np.stack(columns, axis=1).astype(float)


def standard(values):
    return (values - values.mean(axis=0)) / values.std(axis=0)


def names(d):
    return tuple(f"c{j}" for j in range(d))


def view_of(table, *, level=Level.MASK, n=8000, d=6, seed=0):
    rng = np.random.default_rng(seed)
    return look(standard(table(rng, n, d)), names(d), level=level, rng=rng)
