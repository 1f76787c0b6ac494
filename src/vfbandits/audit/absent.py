"""Users whom no other participant knows: the others add zeros, and nothing hides the rest."""

from dataclasses import replace

import numpy as np

from vfbandits.audit.ica import MAX_ROWS, component_errors
from vfbandits.audit.result import Level, Result, exact_columns, named
from vfbandits.audit.view import View
from vfbandits.core.arrays import Matrix, PlainBlock

RANK_TOLERANCE = 1e-8


def absent_users(view: View, alone: Matrix, *, seed: int) -> Result:
    """Take the span of the rows ``alone`` (m, dim) out of every sum.

    These are sums about users of this participant only.  If their rank is below their number and
    below ``dim``, they span the participant's part of the mask: projected on it, every sum shows
    the participant's masked row, and level ``sum`` has become level ``mask``.
    """
    _, sizes, axes = np.linalg.svd(alone, full_matrices=False)
    rank = int(np.count_nonzero(sizes > RANK_TOLERANCE * max(float(sizes.max()), 1e-300)))
    is_open = rank < min(len(alone), view.dim)
    errors = np.ones(view.width)
    if is_open:
        part = replace(
            view,
            level=Level.MASK,
            joint=view.plain,
            masked=view.masked @ axes[:rank].T,
            public=view.public[:, : view.width],
        )
        errors, unnamed = component_errors(part.first(MAX_ROWS), seed=seed)
        errors = np.minimum(errors, unnamed)
    by_column = named(errors, view.columns)
    fact = (
        f"{len(alone)} such rows have rank {rank} of {view.dim}: the sums of all users open to "
        "this participant's masked rows, and every finding of level mask holds"
        if is_open
        else f"{len(alone)} such rows have rank {rank} of {view.dim} and open nothing"
    )
    return Result(
        attack="absent",
        title="Users who are absent elsewhere",
        level=view.level,
        needs=f"{view.width + 1} or more users of whom no other passive participant has a row; "
        "then as for independent components",
        errors=by_column,
        exact=exact_columns(by_column),
        facts=(fact,),
        advice="Answer only about users whom every passive participant knows: agree on the common "
        "users before the federation starts.",
        certificate=f"rank {rank} of {len(alone)} rows" if is_open else None,
        discloses=is_open,
    )


def rows_alone(view: View, *, rng: np.random.Generator, count: int | None = None) -> Matrix:
    """Sums about users of this participant only, by default twice as many as it has columns."""
    wanted = min(count or 2 * view.width, len(view.joint))
    rows = view.joint[rng.choice(len(view.joint), wanted, replace=False)].copy()
    rows[:, view.width :] = 0.0
    return np.ascontiguousarray(view.share.mask(PlainBlock(rows)))
