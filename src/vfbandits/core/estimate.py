"""Contexts and state become arm statistics: all that a policy may see of a round.

Means, widths and covariances are inner products, and a rotation leaves inner products alone.  So
a policy that reads statistics only cannot tell masked contexts from plain ones.
"""

import math
from typing import Protocol

import numpy as np
from scipy.linalg.blas import dgemm, dgemv

from vfbandits.core import kernels
from vfbandits.core.arrays import Matrix, Vector, frobenius
from vfbandits.core.sampler import FactorSampler, IndependentSampler, ParameterSampler, Sampler
from vfbandits.core.state import State


class ArmStatistics(Protocol):
    """What a policy sees of a round."""

    @property
    def n_arms(self) -> int:
        """Number of arms, K."""
        ...

    @property
    def means(self) -> Vector:
        """Estimated rewards x'theta, (n_arms,)."""
        ...

    @property
    def widths(self) -> Vector:
        """√(x'Lambda⁻¹x), (n_arms,)."""
        ...

    @property
    def magnitude(self) -> float:
        """A bound on the size of the terms that the means are sums of; rounding scales with it."""
        ...

    @property
    def log_det_ratio(self) -> float | Vector:
        """log(det Lambda / det(ridge·I)), one for all arms or one for each."""
        ...

    @property
    def ridge(self) -> float:
        """The prior weight λ."""
        ...

    @property
    def n_updates(self) -> int:
        """Rewards learnt so far."""
        ...

    def sampler(self, space: str) -> Sampler:
        """Joint draws of deviations; ``space`` is "arm", "parameter" or "auto"."""
        ...


def _means(X: Matrix, theta: Vector) -> tuple[Vector, float]:
    """X theta, and the length of X, which must be finite."""
    if kernels.compiled is not None:
        means: Vector = np.empty(len(X))
        squares = kernels.compiled.means(X, theta, means)
        if math.isfinite(squares):
            return means, math.sqrt(squares)
    length = frobenius(X, what="contexts")
    return np.asarray(dgemv(1.0, X.T, theta, trans=1)), length


class SharedStatistics:
    """Statistics of arms that share one theta: contexts are the rows of X (n_arms, dim)."""

    __slots__ = ("X", "_squares", "_state", "length", "means", "n_arms")

    def __init__(self, state: State, X: Matrix, squares: Vector | None = None) -> None:
        self._state = state
        self.X = X
        self.n_arms = len(X)
        self.means, self.length = _means(X, state.theta)
        self._squares = squares

    @property
    def widths(self) -> Vector:
        """√ of x'Lambda⁻¹x, row by row."""
        squares = self._squares
        if squares is None:
            squares = self._state.form.squared_widths(self.X)
        widths: Vector = np.sqrt(squares)
        if self._state.scale != 1.0:
            widths /= math.sqrt(self._state.scale)
        return widths

    @property
    def magnitude(self) -> float:
        """‖X‖ times the magnitude of theta."""
        return self.length * self._state.magnitude

    @property
    def log_det_ratio(self) -> float:
        """One number for all arms."""
        return self._state.log_det_ratio

    @property
    def ridge(self) -> float:
        """The prior weight λ."""
        return self._state.settings.ridge

    @property
    def n_updates(self) -> int:
        """Rewards learnt so far."""
        return self._state.n_updates

    def sampler(self, space: str) -> Sampler:
        """In arm space O(K·dim² + K³) and path-equal; in parameter space O(dim² + K·dim)."""
        if space == "arm" or (space == "auto" and self.n_arms <= self._state.dim):
            return FactorSampler(self.factor())
        root = self._state.root()
        return ParameterSampler(self.X, root.lend(), 1.0 / math.sqrt(self._state.scale))

    def factor(self) -> Matrix:
        """L with LL' = X Lambda⁻¹ X', unique in arm order, (n_arms, n_arms)."""
        return self._state.form.factor(self.X, self._state.scale)


def shared_statistics_many(state: State, X: Matrix) -> list[SharedStatistics]:
    """Statistics of several rounds, X (n_rounds, n_arms, dim): one large product for all."""
    n_rounds, n_arms, dim = X.shape
    squares = state.form.squared_widths(X.reshape(-1, dim)).reshape(n_rounds, n_arms)
    return [SharedStatistics(state, rows, part) for rows, part in zip(X, squares, strict=True)]


class OuterStatistics:
    """Statistics of contexts u ⊗ w_a: one user vector, and arm features W (n_arms, n_features).

    u ⊗ w is linear in w, so means and covariances come from the n_features "unit arms" u ⊗ e_k:
    m = W·μ and C = W G W' with μ, G of size n_features, whatever the number of arms is.
    """

    __slots__ = ("W", "_length", "_unit", "means")

    def __init__(self, state: State, user: Vector, W: Matrix, length: float) -> None:
        n_features = W.shape[1]
        units = np.asarray(np.kron(user, np.eye(n_features)), dtype=np.float64)
        self._unit = SharedStatistics(state, units)
        self.W = W
        self._length = length
        self.means: Vector = dgemv(1.0, W.T, self._unit.means, trans=1)

    @property
    def n_arms(self) -> int:
        """Number of arms, K."""
        return len(self.W)

    @property
    def widths(self) -> Vector:
        """√ of w'Gw, row by row."""
        WL = dgemm(1.0, self._unit.factor(), self.W.T, trans_a=1)
        widths: Vector = np.sqrt(np.vecdot(WL.T, WL.T))
        return widths

    @property
    def magnitude(self) -> float:
        """‖u ⊗ I‖ ‖W‖ times the magnitude of theta."""
        return self._length * self._unit.magnitude

    @property
    def log_det_ratio(self) -> float:
        """One number for all arms."""
        return self._unit.log_det_ratio

    @property
    def ridge(self) -> float:
        """The prior weight λ."""
        return self._unit.ridge

    @property
    def n_updates(self) -> int:
        """Rewards learnt so far."""
        return self._unit.n_updates

    def sampler(self, space: str) -> Sampler:
        """WLz with LL' = G: n_features normals, path-equal in every case, so ``space`` is moot."""
        del space
        return FactorSampler(dgemm(1.0, self.W.T, self._unit.factor(), trans_a=1))


class DisjointStatistics:
    """Statistics of arms that share nothing: one state for each, all on the same user vector."""

    __slots__ = ("_length", "_states", "means", "n_updates", "ridge", "user")

    def __init__(
        self, states: list[State], user: Vector, *, length: float, ridge: float, n_updates: int
    ) -> None:
        self._states = states
        self.user = user
        self._length = length
        self.ridge = ridge
        self.n_updates = n_updates
        self.means = np.array([float(user.dot(state.theta)) for state in states])

    @property
    def n_arms(self) -> int:
        """Number of arms, K."""
        return len(self._states)

    @property
    def widths(self) -> Vector:
        """√ of u'Lambda_a⁻¹u, arm by arm."""
        row = self.user[None]
        squares = [float(s.form.squared_widths(row)[0]) / s.scale for s in self._states]
        return np.sqrt(squares)

    @property
    def magnitude(self) -> float:
        """‖u‖ times the largest magnitude of a theta_a."""
        return self._length * max(state.magnitude for state in self._states)

    @property
    def log_det_ratio(self) -> Vector:
        """One number for each arm."""
        return np.array([state.log_det_ratio for state in self._states])

    def sampler(self, space: str) -> Sampler:
        """One normal per arm, path-equal in every case, so ``space`` is moot."""
        del space
        return IndependentSampler(self.widths)
