"""What a level discloses without an attack: how many numbers, lengths, distances, duplicates."""

import numpy as np

from vfbandits.audit.result import Level, Result, column_errors, exact_columns, named
from vfbandits.audit.view import View, centred
from vfbandits.core.arrays import Matrix, Vector

BINS = 30
MAX_PAIRS = 2000


def disclosure(view: View) -> Result:
    """Count what is hidden and disclosed, and guess each column from the length of its row."""
    n, dim = view.masked.shape
    hidden = dim * (dim - 1) // 2
    duplicates = _duplicates(view.masked)
    errors = named(column_errors(_from_length(view), view.plain), view.columns)
    facts = [
        f"{n * dim:,} numbers were sent; the mask hides {hidden:,} of them, once and for all rows, "
        f"and discloses {max(n * dim - hidden, 0):,}",
        "the length of every row and the distance of every two rows are disclosed exactly",
        f"{duplicates:,} of {n:,} rows equal another row, which shows"
        if duplicates
        else "no two rows are equal",
        f"the nearest other row is at {_nearest(view.masked):.2f} of the median distance "
        "(median over rows)",
    ]
    if dim == 1:
        facts.append("a rotation of one number is a sign: the magnitude is sent as it is")
    return Result(
        attack="disclosure",
        title="Lengths, distances and duplicates",
        level=view.level,
        needs="nothing but what is sent; for columns, a public sample of rows",
        errors=errors,
        exact=exact_columns(errors),
        facts=tuple(facts),
        advice="Clip rows to one length (clip_norm) and send fewer columns; the level itself "
        "cannot hide lengths and distances."
        if view.level is Level.MASK
        else "Lengths and distances are those of the sum: more participants mix them more.",
        discloses=True,
    )


def _from_length(view: View) -> Matrix:
    """A line for each column, fitted to public rows of about the same length."""
    public, seen = (np.linalg.norm(rows, axis=1) for rows in (view.public, view.masked))
    bins = max(1, min(BINS, len(public) // 50))
    edges = np.quantile(public, np.linspace(0.0, 1.0, bins + 1)[1:-1])
    places, places_seen = np.searchsorted(edges, public), np.searchsorted(edges, seen)
    own = view.public[:, : view.width]
    guess = np.tile(own.mean(axis=0), (len(seen), 1))
    for place in range(bins):
        inside, wanted = places == place, places_seen == place
        if not inside.any():
            continue
        lengths, middle = centred(public[inside])
        rows, mean = centred(own[inside])
        slope = lengths @ rows / max(float(lengths @ lengths), 1e-300)
        guess[wanted] = mean + np.outer(seen[wanted] - middle, slope)
    return guess


def _duplicates(masked: Matrix) -> int:
    """Rows that equal another one; equal rows are masked to equal rows, up to rounding."""
    scale = float(np.abs(masked).max()) or 1.0
    _, counts = np.unique(np.round(masked / scale, 10), axis=0, return_counts=True)
    return int(counts[counts > 1].sum())


def _nearest(masked: Matrix) -> float:
    rows, _ = centred(masked[:MAX_PAIRS])
    squares: Vector = np.einsum("ij,ij->i", rows, rows)
    distances = np.maximum(squares[:, None] + squares - 2.0 * rows @ rows.T, 0.0)
    np.fill_diagonal(distances, np.inf)
    typical = float(np.median(distances[np.isfinite(distances)]))
    return float(np.sqrt(np.median(distances.min(axis=1)) / typical)) if typical else 0.0
