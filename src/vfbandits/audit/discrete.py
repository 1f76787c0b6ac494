"""Columns of few values: a direction along which all masked rows fall on a grid is such a column.

No truth is needed to know that: directions are fitted on one half of the rows, and the other half
falls on the grid too.  By chance that does not happen.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from vfbandits.audit.components import CONTRASTS, independent_components
from vfbandits.audit.result import Result
from vfbandits.audit.returning import shared_directions
from vfbandits.audit.view import View, centred
from vfbandits.core.arrays import Matrix, Vector

MAX_ICA_ROWS = 20_000
MAX_PAIR_ROWS = 1500
MAX_SHORT = 2000
MAX_LINES = 200
SAMPLE = 500
MAX_VALUES = 64
MIN_TABLE_ROWS = 8
STEPS = 12
TOLERANCE = 1e-6  # largest distance to the grid, in steps of the grid
SAME = 1.0 - 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """A direction (dim,) along which rows fall on whole numbers, after an offset.

    ``deviation`` is the largest distance of any row from them.
    """

    direction: Vector = field(repr=False)
    n_values: int
    deviation: float


def discrete_columns(view: View, *, seed: int) -> Result:
    """Find all directions of few values, and which of them are the participant's columns."""
    grids = find_grids(view.masked, seed=seed)
    exact = _columns_of(grids, view)
    errors = {name: 0.0 if name in exact else 1.0 for name in view.columns}
    held_out = len(view.masked) - fitted_rows(*view.masked.shape)
    certificate = None
    if exact:
        worst = max(grid.deviation for grid in grids)
        certificate = (
            f"{held_out:,} rows that were not used for fitting fall on {len(grids)} grids of at "
            f"most {max(grid.n_values for grid in grids)} values, to {worst:.0e} of a step"
        )
    return Result(
        attack="discrete",
        title="Flags, one-hot groups and counts",
        level=view.level,
        needs="nothing but masked rows, more than a row has numbers",
        errors=errors,
        exact=exact,
        facts=(f"{len(exact)} of {view.width} columns recovered exactly, row by row",),
        advice="Do not send raw flags, one-hot columns and counts. Add noise of a standard "
        "deviation before masking, send combinations of many columns, or leave them out.",
        certificate=certificate,
    )


def columns_on_grids(values: Matrix) -> list[int]:
    """Which columns of a table (n, width) are flags or counts: few values, on a grid.

    These are the directions that ``find_grids`` looks for behind a mask; how many of them it finds
    depends on the rows that it has.  Looking at the table itself takes no time.  Values of a
    continuous column do not repeat, so a few rows are enough, but no fewer than ``MIN_TABLE_ROWS``.
    Constant columns are not listed.

    >>> rng = np.random.default_rng(0)
    >>> flags, counts = rng.random(100) < 0.3, rng.poisson(2.0, 100)
    >>> columns_on_grids(np.column_stack([rng.random(100), (flags - 0.3) / 0.46, counts]))
    [1, 2]
    """
    if len(values) < MIN_TABLE_ROWS:
        return []
    return [place for place, column in enumerate(values.T) if _is_on_grid(column)]


def _is_on_grid(column: Vector) -> bool:
    found = np.unique(column)
    gaps = np.diff(found)
    # What differs by rounding is one value.
    gaps = gaps[gaps > TOLERANCE * np.ptp(column)]
    n_values = len(gaps) + 1
    if not 1 < n_values <= min(MAX_VALUES, len(column) // 2):
        return False
    return _deviation(gaps / gaps.min()) <= TOLERANCE * MAX_VALUES


def find_grids(masked: Matrix, *, seed: int) -> list[Grid]:
    """Directions of few values: started from components and short differences, then polished."""
    rows, _ = centred(masked)
    half = fitted_rows(*rows.shape)
    fitter = np.linalg.pinv(np.column_stack([rows[:half], np.ones(half)]))
    part = rows[: 2 * half]
    found: list[Grid] = []
    for start in _starts(rows, seed):
        solution = _polish(part, part @ start, fitter)
        grid = None if solution is None else _check(rows, solution)
        if grid is not None and not any(_is_same(grid, other) for other in found):
            found.append(grid)
    return found


def _starts(rows: Matrix, seed: int) -> Iterator[Vector]:
    """Directions (dim,) worth a try."""
    part = rows[:MAX_ICA_ROWS]
    to_direction = np.linalg.pinv(part)
    for contrast in CONTRASTS:
        components = independent_components(part, contrast=contrast, seed=seed)
        yield from (to_direction @ components).T
    yield from _short_differences(rows[:MAX_PAIR_ROWS])


def fitted_rows(n: int, dim: int) -> int:
    """How many rows directions are fitted on; all others are only looked at.

    >>> fitted_rows(1000, 10), fitted_rows(100_000, 10)
    (500, 2000)
    """
    return min(n // 2, max(2000, 20 * dim))


def _short_differences(rows: Matrix) -> Matrix:
    """Lines (k, dim) that several of the shortest differences share.

    Discrete rows that are near to each other differ in one column.
    """
    squares = np.einsum("ij,ij->i", rows, rows)
    distances = squares[:, None] + squares - 2.0 * rows @ rows.T
    first, second = np.triu_indices(len(rows), 1)
    lengths = distances[first, second]
    count = min(MAX_SHORT, len(lengths) - 1)
    lengths = np.where(lengths > 1e-9 * squares.mean(), lengths, np.inf)
    order = np.argpartition(lengths, count)[:count]
    order = order[np.argsort(lengths[order], kind="stable")]
    directions, _ = shared_directions(rows[first[order]] - rows[second[order]])
    return directions[:MAX_LINES]


def _polish(rows: Matrix, values: Vector, fitter: Matrix) -> Vector | None:
    """Round to a grid, fit a direction to the result, and repeat until nothing changes.

    Returns the direction and the offset (dim + 1,), if the half that was not fitted agrees.
    """
    half = len(rows) // 2
    for spacing in _spacings(values):
        whole, before = values / spacing, None
        whole = whole - _phase(whole)
        for _ in range(STEPS):
            target = np.round(whole[:half])
            if before is not None and np.array_equal(target, before):
                break
            before = target
            solution: Vector = fitter @ target
            whole = rows @ solution[:-1] + solution[-1]
        if np.ptp(np.round(whole)) and _deviation(whole[half:]) <= TOLERANCE:
            return solution
    return None


def _check(rows: Matrix, solution: Vector) -> Grid | None:
    """The grid, if all rows fall on it."""
    whole = rows @ solution[:-1] + solution[-1]
    deviation = _deviation(whole)
    n_values = len(np.unique(np.round(whole)))
    if deviation > TOLERANCE or not 1 < n_values <= MAX_VALUES:
        return None
    return Grid(solution[:-1], n_values, deviation)


def _deviation(whole: Vector) -> float:
    return float(np.abs(whole - np.round(whole)).max())


def _phase(whole: Vector) -> float:
    """Where the grid lies between whole numbers."""
    return float(np.angle(np.exp(2j * np.pi * whole[:SAMPLE]).mean()) / (2.0 * np.pi))


def _spacings(values: Vector) -> list[float]:
    """Steps of a grid: the gap of two clusters, and the period that most values keep."""
    part = values[:SAMPLE]
    spread = float(part.std())
    if not spread:
        return []
    periods = spread * np.geomspace(0.1, 4.0, 300)
    coherence = np.abs(np.exp(2j * np.pi * part[:, None] / periods).mean(axis=0))
    peaks = (
        np.flatnonzero((coherence[1:-1] >= coherence[:-2]) & (coherence[1:-1] >= coherence[2:])) + 1
    )
    best = peaks[np.argsort(coherence[peaks])[::-1][:3]]
    return [_gap(part), *periods[best].tolist()]


def _gap(values: Vector) -> float:
    """Distance of the means of two clusters that split the values best."""
    ordered = np.sort(values)
    sums = np.cumsum(ordered)[:-1]
    counts = np.arange(1, len(ordered))
    low, high = sums / counts, (ordered.sum() - sums) / counts[::-1]
    between = counts * counts[::-1] * (high - low) ** 2
    place = int(between.argmax())
    return max(float(high[place] - low[place]), 1e-300)


def _is_same(one: Grid, other: Grid) -> bool:
    norms = np.linalg.norm(one.direction) * np.linalg.norm(other.direction)
    return bool(abs(one.direction @ other.direction) > SAME * norms)


def _columns_of(grids: list[Grid], view: View) -> tuple[str, ...]:
    """Own columns that one grid follows without an error, up to step and offset."""
    if not grids:
        return ()
    rows, _ = centred(view.masked)
    found = rows @ np.stack([grid.direction for grid in grids], axis=1)
    found = found / found.std(axis=0)
    truth, _ = centred(view.plain)
    spreads = truth.std(axis=0)
    correlations = np.abs(found.T @ truth / len(truth)) / np.where(spreads > 0.0, spreads, np.inf)
    best = correlations.max(axis=0)
    return tuple(name for name, r in zip(view.columns, best, strict=True) if r > SAME)
