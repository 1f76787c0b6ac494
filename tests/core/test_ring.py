"""Arithmetic modulo 2^128 against Python's integers, fixed point, and words that are taken once."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes
from plain_loops import turn_off_loops

from vfbandits.core import kernels, ring
from vfbandits.errors import SharesError

M = 2**128
EDGES = [0, 1, M - 1, M // 2, M // 2 - 1, 2**64, 2**64 - 1, 2**32 - 1]
integers = st.one_of(st.sampled_from(EDGES), st.integers(0, M - 1))


def as_object(words):
    return np.asarray(ring.to_integers(words), dtype=object)


def draw_matrix(data, rows, columns):
    flat = data.draw(st.lists(integers, min_size=rows * columns, max_size=rows * columns))
    return np.asarray(flat, dtype=object).reshape(rows, columns)


@pytest.fixture(params=["compiled", "plain"])
def loops(request, monkeypatch):
    if request.param == "plain":
        turn_off_loops(monkeypatch)
    elif kernels.load_ring() is None:
        pytest.skip("numba (extra 'fast') is off or missing")


@pytest.mark.usefixtures("loops")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(a=st.lists(integers, min_size=1, max_size=5), b=integers)
def test_sums_and_differences_are_those_of_integers_modulo_2_128(a, b):
    words, other = ring.from_integers(a), ring.from_integers([b] * len(a))
    assert ring.to_integers(ring.add(words, other)) == [(x + b) % M for x in a]
    assert ring.to_integers(ring.subtract(words, other)) == [(x - b) % M for x in a]
    assert ring.to_integers(ring.negative(words)) == [-x % M for x in a]
    assert ring.to_integers(ring.total(words[:, :, None])) == [sum(a) % M]


@pytest.mark.usefixtures("loops")
def test_products_are_those_of_integers_modulo_2_128():
    @given(data=st.data(), shape=array_shapes(min_dims=3, max_dims=3, max_side=5))
    @settings(max_examples=60)
    def holds(data, shape):
        n, k, m = shape
        A, B = draw_matrix(data, n, k), draw_matrix(data, k, m)
        wanted = (A @ B) % M
        left, right = ring.from_integers(A), ring.from_integers(B)
        assert (as_object(ring.times(left, right)) == wanted).all()
        rows = np.ascontiguousarray(right.swapaxes(1, 2))
        assert (as_object(ring.rows_times(left, rows)) == wanted).all()
        assert (as_object(ring.total(left)) == A.sum(axis=0) % M).all()
        other = draw_matrix(data, n, k)
        found = ring.row_products(left, ring.from_integers(other))
        assert (as_object(found) == (A * other).sum(axis=1) % M).all()

    holds()


@pytest.mark.usefixtures("loops")
def test_a_triangle_stands_for_a_symmetric_matrix():
    rng = np.random.default_rng(3)
    S = ring.symmetric(words(rng, 15), 5)
    X = words(rng, 3, 5)
    half = ring.triangle_rows(X, S)
    doubled = (as_object(X) @ as_object(half).T) % M
    forms = as_object(X) @ as_object(S) @ as_object(X).T
    assert ((doubled + doubled.T) % M == 2 * forms % M).all()
    assert (np.diagonal(doubled) == np.diagonal(forms) % M).all()


@pytest.mark.usefixtures("loops")
def test_a_gram_matrix_is_its_lower_triangle():
    rng = np.random.default_rng(4)
    V = words(rng, 4, 5)
    a = as_object(V)
    assert (as_object(ring.gram(V)) == (a.T @ a)[np.tril_indices(5)] % M).all()
    assert (as_object(ring.symmetric(ring.gram(V), 5)) == (a.T @ a) % M).all()


def words(rng, *shape):
    return rng.integers(0, 2**64, (2, *shape), dtype=np.uint64)


@given(value=st.integers(-(2**90), 2**90), share=integers)
def test_a_rounded_product_is_off_by_at_most_one_unit(value, share):
    shares = [ring.rounded(ring.from_integers([part])) for part in (share, value - share)]
    unit = 2 ** (2 * ring.FRACTION - ring.RELEASED)
    assert abs(ring.open_rounded(*shares)[0] * 2**88 - value) <= unit * (1 + 1e-3)


@given(value=integers)
def test_a_lifted_number_has_the_bits_of_a_product(value):
    assert ring.to_integers(ring.lifted(ring.from_integers([value]))) == [(value << 44) % M]


@pytest.mark.usefixtures("loops")
def test_long_products_of_the_largest_numbers_lose_no_carry():
    A = ring.from_integers([[M - 1] * 3_000])
    assert ring.to_integers(ring.rows_times(A, A)) == [[3_000]]
    ones = ring.from_integers([[2**64 - 1] * 3_000])
    assert ring.to_integers(ring.rows_times(ones, ones)) == [[3_000 * (2**64 - 1) ** 2 % M]]


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize(
    "call",
    [
        lambda: ring.add(ring.zeros(50), ring.zeros(1)),
        lambda: ring.subtract(ring.zeros(2, 3), ring.zeros(3, 2)),
        lambda: ring.rows_times(ring.zeros(2, 5), ring.zeros(2, 4)),
        lambda: ring.times(ring.zeros(2, 5), ring.zeros(4, 2)),
        lambda: ring.row_products(ring.zeros(2, 5), ring.zeros(1, 5)),
        lambda: ring.triangle_rows(ring.zeros(2, 5), ring.zeros(5, 4)),
    ],
    ids=["add", "subtract", "rows_times", "times", "row_products", "triangle"],
)
def test_words_that_do_not_fit_together_are_refused_before_a_loop_reads_beyond_them(call):
    with pytest.raises(SharesError, match="wanted words that fit together, got shapes"):
        call()


def test_the_plain_product_refuses_more_terms_than_floats_can_add():
    with pytest.raises(SharesError, match="up to 131072 terms, got 131073"):
        ring._limb_product(ring.zeros(1, 2**17 + 1), ring.zeros(2**17 + 1, 1))  # noqa: SLF001


@pytest.mark.usefixtures("loops")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(a=st.lists(integers, min_size=1, max_size=4), bits=st.integers(1, 63))
def test_a_shift_gives_the_whole_part(a, bits):
    assert ring.to_integers(ring.shifted_down(ring.from_integers(a), bits)) == [
        x >> bits for x in a
    ]


@given(st.lists(st.floats(-1024, 1024), min_size=1, max_size=5))
def test_real_numbers_come_back_to_the_nearest_unit(values):
    back = ring.decode(ring.encode(values, bound=1024.0, what="numbers"))
    assert np.abs(back - values).max() <= 2.0**-45


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=5), st.floats(-1, 1))
def test_a_product_of_encoded_numbers_decodes_to_the_product(values, scale):
    words = ring.encode([values], bound=1.0, what="numbers")
    other = ring.encode([[scale]], bound=1.0, what="numbers")
    product = ring.decode(ring.times(other, words), bits=88)
    assert np.abs(product - scale * np.asarray([values])).max() <= 2.0**-43


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2.5, -2.5])
def test_numbers_beyond_the_bound_are_refused(value):
    with pytest.raises(SharesError, match="rows must be numbers up to 2 in size"):
        ring.encode([0.0, value], bound=2.0, what="rows")


def test_no_bound_reaches_beyond_the_ring():
    with pytest.raises(SharesError, match="up to 1024 in size, got a larger one"):
        ring.encode([1025.0], bound=1e9, what="rows")


@given(value=st.integers(-(2**90), 2**90), mask=integers, share=integers)
def test_a_number_opened_from_short_shares_is_off_by_at_most_one_unit(value, mask, share):
    shares = [ring.short(ring.from_integers([part])) for part in (share, value + mask - share)]
    lifted = ring.short_mask(ring.from_integers([mask]))
    found = (int(ring.open_short(*shares)[0]) - int(lifted[0])) % 2**56
    gap = (found - (value >> 44)) % 2**56
    assert gap in (0, 1, 2**56 - 1)


NAME = ring.SheetName("decide", 1, 2, 3, 4)


def test_both_holders_of_a_secret_draw_the_same_sheet():
    one, other = (ring.WordSource(bytes(range(32))).sheet(NAME, {"a": (3,)}) for _ in range(2))
    assert (one.take("a") == other.take("a")).all()


def test_sheets_of_other_names_and_secrets_share_no_word():
    names = [
        NAME,
        *(ring.SheetName("decide", *n) for n in ((0, 2, 3, 4), (1, 0, 3, 4), (1, 2, 0, 4))),
    ]
    names += [ring.SheetName("decide", 1, 2, 3, 0), ring.SheetName("learn", 1, 2, 3, 4)]
    secrets = [bytes(32), bytes(31) + b"\1"]
    words = [
        word
        for secret in secrets
        for name in names
        for word in ring.to_integers(ring.WordSource(secret).sheet(name, {"a": (50,)}).take("a"))
    ]
    assert len(set(words)) == len(words)


def test_parts_of_a_sheet_do_not_overlap():
    sheet = ring.WordSource(bytes(32)).sheet(NAME, {"a": (3, 5), "b": (1,), "c": (7,)})
    parts = [sheet.take(part).reshape(2, -1) for part in "abc"]
    words = [word for part in parts for word in ring.to_integers(part)]
    assert len(words) == len(set(words)) == 23


def test_a_part_is_taken_once():
    sheet = ring.WordSource(bytes(32)).sheet(NAME, {"a": (3,)})
    sheet.take("a")
    with pytest.raises(SharesError, match=r"'a' of .* were taken before"):
        sheet.take("a")


def test_a_source_has_a_secret_of_32_bytes_and_does_not_show_it():
    with pytest.raises(SharesError, match="needs 32 bytes, got 16"):
        ring.WordSource(bytes(16))
    assert repr(ring.WordSource(b"s" * 32)) == "WordSource()"
