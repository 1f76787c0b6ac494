"""Messages that nobody should have sent: fields changed at random."""

import numpy as np
from hypothesis import strategies as st

from vfbandits.core.noise import VectorNoise
from vfbandits.protocol.messages import (
    Abort,
    Answer,
    Ask,
    Commit,
    Declined,
    Hello,
    Ping,
    Pong,
    Prepare,
    Refused,
    Welcome,
)

NUMBERS = (0, 1, 2, 3, 7, 1 << 40, 1 << 62, 1 << 63, (1 << 64) - 1)
PLACES = st.sampled_from([(0,), (1, 0), (99,)])
TEXTS = ("", "bank", "mall", "x" * 300, "\0\n")
# A message that says it is another attempt's, or other numbers of the right size, cannot be told
# from a right one, nor rows that it says it withholds; TLS sees to it that nobody makes such
# messages but the participant itself.
UNDETECTABLE = {"attempt", "values", "withheld"}
NOISE = VectorNoise(10.0, 1e-5, clip=1.0)


def tampered(message, *, secure):
    """The message with one field changed; the change may be none."""
    names = list(message.__match_args__)
    fields = {name: getattr(message, name) for name in names}
    if isinstance(message, Answer) and secure:
        names = [name for name in names if name not in UNDETECTABLE]
    if isinstance(message, Prepare):
        names.remove("round")
    return st.sampled_from(names).flatmap(
        lambda name: (PLACES if name == "withheld" else _other(fields[name])).map(
            lambda value: type(message)(**{**fields, name: value})
        )
    )


def _other(value):
    if value is None or isinstance(value, VectorNoise):
        return st.sampled_from([None, NOISE])
    if isinstance(value, int):
        return st.sampled_from([*NUMBERS, value + 1, max(0, value - 1)])
    if isinstance(value, str):
        return st.sampled_from(TEXTS)
    if isinstance(value, bytes | memoryview):
        return st.sampled_from(_other_bytes(bytes(value)))
    if value and isinstance(value[0], tuple):
        return st.sampled_from([(), value[1:], value[::-1], (*value, ("a",)), ((),) * len(value)])
    extra = 99 if value and isinstance(value[0], int) else "mall"
    return st.sampled_from([(), value[1:], value[::-1], (*value, extra), value + value[:1]])


def _other_bytes(raw):
    flipped = raw[:-1] + bytes([raw[-1] ^ 1]) if raw else b"!"
    bad = [np.full(len(raw) // 8, number).tobytes() for number in (np.nan, np.inf, 1e6)]
    return [b"", raw[1:], raw + b"\0" * 8, flipped[:7], *bad]


def foreign(direction):
    """Messages of the other role, or of nobody."""
    to_active = st.sampled_from(
        [
            Hello(1, 1, "acme", "", "bank", 1, 2, "per_arm", "dense", "plain", "", "<f8", (), 1),
            Answer(1, 0, 1, b"", 1, 1, bytes(8)),
            Declined(1, 0, "lost_bytes", "made up"),
            Declined(2, 0, "features", "made up"),
            Pong(0),
            Pong(1),
        ]
    )
    to_passive = st.sampled_from(
        [
            Welcome(1),
            Welcome(2, b"sealed"),
            Refused("handshake", "made up"),
            Ask(1, 0, 1, ("ann",), (("a",),)),
            Ask(3, 1, 1, ("ann",), (("a",),), ("bank", "news")),
            Ping(1),
            Prepare(2, 0),
            Commit(1),
            Commit(2),
            Abort(1),
            Abort(2),
        ]
    )
    return {"up": to_passive, "down": to_active}[direction]
