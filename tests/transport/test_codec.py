"""Every message survives the wire, and nothing but a message comes through."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_messages import REQUESTS_AND_REPLIES, TO_ACTIVE, TO_PASSIVE, answers, shown
from worlds import MORE

from vfbandits.errors import WireError
from vfbandits.protocol.messages import (
    DECLINES,
    MAX_BYTES,
    MAX_ROWS,
    Answer,
    Ask,
    Declined,
    Hello,
    Ping,
    Pong,
    Prepare,
    Refused,
    Welcome,
)
from vfbandits.transport.rpc import application_codec
from vfbandits.transport.rpc import wire_pb2 as wire
from vfbandits.transport.rpc.codec import decode_to_active, decode_to_passive, encode

DIGEST = bytes(range(16))
HELLO = Hello(1, 1, "fair", "ab", "bank", 2, 5, "per_arm", "dense", "plain", "", "<f8", (1, 2), 9)


@given(message=TO_ACTIVE)
@settings(deadline=None, max_examples=200 * MORE)
def test_a_passive_participants_message_survives(message):
    assert shown(decode_to_active(encode(message))) == shown(message)


@given(message=TO_PASSIVE)
@settings(deadline=None, max_examples=200 * MORE)
def test_the_active_participants_message_survives(message):
    assert shown(decode_to_passive(encode(message))) == shown(message)


@pytest.mark.parametrize("name", REQUESTS_AND_REPLIES)
@given(data=st.data())
@settings(deadline=None, max_examples=60 * MORE)
def test_what_applications_ask_and_get_survives(name, data):
    method = getattr(application_codec, name)
    for strategy, codec in zip(
        REQUESTS_AND_REPLIES[name], (method.request, method.reply), strict=True
    ):
        message = data.draw(strategy)
        assert shown(codec.decode(codec.encode(message))) == shown(message)


def test_an_ask_is_a_field_of_protobuf_that_any_other_program_reads_and_writes():
    ask = Ask(7, 1, 2, ("ann", "bob"), (("tea",), ("tea", "mate")), campaigns=("spring",))
    theirs = wire.ToPassive.FromString(encode(ask))
    assert msgspec.msgpack.decode(theirs.ask)[3] == ["ann", "bob"]
    assert decode_to_passive(theirs.SerializeToString()) == ask == decode_to_passive(encode(ask))


@given(answer=answers())
@settings(deadline=None, max_examples=100 * MORE)
def test_an_answer_is_protobuf_that_any_other_program_reads_and_writes(answer):
    """Ours is put together by hand: exact equality with what protobuf makes of the same fields."""
    theirs = wire.ToActive.FromString(encode(answer))
    assert theirs.answer.values == bytes(answer.values)
    assert theirs.answer.digest == answer.digest
    assert theirs.answer.n_rows == answer.n_rows
    assert shown(decode_to_active(theirs.SerializeToString())) == shown(answer)
    backwards = theirs.answer.SerializeToString()
    theirs.answer.ClearField("values")
    head = theirs.answer.SerializeToString()
    assert backwards.startswith(head)


@pytest.mark.parametrize(
    "values",
    [
        np.arange(6.0).reshape(2, 3).tobytes(),
        memoryview(np.arange(6.0).reshape(2, 3)),
        memoryview(bytearray(np.arange(6.0).tobytes())),
    ],
)
def test_values_may_be_any_block_of_memory(values):
    answer = decode_to_active(encode(Answer(1, 0, 1, DIGEST, 2, 3, values)))
    assert (np.frombuffer(answer.values, "<f8") == np.arange(6.0)).all()


def test_the_values_of_a_large_answer_are_not_copied_by_the_decoder():
    data = encode(Answer(1, 0, 1, DIGEST, 100, 1000, bytes(800_000)))
    answer = decode_to_active(data)
    assert isinstance(answer.values, memoryview)
    assert answer.values.obj is data


@pytest.mark.parametrize("n_rows", [0, 1, 100, 20_000])
def test_the_values_of_an_answer_are_aligned(n_rows):
    """NumPy and BLAS copy numbers that are not before they look at them."""
    data = encode(Answer(1, 0, 1, DIGEST, n_rows, 10, bytes(80 * n_rows)))
    assert np.frombuffer(decode_to_active(data).values, "<f8").flags.aligned


def to_active(**fields):
    return wire.ToActive(**fields).SerializeToString()


def to_passive(**fields):
    return wire.ToPassive(**fields).SerializeToString()


def answer_of(**changes):
    good = {"round": 1, "digest": DIGEST, "n_rows": 2, "n_columns": 3, "values": bytes(48)}
    return to_active(answer=wire.Answer(**{**good, **changes}))


def ask_of(**changes):
    ask = Ask(1, 0, 1, ("ann",))._replace(**changes)
    return to_passive(ask=msgspec.msgpack.encode(ask))


LONG = "x" * 1025
BAD_TO_ACTIVE = {
    "nothing": (b"", "no known kind"),
    "of the other direction": (encode(Ping(1)), "no known kind"),
    "cut short": (encode(HELLO)[:-1], "wanted a whole ToActive message, got"),
    "not UTF-8": (to_active(hello=wire.Hello(name="ann")).replace(b"ann", b"a\xffn"), "whole"),
    "a short digest": (answer_of(digest=bytes(15)), "a digest has 16 bytes, got 15"),
    "a long digest": (answer_of(digest=bytes(17)), "a digest has 16 bytes, got 17"),
    "too few values": (answer_of(values=bytes(40)), "2 rows of 3 values .* got 40 bytes"),
    "too many values": (answer_of(values=bytes(49)), "2 rows of 3 values .* got 49 bytes"),
    "a shape that overflows": (
        answer_of(n_rows=2**16, n_columns=2**32 - 1, values=b""),
        "65536 rows of 4294967295 values",
    ),
    "too many rows": (answer_of(n_rows=MAX_ROWS + 1, n_columns=0, values=b""), "n_rows is at"),
    "more missing than rows": (answer_of(missing=3), "at most 2 rows can be missing, got 3"),
    "a huge round": (answer_of(round=2**63), "round is at most"),
    "a huge attempt": (answer_of(attempt=2**63), "attempt is at most"),
    "a huge epoch": (answer_of(epoch=2**64 - 1), "epoch is at most"),
    "a long name": (to_active(hello=wire.Hello(name=LONG)), "name has at most 1024 bytes"),
    "a long name in few letters": (
        to_active(hello=wire.Hello(name="é" * 513)),
        "name has at most 1024 bytes, got 1026",
    ),
    "too many epochs": (to_active(hello=wire.Hello(epochs=[1] * 10_001)), "epochs has at most"),
    "an unknown code": (
        to_active(declined=wire.Declined(code="bored")),
        "the code of a declined ask is one of stale_epoch",
    ),
    "a long reason": (
        to_active(declined=wire.Declined(code=DECLINES[0], reason="x" * 8193)),
        "reason has at most 8192 bytes",
    ),
    "a huge number": (to_active(pong=wire.Pong(number=2**63)), "number is at most"),
}
BAD_TO_PASSIVE = {
    "nothing": (b"", "no known kind"),
    "of the other direction": (encode(Pong(1)), "no known kind"),
    "no whole ask": (to_passive(ask=b"\x9a\x01"), "wanted a whole Ask, got 2 other bytes"),
    "an ask of a later version": (
        to_passive(ask=msgspec.msgpack.encode([*Ask(1, 0, 1, ("a",)), "more"])),
        "wanted a whole Ask",
    ),
    "an ask with a number in the place of a user": (ask_of(users=(7,)), "wanted a whole Ask"),
    "an ask that is not UTF-8": (ask_of(users=("ann",)).replace(b"ann", b"a\xffn"), "whole Ask"),
    "arms without users": (ask_of(users=(), arms=(("tea",),)), "each of 0 users, got those of 1"),
    "arms for too few users": (
        ask_of(users=("a", "b"), arms=(("t",),)),
        "each of 2 users, got those of 1",
    ),
    "a long user": (ask_of(users=("ok", LONG)), "users has at most 1024"),
    "a long arm": (ask_of(users=("a",), arms=((LONG,),)), "arms has at most 1024"),
    "a long sender": (ask_of(senders=(LONG,)), "senders has at most 1024"),
    "a long absentee": (ask_of(absent=(LONG,)), "absent has at most 1024"),
    "too many users": (
        ask_of(users=("",) * (MAX_ROWS + 1)),
        "users has at most 1048576 items, got 1048577",
    ),
    "too many senders": (to_passive(prepare=wire.Prepare(senders=["a"] * 10_001)), "senders has"),
    "a huge trial": (ask_of(trial=2**63), "round, attempt, epoch, trial and place go from 0"),
    "a huge slot": (ask_of(place=(1, 1, 1, 2**63)), "trial and place go from 0"),
    "an attempt below zero": (ask_of(attempt=-1), "attempt, epoch, trial and place go from 0"),
    "a campaign that is no name": (
        ask_of(campaigns=("../spring",)),
        "a campaign has 1 to 64 letters, .* got 9 characters that are no such name",
    ),
    "a long campaign": (
        ask_of(campaigns=("x" * 65,)),
        "a campaign has 1 to 64 letters, .* got 65 characters",
    ),
    "campaigns for some users": (
        ask_of(users=("a", "b", "c"), campaigns=("spring", "summer")),
        "one name, or one for each of 3 users, got 2",
    ),
    "a long code": (to_passive(refused=wire.Refused(code=LONG)), "code has at most"),
}


@pytest.mark.parametrize("what", BAD_TO_ACTIVE)
def test_no_bad_message_reaches_the_active_participant(what):
    data, says = BAD_TO_ACTIVE[what]
    with pytest.raises(WireError, match=says):
        decode_to_active(data)


@pytest.mark.parametrize("what", BAD_TO_PASSIVE)
def test_no_bad_message_reaches_a_passive_participant(what):
    data, says = BAD_TO_PASSIVE[what]
    with pytest.raises(WireError, match=says):
        decode_to_passive(data)


@pytest.mark.parametrize(
    ("codec", "message", "says"),
    [
        ("DECIDE", wire.DecideRequest(own=bytes(7)), "own holds float64 .* got 7 bytes"),
        ("DECIDE", wire.DecideRequest(arm_features=bytes(9)), "arm_features holds"),
        ("DECIDE", wire.DecideRequest(user=LONG), "user has at most"),
        ("DECIDE", wire.DecideRequest(arms=[LONG]), "arms has at most"),
        ("REWARD", wire.RewardRequest(event_id=LONG), "event_id has at most"),
        ("REWARD", wire.RewardRequest(trial=2**63), "trial is at most"),
        ("CHANGE", wire.ChangeRequest(envelopes={LONG: b""}), "a name among the envelopes"),
    ],
)
def test_no_bad_request_of_an_application_is_taken(codec, message, says):
    with pytest.raises(WireError, match=says):
        getattr(application_codec, codec).request.decode(message.SerializeToString())


def test_fields_of_later_versions_are_ignored():
    """A hello of another version must be readable, or it could not be refused with a reason."""
    extra = b"\xfa\x01\x03new"  # field 31
    inner = wire.ToActive.FromString(encode(HELLO)).hello.SerializeToString() + extra
    data = b"\x0a" + bytes([len(inner)]) + inner + extra
    assert decode_to_active(data) == HELLO
    answer = Answer(1, 0, 1, DIGEST, 1, 1, bytes(8))
    head = wire.ToActive.FromString(encode(answer)).answer.SerializeToString()
    for body in (extra + head, head + extra, b"\x6d\x00\x00\x00\x00" + head):
        assert shown(decode_to_active(b"\x12" + bytes([len(body)]) + body)) == shown(answer)


def test_of_two_values_in_an_answer_the_last_counts_as_protobuf_has_it():
    head = wire.Answer(round=1, digest=DIGEST, n_rows=1, n_columns=1, values=b"a" * 8)
    body = head.SerializeToString() + wire.Answer(values=b"b" * 8).SerializeToString()
    data = b"\x12" + bytes([len(body)]) + body
    assert bytes(decode_to_active(data).values) == b"b" * 8
    assert wire.ToActive.FromString(data).answer.values == b"b" * 8


@pytest.mark.parametrize(
    "message",
    [
        Pong(-1),
        Pong(2**64),
        Pong("seven"),
        Ask(1, -1, 1, ("ann",)),
        Ask(2**64, 0, 1, ("ann",)),
        Ask(1, 0, 1, ("\ud800",)),
        Welcome(1, "text"),
        Answer(1, 0, 1, DIGEST, 2, 2, memoryview(np.eye(4))[::2]),
    ],
)
def test_a_message_of_ours_that_has_no_place_on_the_wire_is_refused(message):
    with pytest.raises(WireError, match=r"cannot hold|take 8 bytes each|go from 0 to"):
        encode(message)


def test_an_answer_of_ours_whose_values_do_not_fit_its_shape_is_refused():
    with pytest.raises(WireError, match="2 rows of 3 values take 8 bytes each, got 40 bytes"):
        encode(Answer(1, 0, 1, DIGEST, 2, 3, bytes(40)))


def test_messages_have_a_largest_size_at_both_ends():
    large = Prepare(1, 1, envelope=bytes(MAX_BYTES))
    with pytest.raises(WireError, match=f"at most {MAX_BYTES} bytes, this one needs"):
        encode(large)
    with pytest.raises(WireError, match=f"at most {MAX_BYTES} bytes, got {MAX_BYTES + 1}"):
        decode_to_passive(bytes(MAX_BYTES + 1))
    values = bytes(8 << 23)
    answer = wire.ToActive(
        answer=wire.Answer(digest=DIGEST, n_rows=1, n_columns=1 << 23, values=values)
    )
    with pytest.raises(WireError, match=f"at most {MAX_BYTES} bytes"):
        decode_to_active(answer.SerializeToString())


def test_a_reason_that_is_too_long_is_cut_rather_than_refused():
    for message, decode in (
        (Refused("terms", "é" * 9_000), decode_to_passive),
        (Declined(1, 0, DECLINES[0], "é" * 9_000), decode_to_active),
    ):
        assert decode(encode(message)).reason == "é" * 2_048


def test_no_error_repeats_what_came():
    secret = "a-plain-feature" * 100
    for data in (
        to_active(hello=wire.Hello(name=secret)),
        to_active(declined=wire.Declined(code=secret)),
        secret.encode(),
    ):
        with pytest.raises(WireError) as caught:
            decode_to_active(data)
        assert "plain-feature" not in str(caught.value)
        assert caught.value.__cause__ is None
