"""Public second moments, and moments with columns that the active participant has itself."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from vfbandits.audit.result import RED_ERROR, Level, Result, column_errors, exact_columns, named
from vfbandits.audit.rotation import align, axis_signs, covariance
from vfbandits.audit.view import View, centred, look
from vfbandits.core.arrays import Matrix, Vector

MIN_COSINE = 0.6  # below it two halves of the rows agree by chance
PARTS = (slice(None), slice(0, None, 2), slice(1, None, 2))


def second_moments(view: View) -> Result:
    """Turn the public covariance until it is the seen one.

    The sign of a principal axis comes from cross-moments with the active participant's own columns,
    if the view has any, or from the skewness along it.
    """
    errors = named(moment_errors(view), view.columns)
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
    if width < 2:
        return second_moments(look(values, columns, level=level, rng=rng, others=others))
    order = rng.permutation(width)
    halves = order[: width // 2], order[width // 2 :]
    results = []
    for attacked, own in (halves, halves[::-1]):
        names = [columns[place] for place in attacked]
        block, mine = values[:, attacked], values[:, own]
        view = look(block, names, level=level, rng=rng, others=others, own=mine)
        results.append(second_moments(view))
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


def moment_errors(view: View) -> Vector:
    """Error of each own column; of the two ways to find signs the better one counts."""
    whole, first, second = (_rotations(view.part(rows)) for rows in PARTS)
    seen, _ = centred(view.masked)
    errors = []
    for rotation, one, other in zip(whole, first, second, strict=True):
        # Two halves of the rows that agree on a direction say how far to trust it.
        cosines = np.einsum("ij,ij->j", one, other)
        trust = np.where(cosines > MIN_COSINE, np.sqrt(np.abs(cosines)), 0.0)
        guess = seen @ rotation * trust + view.public.mean(axis=0)
        errors.append(column_errors(guess[:, : view.width], view.plain))
    least: Vector = np.minimum.reduce(errors)
    return least


def _rotations(view: View) -> list[Matrix]:
    """With signs by skewness, and by cross-moments if there are any."""
    moments = covariance(view.masked), covariance(view.public)
    found = [align(*moments, None, axis_signs(view.masked, view.public))]
    if view.own.shape[1]:
        crosses = _cross(view.masked, view.own), _cross(view.public, view.public_own)
        found.append(align(*moments, crosses))
    return found


def _cross(values: Matrix, own: Matrix) -> Matrix:
    """Covariances (dim, k) of the columns of two tables."""
    return centred(values)[0].T @ centred(own)[0] / len(own)
