"""The hash table finds what a dict finds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from vfbandits.datasets.lookup import Lookup


@given(
    values=st.lists(
        st.one_of(st.integers(0, 40), st.integers(0, 2**32 - 1)), unique=True, min_size=1
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_value_is_found_exactly(values, seed):
    rng = np.random.default_rng(seed)
    keys = np.array(values, dtype=np.uint32)
    numbers = rng.integers(1, 2**16, size=len(keys)).astype(np.uint16)
    asked = rng.integers(len(keys), size=200)
    assert_array_equal(Lookup(keys, numbers).find(keys[asked]), numbers[asked])


def test_values_that_collide_are_told_apart():
    keys = np.arange(0, 2**32, 2**16, dtype=np.uint64).astype(np.uint32)
    numbers = (np.arange(len(keys)) % 1_000 + 1).astype(np.uint16)
    assert_array_equal(Lookup(keys, numbers).find(keys[::-1]), numbers[::-1])


def test_nothing_is_found_among_nothing():
    nothing = Lookup(np.empty(0, dtype=np.uint32), np.empty(0, dtype=np.uint16))
    assert len(nothing.find(np.empty(0, dtype=np.uint32))) == 0
