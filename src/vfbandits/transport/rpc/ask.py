"""An ask as bytes: the message that every decision sends to each passive participant.

It is one field of a protobuf message, and what is in it is MessagePack: the fields of ``Ask`` in
their order.  A participant reads an ask before it can begin to answer, and protobuf takes several
times as long for the lists of texts in it.

An ask with more fields than this version knows is refused: what they ask for would be ignored.
"""

from typing import Final

import msgspec

from vfbandits.errors import WireError
from vfbandits.protocol.messages import MAX_BYTES, MAX_ROWS, Ask
from vfbandits.transport.rpc import wire_pb2 as wire
from vfbandits.transport.rpc.answer import varint
from vfbandits.transport.rpc.checks import (
    MAX_COUNT,
    MAX_MEMBERS,
    MAX_TEXT_LENGTH,
    campaign,
    texts,
)

_TAG: Final = bytes([wire.ToPassive.ASK_FIELD_NUMBER << 3 | 2])
_HEAD_SIZE: Final = 6  # the tag and the length
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Ask).decode


class AskEncoder:
    """The same ask goes to every participant, one after the other: it is encoded once."""

    def __init__(self) -> None:
        self._last: Ask | None = None
        self._data = b""

    def __call__(self, m: Ask) -> bytes:
        """A ``ToPassive`` with ``m``."""
        if m is not self._last:
            _refuse_numbers(m)
            body = _encode(m)
            self._data, self._last = _TAG + varint(len(body)) + body, m
        return self._data


def find_ask(data: bytes) -> Ask | None:
    """The ask in ``data``, if it is one as ``AskEncoder`` writes; None for any other message."""
    if not data.startswith(_TAG) or not _HEAD_SIZE < len(data) <= MAX_BYTES:
        return None
    if data[1:_HEAD_SIZE] != varint(len(data) - _HEAD_SIZE):
        return None
    return decode_ask(memoryview(data)[_HEAD_SIZE:])


def decode_ask(body: bytes | memoryview) -> Ask:
    """The ask in the bytes of its field."""
    try:
        ask = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise WireError(f"wanted a whole Ask, got {len(body)} other bytes") from None
    users, arms, campaigns = ask.users, ask.arms, ask.campaigns
    if arms and len(arms) != len(users):
        raise WireError(f"arms are for each of {len(users)} users, got those of {len(arms)}")
    if campaigns and len(campaigns) not in (1, len(users)):
        raise WireError(
            f"campaigns has one name, or one for each of {len(users)} users, got {len(campaigns)}"
        )
    for name in {*campaigns}:
        campaign(name)
    if len(body) > MAX_TEXT_LENGTH:  # else none of the texts can be too long, nor their lists
        _refuse_long(ask)
    _refuse_numbers(ask)
    return ask


def _refuse_numbers(ask: Ask) -> None:
    for number in (ask.round, ask.attempt, ask.epoch, ask.trial, *(ask.place or ())):
        if not 0 <= number <= MAX_COUNT:
            raise WireError(
                f"round, attempt, epoch, trial and place go from 0 to {MAX_COUNT}, got {number}"
            )


def _refuse_long(ask: Ask) -> None:
    texts(ask.users, "users", most=MAX_ROWS)
    texts([arm for some in ask.arms for arm in some], "arms", most=MAX_ROWS)
    texts(ask.senders, "senders", most=MAX_MEMBERS)
    texts(ask.absent, "absent", most=MAX_MEMBERS)
