import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from vfbandits.core.arrays import PlainBlock
from vfbandits.core.mask import (
    MaskShare,
    deal_blockwise,
    deal_dense,
    sample_mask,
    split_columns,
)
from vfbandits.errors import MaskError

widths_and_seed = {
    "widths": st.lists(st.integers(1, 6), min_size=1, max_size=5),
    "seed": st.integers(0, 2**32 - 1),
}


@given(dim=st.integers(1, 30), seed=st.integers(0, 2**32 - 1))
def test_a_mask_is_orthogonal(dim, seed):
    Q = sample_mask(dim, entropy=np.random.default_rng(seed).bytes)
    assert_allclose(Q @ Q.T, np.eye(dim), atol=1e-13)
    assert_allclose(Q.T @ Q, np.eye(dim), atol=1e-13)


@given(**widths_and_seed)
def test_masked_blocks_add_up_to_a_rotation_of_the_context(widths, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((4, sum(widths)))
    Q = sample_mask(sum(widths), entropy=rng.bytes)
    blocks = np.split(X, np.cumsum(widths)[:-1], axis=1)
    Z = sum(s.mask(PlainBlock(b)) for s, b in zip(split_columns(Q, widths), blocks, strict=True))
    assert_allclose(Z, X @ Q.T, atol=1e-12)
    assert_allclose(Z @ Z.T, X @ X.T, atol=1e-12)  # up to rounding: what LinUCB needs


@pytest.mark.parametrize("deal", [deal_dense, deal_blockwise])
@given(**widths_and_seed)
def test_both_families_keep_all_inner_products(deal, widths, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((5, sum(widths)))
    blocks = np.split(X, np.cumsum(widths)[:-1], axis=1)
    shares = deal(widths, entropy=rng.bytes)
    parts = [s.mask(PlainBlock(b)) for s, b in zip(shares, blocks, strict=True)]
    Z = sum(parts) if deal is deal_dense else np.hstack(parts)
    assert_allclose(Z @ Z.T, X @ X.T, atol=1e-11)


def test_large_and_small_blocks_are_masked_alike():
    share = MaskShare(sample_mask(200))
    block = np.random.default_rng(0).standard_normal((300, 200))
    small = np.vstack([share.mask(PlainBlock(block[i : i + 1])) for i in range(300)])
    assert_allclose(share.mask(PlainBlock(block)), small, atol=1e-12)
    assert share.mask(PlainBlock(block)).flags.c_contiguous


def test_masks_are_uniform_on_the_orthogonal_group():
    """Haar moments: E q_ij = 0, E q_ij² = 1/d, E (tr Q)² = 1, E (tr Q)⁴ = 3 for large d."""
    rng = np.random.default_rng(1)
    draws = np.array([sample_mask(6, entropy=rng.bytes) for _ in range(6000)])
    assert np.abs(draws.mean(axis=0)).max() < 5 / np.sqrt(6 * 6000)
    assert_allclose((draws**2).mean(axis=0), 1 / 6, atol=0.015)
    traces = np.trace(draws, axis1=1, axis2=2)
    assert abs(traces.mean()) < 5 / np.sqrt(6000)
    assert (traces**2).mean() == pytest.approx(1.0, abs=0.12)
    # A bare QR has a diagonal of one sign: its trace would be far from zero.
    assert (np.linalg.det(draws) > 0).mean() == pytest.approx(0.5, abs=0.04)


def test_two_masks_from_the_operating_system_differ():
    assert not np.allclose(sample_mask(4), sample_mask(4))


def test_every_secret_bit_comes_from_the_entropy_source():
    asked = []

    def entropy(count):
        asked.append(count)
        return np.random.default_rng(9).bytes(count)

    first, second = sample_mask(5, entropy=entropy), sample_mask(5, entropy=entropy)
    assert asked == [200, 200]
    assert (first == second).all()


def test_extreme_entropy_still_gives_a_finite_orthogonal_mask():
    Q = sample_mask(1, entropy=lambda count: b"\xff" * count)
    assert_allclose(np.abs(Q), 1.0)


def test_a_layered_share_is_the_product_and_hides_behind_its_owner_s_rotation():
    Q, R = sample_mask(5), sample_mask(2)
    share = split_columns(Q, [3, 2])[1].layered(R)
    assert_allclose(share.columns, Q[:, 3:] @ R, atol=1e-14)


def test_the_repr_of_a_share_shows_nothing():
    share = split_columns(sample_mask(3), [3])[0]
    assert repr(share) == "MaskShare()"


def test_a_share_keeps_its_own_columns_only():
    Q = sample_mask(4)
    share = split_columns(Q, [1, 3])[0]
    assert share.columns.base is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sample_mask(0), "at least one dimension, got 0"),
        (lambda: split_columns(sample_mask(3), [1, 1]), r"sum to 3, got \(1, 1\)"),
        (lambda: split_columns(sample_mask(3), [3, 0]), "must be positive"),
        (lambda: MaskShare(np.eye(3)).mask(PlainBlock(np.ones((2, 4)))), r"3 features.*\(2, 4\)"),
        (lambda: MaskShare(np.eye(3)).layered(np.eye(2)), r"\(3, 3\), got \(2, 2\)"),
    ],
)
def test_bad_masks_are_refused_with_both_shapes(call, message):
    with pytest.raises(MaskError, match=message):
        call()
