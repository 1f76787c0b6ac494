"""Messages between participants as bytes, both ways.

Decoding is a security boundary: what comes out has been checked as far as one message alone can
be, and every fault raises WireError.  Fields that this version does not know are ignored:
the handshake, which refuses other versions, must be able to read their hello.  For the same reason
the words of a hello are not checked here but compared there.
"""

import struct

from vfbandits.errors import WireError
from vfbandits.protocol.messages import Message, ToActive, ToPassive
from vfbandits.transport.rpc import to_active, to_passive
from vfbandits.transport.rpc import wire_pb2 as wire
from vfbandits.transport.rpc.answer import find_answer
from vfbandits.transport.rpc.ask import find_ask
from vfbandits.transport.rpc.checks import parse, sized

_ENCODERS = {**to_active.ENCODERS, **to_passive.ENCODERS}


def encode(message: Message) -> bytes:
    """A message as it travels.

    >>> from vfbandits.protocol.messages import Ping
    >>> decode_to_passive(encode(Ping(7)))
    Ping(number=7)
    """
    try:
        return sized(_ENCODERS[type(message)](message))
    except (BufferError, TypeError, ValueError, struct.error) as error:
        if isinstance(error, WireError):
            raise
        # The cause would hold what was in the field.
        kind = type(message).__name__
        raise WireError(f"{kind} has a field that the wire format cannot hold") from None


def decode_to_active(data: bytes) -> ToActive:
    """A passive participant's message; the values of an answer may be a view of ``data``."""
    answer = find_answer(data)
    if answer is not None:
        return answer
    top = parse(wire.ToActive, data)
    decoder = to_active.DECODERS.get(top.WhichOneof("message"))
    if decoder is None:
        raise WireError(
            f"wanted a message for the active participant, got {len(data)} bytes of no known kind"
        )
    return decoder(top)


def decode_to_passive(data: bytes) -> ToPassive:
    """The active participant's message."""
    ask = find_ask(data)
    if ask is not None:
        return ask
    top = parse(wire.ToPassive, data)
    decoder = to_passive.DECODERS.get(top.WhichOneof("message"))
    if decoder is None:
        raise WireError(
            f"wanted a message for a passive participant, got {len(data)} bytes of no known kind"
        )
    return decoder(top)
