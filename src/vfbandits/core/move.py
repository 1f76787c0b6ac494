"""Carry what was learnt to another mask, or to more or fewer features.

A move is made on Lambda and u, the truth; inverse and theta are derived again.  Each has a plain
twin, and decisions after it equal those of a plain bandit that was treated the same way:

* ``Rotation``: a new mask.  Lambda' = R Lambda R', u' = R u; the plain twin does nothing.
* ``Widening``: a participant joined.  New dimensions start at the prior, ridge·I (under
  forgetting: at what the prior weighs by then), and at u = 0.
* ``Narrowing``: a participant left.  Its rows and columns are cut out, which is the Lambda and u
  that the same rewards would have given without its features.
* ``Remask``: all of these in one, from a matrix R that no single participant could have made.
  Across a network nobody knows the masks, only R = Σ Q'_j Q_j' over the participants that stay.
"""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from scipy.linalg import block_diag

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.state import State
from vfbandits.errors import MaskError

ORTHOGONAL_TOLERANCE = 1e-9
RANK_TOLERANCE = 1e-6


class Move(Protocol):
    """A linear map of contexts, together with what it does to the prior."""

    def vector(self, x: Vector) -> Vector:
        """The image of a context."""
        ...

    def matrix(self, Lambda: Matrix, ridge: float) -> Matrix:
        """The image of the design matrix."""
        ...

    def lifted(self, *, before: int, factor: int) -> "Move":
        """The same move on [1; u] ⊗ w: ``before`` untouched dimensions, then u ⊗ R^factor."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Rotation:
    """x' = R x for an orthogonal R (dim, dim)."""

    R: Matrix = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse what is not orthogonal: it would change inner products."""
        R = self.R
        if R.ndim != 2 or R.shape[0] != R.shape[1]:
            raise MaskError(f"a rotation needs a square matrix, got shape {R.shape}")
        error = float(np.abs(R @ R.T - np.eye(len(R))).max())
        if not error <= ORTHOGONAL_TOLERANCE:
            raise MaskError(f"a rotation needs RR' = I, off by {error:.1e}")

    def vector(self, x: Vector) -> Vector:
        """R x."""
        return self.R @ x

    def matrix(self, Lambda: Matrix, ridge: float) -> Matrix:
        """R Lambda R'."""
        del ridge
        return self.R @ Lambda @ self.R.T

    def lifted(self, *, before: int, factor: int) -> "Rotation":
        """diag(I, R ⊗ I)."""
        return Rotation(block_diag(np.eye(before), np.kron(self.R, np.eye(factor))))


@dataclass(frozen=True, slots=True)
class Widening:
    """``extra`` new dimensions after the old ones."""

    extra: int

    def __post_init__(self) -> None:
        """Refuse what does not widen."""
        if self.extra < 1:
            raise MaskError(f"a widening needs at least one new dimension, got {self.extra}")

    def vector(self, x: Vector) -> Vector:
        """Zeros for features that were not there yet."""
        return np.concatenate([x, np.zeros(self.extra)])

    def matrix(self, Lambda: Matrix, ridge: float) -> Matrix:
        """diag(Lambda, ridge·I)."""
        widened: Matrix = block_diag(Lambda, ridge * np.eye(self.extra))
        return widened

    def lifted(self, *, before: int, factor: int) -> "Widening":
        """As many new dimensions as each new feature meets arm features."""
        del before
        return Widening(self.extra * factor)


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Dimensions ``start`` to ``stop`` (exclusive) are cut out."""

    start: int
    stop: int

    def vector(self, x: Vector) -> Vector:
        """The other entries."""
        return np.delete(x, slice(self.start, self.stop))

    def matrix(self, Lambda: Matrix, ridge: float) -> Matrix:
        """The other rows and columns."""
        del ridge
        cut = slice(self.start, self.stop)
        return np.delete(np.delete(Lambda, cut, axis=0), cut, axis=1)

    def lifted(self, *, before: int, factor: int) -> "Narrowing":
        """The dimensions in which the lost features met arm features."""
        return Narrowing(before + self.start * factor, before + self.stop * factor)


@dataclass(frozen=True, slots=True, eq=False)
class Remask:
    """x' = R x for a partial isometry R (new dim, old dim) of rank ``kept``.

    ``kept`` counts the features of the participants that stay.  Theirs are carried along, those
    that left are cut out, and new ones start at the prior: Lambda' = R Lambda R' + ridge·(I − RR').
    """

    R: Matrix = field(repr=False)
    kept: int

    def __post_init__(self) -> None:
        """Refuse what is no partial isometry of that rank: a part is missing, or wrong."""
        R = self.R
        if R.ndim != 2 or not 1 <= self.kept <= min(R.shape):
            raise MaskError(f"a change of masks keeps {self.kept} features, got shape {R.shape}")
        P = R.T @ R
        error = float(np.abs(R @ P - R).max())
        rank = float(np.trace(P))
        if not error <= ORTHOGONAL_TOLERANCE or not abs(rank - self.kept) <= RANK_TOLERANCE:
            raise MaskError(
                f"a change of masks needs RR'R = R of rank {self.kept}, off by {error:.1e}, "
                f"rank {rank:.3f}: a participant's part is missing or wrong"
            )
        # Sums in fixed point leave an error.  On singular values this is s → (5 s³ − 3 s⁵) / 2,
        # which squares what is off from 1 and takes away what is off from 0.
        object.__setattr__(self, "R", R @ P @ (2.5 * np.eye(len(P)) - 1.5 * P))

    def vector(self, x: Vector) -> Vector:
        """R x."""
        return self.R @ x

    def matrix(self, Lambda: Matrix, ridge: float) -> Matrix:
        """R Lambda R' + ridge·(I − RR')."""
        R = self.R
        return R @ Lambda @ R.T + ridge * (np.eye(len(R)) - R @ R.T)

    def lifted(self, *, before: int, factor: int) -> "Remask":
        """diag(I, R ⊗ I)."""
        lifted = block_diag(np.eye(before), np.kron(self.R, np.eye(factor)))
        return Remask(lifted, before + self.kept * factor)


def moved(state: State, move: Move) -> State:
    """A new state: what ``state`` has learnt, carried along by ``move``."""
    b = move.vector(state.b)
    new = State(len(b), state.settings)
    A = move.matrix(state.Lambda / state.scale, state.settings.ridge)
    new.take_over(state, np.asfortranarray(A), b)
    return new


def rotate(state: State, R: Matrix) -> State:
    """Carry Lambda and u to a new mask: R Lambda R' and R u.

    >>> from vfbandits.core.settings import LearnerSettings
    >>> state = State(2, LearnerSettings())
    >>> state.update(np.array([1.0, 0.0]), 3.0)
    >>> rotate(state, np.array([[0.0, -1.0], [1.0, 0.0]])).theta
    array([0. , 1.5])
    """
    return moved(state, Rotation(R))


def embed(state: State, extra: int) -> State:
    """Widen the state by ``extra`` dimensions that start at ridge·I.

    >>> from vfbandits.core.settings import LearnerSettings
    >>> embed(State(1, LearnerSettings(ridge=2.0)), 1).Lambda
    array([[2., 0.],
           [0., 2.]])
    """
    return moved(state, Widening(extra))


def drop(state: State, start: int, stop: int) -> State:
    """Cut dimensions ``start`` to ``stop`` (exclusive) out of the state.

    >>> from vfbandits.core.settings import LearnerSettings
    >>> drop(State(5, LearnerSettings()), 1, 3).dim
    3
    """
    if not 0 <= start < stop <= state.dim or stop - start == state.dim:
        raise MaskError(f"a cut needs 0 <= start < stop <= {state.dim}, got {start} to {stop}")
    return moved(state, Narrowing(start, stop))
