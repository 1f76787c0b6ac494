"""Independent components of masked rows, and their names by public marginals."""

import warnings

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.special import ndtri

from vfbandits.audit.view import centred, quantiles
from vfbandits.core.arrays import Matrix, Vector

CONTRASTS = ("logcosh", "cube")
MAX_STEPS = 100
NOT_GAUSSIAN = 0.01  # squared distance of a standardised marginal from the Gaussian
MIN_LENGTH = 1e-12  # as a share of the largest: below it a direction is rounding


def whiten(values: Matrix) -> Matrix:
    """Rows of unit covariance (n, rank).

    The rows themselves are decomposed: their covariance would lose a flag beside an income that
    was not scaled.
    """
    rows, _ = centred(values)
    left, lengths, _ = np.linalg.svd(rows, full_matrices=False)
    keep = lengths > MIN_LENGTH * max(float(lengths[0]), 1e-300)
    white: Matrix = left[:, keep] * np.sqrt(len(rows))
    return white


def independent_components(values: Matrix, *, contrast: str, seed: int) -> Matrix:
    """FastICA: rows of components (n, rank) with variance 1, in any order and with any sign."""
    from sklearn.decomposition import FastICA  # noqa: PLC0415  (an extra)
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415  (an extra)

    white = whiten(values)
    if white.shape[1] < 2:
        return white
    ica = FastICA(whiten=False, fun=contrast, max_iter=MAX_STEPS, tol=1e-4, random_state=seed)
    with warnings.catch_warnings():
        # What has not converged is an attack that did less well, and is measured like any other.
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", RuntimeWarning)
        found: Matrix = ica.fit_transform(white)
    if not np.isfinite(found).all():
        return white
    return found / np.where((spread := found.std(axis=0)) > 0.0, spread, 1.0)


def standardised(values: Matrix) -> tuple[Matrix, Vector, Vector]:
    """Columns of mean 0 and deviation 1, with the means and deviations; constants become 0."""
    rows, means = centred(values)
    spreads = rows.std(axis=0)
    spreads = np.where(spreads > 0.0, spreads, 1.0)
    return rows / spreads, means, spreads


def name_by_marginals(components: Matrix, public: Matrix, *, blindly: bool = False) -> Matrix:
    """Give each public column the component, and the sign, whose marginal is nearest.

    Returns guesses (n, columns) of standardised columns, 0 for a column without a component.

    The distance is Wasserstein's, between quantiles of standardised values; all columns are
    served together, so that no component has two names.  A Gaussian column has no marginal of its
    own, and no component either, unless names are given ``blindly``.
    """
    wanted = quantiles(standardised(public)[0])
    seen = quantiles(components)
    upright = np.mean((wanted[:, None] - seen[None]) ** 2, axis=2)
    turned = np.mean((wanted[:, None] + seen[None, :, ::-1]) ** 2, axis=2)
    columns, found = linear_sum_assignment(np.minimum(upright, turned))
    values = np.zeros((len(components), len(wanted)))
    signs = np.where(upright[columns, found] <= turned[columns, found], 1.0, -1.0)
    values[:, columns] = components[:, found] * signs
    return values if blindly else np.where(is_recognisable(public), values, 0.0)


def fit_marginals(
    masked: Matrix, guesses: Matrix, public: Matrix, *, steps: int = 20, blindly: bool = False
) -> Matrix:
    """Improve ``guesses`` (n, columns) of standardised columns until their marginals are public.

    Each step gives the ranks of a guess the public quantiles and takes the linear function of the
    masked rows that is nearest to them, which never increases the distance to the marginal.
    Gaussian columns are left at 0 unless they are fitted ``blindly``.
    """
    rows, _ = centred(masked)
    solve = np.linalg.pinv(rows)
    ordered = np.sort(standardised(public)[0], axis=0)
    places = (np.arange(len(rows)) + 0.5) / len(rows) * len(ordered) - 0.5
    targets = np.empty((len(rows), ordered.shape[1]))
    for column in range(ordered.shape[1]):
        targets[:, column] = np.interp(places, np.arange(len(ordered)), ordered[:, column])
    for _ in range(steps):
        ranks = guesses.argsort(axis=0).argsort(axis=0)
        better = rows @ (solve @ np.take_along_axis(targets, ranks, axis=0))
        spreads = better.std(axis=0)
        guesses = better / np.where(spreads > 0.0, spreads, 1.0)
    return guesses if blindly else np.where(is_recognisable(public), guesses, 0.0)


def best_match(components: Matrix, truth: Matrix) -> Vector:
    """Error of each true column if an attacker were given name, sign and scale of components."""
    if not components.shape[1]:
        return np.ones(truth.shape[1])
    left, _, _ = standardised(components)
    right, _, _ = standardised(truth)
    correlations = np.abs(left.T @ right / len(left)).max(axis=0)
    errors: Vector = np.sqrt(np.maximum(1.0 - correlations**2, 0.0))
    return errors


def is_recognisable(public: Matrix) -> NDArray[np.bool_]:
    """Whether each marginal is not Gaussian: only such a column is more than a lucky direction."""
    seen = quantiles(standardised(public)[0])
    gaussian = ndtri((np.arange(seen.shape[1]) + 0.5) / seen.shape[1])
    far: NDArray[np.bool_] = np.mean((seen - gaussian) ** 2, axis=1) > NOT_GAUSSIAN
    return far
