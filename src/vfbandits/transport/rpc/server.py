"""The active participant's one port: streams of participants, and calls of applications."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn, TypeVar

import grpc
import structlog

from vfbandits.errors import ConfigError, IdentityError, LinkError, VFBanditsError
from vfbandits.protocol.application import GatherReplies, GatherRequest
from vfbandits.protocol.version import SPOKEN
from vfbandits.transport.channel import Handler, Peer
from vfbandits.transport.rpc.alignment import (
    ALIGNMENT,
    BEGIN,
    EXCHANGE,
    TELL,
    AlignmentCalls,
)
from vfbandits.transport.rpc.application_codec import (
    CHANGE,
    DECIDE,
    GATHER,
    REWARD,
    SERVICE,
    STATUS,
    Method,
)
from vfbandits.transport.rpc.caller import FEDERATION, PROTOCOL_KEY, Context, peer_of
from vfbandits.transport.rpc.calls import Calls
from vfbandits.transport.rpc.codec import decode_to_active
from vfbandits.transport.rpc.options import SERVER, refuse_plain
from vfbandits.transport.rpc.status import ERROR_KEY, Status, status_of
from vfbandits.transport.rpc.stream import CLOSE_S, End, StreamLink
from vfbandits.transport.rpc.tls import TlsFiles, own_identity, server_credentials

Q = TypeVar("Q")
R = TypeVar("R")

_log = structlog.get_logger(__name__)


class RpcListener:
    """Implements ``Listener``.

    With ``tls`` peers are known by their certificates, and must be of the federation that our own
    is of.  Without it the address must be on loopback, and peers are who they say they are.
    Without a handler, or without ``calls`` or ``alignment``, no such calls are accepted.
    """

    def __init__(
        self,
        address: str,
        *,
        tls: TlsFiles | None,
        calls: Calls | None = None,
        alignment: AlignmentCalls | None = None,
    ) -> None:
        if tls is None:
            refuse_plain(address)
        self._alignment = alignment
        self._address = address
        self._tls = tls
        self._calls = calls
        self._federation = None if tls is None else own_identity(tls).federation
        self._handling: set[asyncio.Task[Status | None]] = set()
        self._server: grpc.aio.Server | None = None

    async def start(self, handler: Handler | None) -> int:
        """Listen; returns the port.  ConfigError if the address cannot be bound."""
        server = grpc.aio.server(options=SERVER)
        server.add_generic_rpc_handlers(tuple(self._services(handler)))
        try:
            if self._tls is None:
                port = server.add_insecure_port(self._address)
            else:
                port = server.add_secure_port(self._address, server_credentials(self._tls))
        except RuntimeError:
            raise ConfigError(f"cannot listen on {self._address!r}: is it in use?") from None
        await server.start()
        self._server = server
        return port

    async def stop(self, *, grace_s: float) -> None:
        """Accept no more streams, and end those that are still open after ``grace_s``."""
        if self._server is not None:
            await self._server.stop(grace_s)
        self._server = None
        if self._handling:
            _, late = await asyncio.wait(self._handling, timeout=CLOSE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _services(self, handler: Handler | None) -> list[grpc.GenericRpcHandler]:
        services = [] if handler is None else [self._federation_service(handler)]
        if self._calls is not None:
            methods = {
                DECIDE.name: self._unary(DECIDE, self._calls.decide),
                REWARD.name: self._unary(REWARD, self._calls.reward),
                STATUS.name: self._unary(STATUS, self._calls.status),
                CHANGE.name: self._unary(CHANGE, self._calls.change),
                GATHER.name: self._unary(GATHER, _logging_outcomes(self._calls.gather)),
            }
            services.append(grpc.method_handlers_generic_handler(SERVICE, methods))
        if self._alignment is not None:
            methods = {
                BEGIN.name: self._unary(BEGIN, self._alignment.begin),
                EXCHANGE.name: self._unary(EXCHANGE, self._alignment.exchange),
                TELL.name: self._unary(TELL, self._alignment.tell),
            }
            services.append(grpc.method_handlers_generic_handler(ALIGNMENT, methods))
        return services

    def _federation_service(self, handler: Handler) -> grpc.GenericRpcHandler:
        async def join(_: object, context: Context) -> None:
            await self._join(handler, context)

        stream: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(join)
        return grpc.method_handlers_generic_handler(FEDERATION, {"Join": stream})

    async def _join(self, handler: Handler, context: Context) -> None:
        try:
            peer = peer_of(context, federation=self._federation)
        except IdentityError as error:
            await _abort(context, _logged(error, context.peer()))
        await context.send_initial_metadata(((PROTOCOL_KEY, str(SPOKEN.highest)),))
        link = StreamLink(peer, End(context, decode_to_active))
        handling = asyncio.ensure_future(_handled(handler, link))
        self._handling.add(handling)
        handling.add_done_callback(self._handling.discard)
        try:
            await asyncio.wait((handling, link.over), return_when=asyncio.FIRST_COMPLETED)
            if handling.done():
                await link.close()
        finally:
            # Cancelled, if the peer vanished: its handler must know that the stream has ended.
            link.lose("the stream has ended")
            link.drop()
        status = handling.result() if handling.done() and not handling.cancelled() else None
        if status is not None:
            await _abort(context, status)

    def _unary(
        self, method: Method[Q, R], call: Callable[[Peer, Q], Awaitable[R]]
    ) -> "grpc.RpcMethodHandler[bytes, bytes]":
        async def serve(data: bytes, context: Context) -> bytes:
            try:
                peer = peer_of(context, federation=self._federation)
                return method.reply.encode(await call(peer, method.request.decode(data)))
            except Exception as error:  # noqa: BLE001  gRPC would show the peer its text
                status = _logged(error, context.peer())
            return await _abort(context, status)

        return grpc.unary_unary_rpc_method_handler(serve)


def _logging_outcomes(
    gather: Callable[[Peer, GatherRequest], Awaitable[GatherReplies]],
) -> Callable[[Peer, GatherRequest], Awaitable[GatherReplies]]:
    """Log each error among the outcomes that the peer does not receive."""

    async def logging(peer: Peer, request: GatherRequest) -> GatherReplies:
        replies = await gather(peer, request)
        for outcome in replies.outcomes:
            if isinstance(outcome, VFBanditsError):
                _logged(outcome, peer.address)
        return replies

    return logging


async def _handled(handler: Handler, link: StreamLink) -> Status | None:
    """Run a handler to its end; returns the status for the peer, if there is one."""
    try:
        await handler(link)
    except LinkError:
        return None
    except Exception as error:  # noqa: BLE001  gRPC would show the peer its text
        return _logged(error, link.peer.address)
    return None


def _logged(error: Exception, address: str) -> Status:
    """The status that the peer receives for an error; the log has what it does not receive."""
    status = status_of(error)
    if not status.kind:
        _log.error("call_failed", address=address, exc_info=error)
    elif isinstance(error, IdentityError):
        _log.warning("peer_refused", address=address, reason=status.sentence)
    return status


async def _abort(context: Context, status: Status) -> NoReturn:
    await context.abort(status.code, status.sentence, ((ERROR_KEY, status.kind),))
