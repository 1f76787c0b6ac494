"""Public second moments, and moments with columns that the active participant has itself."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from vfbandits.audit.result import RED_ERROR, Level, Result, column_errors, exact_columns, named
from vfbandits.audit.rotation import align, axis_signs, covariance, most_likely
from vfbandits.audit.view import View, centred, look
from vfbandits.core.arrays import Matrix, Vector

REHEARSALS = 8
CERTAIN = 3.5  # standard deviations
MAX_LUCK = 0.9


def second_moments(view: View, *, seed: int) -> Result:
    """Turn the public covariance until it is the seen one.

    The sign of a principal axis comes from cross-moments with the active participant's own columns,
    if the view has any, or from the skewness along it.
    """
    errors = named(moment_errors(view, seed=seed), view.columns)
    k = view.own.shape[1]
    return Result(
        attack="second_moments",
        title="Public second moments",
        level=view.level,
        needs="the public mean and covariance of the columns"
        + (f", and their covariance with {k} columns that the attacker has" if k else ""),
        errors=errors,
        exact=exact_columns(errors),
        facts=(_count(errors.values()),),
        advice="Whiten the block before masking (send principal components of equal variance), and "
        "drop columns that the active participant can almost compute itself.",
    )


def second_moments_by_halves(
    values: Matrix,
    columns: Sequence[str],
    *,
    level: Level,
    rng: np.random.Generator,
    others: Matrix | None = None,
) -> Result:
    """The same on a table alone, where the active participant's columns are not known.

    One half of the columns plays the active participant's own while the other half is attacked,
    then the other way round: as if it had columns as related to these as they are to each other.
    """
    width = values.shape[1]
    seed = int(rng.integers(2**31))
    if width < 2:
        view = look(values, columns, level=level, rng=rng, others=others)
        return second_moments(view, seed=seed)
    order = rng.permutation(width)
    halves = order[: width // 2], order[width // 2 :]
    results = []
    for attacked, own in (halves, halves[::-1]):
        names = [columns[place] for place in attacked]
        block, mine = values[:, attacked], values[:, own]
        view = look(block, names, level=level, rng=rng, others=others, own=mine)
        results.append(second_moments(view, seed=seed))
    found = {**results[0].errors, **results[1].errors}
    errors = {column: found[column] for column in columns}
    return replace(
        results[0],
        needs="the public mean and covariance of the columns, and their covariance with columns "
        "that the attacker has, as related to them as one half of this table is to the other",
        errors=errors,
        exact=exact_columns(errors),
        facts=(_count(errors.values()),),
    )


def _count(errors: Collection[float]) -> str:
    hits = sum(error <= RED_ERROR for error in errors)
    return f"{hits} of {len(errors)} columns recovered to 0.3 standard deviations"


def moment_errors(view: View, *, seed: int) -> Vector:
    """Error of each own column; of all ways to find the rotation the best one counts."""
    least: Vector = np.minimum.reduce(list(errors_by_way(view, seed=seed).values()))
    return least


def errors_by_way(view: View, *, seed: int) -> dict[str, Vector]:
    """Error of each own column for each way to find the rotation.

    ``skewness`` and ``cross-moments`` turn the public moments until they equal the seen ones, with
    signs by the one or the other; ``likelihood`` goes on from there to the most likely rotation.

    An attacker rehearses on the public people, where it knows what is right, and answers with the
    mean, whose error is 1, where the rehearsals did no better than chance.
    """
    seen, _ = centred(view.masked)
    mean = view.public.mean(axis=0)
    trust = _rehearse(view, seed=seed)
    return {
        way: column_errors((seen @ rotation * trust[way] + mean)[:, : view.width], view.plain)
        for way, rotation in _rotations(view).items()
    }


def _rehearse(view: View, *, seed: int) -> dict[str, Vector]:
    """How far to trust each direction, for each way to find it: 0 not at all, 1 fully.

    One half of the public people, drawn at random, plays those who are seen; the right rotation is
    then the identity.  Halves have no person in common, like the people who are seen and those who
    are public; drawing with replacement would mistake the luck of one sample for a fact.  The trust
    in a direction is the coefficient that a regression of the column on the guesses has, or 0 where
    it may be luck.
    """
    rng = np.random.default_rng(seed)
    found: dict[str, list[Matrix]] = {}
    for _ in range(REHEARSALS):
        for way, rotation in _rotations(_redraw(view, rng)).items():
            found.setdefault(way, []).append(rotation)
    moments = covariance(view.public)
    return {way: _trust(np.array(tries), moments) for way, tries in found.items()}


def _trust(tries: NDArray[np.float64], moments: Matrix) -> Vector:
    """Coefficients of the tries (n, dim, dim), their mean, where they are no luck; at most 1.

    In noise a column's own entry in the mean rotation is like any other entry, so these say what
    luck is.  Rehearsals on the same people may all err in the same way: with few columns, luck is
    at least what a single random rotation has.
    """
    mean = tries.mean(axis=0)
    dim = len(mean)
    others = mean - np.diag(np.diagonal(mean))
    spread = float(np.sqrt(np.sum(others**2) / max(1, dim * (dim - 1))))
    luck = min(max(CERTAIN * spread, dim**-0.5), MAX_LUCK)
    coefficients = np.mean([_coefficients(one, moments) for one in tries], axis=0)
    return np.where(np.diagonal(mean) > luck, np.clip(coefficients, 0.0, 1.0), 0.0)


def _redraw(view: View, rng: np.random.Generator) -> View:
    seen, public = np.array_split(rng.permutation(len(view.public)), 2)
    return replace(
        view,
        masked=view.public[seen],
        own=view.public_own[seen],
        public=view.public[public],
        public_own=view.public_own[public],
    )


def _coefficients(rotation: Matrix, moments: Matrix) -> Vector:
    """Of the regression of each column on what ``rotation`` takes for it."""
    along = moments @ rotation
    variances = np.einsum("ij,ij->j", rotation, along)
    found: Vector = np.diagonal(along) / np.where(variances > 0.0, variances, 1.0)
    return found


def _rotations(view: View) -> dict[str, Matrix]:
    """With signs by skewness, and if the attacker has columns by moments with them."""
    seen, public = covariance(view.masked), covariance(view.public)
    found = {"skewness": align(seen, public, None, axis_signs(view.masked, view.public))}
    if view.own.shape[1]:
        crosses = _cross(view.masked, view.own), _cross(view.public, view.public_own)
        matched = align(seen, public, crosses)
        joint = covariance(np.hstack([view.public, view.public_own]))
        found["cross-moments"] = matched
        found["likelihood"] = most_likely(matched, seen, crosses[0], joint)
    return found


def _cross(values: Matrix, own: Matrix) -> Matrix:
    """Covariances (dim, k) of the columns of two tables."""
    return centred(values)[0].T @ centred(own)[0] / len(own)
