import gc

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from vfbandits.core.mask import sample_mask
from vfbandits.core.root import RootForm
from vfbandits.core.sampler import ParameterSampler


@given(dim=st.integers(1, 7), n=st.integers(0, 15), seed=st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_potter_s_root_turns_with_the_contexts(dim, n, seed):
    rng = np.random.default_rng(seed)
    Q = sample_mask(dim, entropy=rng.bytes)
    plain, masked = RootForm(dim, 0.7), RootForm(dim, 0.7)
    A = 0.7 * np.eye(dim)
    for x in rng.standard_normal((n, dim)):
        plain.update(x)
        masked.update(Q @ x)
        A += np.outer(x, x)
    assert_allclose(plain.F @ plain.F.T @ A, np.eye(dim), atol=1e-10)
    assert_allclose(masked.F, Q @ plain.F @ Q.T, atol=1e-10)


@given(dim=st.integers(1, 7), n=st.integers(1, 9), seed=st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_a_batch_update_turns_with_the_contexts_too_and_with_one_row_is_potter_s(dim, n, seed):
    rng = np.random.default_rng(seed)
    Q = sample_mask(dim, entropy=rng.bytes)
    X = rng.standard_normal((n, dim))
    plain, masked, single, potter = (RootForm(dim, 1.3) for _ in range(4))
    plain.update_many(X)
    masked.update_many(X @ Q.T)
    assert_allclose(masked.F, Q @ plain.F @ Q.T, atol=1e-10)
    assert_allclose(plain.F @ plain.F.T, np.linalg.inv(1.3 * np.eye(dim) + X.T @ X), atol=1e-10)
    single.update_many(X[:1])
    potter.update(X[0])
    assert_allclose(single.F, potter.F, atol=1e-12)


def test_a_loan_keeps_the_root_as_it_was():
    form = RootForm(3, 1.0)
    loan = form.lend()
    assert form.lend() is loan
    form.update(np.ones(3))
    assert_allclose(loan.F, np.eye(3))
    assert not np.allclose(form.F, np.eye(3))


def test_nothing_is_copied_when_nobody_holds_a_loan():
    form = RootForm(3, 1.0)
    form.lend()
    gc.collect()
    array = form.F
    form.update(np.ones(3))
    assert form.F is array


def test_draws_in_parameter_space_are_repeatable_and_outlive_the_caller_s_buffer():
    X = np.random.default_rng(3).standard_normal((6, 2))
    buffer = X.copy()
    sampler = ParameterSampler(buffer, RootForm(2, 0.5).lend(), 2.0)
    first = sampler.draw(np.random.default_rng(4))
    buffer[:] = np.nan
    assert_allclose(sampler.draw(np.random.default_rng(4)), first, atol=1e-12)
    z = np.random.default_rng(4).standard_normal(2)
    assert_allclose(first, 2.0 * X @ z / np.sqrt(0.5), atol=1e-12)
