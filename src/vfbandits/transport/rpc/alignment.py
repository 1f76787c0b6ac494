"""The calls of ``vfb align``, as bytes and over gRPC: a passive participant asks the active one."""

from collections.abc import Sequence
from typing import Final, Protocol

from vfbandits.errors import WireError
from vfbandits.protocol.alignment import (
    DIGEST_SIZE,
    ELEMENT_SIZE,
    MAX_ELEMENTS,
    MAX_USERS,
    AlignBegin,
    AlignBegun,
    AlignCommon,
    AlignElements,
    AlignReply,
    AlignTold,
)
from vfbandits.protocol.pseudonyms import SIZE as PSEUDONYM_SIZE
from vfbandits.transport.channel import Peer
from vfbandits.transport.rpc import wire_pb2 as wire
from vfbandits.transport.rpc.application_codec import Codec, Method
from vfbandits.transport.rpc.checks import count, parse, refuse_more, text
from vfbandits.transport.rpc.dialling import Route
from vfbandits.transport.rpc.unary import UnaryCalls

ALIGNMENT: Final = "vfbandits.v1.Alignment"


class AlignmentCalls(Protocol):
    """Implementations decide who may call: the port only identifies the caller."""

    async def begin(self, peer: Peer, request: AlignBegin, /) -> AlignBegun:
        """Begin, or begin again."""
        ...

    async def exchange(self, peer: Peer, request: AlignElements, /) -> AlignReply:
        """Put elements under the own key too, and send the next own ones."""
        ...

    async def tell(self, peer: Peer, request: AlignCommon, /) -> AlignTold:
        """Receive common users."""
        ...


class AlignmentClient:
    """Asks the active participant, over one connection."""

    def __init__(self, route: Route) -> None:
        self._calls = UnaryCalls(route)

    async def begin(self, request: AlignBegin, *, timeout_s: float) -> AlignBegun:
        """Begin, or begin again."""
        return await self._calls.call(BEGIN, request, timeout_s)

    async def exchange(self, request: AlignElements, *, timeout_s: float) -> AlignReply:
        """Exchange the next elements."""
        return await self._calls.call(EXCHANGE, request, timeout_s)

    async def tell(self, request: AlignCommon, *, timeout_s: float) -> AlignTold:
        """Send common users."""
        return await self._calls.call(TELL, request, timeout_s)

    async def close(self) -> None:
        """Close the connection."""
        await self._calls.close()


def _read_begin(data: bytes) -> AlignBegin:
    m = parse(wire.AlignBegin, data)
    return AlignBegin(text(m.roster, "roster"), count(m.n_users, "n_users", most=MAX_USERS))


def _read_begun(data: bytes) -> AlignBegun:
    m = parse(wire.AlignBegun, data)
    return AlignBegun(count(m.n_users, "n_users", most=MAX_USERS))


def _read_elements(data: bytes) -> AlignElements:
    m = parse(wire.AlignElements, data)
    elements = _sized(m.elements[:], "elements", ELEMENT_SIZE)
    return AlignElements(count(m.start, "start", most=MAX_USERS), elements)


def _read_reply(data: bytes) -> AlignReply:
    m = parse(wire.AlignReply, data)
    elements = _sized(m.elements[:], "elements", ELEMENT_SIZE)
    return AlignReply(elements, _sized(m.own[:], "own", ELEMENT_SIZE))


def _read_common(data: bytes) -> AlignCommon:
    m = parse(wire.AlignCommon, data)
    return AlignCommon(_sized(m.pseudonyms[:], "pseudonyms", PSEUDONYM_SIZE), _digest(m.digest))


def _read_told(data: bytes) -> AlignTold:
    m = parse(wire.AlignTold, data)
    return AlignTold(count(m.n_common, "n_common", most=MAX_USERS), _digest(m.digest))


def _sized(values: Sequence[bytes], what: str, size: int) -> tuple[bytes, ...]:
    refuse_more(values, what, most=MAX_ELEMENTS)
    wrong = next((len(value) for value in values if len(value) != size), None)
    if wrong is not None:
        raise WireError(f"{what} have {size} bytes each, got one of {wrong}")
    return tuple(values)


def _digest(value: bytes) -> bytes:
    if value and len(value) != DIGEST_SIZE:
        raise WireError(f"a digest has {DIGEST_SIZE} bytes, got {len(value)}")
    return value


def _write_begin(m: AlignBegin) -> bytes:
    return wire.AlignBegin(roster=m.roster, n_users=m.n_users).SerializeToString()


def _write_begun(m: AlignBegun) -> bytes:
    return wire.AlignBegun(n_users=m.n_users).SerializeToString()


def _write_elements(m: AlignElements) -> bytes:
    return wire.AlignElements(start=m.start, elements=m.elements).SerializeToString()


def _write_reply(m: AlignReply) -> bytes:
    return wire.AlignReply(elements=m.elements, own=m.own).SerializeToString()


def _write_common(m: AlignCommon) -> bytes:
    return wire.AlignCommon(pseudonyms=m.pseudonyms, digest=m.digest).SerializeToString()


def _write_told(m: AlignTold) -> bytes:
    return wire.AlignTold(n_common=m.n_common, digest=m.digest).SerializeToString()


BEGIN: Final = Method(
    "Begin", Codec(_write_begin, _read_begin), Codec(_write_begun, _read_begun), ALIGNMENT
)
EXCHANGE: Final = Method(
    "Exchange", Codec(_write_elements, _read_elements), Codec(_write_reply, _read_reply), ALIGNMENT
)
TELL: Final = Method(
    "Tell", Codec(_write_common, _read_common), Codec(_write_told, _read_told), ALIGNMENT
)
