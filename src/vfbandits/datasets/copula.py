"""A Gaussian copula for whole numbers with given quantiles and rank correlations.

z ~ N(0, R), u = Φ(z), x = F⁻¹(u).  Ties weaken rank correlation, and columns of counts are full of
ties, so the textbook's R = 2·sin(πρ/6) would fall short.  Here R is solved for: by Mehler's formula
the rank correlation of a pair is Σ c_k·d_k·r^k, with c and d the Hermite coefficients of the two
columns' mid-ranks, and each r is found from its ρ by bisection.
"""

import numpy as np
from scipy.special import ndtr, ndtri

from vfbandits.core.arrays import Matrix, Vector

N_POINTS = 8_192
N_TERMS = 30
N_HALVINGS = 40


class Marginal:
    """A whole-number column that reaches quantile ``values`` at ``levels``, with ``zeros`` zeros.

    Between two known quantiles x grows geometrically, as counts do; the smallest whole number
    above is taken, so that a known quantile is the last of its ties.
    """

    def __init__(self, levels: Vector, values: Vector, *, zeros: float) -> None:
        levels, values = _with_zeros(levels, values, zeros)
        self.low = float(values[0])
        self._levels = levels
        self._logs = np.log1p(np.round(values) - self.low)

    def quantile(self, levels: Vector) -> Vector:
        """F⁻¹ of levels between 0 and 1, any shape."""
        grown = np.expm1(np.interp(levels, self._levels, self._logs))
        values: Vector = np.ceil(grown - 1e-9) + self.low
        return values

    def mid_ranks(self) -> Vector:
        """Mid-rank of F⁻¹(u) on an even grid of u, centred and scaled to variance 1."""
        _, place, counts = np.unique(
            self.quantile(even_levels()), return_inverse=True, return_counts=True
        )
        ranks: Vector = (np.cumsum(counts) - counts / 2.0)[place]
        scaled: Vector = (ranks - ranks.mean()) / ranks.std()
        return scaled


class Copula:
    """Joint law of several columns; ``spearman`` is (n, n)."""

    def __init__(self, marginals: tuple[Marginal, ...], spearman: Matrix) -> None:
        self.marginals = marginals
        coefficients = np.array([_hermite(marginal.mid_ranks()) for marginal in marginals])
        self.correlation = _nearest_correlation(_solve(coefficients, spearman))
        self._root = np.linalg.cholesky(self.correlation)

    def sample(self, n_rows: int, rng: np.random.Generator) -> Matrix:
        """Independent rows, (n_rows, n_columns)."""
        normals = rng.standard_normal((n_rows, len(self.marginals))) @ self._root.T
        levels: Matrix = ndtr(normals)
        columns = [m.quantile(levels[:, place]) for place, m in enumerate(self.marginals)]
        return np.stack(columns, axis=1)


def even_levels() -> Vector:
    """Midpoints of equal parts of [0, 1]."""
    return (np.arange(N_POINTS) + 0.5) / N_POINTS


def _with_zeros(levels: Vector, values: Vector, zeros: float) -> tuple[Vector, Vector]:
    """Put in the level at which 0 ends, where it is known: the first value is 0 then."""
    if values[0] != 0 or not 0.0 < zeros < 1.0:
        return levels, values
    place = int(np.searchsorted(levels, zeros))
    return np.insert(levels, place, zeros), np.insert(values, place, 0.0)


def _hermite(ranks: Vector) -> Vector:
    """E[g(z)·h_k(z)] for k = 1..N_TERMS, with h_k the normalised Hermite polynomials."""
    z = ndtri(even_levels())
    before, now = np.ones_like(z), z
    coefficients = []
    for k in range(1, N_TERMS + 1):
        coefficients.append(float(np.mean(ranks * now)))
        before, now = now, (z * now - np.sqrt(k) * before) / np.sqrt(k + 1)
    return np.array(coefficients)


def _solve(coefficients: Matrix, spearman: Matrix) -> Matrix:
    """All r in one bisection, since rank correlation grows with r."""
    products = coefficients[:, None, :] * coefficients[None, :, :]
    powers = np.arange(1, N_TERMS + 1)
    low, high = np.full_like(spearman, -0.999), np.full_like(spearman, 0.999)
    for _ in range(N_HALVINGS):
        middle = (low + high) / 2.0
        is_below = (products * middle[..., None] ** powers).sum(axis=2) < spearman
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    solved = (low + high) / 2.0
    np.fill_diagonal(solved, 1.0)
    return solved


def _nearest_correlation(matrix: Matrix) -> Matrix:
    """Positive definite with ones on the diagonal: small eigenvalues lifted, then rescaled."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
    lifted = (vectors * np.maximum(values, 1e-6)) @ vectors.T
    scale = 1.0 / np.sqrt(np.diag(lifted))
    nearest: Matrix = lifted * scale[:, None] * scale[None, :]
    return nearest
