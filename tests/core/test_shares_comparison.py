"""Scores under masks are compared by one-time tables, and the best arm follows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from vfbandits.core import ring
from vfbandits.core.shares import comparison as c

numbers = st.integers(0, 2**43 - 1)


def is_less_by_tables(x, masks, seed=0):
    rng = np.random.default_rng(seed)
    n = len(masks)
    i, j, places = c.pairs_among(np.arange(n), n)
    helper = rng.integers(0, 2**64, (n * (n - 1), c.N_WORDS), dtype=np.uint64)
    secret = rng.integers(0, 2**64, n * (n - 1), dtype=np.uint64)
    active, top = c.deal_tables(masks, secret, helper)
    x = c.differences(x, i, j, tolerance=0)
    opened = c.look_up(x, active[places]) ^ c.look_up(x, helper[places])
    return c.is_less(opened, active) ^ c.is_less(opened, helper), top, x


@given(x=st.lists(numbers, min_size=3, max_size=3), r=st.lists(numbers, min_size=3, max_size=3))
def test_tables_compare_the_low_bits(x, r):
    masks = np.array(r, np.uint64)
    found, top, x = is_less_by_tables(np.array(x, np.uint64), masks)
    wanted = c.differences(masks, *c.ordered_pairs(3), tolerance=0)
    low = np.uint64(2**42 - 1)
    assert (found == ((x & low) < (wanted & low))).all()
    assert (top == wanted >> np.uint64(42)).all()


@given(r=st.lists(numbers, min_size=2, max_size=4, unique=True), seed=st.integers(0, 100))
def test_equal_numbers_are_not_less(r, seed):
    masks = np.array(r, np.uint64)
    found, _, _ = is_less_by_tables(masks, masks, seed)
    assert not found.any()


@given(
    scores=st.lists(st.floats(-63, 63), min_size=2, max_size=6),
    seed=st.integers(0, 2**32 - 1),
)
def test_differences_of_masked_numbers_are_those_of_the_scores(scores, seed):
    rng = np.random.default_rng(seed)
    n = len(scores)
    whole = np.array([round(s * 2**44) << 44 for s in scores], dtype=object)
    ranks, rho = (rng.integers(0, 2**64, (2, n), dtype=np.uint64) for _ in range(2))
    order = c.shuffled(rng.integers(0, 2**64, (2, n), dtype=np.uint64))
    y = ring.add(ring.from_integers(whole), rho)
    m = c.masked_numbers(ring.add(y[:, order], ranks))
    i, j = c.ordered_pairs(n)
    x = c.differences(m, i, j, tolerance=0)
    r = c.differences(c.shuffled_masks(ranks, rho, order), i, j, tolerance=0)
    gap = (x - r) & np.uint64(2**43 - 1)
    signed = gap.astype(np.int64) - (gap >= 2**42) * 2**43
    wanted = np.array([scores[order[a]] - scores[order[b]] for a, b in zip(i, j, strict=True)])
    assert np.abs(signed - wanted * 2**35).max() <= 2


@given(st.sets(st.integers(0, 6), min_size=2))
def test_pairs_of_some_positions_keep_their_tables(live):
    i, j, places = c.pairs_among(np.array(sorted(live)), 7)
    all_i, all_j = c.ordered_pairs(7)
    assert (all_i[places] == i).all()
    assert (all_j[places] == j).all()
    assert len(set(places.tolist())) == len(live) * (len(live) - 1)
