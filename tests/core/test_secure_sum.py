import itertools

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from worlds import MORE

from vfbandits.core.arrays import MaskedBlock
from vfbandits.core.fixed_point import FixedPoint
from vfbandits.core.pads import PairKey, Stamp
from vfbandits.core.secure_sum import Blinder, RowsOfOne, add_blinded, purpose_of
from vfbandits.errors import SecureSumError, SettingError

ASKED = b"digest of an ask"


def circle(n, bound=64.0):
    code = FixedPoint(n_terms=n, bound=bound)
    ends = {f"p{i}": Blinder(f"p{i}", code) for i in range(n)}
    for end in ends.values():
        end.meet({name: other.public_key for name, other in ends.items()})
    return code, ends


@given(n=st.integers(2, 5), rows=st.integers(1, 4), dim=st.integers(1, 6),
       seed=st.integers(0, 2**32 - 1))  # fmt: skip
@settings(deadline=None, max_examples=30 * MORE)
def test_pads_cancel_in_the_sum_and_the_error_is_below_1e_12(n, rows, dim, seed):
    code, ends = circle(n)
    blocks = np.random.default_rng(seed).uniform(-64, 64, size=(n, rows, dim))
    stamp = Stamp(epoch=1, round=seed)
    messages = [
        end.blind(MaskedBlock(block), stamp, list(ends), asked=ASKED)
        for end, block in zip(ends.values(), blocks, strict=True)
    ]
    assert np.abs(add_blinded(messages, code) - blocks.sum(axis=0)).max() < 1e-12
    for message, block in zip(messages, blocks, strict=True):
        assert not (message.values == code.encode(block)).any()


@given(n=st.integers(1, 100), bound=st.sampled_from([1.0, 8.0, 64.0]))
def test_a_sum_of_bounded_values_never_wraps(n, bound):
    code = FixedPoint(n_terms=n, bound=bound)
    for sign in (-1.0, 1.0):
        total = np.zeros(1, dtype=np.uint64)
        for _ in range(n):
            total += code.encode(np.array([sign * bound]))
        assert_allclose(code.decode(total), sign * n * bound, rtol=1e-12)


def test_any_part_of_a_round_looks_like_noise():
    """All but one message: the sum is uniform in the ring, whatever the blocks are."""
    _, ends = circle(3)
    zero = MaskedBlock(np.zeros((200, 50)))
    messages = [end.blind(zero, Stamp(0, 1), list(ends), asked=ASKED) for end in ends.values()]
    for left, right in itertools.combinations(messages, 2):
        top_bits = ((left.values + right.values) >> np.uint64(60)).ravel()
        counts = np.bincount(top_bits.astype(int), minlength=16)
        chi2 = ((counts - 625.0) ** 2 / 625.0).sum()
        assert chi2 < 50.0  # 15 degrees of freedom: one in 100,000
    total = messages[0].values + messages[1].values + messages[2].values
    assert (total == 0).all()


def test_the_same_message_again_gives_the_same_bytes_and_another_is_refused():
    _, ends = circle(2)
    block = MaskedBlock(np.ones((1, 2)))
    stamp = Stamp(0, 1)
    first = ends["p0"].blind(block, stamp, list(ends), asked=ASKED)
    assert ends["p0"].blind(block, stamp, list(ends), asked=ASKED) is first
    with pytest.raises(SecureSumError, match="covers one message only"):
        ends["p0"].blind(MaskedBlock(2 * np.ones((1, 2))), stamp, list(ends), asked=ASKED)
    with pytest.raises(SecureSumError, match="a stamp after"):
        ends["p0"].blind(block, Stamp(0, 0), list(ends), asked=ASKED)
    with pytest.raises(SecureSumError, match="covers one message only"):
        ends["p0"].blind(block, stamp, list(ends), asked=b"another ask")
    retry = Stamp(0, 1, attempt=1)
    again = ends["p0"].blind(MaskedBlock(2 * np.ones((1, 2))), retry, list(ends), asked=ASKED)
    assert (again.values != first.values).all()


def test_the_same_block_with_other_senders_is_another_message():
    _, ends = circle(3)
    block = MaskedBlock(np.ones((1, 2)))
    ends["p0"].blind(block, Stamp(0, 1), ["p0", "p1", "p2"], asked=ASKED)
    with pytest.raises(SecureSumError, match="covers one message only"):
        ends["p0"].blind(block, Stamp(0, 1), ["p0", "p1"], asked=ASKED)


def test_pads_differ_with_epoch_round_attempt_shape_purpose_and_pair():
    key = PairKey(b"k" * 32)
    stamps = [Stamp(0, 0, 0), Stamp(1, 0, 0), Stamp(0, 1, 0), Stamp(0, 0, 1)]
    purposes = [
        purpose_of(asked, senders)
        for asked in (ASKED, b"another ask")
        for senders in (("p0", "p1"), ("p0", "p1", "p2"), ("p0, p1",))
    ]
    pads = [key.pad(stamp, (2, 3), purpose=purposes[0]).tobytes() for stamp in stamps]
    pads += [key.pad(stamps[0], (2, 3), purpose=purpose).tobytes() for purpose in purposes[1:]]
    pads += [
        key.pad(stamps[0], (3, 2), purpose=purposes[0]).tobytes(),
        PairKey(b"l" * 32).pad(stamps[0], (2, 3), purpose=purposes[0]).tobytes(),
    ]
    assert len(set(pads)) == len(pads)
    assert key.pad(stamps[0], (2, 3), purpose=purposes[0]).tobytes() == pads[0]


def test_ends_that_were_asked_for_different_things_do_not_cancel():
    _, ends = circle(2)
    zero = MaskedBlock(np.zeros((1, 8)))
    messages = [
        end.blind(zero, Stamp(0, 1), list(ends), asked=asked)
        for end, asked in zip(ends.values(), (ASKED, b"another ask"), strict=True)
    ]
    total = messages[0].values + messages[1].values
    assert total.all()


@pytest.mark.parametrize(
    ("value", "what"), [(64.1, "a larger one"), (np.nan, "not finite"), (-np.inf, "not finite")]
)
def test_values_that_do_not_fit_are_refused_before_sending(value, what):
    _, ends = circle(2)
    with pytest.raises(SecureSumError, match=f"bound 64, got .*{what}.*nothing was sent"):
        ends["p0"].blind(MaskedBlock(np.array([[value]])), Stamp(0, 1), list(ends), asked=ASKED)
    # The stamp was not used up: the right value may still go out under it.
    ends["p0"].blind(MaskedBlock(np.array([[1.0]])), Stamp(0, 1), list(ends), asked=ASKED)


@pytest.mark.parametrize(
    ("bound", "message"), [(1e9, "leaves an error"), (0.0, "positive"), (np.inf, "positive")]
)
def test_a_bound_that_leaves_too_few_bits_is_refused(bound, message):
    with pytest.raises(SettingError, match=message):
        FixedPoint(n_terms=3, bound=bound)


def test_a_sum_is_all_or_nothing():
    code, ends = circle(3)
    block = MaskedBlock(np.ones((1, 2)))
    messages = [end.blind(block, Stamp(0, 1), list(ends), asked=ASKED) for end in ends.values()]
    late = ends["p2"].blind(block, Stamp(0, 2), list(ends), asked=ASKED)
    for bad, message in [
        (messages[:2], r"needs messages from \['p0', 'p1', 'p2'\], got \['p0', 'p1'\]"),
        ([*messages, messages[0]], r"got \['p0', 'p0', 'p1', 'p2'\]"),
        ([*messages[:2], late], "messages of one round"),
        ([], "got none"),
    ]:
        with pytest.raises(SecureSumError, match=message):
            add_blinded(bad, code)


@pytest.mark.parametrize(
    ("senders", "message"),
    [(["p0"], "at least one more"), (["p1"], "at least one more"), (["p0", "stranger"], "no key")],
)
def test_a_message_that_would_hide_nothing_is_refused(senders, message):
    _, ends = circle(2)
    with pytest.raises(SecureSumError, match=message):
        ends["p0"].blind(MaskedBlock(np.ones((1, 1))), Stamp(0, 1), senders, asked=ASKED)


def test_keys_and_messages_are_not_shown():
    _, ends = circle(2)
    block = MaskedBlock(np.ones((1, 1)))
    message = ends["p0"].blind(block, Stamp(0, 1), list(ends), asked=ASKED)
    assert repr(ends["p0"]) == "Blinder('p0')"
    assert "values" not in repr(message)
    assert repr(PairKey(b"secret")) == "PairKey()"


def test_the_same_keys_make_other_pads_in_another_session():
    code = FixedPoint(n_terms=2, bound=8.0)
    keys = {name: X25519PrivateKey.generate() for name in "ab"}
    public = {name: key.public_key() for name, key in keys.items()}
    block = MaskedBlock(np.zeros((2, 3)))
    messages = {}
    for session in ("one", "two"):
        end = Blinder("a", code, keys["a"], session=session)
        end.meet(public)
        messages[session] = end.blind(block, Stamp(1, 1), "ab", asked=ASKED).values
    assert (messages["one"] != messages["two"]).all()


# --- rows with pads of their own ----------------------------------------------------------------


def in_parts(ends, asked, *, withheld=(), n_columns=50):
    """A round of zeros in which each end was asked for ``asked[name]``, three rows for each."""
    zero = MaskedBlock(np.zeros((6, n_columns)))
    return [
        end.blind(
            zero,
            Stamp(0, 1),
            list(ends),
            asked=name.encode(),
            parts=[RowsOfOne(3, one) for one in asked[name]],
            withheld=withheld if name == "p0" else (),
        )
        for name, end in ends.items()
    ]


def test_pads_of_parts_cancel_where_the_same_was_asked_and_only_there():
    code, ends = circle(3)
    asked = {name: [b"ann", b"bob"] for name in ends} | {"p1": [b"ann", b"eve"]}
    total = add_blinded(in_parts(ends, asked), code)
    assert not total[:3].any()
    assert (np.abs(total[3:]) > 1.0).mean() > 0.9


def test_no_sum_can_be_had_of_a_row_under_noise():
    code, ends = circle(2)
    messages = in_parts(ends, {name: [b"ann", b"bob"] for name in ends}, withheld=[1, 4])
    total = add_blinded(messages, code)
    assert [bool((np.abs(row) > 1.0).mean() > 0.9) for row in total] == [
        False, True, False, False, True, False,
    ]  # fmt: skip
    assert not total[[0, 2, 3, 5]].any()


def test_parts_that_are_not_all_rows_are_refused_and_no_stamp_is_used_up():
    _, ends = circle(2)
    block = MaskedBlock(np.zeros((2, 3)))
    end = ends["p0"]
    with pytest.raises(SecureSumError, match="parts must have all 2 rows, got 1"):
        end.blind(block, Stamp(0, 1), list(ends), asked=ASKED, parts=[RowsOfOne(1, ASKED)])
    assert end.blind(block, Stamp(0, 1), list(ends), asked=ASKED).sender == "p0"
