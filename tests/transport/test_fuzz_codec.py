"""The decoders against bytes from people who wish us ill: WireError, or a message, and soon."""

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_messages import TO_ACTIVE, TO_PASSIVE, shown
from worlds import MORE

from vfbandits.errors import ArmError, WireError
from vfbandits.protocol import application as app
from vfbandits.protocol import messages as msg
from vfbandits.transport.rpc import to_active
from vfbandits.transport.rpc import wire_pb2 as wire
from vfbandits.transport.rpc.application_codec import CHANGE, DECIDE, GATHER, REWARD, STATUS
from vfbandits.transport.rpc.checks import parse
from vfbandits.transport.rpc.codec import decode_to_active, decode_to_passive, encode

MAX_S = 1.0
D = bytes(range(16))
SEEDS = [
    encode(message)
    for message in (
        msg.Hello(
            1, 1, "fair", "ab", "bank", 2, 5, "per_arm", "dense", "plain", "", "<f8", (1, 2), 9
        ),
        msg.Answer(7, 1, 2, D, 3, 4, bytes(range(96)), 1),
        msg.Answer(2**62, 0, 1, D, 0, 0, b""),
        msg.Declined(3, 1, "busy", "später"),
        msg.Pong(5),
        msg.Welcome(1, b"sealed"),
        msg.Refused("terms", "wanted width 3, got 4"),
        msg.Ask(7, 1, 2, ("ann", "bob"), (("tea",), ("tea", "maté")), ("bank", "news"), 1),
        msg.Ask(8, 0, 2, ("ann",)),
        msg.Ping(5),
        msg.Prepare(2, 9, ("bank",), b"roster", b"sealed"),
        msg.Commit(3),
        msg.Abort(4),
    )
] + [
    DECIDE.request.encode(app.DecideRequest("ann", ("tea", "mate"), bytes(16), bytes(8), "d", 1)),
    DECIDE.reply.encode(
        app.DecideReply("d", "tea", 0, 0.5, bytes(16), bytes(16), ("shop",), 2, 96, 0.01)
    ),
    REWARD.request.encode(app.RewardRequest("d", 1.0, 1)),
    REWARD.reply.encode(app.RewardReply(learnt=True)),
    STATUS.reply.encode(app.StatusReply("{}")),
    CHANGE.request.encode(app.ChangeRequest(b"roster", {"bank": b"sealed", "news": b""})),
    CHANGE.reply.encode(app.ChangeReply(3, "ab")),
    GATHER.request.encode(
        app.GatherRequest(
            (
                app.DecideRequest("ann", ("tea", "mate"), bytes(16), bytes(8), "d"),
                app.DecideRequest("bob", ("tea",)),
            )
        )
    ),
    GATHER.reply.encode(
        app.GatherReplies(
            (
                app.GatherReply(bytes(32), ("shop", "bank"), 3, 160),
                ArmError("arms must differ"),
            )
        )
    ),
]
CODECS = [
    codec
    for method in (DECIDE, REWARD, STATUS, CHANGE, GATHER)
    for codec in (method.request, method.reply)
]


def mutated(rng: random.Random) -> bytes:
    """A message with some harm done to it, or plain noise."""
    if rng.random() < 0.05:
        return rng.randbytes(rng.randrange(200))
    data = bytearray(rng.choice(SEEDS))
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(8):
            case 0:
                data[at : at + 1] = rng.randbytes(1)
            case 1:
                data[at:at] = rng.randbytes(rng.randrange(1, 5))
            case 2:
                del data[at : at + rng.randrange(1, 8)]
            case 3:
                del data[at:]
            case 4:
                data[at:at] = rng.choice(SEEDS)
            case 5:
                data[at : at + 1] = b"\xff" * rng.randrange(1, 12)
            case 6 if at < len(data):
                data[at] ^= 1 << rng.randrange(8)
            case 7 if at < len(data):
                # The same number in more bytes than it needs, if it is one.
                data[at : at + 1] = bytes([data[at] | 128, *[128] * rng.randrange(10), 0])
    return bytes(data)


def outcome(decode, data):
    """What comes of it, comparable; anything but a message or WireError is raised."""
    try:
        return shown(decode(data))
    except WireError:
        return WireError


def by_protobuf_alone(data):
    top = parse(wire.ToActive, data)
    decoder = to_active.DECODERS.get(top.WhichOneof("message"))
    if decoder is None:
        raise WireError("no known kind")
    return decoder(top)


def attack(data):
    start = time.thread_time()
    got = outcome(decode_to_active, data)
    assert got == outcome(by_protobuf_alone, data)
    for decode in (decode_to_active, decode_to_passive):
        if outcome(decode, data) is not WireError:
            message = decode(data)
            assert shown(decode(encode(message))) == shown(message)
    for codec in CODECS:
        if outcome(codec.decode, data) is not WireError:
            message = codec.decode(data)
            if not any(isinstance(one, WireError) for one in getattr(message, "requests", ())):
                assert shown(codec.decode(codec.encode(message))) == shown(message)
    assert time.thread_time() - start < MAX_S


def run(count, seed):
    rng = random.Random(seed)  # noqa: S311  nothing secret
    for _ in range(count):
        attack(mutated(rng))


def test_thousands_of_damaged_messages_are_refused_or_understood():
    run(5_000, seed=1)


@pytest.mark.long
def test_a_hundred_thousand_damaged_messages_are_refused_or_understood():
    run(100_000, seed=2)


@given(data=st.binary(max_size=300))
@settings(deadline=None, max_examples=300 * MORE)
def test_noise_is_refused_or_understood(data):
    attack(data)


@given(message=TO_ACTIVE | TO_PASSIVE, data=st.data())
@settings(deadline=None, max_examples=300 * MORE)
def test_a_message_with_a_part_replaced_is_refused_or_understood(message, data):
    whole = encode(message)
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    attack(whole[:start] + data.draw(st.binary(max_size=20)) + whole[end:])


def test_the_mutations_reach_both_outcomes():
    """A fuzzer whose inputs are all refused at the door tests the door only."""
    rng = random.Random(3)  # noqa: S311  nothing secret
    results = [outcome(decode_to_active, mutated(rng)) for _ in range(3_000)]
    understood = [result for result in results if result is not WireError]
    assert 50 < len(understood) < 2_950
    assert {kind for kind, _ in understood} == {msg.Hello, msg.Answer, msg.Declined, msg.Pong}
