"""One request and its answer, as an ASGI application sees them.

The head of an answer is written together with the first piece of its body: an answer in one piece
is one write.
"""

import asyncio
import time
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Final, Literal, Protocol

import structlog
from starlette.types import ASGIApp, Message, Scope

HIGH_WATER: Final = 64 << 10  # bytes of a body that may wait for the application
_CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_NO_BODY: Final = frozenset({204, 304})
_STATUS_LINES: Final = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode())
    for status in HTTPStatus
}
_FAILED: Final = b"Internal error; the server's log has its cause"

_log: Final = structlog.get_logger(__name__)


class Wire(Protocol):
    """The connection that an exchange takes place on."""

    is_write_paused: bool

    async def drain(self) -> None:
        """Wait until the peer has read enough of what was written, or is gone."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def on_taken(self) -> None:
        """The application has taken what had arrived of a body."""

    def on_answered(self, exchange: "Exchange") -> None:
        """The answer is complete."""

    def abort(self) -> None:
        """Close the connection without finishing the answer."""


class Exchange:
    """A request, perhaps with the rest of its body still to come, and its answer.

    Attributes
    ----------
    scope
        As ASGI has it.
    keep_alive
        Whether the connection can be used for another request after this one.
    is_whole
        Whether all of the request has arrived.
    """

    __slots__ = (
        "_body",
        "_expects_continue",
        "_framing",
        "_headers",
        "_is_answered",
        "_is_gone",
        "_is_taken",
        "_n_left",
        "_status",
        "_waiter",
        "_wire",
        "is_whole",
        "keep_alive",
        "n_buffered",
        "scope",
    )

    def __init__(
        self, wire: Wire, scope: Scope, *, keep_alive: bool, expects_continue: bool
    ) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        self.is_whole = False
        self.n_buffered = 0
        self._wire = wire
        self._expects_continue = expects_continue
        self._body: list[bytes] = []
        self._is_taken = False  # the application has the whole body
        self._is_answered = False
        self._is_gone = False  # no peer will read an answer
        self._waiter: asyncio.Future[None] | None = None
        self._status = 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._framing: Literal["length", "chunked", "end", "none"] | None = None
        self._n_left = 0

    # --- the connection's side ----------------------------------------------------------------

    def add(self, piece: bytes) -> None:
        """A piece of the body has arrived."""
        if self._is_answered or self._is_gone:
            return  # nobody will ask for it
        self._body.append(piece)
        self.n_buffered += len(piece)
        self._wake()

    def finish(self) -> None:
        """The whole request has arrived."""
        self.is_whole = True
        self._wake()

    def disconnect(self) -> None:
        """Nobody will read an answer."""
        self._is_gone = True
        self._wake()

    @property
    def has_begun(self) -> bool:
        """Whether a part of the answer was written."""
        return self._framing is not None

    async def run(self, app: ASGIApp, running: "set[asyncio.Task[None]]") -> None:
        """Let the application answer; if it fails, answer 500 or abort the connection.

        At its end the task that runs this is removed from ``running``.
        """
        try:
            await self._run(app)
        finally:
            task: asyncio.Task[None] | None = asyncio.current_task()
            if task is not None:
                running.discard(task)

    async def _run(self, app: ASGIApp) -> None:
        try:
            await app(self.scope, self.receive, self.send)
        except Exception as error:  # noqa: BLE001  (logged; the server goes on)
            path = str(self.scope["path"])[:200]
            _log.error("http_request_failed", kind=type(error).__name__, path=path, exc_info=error)
        if self._is_answered or self._is_gone:
            return
        if self._framing is not None:
            self._wire.abort()
            return
        self.keep_alive = False
        self._status, self._headers = 500, [(b"content-type", b"text/plain; charset=utf-8")]
        self._write(_FAILED, more=False)

    # --- the application's side ---------------------------------------------------------------

    async def receive(self) -> Message:
        """The next piece of the body; after the last one, wait for the end of the exchange."""
        if self._expects_continue:
            self._expects_continue = False
            if not self._is_gone and not self._body and not self.is_whole:
                self._wire.write(_CONTINUE)
        while not (self._is_answered or self._is_gone):
            if not self._is_taken and (self._body or self.is_whole):
                body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
                self._body.clear()
                self.n_buffered = 0
                self._is_taken = self.is_whole
                self._wire.on_taken()
                return {"type": "http.request", "body": body, "more_body": not self.is_whole}
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Take a part of the answer."""
        if self._wire.is_write_paused and not self._is_gone:
            await self._wire.drain()
        if self._is_gone:
            return
        kind = message["type"]
        if kind == "http.response.start" and not self._status:
            self._status = message["status"]
            self._headers = message.get("headers", [])
        elif kind == "http.response.body" and self._status and not self._is_answered:
            self._write(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"wanted the next part of an answer, got {kind!r}")

    def _write(self, body: bytes, *, more: bool) -> None:
        head = b""
        if self._framing is None:
            head = self._head(len(body), more=more)
        if self._framing == "length":
            self._n_left -= len(body)
            if self._n_left < 0 or (self._n_left and not more):
                self._framing = None if head else "length"  # nothing is written yet
                came = f"{abs(self._n_left)} bytes {'fewer' if self._n_left > 0 else 'more'}"
                raise RuntimeError(f"wanted a body as long as its content-length, got {came}")
        elif self._framing == "chunked":
            body = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            body = body if more else body + b"0\r\n\r\n"
        elif self._framing == "none":
            body = b""
        self._wire.write(head + body)
        if not more:
            self._is_answered = True
            self._body.clear()  # the rest is dropped as it arrives
            self.n_buffered = 0
            self._wake()
            self._wire.on_answered(self)

    def _head(self, n_bytes: int, *, more: bool) -> bytes:
        """Status line and headers; decides how the body is delimited."""
        lines = [_status_line(self._status), _date_line(int(time.time()))]
        length = None if more else n_bytes
        for given, value in self._headers:
            name = given.lower()
            if name == b"content-length":
                length = int(value)
            elif name == b"connection":
                self.keep_alive = self.keep_alive and b"close" not in value.lower()
            elif name != b"transfer-encoding":  # which the server chooses
                lines.append(b"%b: %b\r\n" % (name, value))
        if self._expects_continue and not self.is_whole:
            self.keep_alive = False  # the peer may send the body, or not
        if self._status in _NO_BODY:
            self._framing = "none"
        elif length is not None:
            lines.append(b"content-length: %d\r\n" % length)
            self._framing = "none" if self.scope["method"] == "HEAD" else "length"
            self._n_left = length
        elif self.scope["method"] == "HEAD":
            self._framing = "none"
        elif self.scope["http_version"] == "1.1":
            lines.append(b"transfer-encoding: chunked\r\n")
            self._framing = "chunked"
        else:
            self._framing = "end"
            self.keep_alive = False
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        head = b"".join(lines)
        if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines) or b"\0" in head:
            self._framing = None
            raise RuntimeError("wanted headers without CR, LF or NUL, got one that holds them")
        return head + b"\r\n"

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


def _status_line(status: int) -> bytes:
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


@lru_cache(maxsize=1)
def _date_line(second: int) -> bytes:
    return b"date: %b\r\n" % formatdate(second, usegmt=True).encode()
