"""The fast path against the textbook: Lambda, u, theta, inverse and determinant."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from textbook import Textbook

from vfbandits.core.settings import LearnerSettings
from vfbandits.core.state import State
from vfbandits.errors import SnapshotError

streams = {
    "dim": st.integers(1, 8),
    "n": st.integers(0, 30),
    "ridge": st.sampled_from([0.05, 1.0, 20.0]),
    "discount": st.sampled_from([1.0, 0.97, 0.6]),
    "seed": st.integers(0, 2**32 - 1),
    "root": st.booleans(),
}


def taught(dim, n, ridge, discount, seed, *, root):
    rng = np.random.default_rng(seed)
    state = State(dim, LearnerSettings(ridge=ridge, discount=discount))
    book = Textbook(dim, ridge=ridge, discount=discount)
    if root:
        state.root()
    for x, r in zip(rng.standard_normal((n, dim)), rng.standard_normal(n), strict=True):
        state.update(x, r)
        book.learn(x, r)
    return state, book, rng


@given(**streams)
@settings(deadline=None)
def test_rank_one_updates_follow_the_textbook(dim, n, ridge, discount, seed, root):
    state, book, rng = taught(dim, n, ridge, discount, seed, root=root)
    X = rng.standard_normal((3, dim))
    assert_allclose(state.Lambda, book.Lambda, rtol=1e-10, atol=1e-10)
    assert_allclose(state.u, book.u, rtol=1e-9, atol=1e-10)
    assert_allclose(state.theta, book.theta, rtol=1e-7, atol=1e-9)
    squares = state.form.squared_widths(X) / state.scale
    assert_allclose(np.sqrt(squares), book.widths(X), rtol=1e-8)
    assert_allclose(state.form.covariance(X) / state.scale, book.covariance(X), atol=1e-9)
    wanted = np.linalg.slogdet(book.Lambda)[1] - dim * np.log(ridge)
    assert state.log_det_ratio == pytest.approx(max(wanted, 0.0), abs=1e-8)


@given(**streams)
@settings(deadline=None)
def test_one_update_of_rank_b_equals_b_updates_of_rank_one(dim, n, ridge, discount, seed, root):
    one, _, rng = taught(dim, n, ridge, discount, seed, root=root)
    many, _, _ = taught(dim, n, ridge, discount, seed, root=root)
    size = int(rng.integers(1, 2 * dim + 2))
    X, rewards = rng.standard_normal((size, dim)), rng.standard_normal(size)
    for x, r in zip(X, rewards, strict=True):
        one.update(x, r)
    many.update_many(X, rewards)
    assert_allclose(many.Lambda, one.Lambda, rtol=1e-10, atol=1e-10)
    assert_allclose(many.u, one.u, rtol=1e-9, atol=1e-10)
    assert_allclose(many.theta, one.theta, rtol=1e-7, atol=1e-9)
    assert many.log_det_A == pytest.approx(one.log_det_A, abs=1e-8)
    assert (many.n_updates, many.scale) == (one.n_updates, pytest.approx(one.scale))
    probe = rng.standard_normal((2, dim))
    assert_allclose(many.form.covariance(probe), one.form.covariance(probe), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("ridge", [1e-3, 0.5, 1.0, 1e3])
@pytest.mark.parametrize("root", [False, True])
def test_the_inverse_matches_lambda_before_any_data_and_for_any_ridge(ridge, root):
    state = State(3, LearnerSettings(ridge=ridge))
    if root:
        state.root()
    X = np.eye(3)
    assert_allclose(state.form.covariance(X) @ state.Lambda, np.eye(3), atol=1e-12)
    assert state.log_det_ratio == 0.0


@pytest.mark.parametrize("discount", [1.0, 0.99])
@pytest.mark.parametrize("root", [False, True])
def test_the_inverse_stays_an_inverse_over_many_updates(discount, root):
    inverse_error, _ = drift(20_000, dim=12, discount=discount, root=root)
    assert inverse_error < 1e-8


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize("discount", [1.0, 0.999])
def test_the_inverse_stays_an_inverse_over_a_million_updates(discount, root):
    at_the_end, worst = drift(1_000_000, dim=20, discount=discount, root=root)
    assert at_the_end < 1e-8
    assert worst < 1e-8


def drift(n, *, dim, discount, root):
    """‖Lambda·Lambda⁻¹ − I‖∞ at the end and at its worst, looked at a hundred times."""
    rng = np.random.default_rng(5)
    state = State(dim, LearnerSettings(ridge=1.0, discount=discount))
    if root:
        state.root()
    worst = error = 0.0
    for _ in range(100):
        X = rng.standard_normal((n // 100, dim))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        for x in X:
            state.update(x, 1.0)
        inverse = state.form.covariance(np.eye(dim)) / state.scale
        error = float(np.abs(state.Lambda @ inverse - np.eye(dim)).sum(axis=1).max())
        worst = max(worst, error)
        state.refuse_impossible()
    return error, worst


def test_forgetting_never_lets_the_prior_fade_below_half():
    state = State(4, LearnerSettings(ridge=2.0, discount=0.9))
    x = np.array([1.0, 0.0, 0.0, 0.0])
    for _ in range(5_000):
        state.update(x, 1.0)
        weight = state.Lambda[1, 1]
        assert 0.99 <= weight <= 2.0 + 1e-12
    assert np.linalg.cond(state.Lambda) < 20


def test_forgetting_forgets():
    state = State(1, LearnerSettings(ridge=1e-3, discount=0.9))
    for _ in range(200):
        state.update(np.ones(1), 1.0)
    for _ in range(200):
        state.update(np.ones(1), -1.0)
    assert state.theta[0] == pytest.approx(-1.0, abs=1e-3)


def test_the_guard_notices_a_wrong_inverse_and_mends_it():
    state = State(3, LearnerSettings())
    rng = np.random.default_rng(0)
    for x in rng.standard_normal((500, 3)):
        state.update(x, 0.0)
    state.form.T *= 1.001
    assert state.residual() > 1e-4
    for x in rng.standard_normal((500, 3)):
        state.update(x, 0.0)
    assert state.n_updates == 1_000
    assert state.residual() < 1e-12


def test_switching_to_a_square_root_changes_no_statistic():
    state, _, rng = taught(5, 20, 0.5, 0.97, 3, root=False)
    X = rng.standard_normal((4, 5))
    before = state.form.covariance(X)
    assert state.root() is state.root()
    assert_allclose(state.form.covariance(X), before, rtol=1e-10)


@given(**streams, length=st.sampled_from([1e-6, 1.0, 1e3, 1e6]), batch=st.booleans())
@settings(deadline=None)
def test_what_was_learnt_is_never_impossible(length, batch, **stream):
    state, _, rng = taught(**stream)
    dim, discount = state.dim, state.settings.discount
    state.refuse_impossible()
    X, rewards = rng.standard_normal((20, dim)) * length, rng.standard_normal(20) * 10
    if batch:
        state.update_many(X, rewards)
    else:
        for x, r in zip(X, rewards, strict=True):
            state.update(x, r)
    state.refuse_impossible()
    if discount == 1.0 and length <= 1.0:
        for x, r in zip(X[:-1], rewards[:-1], strict=True):
            state.downdate(x, r)
        state.refuse_impossible()


def _no_longer_positive_definite(state):
    state.A -= 2 * state.A[0, 0] * np.eye(state.dim)


def _turned(state):
    state.A[1, 0] += 0.5


FORGERIES = {
    "a design matrix of at least the ridge": _no_longer_positive_definite,
    "a design matrix within the lengths": lambda state: state.A.__imul__(1e300),
    "the estimate of its design matrix": _turned,
    "an estimate within its rewards": lambda state: state.theta.__imul__(1e9),
    "sums within their rewards": lambda state: state.b.__imul__(1e9),
    "the inverse of its design matrix": lambda state: state.form.array.__imul__(1.1),
    "an inverse within its prior's": lambda state: state.form.array.__imul__(1e9),
    "counts from 0": lambda state: setattr(state, "n_updates", -1),
    "a weight in": lambda state: setattr(state, "scale", float("nan")),
    "a largest reward of at least 0": lambda state: setattr(state, "largest_reward", np.inf),
    "the determinant of its design matrix": lambda state: setattr(state, "log_det_A", 1e9),
    "the length of its estimate": lambda state: setattr(state, "_length", 1e9),
}


@pytest.mark.parametrize("what", FORGERIES)
@pytest.mark.parametrize("root", [False, True])
def test_numbers_that_no_rewards_could_leave_are_refused(what, root):
    state, _, _ = taught(3, 20, 1.0, 1.0, 7, root=root)
    FORGERIES[what](state)
    with pytest.raises(SnapshotError, match=f"has {what}.*, got a model without it"):
        state.refuse_impossible()
