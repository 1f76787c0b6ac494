"""Returning users: a row that changed in one feature shows that feature's column of the mask."""

import numpy as np
from scipy.optimize import linear_sum_assignment

from vfbandits.audit.result import Result, exact_columns, named
from vfbandits.audit.view import View, quantiles
from vfbandits.core.arrays import Matrix, PlainBlock, Vector

MAX_USERS = 2000
PARALLEL = 1.0 - 1e-9


def returning_users(view: View, later: Matrix) -> Result:
    """Recover columns from the rows of the same users, masked again later, (n, dim).

    Two users whose rows moved along one line changed one and the same feature.  The line is a
    column of the mask, and the masked rows along it are the feature itself, up to a sign.
    """
    directions, users = shared_directions(later - view.masked)
    own = view.share.columns[:, : view.width]
    is_open = (np.abs(directions @ own) > PARALLEL).any(axis=0)
    errors = named(np.where(is_open, 0.0, 1.0), view.columns)
    names = _named_right(view, directions)
    return Result(
        attack="returning",
        title="Returning users one of whose features changed",
        level=view.level,
        needs="two answers about the same users under one mask, between which a single feature of "
        "the joint row changed (for two users the same one); public marginals for the names",
        errors=errors,
        exact=exact_columns(errors),
        facts=(
            f"{len(directions)} columns of the mask seen among {users:,} users who returned",
            f"{int(is_open.sum())} of {view.width} columns recovered exactly, up to a sign; public "
            f"marginals give {names} of them the right name",
        ),
        advice="Do not answer with new values while a mask is in force: update a user's row only "
        "when masks change, or set a minimum time and let several features change together.",
        is_universal=True,
        certificate=f"{len(directions)} lines are shared by two or more users, to "
        f"{1.0 - PARALLEL:.0e}; unrelated changes are never parallel"
        if len(directions)
        else None,
    )


def single_changes(view: View, *, rng: np.random.Generator, share: float = 0.2) -> Matrix:
    """The rows later, masked: a ``share`` of the users have one own feature of another user now.

    Of the columns of other participants in a joint row, half of those users have all changed.
    """
    later = view.joint.copy()
    count = max(2, round(share * len(later)))
    users = rng.choice(len(later), count, replace=False)
    columns = rng.integers(view.width, size=count)
    later[users, columns] = view.joint[rng.permutation(len(later))[:count], columns]
    moved = users[: count // 2]
    others = np.arange(view.width, view.dim)
    later[np.ix_(moved, others)] = view.joint[np.ix_(rng.permutation(moved), others)]
    return np.ascontiguousarray(view.share.mask(PlainBlock(later)))


def shared_directions(differences: Matrix) -> tuple[Matrix, int]:
    """Unit directions (k, dim) along which two or more rows moved, and how many rows moved."""
    lengths = np.linalg.norm(differences, axis=1)
    smallest = 1e-9 * max(float(lengths.max(initial=0.0)), 1e-300)
    moved = np.flatnonzero(lengths > smallest)
    units = differences[moved[:MAX_USERS]] / lengths[moved[:MAX_USERS], None]
    cosines = np.abs(units @ units.T)
    taken = np.zeros(len(units), dtype=bool)
    found: list[Vector] = []
    for place in range(len(units)):
        group = cosines[place] > PARALLEL
        if not taken[place] and np.count_nonzero(group) > 1:
            found.append(units[place])
        taken |= group
    return np.array(found).reshape(len(found), differences.shape[1]), len(moved)


def _named_right(view: View, directions: Matrix) -> int:
    """How many own columns get their own line by the nearest public marginal, in its own scale."""
    if not len(directions):
        return 0
    wanted, seen = quantiles(view.public), quantiles(view.masked @ directions.T)
    upright = np.mean((wanted[:, None] - seen[None]) ** 2, axis=2)
    turned = np.mean((wanted[:, None] + seen[None, :, ::-1]) ** 2, axis=2)
    columns, found = linear_sum_assignment(np.minimum(upright, turned))
    match = np.abs(directions[found] @ view.share.columns)[np.arange(len(found)), columns]
    return int(np.count_nonzero((match > PARALLEL) & (columns < view.width)))
