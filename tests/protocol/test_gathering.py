"""What is not the very answer that was asked for is refused and never summed."""

from itertools import permutations, product

import numpy as np
import pytest
from fingerprint import fingerprint
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from vfbandits.core.arrays import MaskedBlock
from vfbandits.core.context import Split
from vfbandits.core.fixed_point import FixedPoint
from vfbandits.errors import SecureSumError, WireError
from vfbandits.protocol.gathering import Gathering, Wanted
from vfbandits.protocol.messages import Answer, digest_of
from vfbandits.protocol.rows import refuse_out_of_bounds

SPLIT = Split.of({"shop": 1, "bank": 2, "news": 2})
DIGEST = digest_of([("ann",), ("bob",)])
ROWS = np.array([[1.0, -2.0], [0.5, 4.0]])


def gathering(*, secure=False, bound=4.0):
    sizes = dict.fromkeys(SPLIT.names, 2)
    wanted = Wanted(3, sizes, bound, secure, n_terms=2)
    asked = ("bank", "news")
    n_rows, digests = dict.fromkeys(asked, 2), dict.fromkeys(asked, DIGEST)
    return Gathering(7, wanted, asked, n_rows, digests, deadline=1.0)


def answer(rows=ROWS, **other):
    values = memoryview(np.ascontiguousarray(rows)).cast("B")
    return Answer(7, 0, 3, DIGEST, 2, 2, values)._replace(**other)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"round": 6}, "round: wanted 7, got 6"),
        ({"attempt": 1}, "attempt: wanted 0, got 1"),
        ({"epoch": 2}, "epoch: wanted 3, got 2"),
        ({"digest": digest_of([("bob",), ("ann",)])}, "digest of the rows in their order: wanted"),
        ({"digest": b""}, "digest of the rows in their order: wanted"),
        ({"n_rows": 1}, "rows: wanted 2, got 1"),
        ({"n_columns": 3}, "columns: wanted 2, got 3"),
        ({"n_rows": 4, "n_columns": 1}, "rows: wanted 2, got 4"),
        ({"values": bytes(31)}, "bytes: wanted 32, got 31"),
        ({"values": bytes(40)}, "bytes: wanted 32, got 40"),
        ({"values": b""}, "bytes: wanted 32, got 0"),
    ],
)
@pytest.mark.parametrize("secure", [False, True])
def test_a_stale_reordered_or_mis_sized_answer_is_refused(secure, other, message):
    gathered = gathering(secure=secure)
    before = fingerprint(gathered)
    with pytest.raises(WireError, match=message):
        gathered.take("bank", answer(**other))
    assert fingerprint(gathered) == before
    gathered.take("bank", answer())
    assert_array_equal(gathered.came["bank"], ROWS)
    assert gathered.bytes_received == 32


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 4.001, -4.001, 1e300])
def test_values_that_are_not_finite_or_too_large_are_refused(value):
    gathered = gathering()
    rows = ROWS.copy()
    rows[1, 0] = value
    with pytest.raises(WireError, match="finite values of at most 4, got NaN"):
        gathered.take("bank", answer(rows))
    assert not gathered.came


@given(
    rows=st.lists(st.floats(width=64), min_size=1, max_size=20),
    bound=st.sampled_from([1.0, 3.0, 64.0]),
)
def test_rows_pass_if_and_only_if_every_entry_is_within_the_bound(rows, bound):
    """The quick check of the whole never lets an entry through that the slow one would not."""
    most = bound * (1.0 + 1e-9)
    fine = all(abs(value) <= most for value in rows)
    try:
        refuse_out_of_bounds(np.array(rows), bound)
    except WireError:
        assert not fine
    else:
        assert fine


def test_an_answer_counts_once_and_only_from_those_that_were_asked():
    gathered = gathering()
    gathered.take("bank", answer())
    with pytest.raises(WireError, match="wanted one answer to round 7, got a second one of 'bank'"):
        gathered.take("bank", answer(2.0 * ROWS / 2.0))
    with pytest.raises(WireError, match="wanted an answer of bank, news, got one of 'post'"):
        gathered.take("post", answer())
    gathered.failed.add("news")
    with pytest.raises(WireError, match="got a second one of 'news'"):
        gathered.take("news", answer())
    assert list(gathered.came) == ["bank"]


def test_a_round_is_settled_when_nobody_is_left_and_complete_when_all_came():
    gathered = gathering()
    assert gathered.waiting_for == ("bank", "news")
    gathered.take("news", answer())
    assert (gathered.waiting_for, gathered.is_settled) == (("bank",), False)
    gathered.failed.add("bank")
    assert (gathered.is_settled, gathered.is_complete) == (True, False)
    gathered.next_attempt()
    assert (gathered.attempt, gathered.waiting_for) == (1, ("bank", "news"))
    with pytest.raises(WireError, match="attempt: wanted 1, got 0"):
        gathered.take("bank", answer())
    gathered.take("bank", answer(attempt=1))
    gathered.take("news", answer(attempt=1))
    assert gathered.is_complete


def test_those_that_did_not_come_count_as_zeros():
    own = MaskedBlock(np.full((2, 1), 9.0))
    gathered = gathering()
    gathered.take("news", answer())
    placed = gathered.contexts(SPLIT, own, dense=False)
    assert_array_equal(placed, np.hstack([own, np.zeros((2, 2)), ROWS]))
    wide = MaskedBlock(np.full((2, 2), 9.0))
    assert_array_equal(gathered.contexts(SPLIT, wide, dense=True), wide + ROWS)


def test_floats_are_added_in_the_order_of_the_roster_whoever_comes_first():
    tiny = np.full((2, 2), 1e-16)
    own = MaskedBlock(np.ones((2, 2)))
    for order, meanwhile in product(permutations(("bank", "news")), (True, False)):
        gathered = gathering()
        for name in order:
            gathered.take(name, answer(tiny if name == "bank" else -np.ones((2, 2))))
            if meanwhile:
                gathered.add_up(own)
        total = gathered.contexts(SPLIT, own, dense=True)
        assert_array_equal(total, (np.ones((2, 2)) + tiny) - np.ones((2, 2)))
        assert_array_equal(own, np.ones((2, 2)))


@pytest.mark.parametrize("missing", ["bank", "news"])
def test_a_sum_that_was_begun_goes_on_without_one_that_failed(missing):
    gathered = gathering()
    own = MaskedBlock(np.ones((2, 2)))
    gathered.add_up(own)
    gathered.take("news" if missing == "bank" else "bank", answer())
    gathered.add_up(own)
    gathered.failed.add(missing)
    assert_array_equal(gathered.contexts(SPLIT, own, dense=True), own + ROWS)


def test_a_secure_total_is_all_or_nothing_and_bounded():
    code = FixedPoint(n_terms=2, bound=4.0)
    parts = {"bank": code.encode(ROWS), "news": code.encode(-ROWS / 2.0)}
    gathered = gathering(secure=True)
    gathered.take("bank", answer(parts["bank"]))
    with pytest.raises(SecureSumError, match=r"needs messages from \['bank', 'news'\]"):
        gathered.total()
    gathered.take("news", answer(parts["news"]))
    assert_array_equal(gathered.total(), ROWS / 2.0)

    noisy = gathering(secure=True)
    noisy.take("bank", answer(np.full((2, 2), 1 << 62, dtype="<u8")))
    noisy.take("news", answer(parts["news"]))
    with pytest.raises(WireError, match="finite values of at most 8, got NaN"):
        noisy.total()
