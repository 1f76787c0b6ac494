"""Sides of masked numbers: two products and a dealer's term add up to twice the product."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_loops import turn_off_loops

from vfbandits.core import kernels, ring
from vfbandits.core.shares import sides
from vfbandits.core.shares.comparison import (
    UNIT_BITS,
    begin_comparison,
    best_arm,
    candidates,
    compare,
    end_comparison,
)
from vfbandits.core.shares.covariance.form import FORM_BITS, MEAN_BITS
from vfbandits.core.shares.function_table import _GUARD_BITS, SLACK
from vfbandits.core.shares.terms import MAX_LENGTH
from vfbandits.errors import SharesError

M = 2**128
seeds = st.integers(0, 2**32 - 1)


def words(rng, *shape):
    return rng.integers(0, 2**64, (2, *shape), dtype=np.uint64)


def masked(rng, values):
    """Both sides of values, and their gap."""
    encoded = ring.encode(values, bound=64.0, what="values")
    masks = [words(rng, *np.shape(values)) for _ in range(2)]
    m = ring.add(encoded, ring.add(*masks))
    return *(sides.side(m, mask) for mask in masks), ring.subtract(*masks)


@settings(deadline=None)
@given(seed=seeds)
def test_two_products_and_the_term_of_the_gaps_are_twice_the_product(seed):
    rng = np.random.default_rng(seed)
    v, w = rng.uniform(-4, 4, (3, 5)), rng.uniform(-4, 4, (2, 5))
    v_A, v_B, v_gap = masked(rng, v)
    w_A, w_B, w_gap = masked(rng, w)
    share = ring.add(ring.rows_times(v_A, w_A), ring.rows_times(v_B, w_B))
    found = ring.add(share, sides.gap_term(v_gap, w_gap))
    np.testing.assert_allclose(ring.decode(found, bits=sides.PRODUCT_BITS), v @ w.T, atol=1e-10)


@settings(deadline=None)
@given(seed=seeds, value=st.floats(-1000.0, 1000.0))
def test_a_side_is_reopened_from_cut_shares(seed, value):
    rng = np.random.default_rng(seed)
    whole = round(value * 2**sides.PRODUCT_BITS)
    mask = int.from_bytes(rng.bytes(16)) % (M - 2**100)
    share = int.from_bytes(rng.bytes(16))
    one, other = (ring.cut(ring.from_integers([x])) for x in (share, whole + mask - share))
    lowered = sides.reopened_mask(ring.from_integers([mask]))
    part = words(rng, 1)
    base = ring.from_integers([7])
    A = sides.reopen_side(one, other, part, base)
    B = sides.reopen_side(one, other, ring.subtract(lowered, part), ring.negative(base))
    assert abs(ring.decode(ring.add(A, B))[0] / 2 - value) <= 2 * 2.0**-44


@settings(deadline=None)
@given(seed=seeds, value=st.floats(-2.0, 2.0))
def test_a_side_is_reopened_from_narrow_shares(seed, value):
    rng = np.random.default_rng(seed)
    d, n = 3, 2
    whole = round(value * 2**44)
    g, a = ring.zeros(n, d), ring.zeros(n, d)
    g[:, 0, 1] = ring.from_integers([-whole])[:, 0]
    a[:, 0, 2] = ring.from_integers([2**45])[:, 0]
    rho = [words(rng, d, d) for _ in range(2)]
    one = sides.minus_narrow_outer(g, a, rho[0])
    other = sides.minus_narrow_outer(ring.zeros(n, d), a, rho[1])
    assert (one[1] < 2**16).all()
    lowered = sides.narrow_mask(ring.add(*rho))
    part, base = words(rng, d, d), words(rng, d, d)
    A = sides.reopen_narrow_side(one, other, part, base)
    B = sides.reopen_narrow_side(one, other, ring.subtract(lowered, part), ring.negative(base))
    found = ring.decode(ring.add(A, B)) / 2
    wanted = np.zeros((d, d))
    wanted[1, 2] = value
    assert np.abs(found - wanted).max() <= 2 * 2.0**-44


def test_masks_that_could_wrap_are_refused():
    sides.reopened_mask(ring.from_integers([M - 2**100 - 1]))
    sides.narrow_mask(ring.from_integers([(2**80 - 2**47 - 1) << 45]))
    with pytest.raises(SharesError, match=r"near to 2\^128"):
        sides.reopened_mask(ring.from_integers([3, M - 2**100]))
    with pytest.raises(SharesError, match=r"near to 2\^80"):
        sides.narrow_mask(ring.from_integers([3, (2**80 - 2**47) << 45]))


def test_the_ring_has_room_for_all_that_is_in_it():
    """The bits of each kind of number, with its sign: what docs/decisions.md adds up."""
    assert 2 * ring.FRACTION + 1 == sides.PRODUCT_BITS
    assert sides.PRODUCT_BITS + ring.REACH + 1 + sides.WRAP_BITS == 128
    assert sides.WRAP_BITS >= 28
    # Opened products: an offset that makes them positive is one word's half.
    assert sides.FINE_BITS + ring.REACH < 64
    assert sides.CUTS == (sides.FINE_BITS - ring.FRACTION, 2**28 - 1, 2**63)
    assert 128 - ring.CUT <= 96  # bytes of a cut share
    assert 128 - sides.CLIP <= 88
    # Forms have two fine factors; 2C of contexts as long as may be is below 2^10.
    assert FORM_BITS + ring.REACH < 127
    assert MEAN_BITS - UNIT_BITS < 64
    # What a released number shows of the error of masked products, in its own units.
    assert sides.FINE_BITS - ring.RELEASED >= 13
    # q is opened in 64 bits, and its largest must be below the period.
    places = 64 - (sides.PRODUCT_BITS - ring.CUT)
    assert 2.0**places > MAX_LENGTH**2 + 2.0 + 2 * SLACK
    assert sides.NARROW_BITS - ring.FRACTION - 3 >= sides.WRAP_BITS
    # Chebyshev polynomials are evaluated in 63 bits.
    assert sides.PRODUCT_BITS - ring.FRACTION + _GUARD_BITS < 63


@pytest.mark.skipif(kernels.load_covariance() is None, reason="numba is not installed")
def test_compiled_loops_have_the_bits_of_the_ring():
    loops = kernels.load_covariance()
    assert (loops.FRACTION, loops.CUT) == (ring.FRACTION, ring.CUT)
    steps = kernels.load_root()
    assert (steps.FRACTION, steps.CUT) == (ring.FRACTION, ring.CUT)
    assert (loops.FINE, loops.KEPT, loops.OFFSET) == sides.CUTS


def test_words_that_do_not_fit_are_refused():
    two, three = ring.zeros(2), ring.zeros(3)
    for call in (
        lambda: sides.open_side(two, three, two),
        lambda: sides.reopen_side(three, three, two, three),
        lambda: sides.product(ring.zeros(2, 2), three, two, 2),
        lambda: sides.combined(ring.zeros(2, 2), two, ring.zeros(1, 2), two, two),
        lambda: sides.first_rows(ring.zeros(2, 3), 3, 0),
        lambda: sides.refuse_other_shapes((two, three, two)),
        lambda: sides.refuse_other_shapes((three, three, two)),
        lambda: sides.refuse_unless_long(ring.zeros(2, 3), 3, 3),
        lambda: sides.context_share(ring.zeros(2, 3), ring.zeros(2, 3), 0, two),
        lambda: sides.picked(three, ring.zeros(2, 3), three),
        lambda: sides.minus_narrow_outer(ring.zeros(2, 3), ring.zeros(2, 3), ring.zeros(2, 3)),
        lambda: sides.reopen_narrow_side(two, two, two, three),
    ):
        with pytest.raises(SharesError, match="wanted words that fit together"):
            call()


@pytest.mark.skipif(kernels.load_ring() is None, reason="numba is not installed")
@settings(deadline=None, max_examples=30)
@given(seed=seeds, n=st.integers(0, 3))
def test_compiled_loops_have_the_bits_of_the_plain_ones(seed, n):
    """One server may have numba and the other not."""
    rng = np.random.default_rng(seed)
    d, window = 5, 3
    rows, v, rho = words(rng, d, d), words(rng, d), words(rng, d)
    kept, weights, scalars = words(rng, window, d), words(rng, n), words(rng, window)
    tables, flips = words(rng, 12, 8), words(rng, 12)
    scores, others = words(rng, n + 1), words(rng, n + 1)
    order, ranks, other_tables = words(rng, 4), words(rng, 4), words(rng, 12, 8)
    bits = rng.integers(0, 2, 12, dtype=np.uint8)

    def compared():
        begun = begin_comparison(scores, others, order, ranks, tables, bits=sides.PRODUCT_BITS)
        live = begun.is_live, begun.numbers, begun.lookups
        lookups, less = compare(*live, other_tables, flips)
        results = end_comparison(begun, lookups, tables, bits)
        found = candidates(less, results, n + 1)
        return [*begun, lookups, less, results, found, np.array(best_arm(begun, found))]

    calls = [
        lambda: sides.open_side(v, rho, v),
        lambda: sides.reopen_side(v, rho, v, rho),
        lambda: sides.combined(rows, v, kept, weights, rho),
        lambda: sides.product(rows, v, rho, n),
        lambda: sides.whole_product(rows, v, rho),
        lambda: sides.picked(scalars, kept, rho),
        lambda: sides.context_share(rows[:, None, 0], kept, 0, rho),
        lambda: sides.minus_narrow_outer(kept, kept[:, ::-1].copy(), rows),
        lambda: sides.reopen_narrow_side(rows >> np.uint64(48), rows, rows, rows),
        lambda: sides.scaled_gap_term(scalars, kept),
        compared,
    ]
    compiled = [call() for call in calls]
    with pytest.MonkeyPatch.context() as patch:
        turn_off_loops(patch)
        plain = [call() for call in calls]
    for one, other in zip(compiled, plain, strict=True):
        assert all(np.array_equal(x, y) for x, y in zip(one, other, strict=True))
