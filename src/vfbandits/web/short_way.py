"""A short way through the HTTP server for the two calls that come with every visitor.

uvicorn hands an application a request in pieces and takes its answer in pieces, and checks each of
them; a router and its middleware come on top.  Together that takes longer than a decision.  Here a
call that came as a whole is handed on as a whole, and its answer is written at once.

Only what is plain goes this way: POST to one of two paths, of a declared and small size, straight
from the caller.  A proxy, a body in chunks, a connection that is about to end: all that goes
through the application, as does everything else.
"""

from typing import Final, Protocol, cast

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from vfbandits.web.client_certificate import CertifiedProtocol
from vfbandits.web.hot import HotCall, find_call

_JSON: Final = "application/json"
# Whoever sends one of these wants more of a server than the short way gives.
_UNUSUAL: Final = (b"transfer-encoding", b"expect", b"upgrade", b"connection", b"x-forwarded-")
_USUAL: Final = (b"connection", b"keep-alive")


class Shortcut(Protocol):
    """What stands at the end of the short way: a guard, and the calls behind it."""

    @property
    def most_bytes(self) -> int:
        """The largest body."""
        ...

    async def answer(self, call: HotCall, scope: Scope, body: bytes) -> bytes | Response:
        """JSON that goes with 200, or another response."""
        ...


class ShortWayProtocol(CertifiedProtocol):
    """A connection; ``shortcut`` is set in a subclass for each server."""

    shortcut: Shortcut
    _waiting: "ShortCall | None" = None

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGIApp) -> None:  # type: ignore[override]  # uvicorn's own type
        """A request has begun."""
        call = self._find(cycle)
        if call is None:
            super()._start_asgi_task(cycle, app)  # type: ignore[arg-type]  # uvicorn's own type
            return
        short = ShortCall(self.shortcut, call, cycle)
        if cycle.more_body:
            self._waiting = short
        else:  # it came behind another one
            super()._start_asgi_task(cycle, short)  # type: ignore[arg-type]  # uvicorn's own type

    def on_message_complete(self) -> None:
        """A request has come as a whole."""
        super().on_message_complete()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            super()._start_asgi_task(waiting.cycle, waiting)  # type: ignore[arg-type]  # uvicorn's own type

    def _find(self, cycle: RequestResponseCycle) -> HotCall | None:
        scope = cycle.scope
        if scope["method"] != "POST" or not cycle.keep_alive:
            return None
        call = find_call(scope["path"])
        if call is None:
            return None
        # More than this is not read before the application asks for it.
        most = min(self.shortcut.most_bytes, HIGH_WATER_LIMIT)
        is_declared = False
        for name, value in scope["headers"]:
            if name == b"content-length":
                if not value.isdigit() or int(value) > most:
                    return None
                is_declared = True
            elif name.startswith(_UNUSUAL) and (name, value) != _USUAL:
                return None
        return call if is_declared else None


class ShortCall:
    """One request on the short way, as an application that answers just this one."""

    __slots__ = ("_call", "_shortcut", "cycle")

    def __init__(self, shortcut: Shortcut, call: HotCall, cycle: RequestResponseCycle) -> None:
        self._shortcut = shortcut
        self._call = call
        self.cycle = cycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        cycle = self.cycle
        answer = await self._shortcut.answer(self._call, scope, bytes(cycle.body))
        if not isinstance(answer, bytes):
            await answer(scope, receive, send)
        elif cycle.disconnected or cycle.flow.write_paused or not cycle.keep_alive:
            await Response(answer, media_type=_JSON)(scope, receive, send)
        else:
            cycle.response_started = cycle.response_complete = True
            cycle.transport.write(_head(cycle.default_headers, len(answer)) + answer)
            cycle.message_event.set()
            cycle.on_response()


def _head(headers: list[tuple[bytes, bytes]], size: int) -> bytes:
    """The beginning of an answer; ``headers`` are what the server says with every one."""
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    return b"HTTP/1.1 200 OK\r\n%bcontent-length: %d\r\ncontent-type: application/json\r\n\r\n" % (
        lines,
        size,
    )


def protocol_for(app: ASGIApp) -> type[CertifiedProtocol]:
    """The connections of a server; those of a ``Shortcut`` know the short way to it."""
    shortcut = getattr(app, "shortcut", None)
    if shortcut is None:
        return CertifiedProtocol

    class Known(ShortWayProtocol):
        pass

    Known.shortcut = cast(Shortcut, shortcut)
    return Known
