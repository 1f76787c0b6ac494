"""Checks of every field that is decoded, and of encoded messages: each fault is a WireError.

A message of these errors names the field and sizes, never what was in it: the sender is not
trusted, and its bytes have no place in our log.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from vfbandits.errors import WireError
from vfbandits.protocol.messages import MAX_BYTES
from vfbandits.protocol.roster import MAX_NAME_LENGTH, is_name

MAX_TEXT_LENGTH = 1_024
MAX_REASON_LENGTH = 8_192
MAX_COUNT = (1 << 63) - 1
MAX_MEMBERS = 10_000

_MAX_BYTES_OF_A_CHARACTER = 4

M = TypeVar("M", bound=Message)


def parse(kind: type[M], data: bytes) -> M:
    """The wire's own message in ``data``; text in it is valid UTF-8."""
    if len(data) > MAX_BYTES:
        raise WireError(f"a message has at most {MAX_BYTES} bytes, got {len(data)}")
    try:
        return kind.FromString(data)
    except DecodeError:
        name = kind.DESCRIPTOR.name
        raise WireError(f"wanted a whole {name} message, got {len(data)} other bytes") from None


def sized(data: bytes) -> bytes:
    """``data``, if a decoder would take it."""
    if len(data) > MAX_BYTES:
        raise WireError(f"a message has at most {MAX_BYTES} bytes, this one needs {len(data)}")
    return data


def text(value: str, what: str, *, most: int = MAX_TEXT_LENGTH) -> str:
    """A text of at most ``most`` bytes.

    >>> text("ann", "user")
    'ann'
    """
    if len(value) * _MAX_BYTES_OF_A_CHARACTER > most and len(value.encode()) > most:
        raise WireError(f"{what} has at most {most} bytes, got {len(value.encode())}")
    return value


def campaign(value: str) -> str:
    """The name of a campaign, which may be part of paths, logs and records."""
    if not is_name(value):
        raise WireError(
            f"a campaign has 1 to {MAX_NAME_LENGTH} letters, digits, '-', '_' or '.', "
            f"got {len(value)} characters that are no such name"
        )
    return value


def texts(values: Iterable[str], what: str, *, most: int) -> tuple[str, ...]:
    """At most ``most`` texts, none of them too long."""
    held = tuple(values)
    refuse_more(held, what, most=most)
    if held and max(map(len, held)) * _MAX_BYTES_OF_A_CHARACTER > MAX_TEXT_LENGTH:
        for value in held:
            text(value, what)
    return held


def refuse_more(values: Sequence[object], what: str, *, most: int) -> None:
    """Refuse a longer list."""
    if len(values) > most:
        raise WireError(f"{what} has at most {most} items, got {len(values)}")


def count(value: int, what: str, *, most: int = MAX_COUNT) -> int:
    """A count or number that arithmetic and stores can hold."""
    if value > most:
        raise WireError(f"{what} is at most {most}, got {value}")
    return value


def doubles(value: bytes, what: str) -> bytes:
    """Raw float64 values."""
    if len(value) % 8:
        raise WireError(f"{what} holds float64 values of 8 bytes each, got {len(value)} bytes")
    return value


def clipped(reason: str) -> str:
    """A reason that a decoder takes: cut short, it still says more than a refused message."""
    return reason[: MAX_REASON_LENGTH // _MAX_BYTES_OF_A_CHARACTER]
