import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from worlds import KINDS, contexts

from vfbandits.core.factor import arm_order_factor
from vfbandits.core.mask import sample_mask


@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(1, 8),
    dim=st.integers(1, 6),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_factor_is_triangular_gives_c_back_and_is_the_same_behind_a_mask(kind, n, dim, seed):
    rng = np.random.default_rng(seed)
    X = contexts(rng, kind, n, dim)
    C = X @ X.T
    L = arm_order_factor(C)
    assert_allclose(L @ L.T, C, atol=1e-8)
    assert_allclose(L, np.tril(L))
    Z = X @ sample_mask(dim, entropy=rng.bytes).T
    assert_allclose(arm_order_factor(Z @ Z.T), L, atol=1e-6)


def test_an_arm_that_repeats_another_brings_no_randomness_of_its_own():
    X = np.array([[1.0, 2.0], [1.0, 2.0], [0.0, 0.0], [3.0, 1.0]])
    L = arm_order_factor(X @ X.T)
    assert_allclose(L[0], L[1])
    assert_allclose(L[2], 0.0)
    assert_allclose(L[:, [1, 2]], 0.0)
