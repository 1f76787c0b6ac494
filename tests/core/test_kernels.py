"""Compiled loops against BLAS: the same numbers up to rounding, the same decisions."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from worlds import KINDS, contexts

from vfbandits.core import kernels
from vfbandits.core.blockwise import BlockwiseMasker
from vfbandits.core.decision import TIE_TOLERANCE
from vfbandits.core.factor import PIVOT_TOLERANCE, arm_order_factor
from vfbandits.core.inverse import InverseForm, add_outer
from vfbandits.core.mask import deal_blockwise
from vfbandits.core.root import RootForm

compiled = kernels.load()
needs_numba = pytest.mark.skipif(compiled is None, reason="numba (extra 'fast') is off or missing")


@needs_numba
@given(dim=st.integers(1, 40), n=st.integers(1, 9), seed=st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_compiled_loops_compute_what_blas_computes(dim, n, seed):
    rng = np.random.default_rng(seed)
    form, fast = InverseForm(dim, 0.5), InverseForm(dim, 0.5)
    A, B = (np.asfortranarray(0.5 * np.eye(dim)) for _ in range(2))
    b, u, theta, phi = np.zeros(dim), np.zeros(dim), np.zeros(dim), np.zeros(dim)
    for x, reward in zip(rng.standard_normal((6, dim)), rng.standard_normal(6), strict=True):
        Sx, q = form.update(x)
        add_outer(A, x[None])
        b += reward * x
        theta += (reward - x @ theta) / (1.0 + q) * Sx
        found = compiled.update(B.T, fast.upper, u, phi, x, reward, np.inf)
        assert found == pytest.approx((q, float(theta @ theta)), rel=1e-9)
    assert_allclose(np.tril(fast.T), np.tril(form.T), atol=1e-11)
    assert_allclose(np.tril(B), np.tril(A), atol=1e-11)
    assert_allclose(phi, theta, atol=1e-10)
    assert_allclose(u, b, atol=1e-11)
    X = rng.standard_normal((n, dim))
    S = np.tril(form.T) + np.tril(form.T).T
    squares, means = np.empty(n), np.empty(n)
    compiled.squared_widths(form.upper, X, squares)
    assert compiled.means(X, theta, means) == pytest.approx(float((X * X).sum()))
    assert_allclose(squares, np.einsum("ai,ij,aj->a", X, S, X), atol=1e-10)
    assert_allclose(means, X @ theta, atol=1e-10)


@needs_numba
@given(
    kind=st.sampled_from(KINDS),
    dim=st.integers(1, 20),
    n=st.integers(1, 9),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_compiled_factor_is_the_one_in_arm_order(kind, dim, n, seed):
    rng = np.random.default_rng(seed)
    form = InverseForm(dim, 0.5)
    for x in rng.standard_normal((4, dim)):
        form.update(x)
    X = contexts(rng, kind, n, dim)
    L = np.zeros((n, n))
    compiled.arm_factor(form.upper, X, 0.7, PIVOT_TOLERANCE, L)
    assert_allclose(L, arm_order_factor(form.covariance(X) / 0.7), atol=1e-6)


@needs_numba
@given(dim=st.integers(1, 20), seed=st.integers(0, 2**32 - 1))
def test_the_compiled_root_is_potter_s(dim, seed):
    rng = np.random.default_rng(seed)
    form, fast = RootForm(dim, 0.5), RootForm(dim, 0.5)
    A, B = (np.asfortranarray(0.5 * np.eye(dim)) for _ in range(2))
    b, u, theta, phi = np.zeros(dim), np.zeros(dim), np.zeros(dim), np.zeros(dim)
    for x, reward in zip(rng.standard_normal((6, dim)), rng.standard_normal(6), strict=True):
        Ax, q = form.update(x)
        add_outer(A, x[None])
        b += reward * x
        theta += (reward - x @ theta) / (1.0 + q) * Ax
        found = compiled.update_root(B.T, fast.own().T, u, phi, x, reward, np.inf)
        assert found == pytest.approx((q, float(theta @ theta)), rel=1e-9)
    assert_allclose(fast.F, form.F, atol=1e-11)
    assert_allclose(np.tril(B), np.tril(A), atol=1e-11)
    assert_allclose(phi, theta, atol=1e-10)
    assert_allclose(u, b, atol=1e-11)


@given(widths=st.lists(st.integers(1, 6), min_size=2, max_size=5), n=st.integers(1, 5))
def test_masking_side_by_side_is_masking_one_by_one(widths, n):
    shares = deal_blockwise(widths)
    rng = np.random.default_rng(n)
    blocks = {f"p{j}": rng.standard_normal((n, width)) for j, width in enumerate(widths)}
    one_by_one = [s.mask(b) for s, b in zip(shares, blocks.values(), strict=True)]
    together = BlockwiseMasker(shares)
    assert_allclose(together.mask(blocks), np.hstack(one_by_one), atol=1e-12)
    assert repr(together) == f"BlockwiseMasker({len(widths)} shares)"


@needs_numba
@pytest.mark.parametrize(
    ("scores", "wanted"),
    [([1.0], 0), ([0.0, 1.0, 1.0], 1), ([np.nan, 1.0], -1), ([1.0, np.nan], -1), ([np.inf], -1)],
)
def test_the_compiled_tie_rule_is_the_stated_one(scores, wanted):
    assert compiled.first_best(np.array(scores), 1.0, TIE_TOLERANCE) == wanted


RUN = """
import numpy as np, vfbandits as vfb
from vfbandits.core import kernels
rng = np.random.default_rng(0)
for policy in (vfb.LinUCB(beta=0.5), vfb.LinTS(posterior_scale=0.2), vfb.InverseGap()):
    bandit = vfb.Bandit(policy, dim=8, seed=1, discount=0.99)
    arms = []
    for _ in range(300):
        X = np.rint(rng.standard_normal((6, 8)))
        decision = bandit.decide(X)
        bandit.reward(decision, float(X[decision.index].sum()))
        arms.append(decision.arm)
    print(arms)
import sys
print(kernels.compiled is not None, file=sys.stderr)
"""


@needs_numba
def test_with_and_without_numba_the_same_arms_are_chosen():
    answers = {}
    for switch in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-c", RUN],
            env={**os.environ, "VFBANDITS_COMPILED": switch},
            capture_output=True,
            text=True,
            check=True,
        )
        answers[done.stderr.strip()] = done.stdout
    assert set(answers) == {"True", "False"}
    assert answers["True"] == answers["False"]
