"""What the bandit has learnt: Lambda and u are the truth, the inverse and theta follow from them.

With rewards r and the contexts x they belong to, and forgetting factor γ (``discount``),

    Lambda = ρ·I + Σ γ^age x x',    u = Σ γ^age r x,    theta = Lambda⁻¹ u.

Age counts rewards learnt since.  Without forgetting ρ = ridge.  With it the prior would fade too
and Lambda turn singular, so it is put back: ρ falls from ridge to about ridge/2, then the missing
part is added to *every* direction in one step.  That costs one O(dim³) refactoring per half-life of
the memory, and singles out no coordinate, so masked and plain runs stay together.

Rounding can hide the prior where contexts outweigh it by far.  A refactoring that finds Lambda
no longer positive definite to working precision adds to every direction what float64 can see,
counts it (``n_repairs``) and goes on: a campaign never ends because of one large feature.

Storage: A and b with Lambda = scale·A, u = scale·b.  Forgetting then multiplies one number.
"""

import math
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from scipy.linalg import eigvalsh
from scipy.linalg.blas import dnrm2, dsymv, dsyr

from vfbandits.core import kernels
from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.inverse import InverseForm, add_outer
from vfbandits.core.root import RootForm
from vfbandits.core.settings import NEVER, LearnerSettings
from vfbandits.core.snapshot import AnyArray, Record, stored
from vfbandits.errors import NumericalError, SettingError, SnapshotError

Form: TypeAlias = InverseForm | RootForm
Lent: TypeAlias = tuple[tuple[object, ...], tuple[AnyArray, ...]]

FACTS = (
    "form",
    "largest_reward",
    "length",
    "log_det_A",
    "n_repairs",
    "n_updates",
    "scale",
    "since_refill",
)
ARRAYS = ("A", "b", "form", "theta")
GUARD_EVERY = 1_000
GUARD_LIMIT = 1e-8
REFACTOR_EVERY = 10_000
DOWNDATE_TOLERANCE = 1e-14
LIMIT_SLACK = 1e-6
NOISE = 8.0 * 2.0**-52
DERIVED_TOLERANCE = 1e-6
WELL_CONDITIONED = 1e8
_LESS, _MORE = 1.0 - 1e-6, 1.0 + 1e-3

_NOT_LEARNT = (
    "a reward to take back must have been learnt for this context, got one without which Lambda "
    "would weigh less than its prior; nothing was changed"
)


class State:
    """Lambda, u and what is derived from them, kept current in O(dim²) for each reward.

    >>> state = State(2, LearnerSettings(ridge=1.0))
    >>> state.update(np.array([1.0, 0.0]), 3.0)
    >>> state.Lambda
    array([[2., 0.],
           [0., 1.]])
    >>> state.theta
    array([1.5, 0. ])
    """

    __slots__ = (
        "A",
        "_compiled",
        "_length",
        "_lent",
        "_max_square",
        "_one_reward",
        "_refill_every",
        "b",
        "dim",
        "form",
        "largest_reward",
        "log_det_A",
        "n_repairs",
        "n_updates",
        "scale",
        "settings",
        "since_refill",
        "theta",
    )

    def __init__(self, dim: int, settings: LearnerSettings) -> None:
        self.dim = dim
        self.settings = settings
        loops = kernels.load()
        self._compiled = loops if dim <= kernels.SMALL_UPDATE else None
        self.A: Matrix = np.asfortranarray(np.eye(dim) * settings.ridge)  # lower triangle counts
        self.b: Vector = np.zeros(dim)
        self.theta: Vector = np.zeros(dim)
        self.form: Form = InverseForm(dim, settings.ridge)
        self.log_det_A = dim * math.log(settings.ridge)
        self.scale = 1.0
        self.n_updates = 0
        self.n_repairs = 0
        self.since_refill = 0
        self.largest_reward = 0.0
        self._refill_every = settings.refill_every
        self._one_reward = 0.5 / math.sqrt(settings.ridge)
        self._max_square = settings.max_square * (1.0 + LIMIT_SLACK)
        self._length = 0.0  # of theta
        self._lent: Lent | None = None

    @property
    def Lambda(self) -> Matrix:  # noqa: N802  (the paper's name, also on disk)
        """The design matrix, (dim, dim): a full, symmetric copy."""
        lower = np.tril(self.A)
        return self.scale * (lower + np.tril(lower, -1).T)

    @property
    def u(self) -> Vector:
        """Rewards times contexts, (dim,): a copy."""
        return self.scale * self.b

    @property
    def log_det_ratio(self) -> float:
        """log(det Lambda / det(ridge·I)): the information gathered, as OFUL's radius reads it."""
        prior = self.dim * (math.log(self.settings.ridge) - math.log(self.scale))
        return max(self.log_det_A - prior, 0.0)

    @property
    def magnitude(self) -> float:
        """Size of the terms that theta is a sum of: rounding errors in theta scale with it.

        ‖theta‖ alone would not do.  Rewards can cancel, and then theta is nothing but rounding.
        One reward r moves theta by at most |r| / (2√ridge).
        """
        return self._length + self.largest_reward * self._one_reward

    def root(self) -> RootForm:
        """The square-root form; the first call switches the state over to it."""
        if isinstance(self.form, RootForm):
            return self.form
        self._own()
        root = RootForm(self.dim, self.settings.ridge)
        self._factor_of(root)  # A stays: a decision changes nothing that was learnt
        self.form = root
        return root

    def update(self, x: Vector, reward: float) -> None:
        """Learn one reward for context ``x`` (dim,).

        A decision refuses contexts beyond ``LearnerSettings.max_square``.  One that comes all the
        same, from a journal of before, is learnt with the weight that brings it to that length.
        """
        self.largest_reward = max(self.largest_reward, abs(reward))
        if self._lent is not None:
            self._own()
        if self.settings.discount < 1.0:
            self.scale *= self.settings.discount
            weight = 1.0 / math.sqrt(self.scale)
            x, reward = x * weight, reward * weight
        form = self.form
        if self._compiled is not None:
            A = self.A.T
            b, theta, most = self.b, self.theta, self._max_square / self.scale
            if isinstance(form, InverseForm):
                learn, B = self._compiled.update, form.upper
            else:
                learn, B = self._compiled.update_root, form.own().T
            q, squares = learn(A, B, b, theta, x, reward, most)
            if q < 0.0:
                x, reward = self._shortened(x, reward)
                q, squares = learn(A, B, b, theta, x, reward, math.inf)
            self._length = math.sqrt(squares)
        else:
            if not x.dot(x) <= self._max_square / self.scale:
                x, reward = self._shortened(x, reward)
            Ax, q = form.update(x)
            add_outer(self.A, x[None])
            self.b += reward * x
            self.theta += ((reward - float(x.dot(self.theta))) / (1.0 + q)) * Ax
            self._length = float(dnrm2(self.theta))
        self.log_det_A += math.log1p(q)
        self._count(1)

    def _shortened(self, x: Vector, reward: float) -> tuple[Vector, float]:
        """A context that is too long, and its reward, with less weight; counted."""
        self.n_repairs += 1
        weight = self._weight_of(float(x.dot(x)) * self.scale)
        return x * weight, reward * weight

    def _weight_of(self, square: float) -> float:
        return math.sqrt(self.settings.max_square / square)

    def update_many(self, X: Matrix, rewards: Vector) -> None:
        """Learn the rows of X (n, dim) in their order: up to rounding, one ``update`` for each."""
        squares = np.vecdot(X, X)
        if not squares.max(initial=0.0) <= self._max_square:
            too_long = squares > self._max_square
            weights = np.ones(len(X))
            weights[too_long] = [self._weight_of(float(square)) for square in squares[too_long]]
            X, rewards = X * weights[:, None], rewards * weights
            self.n_repairs += int(too_long.sum())
        self.largest_reward = max(self.largest_reward, float(np.abs(rewards).max(initial=0.0)))
        start = 0
        while start < len(X):
            # No further than to where the prior is due to be put back.
            stop = min(len(X), start + self._refill_every - self.since_refill)
            self._update_batch(X[start:stop], rewards[start:stop])
            start = stop

    def _own(self) -> None:
        """New arrays, if a snapshot holds these: what it holds stays as it was."""
        if self._lent is not None:
            self.A, self.b = self.A.copy(order="F"), self.b.copy()
            self.theta = self.theta.copy()
            self.form.load(self.form.array.copy(order="F"))
            self._lent = None

    def _update_batch(self, X: Matrix, rewards: Vector) -> None:
        self._own()
        if self.settings.discount < 1.0:
            scales = self.scale * self.settings.discount ** np.arange(1, len(X) + 1)
            weights = 1.0 / np.sqrt(scales)
            X, rewards = X * weights[:, None], rewards * weights
            self.scale = float(scales[-1])
        add_outer(self.A, X)
        self.b += rewards @ X
        if len(X) >= self.dim:
            self.log_det_A = self._factor()
        else:
            try:
                self.log_det_A += self.form.update_many(X)
            except NumericalError:
                self.log_det_A = self._factor()
        self._derive_theta()
        self._count(len(X))

    def downdate(self, x: Vector, reward: float) -> None:
        """Take back one reward that was learnt for context ``x`` (dim,); O(dim³).

        Up to rounding the state is then the one that never learnt it.  ``largest_reward`` stays:
        it bounds the rounding that the reward has left in u, and goes with the last reward only.
        Without the reward every eigenvalue of Lambda is at least the ridge; where one is below
        it, x was not learnt, and nothing changes.
        """
        if self.settings.discount < 1.0:
            raise SettingError(
                "a reward is taken back exactly only without forgetting, "
                f"got discount {self.settings.discount}"
            )
        if self.n_updates < 1:
            raise SettingError("a reward to take back must have been learnt, got an untaught state")
        if not x.dot(x) <= self._max_square:
            weight = self._weight_of(float(x.dot(x)))
            x, reward = x * weight, reward * weight
        A, b = self.A.copy(order="F"), self.b - reward * x
        dsyr(-1.0, x, a=A, lower=1, overwrite_a=1)
        self._refuse_below_prior(A, float(x.dot(x)))
        if self.n_updates == 1:  # the prior is known to the last bit
            A, b = np.asfortranarray(np.eye(self.dim) * self.settings.ridge), np.zeros(self.dim)
            self.largest_reward = 0.0
        form = type(self.form)(self.dim, self.settings.ridge)
        try:
            log_det_A = form.refactor(A)
        except NumericalError as error:
            raise SettingError(_NOT_LEARNT) from error
        self.A, self.b, self.form, self.log_det_A = A, b, form, log_det_A
        self._lent = None
        self.n_updates -= 1
        self.since_refill -= 1
        self._derive_theta()

    def _refuse_below_prior(self, A: Matrix, square: float) -> None:
        eigenvalues = eigvalsh(A, lower=True)
        rounding = DOWNDATE_TOLERANCE * self.dim * (float(eigenvalues[-1]) + square)
        if not eigenvalues[0] >= self.settings.ridge - rounding:
            raise SettingError(_NOT_LEARNT)

    def refactor(self) -> None:
        """Derive everything from A and b again; where A needs a repair, it gets one."""
        self._own()
        self.log_det_A = self._factor()
        self._derive_theta()

    def _factor(self) -> float:
        """Derive the form from A, which gets a repair where it needs one; returns log det A."""
        log_det_A, lift = self._factor_of(self.form)
        if lift > 0.0:
            self.A[np.diag_indices(self.dim)] += lift
            self.n_repairs += 1
        return log_det_A

    def _factor_of(self, form: Form) -> tuple[float, float]:
        """Derive ``form`` from A + lift·I; returns its log det, and lift, which mostly is 0.

        What rounding leaves of A's small eigenvalues is noise of about eps·λ_max, times √n for the
        n updates that A is a sum of.  Eigenvalues that are not above it are lifted by a multiple of
        I, which is the same behind any mask and varies continuously with A.
        """
        noise = NOISE * (self.dim + math.sqrt(self.n_updates))
        log_det = _try_to_factor(form, self.A)
        # The product of the traces is at least λ_max/λ_min.
        if log_det is not None and self.A.trace() * form.trace() * noise <= 1.0:
            return log_det, 0.0
        eigenvalues = eigvalsh(self.A, lower=True)
        least = noise * float(np.abs(eigenvalues).max())
        lift = least - float(eigenvalues[0])
        if log_det is not None and lift <= 0.0:
            return log_det, 0.0
        lift = max(lift, least)
        while True:
            A = self.A.copy(order="F")
            A[np.diag_indices(self.dim)] += lift
            log_det = _try_to_factor(form, A)
            if log_det is not None:
                return log_det, lift
            lift *= 2.0

    def _derive_theta(self) -> None:
        self.theta = self.form.times(self.b)
        self._length = float(dnrm2(self.theta))

    def take_over(self, other: "State", A: Matrix, b: Vector) -> None:
        """Go on from ``A`` and ``b`` with the counts and the forgetting of ``other``."""
        self.A, self.b = A, b
        self.scale = other.scale
        self.n_updates = other.n_updates
        self.n_repairs = other.n_repairs
        self.since_refill = other.since_refill
        self.largest_reward = other.largest_reward
        if isinstance(other.form, RootForm):
            self.form = RootForm(self.dim, self.settings.ridge)
        self.refactor()

    def refill(self) -> None:
        """Put back the part of the prior that forgetting took, in every direction alike."""
        self._own()
        self.A *= self.scale
        self.b *= self.scale
        self.A[np.diag_indices(self.dim)] += (1.0 - self.scale) * self.settings.ridge
        self.scale = 1.0
        self.since_refill = 0
        self.refactor()

    def residual(self) -> float:
        """Relative length of A·A⁻¹v − v for a fixed pseudo-random v: how far the inverse is off."""
        v = np.random.default_rng(self.n_updates).standard_normal(self.dim)
        error = dsymv(1.0, self.A, self.form.times(v), lower=1) - v
        return float(dnrm2(error)) / float(dnrm2(v))

    def refuse_impossible(self) -> None:
        """Refuse numbers that no contexts and rewards could have left here; O(dim³).

        For a state from a file that anyone may have written.  One that is not refused is the
        prior and the sum of ``n_updates`` contexts within ``max_square`` and rewards up to
        ``largest_reward``, and what is derived from A and b belongs to them.
        """
        for what, is_possible in self._possible():
            if not is_possible:
                raise SnapshotError(
                    f"a model that was learnt from rewards has {what}, got a model without it"
                )

    def _possible(self) -> Iterator[tuple[str, bool]]:
        """Each thing that holds of every state, and whether it holds of this one; lazily."""
        ridge, n, largest = self.settings.ridge, self.n_updates, self.largest_reward
        counts = (n, self.n_repairs, self.since_refill)
        yield "counts from 0", min(counts) >= 0 and max(counts) <= NEVER
        yield "a weight in (0, 1]", 0.0 < self.scale <= 1.0
        yield "a largest reward of at least 0", 0.0 <= largest < math.inf
        eigenvalues = eigvalsh(self.A, lower=True)
        least, most = float(eigenvalues[0]), float(eigenvalues[-1])
        noise = NOISE * (self.dim + math.sqrt(n))
        yield "a design matrix of at least the ridge", least >= ridge * _LESS - 8.0 * noise * most
        yield (
            "a design matrix within the lengths of its contexts",
            most * self.scale <= _MORE * (ridge + n * self.settings.max_square),
        )
        length_b, length = float(dnrm2(self.b)), float(dnrm2(self.theta))
        # By Cauchy and Schwarz: ‖Σ r x‖² ≤ Σ r² · λ_max, and theta'Lambda theta ≤ Σ r².
        longest = _MORE * largest * math.sqrt(n)
        yield "an estimate within its rewards", length <= longest / math.sqrt(self.scale * ridge)
        yield "sums within their rewards", length_b <= longest * math.sqrt(most / self.scale)
        error = float(dnrm2(dsymv(1.0, self.A, self.theta, lower=1) - self.b))
        terms = most * (length + largest * self._one_reward) + length_b
        yield "the estimate of its design matrix", error <= DERIVED_TOLERANCE * terms
        yield "the length of its estimate", abs(self._length - length) <= DERIVED_TOLERANCE * length
        trace = self.form.trace()
        yield "an inverse within its prior's", 0.0 <= trace <= 2.0 * self.dim / ridge
        if most <= WELL_CONDITIONED * least:  # otherwise rounding may wait for its repair
            # The guard lets rounding from worse conditions stay for a while.
            allowed = DERIVED_TOLERANCE * (1e3 + most / least)
            log_det = float(np.log(eigenvalues).sum())
            off = abs(self.log_det_A - log_det)
            yield "the determinant of its design matrix", off <= allowed * (self.dim + abs(log_det))
            yield "the inverse of its design matrix", self.residual() <= allowed

    def _count(self, n: int) -> None:
        before = self.n_updates
        self.n_updates = before + n
        self.since_refill += n
        if self.since_refill >= self._refill_every:
            self.refill()
        elif before // GUARD_EVERY != self.n_updates // GUARD_EVERY:
            self._guard(before)

    def _guard(self, before: int) -> None:
        every = max(REFACTOR_EVERY, 10 * self.dim)
        due = before // every != self.n_updates // every
        if due or not self.residual() <= GUARD_LIMIT:
            self.refactor()

    def lend(self) -> Lent:
        """What ``FACTS`` and ``ARRAYS`` name, and nobody changes any more: for many states.

        Arrays are flat, in the order in which they are in memory.  A state that has learnt nothing
        since it was asked before gives the same again.
        """
        if self._lent is not None:
            return self._lent
        form = self.form
        facts = (
            form.name,
            self.largest_reward,
            self._length,
            self.log_det_A,
            self.n_repairs,
            self.n_updates,
            self.scale,
            self.since_refill,
        )
        arrays = (self.A.T.reshape(-1), self.b, form.array.T.reshape(-1), self.theta)
        self._lent = facts, arrays
        return self._lent

    def pack(self) -> tuple[dict[str, object], dict[str, AnyArray]]:
        """Header and arrays from which ``unpack`` makes the very same state, bit for bit."""
        header: dict[str, object] = {
            "dim": self.dim,
            "form": self.form.name,
            "largest_reward": self.largest_reward,
            "length": self._length,
            "log_det_A": self.log_det_A,
            "n_repairs": self.n_repairs,
            "n_updates": self.n_updates,
            "scale": self.scale,
            "since_refill": self.since_refill,
        }
        return header, {"A": self.A, "b": self.b, "form": self.form.array, "theta": self.theta}

    @classmethod
    def unpack(
        cls, record: Record, arrays: dict[str, AnyArray], settings: LearnerSettings
    ) -> "State":
        """The state that ``pack`` was called on."""
        dim = record.integer("dim")
        A = stored(arrays, "A", (dim, dim))  # first: a state of any other size is never made
        state = cls(dim, settings)
        if record.text("form") == RootForm.name:
            state.form = RootForm(state.dim, settings.ridge)
        square, row = (dim, dim), (dim,)
        state.form.load(stored(arrays, "form", square))
        state.A = A
        state.b, state.theta = stored(arrays, "b", row), stored(arrays, "theta", row)
        state.largest_reward = record.number("largest_reward")
        state.log_det_A = record.number("log_det_A")
        state.n_updates = record.integer("n_updates")
        state.n_repairs = record.integer("n_repairs") if record.has("n_repairs") else 0
        state.scale = record.number("scale")
        state.since_refill = record.integer("since_refill")
        state._length = record.number("length")
        return state


def _try_to_factor(form: Form, A: Matrix) -> float | None:
    """Log det A, or None where A is not positive definite."""
    try:
        return form.refactor(A)
    except NumericalError:
        return None
