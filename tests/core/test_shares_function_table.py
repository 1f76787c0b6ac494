"""Functions of a secret number by dealt tables: near to the function wherever the mask falls."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from plain_loops import turn_off_loops

from vfbandits.core.ring import decode, from_integers, subtract
from vfbandits.core.shares.function_table import FunctionTable, function_table
from vfbandits.core.shares.terms import row_weight, step_size
from vfbandits.errors import SharesError


def inverse_root(q):
    return 1.0 / np.sqrt(1.0 + q)


FUNCTIONS = (row_weight, step_size, inverse_root)
LIMITS = (0.25, 2.0, 5.0, 6.5, 40.0)
UNIT = 2.0**-44
# A polynomial is within 2^-43 of its function; the rest is fixed point.
NEAR = 2.0**-41


def share_of(table, number, mask, coefficients):
    opened = np.array([(number + mask) % 2**56], np.uint64)
    return decode(table.share(opened, coefficients), bits=88)[0]


@settings(max_examples=300, deadline=None)
@given(
    limit=st.sampled_from(LIMITS),
    place=st.floats(0.0, 1.0),
    mask=st.integers(0, 2**56 - 1),
)
@example(limit=5.0, place=0.0, mask=0)
@example(limit=5.0, place=1.0, mask=1)
def test_a_table_is_near_to_its_functions_for_any_number_and_mask(limit, place, mask):
    table = function_table(FUNCTIONS, limit)
    number = int(place * limit / UNIT)
    found = share_of(table, number, mask, table.coefficients(np.array([mask], np.uint64)))
    wanted = [function(number * UNIT) for function in FUNCTIONS]
    assert np.abs(found - wanted).max() < NEAR


@given(limit=st.sampled_from(LIMITS), off=st.integers(-4, 4), bits=st.integers(42, 49))
@settings(deadline=None)
def test_it_is_so_where_a_segment_begins_or_ends_beside_the_number(limit, off, bits):
    """λ beside a multiple of a segment; numbers that rounding takes below 0 and above the limit."""
    table = function_table(FUNCTIONS, limit)
    mask = (2**bits + off) % 2**56
    coefficients = table.coefficients(np.array([mask], np.uint64))
    for number in (-3, -1, 0, 1, int(limit / UNIT), int(limit / UNIT) + 3):
        found = share_of(table, number, mask, coefficients)
        wanted = [function(max(number, 0) * UNIT) for function in FUNCTIONS]
        assert np.abs(found - wanted).max() < 2 * NEAR


def test_shares_of_the_coefficients_give_shares_of_the_values():
    table, rng = function_table(FUNCTIONS, 5.0), np.random.default_rng(3)
    masks = rng.integers(0, 2**56, 4, dtype=np.uint64)
    numbers = np.array([0.0, 0.7, 2.2, 5.0])
    whole = table.coefficients(masks)
    helper = rng.integers(0, 2**64, whole.shape, dtype=np.uint64)
    opened = (masks + (numbers / UNIT).astype(np.uint64)) % np.uint64(2**56)
    of_helper, of_active = (table.share(opened, part) for part in (helper, subtract(whole, helper)))
    assert table.share(opened, whole).shape == (2, 4, 3)
    found = decode(
        subtract(of_active, subtract(from_integers(np.zeros((4, 3))), of_helper)), bits=88
    )
    wanted = np.stack([function(numbers) for function in FUNCTIONS], axis=1)
    assert np.abs(found - wanted).max() < NEAR


def test_all_that_depends_on_the_mask_is_in_the_coefficients():
    """A table's shape, which is public, comes from the functions and the limit."""
    table = function_table(FUNCTIONS[:2], 5.0)
    assert table is function_table(FUNCTIONS[:2], 5.0)
    assert table.shape == (4, 2, 24)
    assert repr(table) == "FunctionTable(shape=(4, 2, 24))"


@settings(deadline=None)
@given(
    limit=st.sampled_from(LIMITS),
    opened=st.integers(0, 2**56 - 1) | st.sampled_from([0, 1, 2**43, 2**44, 2**45 - 1]),
    bits=st.sampled_from([88, 89]),
    seed=st.integers(0, 2**32 - 1),
)
def test_compiled_shares_have_the_bits_of_the_plain_ones(limit, opened, bits, seed):
    """One server may have numba and the other not: a unit of difference would be any number."""
    table, rng = function_table(FUNCTIONS, limit), np.random.default_rng(seed)
    part = rng.integers(0, 2**64, (2, 1, *table.shape), dtype=np.uint64)
    number = np.array([opened], np.uint64)
    compiled = table.share(number, part, bits=bits)
    with pytest.MonkeyPatch.context() as patch:
        turn_off_loops(patch)
        assert np.array_equal(table.share(number, part, bits=bits), compiled)


def test_tables_that_cannot_be_are_refused():
    with pytest.raises(SharesError, match="a limit from 0 to 1024, got 0"):
        FunctionTable(FUNCTIONS, 0.0)
    with pytest.raises(SharesError, match="a limit from 0 to 1024, got 1e"):
        FunctionTable(FUNCTIONS, 1e9)
    with pytest.raises(SharesError, match="needs a degree above 32"):
        FunctionTable((lambda q: np.sqrt(q + 1e-9),), 1.0)
    table = function_table(FUNCTIONS, 1.0)
    with pytest.raises(SharesError, match=r"coefficients of shape .* for each of 2 numbers"):
        table.share(np.zeros(2, np.uint64), table.coefficients(np.zeros(1, np.uint64)))
