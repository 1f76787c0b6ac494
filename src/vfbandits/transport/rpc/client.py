"""A passive participant's connection to the active one: it dials, and keeps the stream."""

import asyncio
from typing import Final, TypeAlias

import grpc

from vfbandits.errors import LinkError
from vfbandits.protocol.roster import ACTIVE
from vfbandits.transport.channel import Link, Peer
from vfbandits.transport.rpc.caller import JOIN, PROTOCOL_KEY
from vfbandits.transport.rpc.codec import decode_to_passive
from vfbandits.transport.rpc.dialling import Route
from vfbandits.transport.rpc.stream import End, StreamLink
from vfbandits.transport.rpc.tls import TlsFiles

# Long after any dial has been given up: there is one attempt.
NEVER_MS: Final = 600_000

Call: TypeAlias = grpc.aio.StreamStreamCall[bytes, bytes]


class RpcDialer:
    """Implements ``Dialer``; see ``Route`` for the arguments.

    Each link has a connection of its own, and there is no hidden retry: the caller decides
    when to dial again.  The peer of a link goes by the host that its certificate was checked for;
    gRPC does not show the certificate itself to the end that dials.
    """

    def __init__(
        self, address: str, *, tls: TlsFiles | None, name: str, role: str, server_name: str = ""
    ) -> None:
        self._route = Route(address, tls, name, role, server_name)

    async def dial(self, *, timeout_s: float) -> Link:
        """Open a stream; LinkError says why it failed."""
        channel = self._route.open(back_off_ms=NEVER_MS)
        call: Call = channel.stream_stream(JOIN)(metadata=self._route.metadata)
        link = None
        try:
            async with asyncio.timeout(timeout_s):
                # The listening end sends this as soon as it has accepted us.  A stream that it
                # ends immediately may lose it, but then ends with OK, which no refusal does.
                accepted = PROTOCOL_KEY in (await call.initial_metadata() or ())
                if not accepted and await call.code() is not grpc.StatusCode.OK:
                    raise await self._refused(call)
                link = self._link(channel, call)
                return link
        except TimeoutError:
            address = self._route.address
            raise LinkError(f"{address} did not answer within {timeout_s:g} s") from None
        finally:
            if link is None:
                call.cancel()
                await channel.close()

    async def close(self) -> None:
        """Nothing to release: a link holds its own connection."""

    def _link(self, channel: grpc.aio.Channel, call: Call) -> StreamLink:
        async def free() -> None:
            call.cancel()
            await channel.close()

        peer = Peer(self._route.server_name, ACTIVE, "", self._route.address)
        return StreamLink(peer, End(call, decode_to_passive, call.done_writing, free))

    async def _refused(self, call: Call) -> LinkError:
        code, said, told = await call.code(), await call.details(), await call.trailing_metadata()
        error = self._route.failure(grpc.aio.AioRpcError(code, None, told, said))
        if isinstance(error, LinkError):
            return error
        return LinkError(f"{self._route.address} refused: {error}")
