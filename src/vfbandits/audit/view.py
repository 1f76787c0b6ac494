"""What the active participant sees of a table, and what is public about the people in it.

The rows are split into two halves.  One is attacked.  The other represents what is public: other
people of the same population, from whom an attacker takes means, covariances and marginals.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from vfbandits.audit.result import Level
from vfbandits.core.arrays import Matrix, PlainBlock, Vector
from vfbandits.core.mask import MaskShare, sample_mask
from vfbandits.errors import SettingError

MIN_ROWS_PER_COLUMN = 5
MIN_ROWS = 40


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """One level's view of a table.

    Attributes
    ----------
    level
        What the active participant sees.
    columns
        Names of the participant's own columns, which are the first of ``joint``.
    joint
        Plain rows (n, dim) behind what is seen; attacks use them only to measure their error.
    masked
        What is seen, (n, dim).
    public
        Plain rows (m, dim) of other people.
    share
        The secret mask.
    own, public_own
        Columns that the active participant has itself, (n, k) and (m, k), of the same people.
    """

    level: Level
    columns: tuple[str, ...]
    joint: Matrix = field(repr=False)
    masked: Matrix = field(repr=False)
    public: Matrix = field(repr=False)
    share: MaskShare = field(repr=False)
    own: Matrix = field(repr=False)
    public_own: Matrix = field(repr=False)

    @property
    def width(self) -> int:
        """How many columns are the participant's own."""
        return len(self.columns)

    @property
    def dim(self) -> int:
        """How many numbers a masked row has."""
        return int(self.masked.shape[1])

    @property
    def plain(self) -> Matrix:
        """The participant's own columns, (n, width)."""
        return self.joint[:, : self.width]

    def first(self, count: int) -> "View":
        """The same with at most ``count`` rows, and as many public ones."""
        return self.part(slice(count))

    def part(self, rows: slice) -> "View":
        """The same with some of the rows, and of the public ones."""
        return replace(
            self,
            joint=self.joint[rows],
            masked=self.masked[rows],
            public=self.public[rows],
            own=self.own[rows],
            public_own=self.public_own[rows],
        )


def look(
    values: Matrix,
    columns: Sequence[str],
    *,
    level: Level,
    rng: np.random.Generator,
    others: Matrix | None = None,
    own: Matrix | None = None,
) -> View:
    """Mask a participant's rows (n, width) as ``level`` does.

    At level ``sum``, ``others`` (n, k) are the columns of the other passive participants; without
    them ``simulate_others`` gives as many as this one has.  The active participant can take its
    own part out of the sum and find the span of the rest, so that what it sees is a rotation of
    the passive participants' joint rows.  ``own`` (n, k) are its own columns of the same rows.

    >>> view = look(np.eye(50)[:, :3], "abc", level=Level.SUM, rng=np.random.default_rng(0))
    >>> view.masked.shape, view.width
    ((25, 6), 3)
    """
    n, width = values.shape
    if width != len(columns):
        raise SettingError(f"names must be given for {width} columns, got {len(columns)}")
    refuse_few_rows(n, width)
    joint = values
    if level is Level.SUM:
        others = simulate_others(values, width, rng=rng) if others is None else others
        joint = np.hstack([values, others])
    own = np.empty((n, 0)) if own is None else own
    order = rng.permutation(n)
    here, there = order[: n // 2], order[n // 2 :]
    share = MaskShare(sample_mask(joint.shape[1], entropy=rng.bytes))
    return View(
        level=level,
        columns=tuple(columns),
        joint=joint[here],
        masked=np.ascontiguousarray(share.mask(PlainBlock(joint[here]))),
        public=joint[there],
        share=share,
        own=own[here],
        public_own=own[there],
    )


def refuse_few_rows(n: int, width: int) -> None:
    """Refuse a table whose masked rows could not even show their rank."""
    wanted = max(MIN_ROWS, MIN_ROWS_PER_COLUMN * width)
    if n < wanted:
        raise SettingError(
            f"an audit of {width} columns needs at least {wanted} complete rows, got {n}"
        )


def simulate_others(values: Matrix, count: int, *, rng: np.random.Generator) -> Matrix:
    """``count`` columns of other participants, whose features are not known here.

    They are this table's with rows shuffled: of the same kind, and saying nothing about the same
    users.  Each participant has two groups of columns with an order of their own.  With one order
    for all, the others' covariance would be a copy of this participant's, and its principal axes
    could not be distinguished.
    """
    n, width = values.shape
    blocks = []
    for start in range(0, count, width):
        block = values[rng.permutation(n)]
        group = rng.permutation(width)[: width // 2]
        block[:, group] = values[rng.permutation(n)][:, group]
        blocks.append(block[:, : count - start])
    return np.hstack(blocks) if blocks else np.empty((n, 0))


def quantiles(values: Matrix, count: int = 200) -> Matrix:
    """Quantiles of each column, (columns, count)."""
    levels = (np.arange(count) + 0.5) / count
    return np.ascontiguousarray(np.quantile(values, levels, axis=0).T)


def centred(values: Matrix) -> tuple[Matrix, Vector]:
    """Rows around their mean, and the mean."""
    mean: Vector = values.mean(axis=0)
    return values - mean, mean
