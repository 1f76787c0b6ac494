"""Rotations that turn what is public into what is seen."""

import numpy as np

from vfbandits.audit.view import centred
from vfbandits.core.arrays import Matrix, Vector

STEPS = 300
WEIGHTS = (10.0, 1.0)
RIDGE = 1e-3  # of the mean variance: public moments are estimates


def nearest_rotation(product: Matrix) -> Matrix:
    """The orthogonal R that has the largest inner product with ``product``."""
    left, _, right = np.linalg.svd(product)
    rotation: Matrix = left @ right
    return rotation


def procrustes(plain: Matrix, masked: Matrix) -> Matrix:
    """The orthogonal R for which rows ``plain @ R.T`` are nearest to ``masked``."""
    return nearest_rotation(masked.T @ plain)


def covariance(values: Matrix) -> Matrix:
    """Covariance of the columns."""
    rows, _ = centred(values)
    return rows.T @ rows / len(rows)


def align(
    seen: Matrix, public: Matrix, crosses: tuple[Matrix, Matrix] | None, signs: Vector | None = None
) -> Matrix:
    """The R for which ``seen`` is R ``public`` R' and the seen cross-moments are R the public ones.

    ``seen`` and ``public`` are covariances (dim, dim); ``crosses`` are two matrices (dim, k): what
    is seen, and what is public, of moments with something that the attacker has.  They, or
    ``signs``, say which way each principal axis points.  From the principal axes, the sum of both
    inner products is then increased step by step, at first with more weight on the cross-moments,
    which have one maximum only.
    """
    _, seen_axes = np.linalg.eigh(seen)
    _, public_axes = np.linalg.eigh(public)
    cross = np.zeros_like(seen) if crosses is None else crosses[0] @ crosses[1].T
    if signs is None:
        signs = np.sign(np.einsum("ij,ik,kj->j", seen_axes, cross, public_axes))
        signs[signs == 0.0] = 1.0
    start: Matrix = (seen_axes * signs) @ public_axes.T
    if crosses is None:
        return start
    weight = np.linalg.norm(public) ** 2 / max(float(np.linalg.norm(crosses[1])) ** 2, 1e-300)
    found = []
    for rotation in (start, nearest_rotation(cross)):
        for factor in WEIGHTS:
            rotation = _ascend(rotation, seen, public, factor * weight * cross)  # noqa: PLW2901
        found.append(rotation)
    return max(found, key=lambda one: _agreement(one, seen, public, weight * cross))


def most_likely(start: Matrix, seen: Matrix, seen_cross: Matrix, public: Matrix) -> Matrix:
    """From ``start``, the R under which Gaussian rows most likely have the moments that are seen.

    ``public`` is the joint covariance (dim + k, dim + k) of the rows and of what the attacker has;
    ``seen_cross`` (dim, k) is what is seen of the part between them.  Unlike ``align``, this
    weighs every direction by how well the others predict it, as least squares would.
    """
    dim = len(seen)
    ridge = RIDGE * np.trace(public) / len(public)
    precision = np.linalg.inv(public + ridge * np.eye(len(public)))
    block = precision[:dim, :dim]
    # The log-likelihood is -<R, seen R block>/2 - <R, seen_cross precision>; adding a multiple of
    # the trace of ``seen``, which no rotation changes, makes every step an ascent.
    shifted = np.linalg.eigvalsh(block)[-1] * np.eye(dim) - block
    return _ascend(start, seen, shifted, -seen_cross @ precision[dim:, :dim])


def _ascend(rotation: Matrix, seen: Matrix, public: Matrix, cross: Matrix) -> Matrix:
    """Each step maximises a linear bound from below, so that the agreement never falls."""
    for _ in range(STEPS):
        before = rotation
        rotation = nearest_rotation(seen @ before @ public + cross)
        if np.abs(rotation - before).max() < 1e-7:
            break
    return rotation


def _agreement(rotation: Matrix, seen: Matrix, public: Matrix, cross: Matrix) -> float:
    return float(np.sum(rotation * (0.5 * seen @ rotation @ public + cross)))


def axis_signs(masked: Matrix, public: Matrix) -> Vector:
    """Signs of the principal axes of ``masked`` that give them the public skewness."""
    seen_skew = _axis_skewness(masked)
    public_skew = _axis_skewness(public)
    signs = np.sign(seen_skew * public_skew)
    signs[signs == 0.0] = 1.0
    return signs


def _axis_skewness(values: Matrix) -> Vector:
    rows, _ = centred(values)
    _, axes = np.linalg.eigh(covariance(values))
    along = rows @ axes
    spread = along.std(axis=0)
    skewness: Vector = np.mean(along**3, axis=0) / np.where(spread > 0.0, spread, 1.0) ** 3
    return skewness
