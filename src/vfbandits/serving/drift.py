"""Feature drift of each participant, over the last few thousand rows.

* ``missing``: the fraction of rows without features, because the participant did not answer in
  time or does not know the user.
* ``norm_ratio``: the mean squared length of the rows that came, against its baseline.  Masks are
  orthogonal, so a masked row is as long as the plain one.  With secure sums only the length of the
  sum over all passive participants is known; each of them reports it.
* ``mean_shift``, of the active participant's own columns: the largest shift of a column's mean, in
  standard deviations.
* ``variance_shift``, of the same columns: the largest change of a variance, in doublings or
  halvings.

The baseline of own columns is the fitted scaling where there is one: a mean of 0 and the variance
that it was fitted to.  Anything else is compared with the first ``WINDOW`` rows of the process.

Rows are sampled: at most ``MAX_ROWS`` of one round every ``EVERY_S``.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from vfbandits.core.arrays import Matrix, PlainBlock, Vector
from vfbandits.protocol.instructions import Gathered

WINDOW: Final = 2_000
MAX_ROWS: Final = 64
EVERY_S: Final = 0.1
_ROUNDING: Final = 1e-11  # of a mean square over a window
_SMALLEST: Final = 1e-6  # lower bound of a variance, relative to its baseline


class Window:
    """Sums over the last rows: one to two times ``WINDOW`` of them, once it is full.

    >>> window = Window(1)
    >>> for _ in range(WINDOW):
    ...     window.add(1, np.array([3.0]))
    >>> window.mean(), window.first
    (array([3.]), array([3.]))
    """

    def __init__(self, width: int) -> None:
        self.first: Vector | None = None
        self._sums = np.zeros((2, width))
        self._counts = [0, 0]

    def add(self, n_rows: int, sums: Vector) -> None:
        """Take the sums of some rows."""
        self._counts[1] += n_rows
        self._sums[1] += sums
        if self._counts[1] >= WINDOW:
            if self.first is None:
                self.first = self._sums[1] / self._counts[1]
            self._counts = [self._counts[1], 0]
            self._sums[0], self._sums[1] = self._sums[1], 0.0

    def mean(self) -> Vector | None:
        """The mean over the rows in it; None before it was full once."""
        if self.first is None:
            return None
        mean: Vector = self._sums.sum(axis=0) / sum(self._counts)
        return mean


@dataclass(slots=True)
class _Seen:
    """What was seen of one participant."""

    missing: Window = field(default_factory=lambda: Window(1))
    squares: Window = field(default_factory=lambda: Window(1))


class FeatureDrift:
    """Measures drift from rounds and from own rows; ``describe`` returns it.

    ``variances`` has the fitted variance of each own column, NaN for a column that was not fitted.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        width: int,
        variances: Vector | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._active = names[0]
        self._seen = {name: _Seen() for name in names}
        self._sum = Window(1)
        self._own = Window(2 * width)
        self._fitted = np.full(width, np.nan) if variances is None else variances
        self._clock = clock
        self._next_round = self._next_own = float("-inf")

    def look(self, gathered: Gathered) -> None:
        """Take a complete round; a trial has no blocks and is skipped."""
        now = self._clock()
        if now < self._next_round or gathered.is_trial:
            return
        self._next_round = now + EVERY_S
        n_rows, unknown = len(gathered.contexts), gathered.unknown
        for name, seen in self._seen.items():
            if name != self._active:
                is_there = name in gathered.contributors
                missing = unknown.get(name, 0) if is_there else n_rows
                seen.missing.add(n_rows, np.array([float(missing)]))
        for name, block in gathered.blocks.items():
            if name in self._seen:
                _add_squares(self._seen[name].squares, block)
        if gathered.total is not None:
            _add_squares(self._sum, gathered.total)

    def look_at_own(self, rows: PlainBlock) -> None:
        """Take own rows, before they are masked."""
        now = self._clock()
        if now < self._next_own or rows.shape[1] != len(self._fitted):
            return
        self._next_own = now + EVERY_S
        some = rows[:MAX_ROWS]
        seen = self._seen[self._active]
        known = some[some.any(axis=1)]
        seen.missing.add(len(some), np.array([float(len(some) - len(known))]))
        if len(known):
            squares = known * known
            self._own.add(len(known), np.concatenate([known.sum(axis=0), squares.sum(axis=0)]))
            seen.squares.add(len(known), np.array([squares.sum()]))

    def describe(self, name: str) -> dict[str, object]:
        """The drift of one participant; its values are None before there are enough rows."""
        seen = self._seen.get(name)
        if seen is None:
            return {}
        missing = seen.missing.mean()
        of_sum = self._sum if name != self._active and seen.squares.mean() is None else None
        found: dict[str, object] = {
            "missing_ratio": None if missing is None else round(float(missing[0]), 6),
            "norm_ratio": _ratio(of_sum or seen.squares),
        }
        if name == self._active:
            found |= self._own_shift()
        return found

    def _own_shift(self) -> Mapping[str, object]:
        now, first = self._own.mean(), self._own.first
        if now is None or first is None:
            return {"mean_shift": None, "variance_shift": None}
        means, variances = _moments(now)
        first_means, first_variances = _moments(first)
        is_fitted = np.isfinite(self._fitted)
        wanted = np.where(is_fitted, self._fitted, first_variances)
        centres = np.where(is_fitted, 0.0, first_means)
        varies = wanted > 0.0
        if not varies.any():
            return {"mean_shift": 0.0, "variance_shift": 0.0}
        shifts = np.abs(means - centres)[varies] / np.sqrt(wanted[varies])
        ratios = np.maximum(variances[varies] / wanted[varies], _SMALLEST)
        return {
            "mean_shift": round(float(shifts.max()), 6),
            "variance_shift": round(float(np.abs(np.log2(ratios)).max()), 6),
        }


def _add_squares(window: Window, block: Matrix) -> None:
    """Add squared lengths of some rows; rows of unknown users are zero, and left out."""
    some = block[:MAX_ROWS]
    squares = np.einsum("ij,ij->i", some, some)
    n_rows = int(np.count_nonzero(squares))
    if n_rows:
        window.add(n_rows, np.array([squares.sum()]))


def _ratio(window: Window) -> float | None:
    mean, first = window.mean(), window.first
    if mean is None or first is None:
        return None
    return round(float(mean[0] / first[0]), 6)


def _moments(sums: Vector) -> tuple[Vector, Vector]:
    """Means and variances, from means of numbers and of their squares.

    The variance of a constant column counts as 0: the ratio of two rounding errors would look like
    a change by orders of magnitude.
    """
    means, squares = np.split(sums, 2)
    variances = squares - means * means
    return means, np.where(variances > _ROUNDING * squares, variances, 0.0)
