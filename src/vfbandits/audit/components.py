"""Independent components of masked rows, and their names by public marginals."""

import warnings
from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.special import ndtri

from vfbandits.audit.view import centred, quantiles
from vfbandits.core.arrays import Matrix, Vector

CONTRASTS = ("logcosh", "cube")
MAX_STEPS = 100
MIN_NOISE_COLUMNS = 50
NOISE_STEPS = 30  # in noise nothing converges; more steps find components that are little further
MIN_LENGTH = 1e-12  # as a fraction of the largest: below it a direction is rounding


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


def independent_components(
    values: Matrix, *, contrast: str, seed: int, steps: int = MAX_STEPS
) -> Matrix:
    """FastICA: rows of components (n, rank) with variance 1, in any order and with any sign."""
    from sklearn.decomposition import FastICA  # noqa: PLC0415  (an extra)
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415  (an extra)

    white = whiten(values)
    if white.shape[1] < 2:
        return white
    ica = FastICA(whiten=False, fun=contrast, max_iter=steps, tol=1e-4, random_state=seed)
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


def name_by_marginals(components: Matrix, public: Matrix) -> Matrix:
    """Give each public column the component, and the sign, whose marginal is nearest.

    Returns guesses (n, columns) of standardised columns, 0 for a column without a component.

    The distance is Wasserstein's, between quantiles of standardised values; all columns are
    assigned together, so that no component has two names.  ``with_evidence`` decides whether a
    guess is better than the mean.
    """
    wanted = quantiles(standardised(public)[0])
    seen = quantiles(components)
    upright = np.mean((wanted[:, None] - seen[None]) ** 2, axis=2)
    turned = np.mean((wanted[:, None] + seen[None, :, ::-1]) ** 2, axis=2)
    columns, found = linear_sum_assignment(np.minimum(upright, turned))
    values = np.zeros((len(components), len(wanted)))
    signs = np.where(upright[columns, found] <= turned[columns, found], 1.0, -1.0)
    values[:, columns] = components[:, found] * signs
    return values


def fit_marginals(masked: Matrix, guesses: Matrix, public: Matrix, *, steps: int = 20) -> Matrix:
    """Improve ``guesses`` (n, columns) of standardised columns until their marginals are public.

    Each step gives the ranks of a guess the public quantiles and takes the linear function of the
    masked rows that is nearest to them, which never increases the distance to the marginal.
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
    return guesses


def with_evidence(guesses: Matrix, known: NDArray[np.bool_], *, chance: float) -> Matrix:
    """The guesses that an attacker has a reason to believe; 0, the mean, in the place of others.

    Gaussian rows have components too, which cannot be distinguished.  So a guess counts if its
    column is ``known`` not to be Gaussian (``is_recognisable``), and if it is itself further from
    a Gaussian than what is found in noise (``chance_of_components``).
    """
    return np.where(known & (gaussian_distance(guesses) > chance), guesses, 0.0)


def best_match(components: Matrix, truth: Matrix) -> Vector:
    """Error of each true column if an attacker were given name, sign and scale of components."""
    if not components.shape[1]:
        return np.ones(truth.shape[1])
    left, _, _ = standardised(components)
    right, _, _ = standardised(truth)
    correlations = np.abs(left.T @ right / len(left)).max(axis=0)
    errors: Vector = np.sqrt(np.maximum(1.0 - correlations**2, 0.0))
    return errors


def is_recognisable(public: Matrix, *, seed: int) -> NDArray[np.bool_]:
    """Whether each marginal is not Gaussian: only such a column is more than a lucky direction.

    Gaussian rows, as many as there are people, say how far a Gaussian column may be.
    """
    far: NDArray[np.bool_] = gaussian_distance(public) > _chance(public.shape, seed, lambda x: x)
    return far


def chance_of_components(n: int, width: int, *, seed: int) -> float:
    """How far from a Gaussian components of Gaussian rows (n, width) are, by chance alone."""
    return max(
        _chance(
            (n, width),
            seed,
            partial(independent_components, contrast=contrast, seed=seed, steps=NOISE_STEPS),
        )
        for contrast in CONTRASTS
    )


def gaussian_distance(values: Matrix) -> Vector:
    """Squared distance of each standardised marginal from the Gaussian, Wasserstein's."""
    seen = quantiles(standardised(values)[0])
    gaussian = ndtri((np.arange(seen.shape[1]) + 0.5) / seen.shape[1])
    distances: Vector = np.mean((seen - gaussian) ** 2, axis=1)
    return distances


def _chance(shape: tuple[int, ...], seed: int, find: Callable[[Matrix], Matrix]) -> float:
    """Twice the largest distance of what is found in noise, so that another draw stays below it.

    Narrow noise is drawn several times: the largest of a few would say little.
    """
    rng = np.random.default_rng(seed)
    draws = -(-MIN_NOISE_COLUMNS // shape[1])
    found = (find(rng.standard_normal(shape)) for _ in range(draws))
    return 2.0 * max(float(gaussian_distance(one).max()) for one in found)
