"""A short way through the HTTP server for the two calls that come with every visitor.

uvicorn hands an application a request in pieces and takes its answer in pieces, and checks each of
them; a router and its middleware come on top.  Together that takes longer than a decision.  Here a
call that came as a whole is handed on as a whole, and its answer is written at once.  Calls of rank
that come in the same turn of the event loop are handed on together.

Only what is plain goes this way: POST to one of two paths, of a declared and small size.  A body in
chunks, a connection that is about to end: all that goes through the application, as does everything
else.
"""

from collections.abc import Sequence
from typing import Final, Protocol, cast

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from vfbandits.http.access.client_certificate import CertifiedProtocol
from vfbandits.http.hot import Answer, HotCall, Whole, find_call
from vfbandits.http.refuse import problem_for
from vfbandits.serving.served import BATCH_SIZE

_JSON: Final = "application/json"
# Whoever sends one of these wants more of a server than the short way gives.
_UNUSUAL: Final = (b"transfer-encoding", b"expect", b"upgrade", b"connection")
_USUAL: Final = (b"connection", b"keep-alive")


class Shortcut(Protocol):
    """What stands at the end of the short way: a guard, and the calls behind it."""

    @property
    def most_bytes(self) -> int:
        """The largest body."""
        ...

    async def reward(self, event_id: str, call: Whole) -> Answer:
        """The answer to a reward."""
        ...

    async def rank_all(self, calls: Sequence[Whole]) -> list[Answer]:
        """The answers to calls of rank, in their order."""
        ...


class ShortWayProtocol(CertifiedProtocol):
    """A connection; ``shortcut`` is set in a subclass for each server."""

    shortcut: Shortcut
    ranks: "Ranks"
    _waiting: "ShortCall | None" = None

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGIApp) -> None:  # type: ignore[override]  # uvicorn's own type
        """A request has begun."""
        call = self._find(cycle)
        if call is None:
            super()._start_asgi_task(cycle, app)  # type: ignore[arg-type]  # uvicorn's own type
            return
        short = ShortCall(self.shortcut, call.event_id, cycle)
        if cycle.more_body:
            self._waiting = short
        else:  # it came behind another one
            super()._start_asgi_task(cycle, short)  # type: ignore[arg-type]  # uvicorn's own type

    def on_message_complete(self) -> None:
        """A request has come as a whole."""
        super().on_message_complete()
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return
        if waiting.event_id is None:
            self.ranks.add(self, waiting.cycle)
        else:
            super()._start_asgi_task(waiting.cycle, waiting)  # type: ignore[arg-type]  # uvicorn's own type

    def answer(self, cycle: RequestResponseCycle, answer: Answer) -> None:
        """Write an answer, at once if nothing stands in its way."""
        if not isinstance(answer, bytes):
            super()._start_asgi_task(cycle, answer)  # type: ignore[arg-type]  # uvicorn's own type
        elif not write_at_once(cycle, answer):
            super()._start_asgi_task(cycle, Response(answer, media_type=_JSON))  # type: ignore[arg-type]  # uvicorn's own type

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

    __slots__ = ("_shortcut", "cycle", "event_id")

    def __init__(
        self, shortcut: Shortcut, event_id: str | None, cycle: RequestResponseCycle
    ) -> None:
        self._shortcut = shortcut
        self.event_id = event_id
        self.cycle = cycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        call = Whole(scope, bytes(self.cycle.body))
        if self.event_id is None:
            (answer,) = await self._shortcut.rank_all([call])
        else:
            answer = await self._shortcut.reward(self.event_id, call)
        if not isinstance(answer, bytes):
            await answer(scope, receive, send)
        elif not write_at_once(self.cycle, answer):
            await Response(answer, media_type=_JSON)(scope, receive, send)


class Ranks:
    """Calls of rank that have come as a whole, over any connection, in one turn of the loop."""

    def __init__(self, shortcut: Shortcut) -> None:
        self._shortcut = shortcut
        self._calls: list[tuple[ShortWayProtocol, RequestResponseCycle]] = []

    def add(self, connection: ShortWayProtocol, cycle: RequestResponseCycle) -> None:
        """One more; all that have come are answered once the loop has heard everybody."""
        self._calls.append((connection, cycle))
        if len(self._calls) == 1:
            connection.loop.call_soon(self._start, connection)

    def _start(self, first: ShortWayProtocol) -> None:
        calls, self._calls = self._calls, []
        # More at a time would save little, and all would wait for the last.
        for start in range(0, len(calls), BATCH_SIZE):
            task = first.loop.create_task(self._answer(calls[start : start + BATCH_SIZE]))
            task.add_done_callback(first.tasks.discard)
            first.tasks.add(task)  # which a server that stops waits for

    async def _answer(self, calls: list[tuple[ShortWayProtocol, RequestResponseCycle]]) -> None:
        whole = [Whole(cast(Scope, cycle.scope), bytes(cycle.body)) for _, cycle in calls]
        answers: Sequence[Answer]
        try:
            answers = await self._shortcut.rank_all(whole)
        except Exception as error:  # noqa: BLE001  (nobody else would tell those who wait)
            answers = [problem_for(call.scope, error) for call in whole]
        for (connection, cycle), answer in zip(calls, answers, strict=True):
            connection.answer(cycle, answer)


def write_at_once(cycle: RequestResponseCycle, answer: bytes) -> bool:
    """Write JSON that goes with 200; False, and nothing is done, if that is for uvicorn to do."""
    if cycle.disconnected or cycle.flow.write_paused or not cycle.keep_alive:
        return False
    cycle.response_started = cycle.response_complete = True
    cycle.transport.write(_head(cycle.default_headers, len(answer)) + answer)
    cycle.message_event.set()
    cycle.on_response()
    return True


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
    Known.ranks = Ranks(Known.shortcut)
    return Known
