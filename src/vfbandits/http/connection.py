"""A connection of the HTTP server: bytes become requests, in order, within limits.

The parser is llhttp, by way of httptools, as strict as it can be: a request whose end could be
found in two ways (two lengths, a length beside chunks, folded headers, bare line feeds) is refused
and its connection closed.  ``_check`` and ``_absolute`` refuse what the parser lets through.

Bounds, which hold before a caller has shown a key:

* All that is not body (request line, headers, trailers, chunk extensions) has at most
  ``MAX_HEAD_BYTES``.  The count restarts at the end of a head; a second request that begins in the
  same piece is counted from the next piece on.
* One request waits while another is being answered; what follows it stays unread.
* A request that does not arrive in time, an answer that is not read, an idle connection: ``sweep``.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from ssl import SSLObject
from typing import Final, cast
from urllib.parse import unquote

import httptools
import msgspec
import structlog
from starlette.types import ASGIApp, Scope

from vfbandits.client.schemas import Problem
from vfbandits.http.access.caller import CALLER, Caller
from vfbandits.http.access.client_certificate import caller_from
from vfbandits.http.exchange import HIGH_WATER, Exchange
from vfbandits.http.problems import MEDIA_TYPE
from vfbandits.telemetry.connection_counts import ConnectionCounts
from vfbandits.telemetry.log_throttle import LogThrottle

MAX_HEAD_BYTES: Final = 64 << 10
MAX_PIECE_BYTES: Final = 16 << 10  # that the parser is given: it bounds how many requests it finds
KEEP_ALIVE_S: Final = 60.0
LINGER_S: Final = 1.0
MAX_LINGER_BYTES: Final = 1 << 20
_ASGI: Final = {"version": "3.0", "spec_version": "2.3"}

_log: Final = structlog.get_logger(__name__)


def _refusal(status: str, kind: str, title: str, detail: str) -> bytes:
    problem = Problem(f"/problems/{kind}", title, int(status[:3]), detail)
    body = msgspec.json.encode(problem)
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\n"
        "cache-control: no-store\r\nconnection: close\r\n\r\n"
    ).encode() + body


_TOO_LARGE: Final = _refusal(
    "431 Request Header Fields Too Large",
    "headers-too-large",
    "The headers are too large",
    f"wanted at most {MAX_HEAD_BYTES} bytes of request line and headers, got more",
)
_MALFORMED: Final = _refusal(
    "400 Bad Request", "malformed", "The request is not HTTP", "wanted HTTP/1.1, got other bytes"
)


class MalformedRequestError(Exception):
    """A request that the parser accepts and the server does not."""


class ConnectionContext:
    """What all connections of one server share.

    Attributes
    ----------
    app
        Answers requests.
    connections
        Open connections.
    tasks
        Requests that are being answered.
    is_stopping
        Whether connections are closed after the answer under way.
    """

    def __init__(self, app: ASGIApp, counts: ConnectionCounts) -> None:
        self.app = app
        self.counts = counts
        self.connections: set[Connection] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.is_stopping = False
        self.is_empty = asyncio.Event()  # set once the last connection is closed
        self.throttle = LogThrottle()  # any peer can send bytes that are not HTTP


class Connection(asyncio.Protocol):
    """One connection; ``on_lost`` is called when it is closed."""

    def __init__(self, context: ConnectionContext) -> None:
        self._context = context
        self._parser: httptools.HttpRequestParser = httptools.HttpRequestParser(self)
        self._loop = asyncio.get_running_loop()
        self.on_lost: Callable[[], None] | None = None
        self.is_write_paused = False
        self._is_read_paused = False
        self._drained: asyncio.Future[None] | None = None
        # Requests: the one that arrives, the one that is answered, and the ones after it.
        self._incoming: Exchange | None = None
        self._current: Exchange | None = None
        self._queue: deque[Exchange] = deque()
        self._unread = b""
        self._is_last = False  # no request is accepted after the one that arrived last
        self._refusal: bytes | None = None  # to be written after all earlier answers
        self._n_discarded: int | None = None  # bytes read after the last accepted request
        # Of the request that arrives:
        self._target = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._n_head = 0  # bytes since the parser last came to an end of something
        self._has_advanced = False
        # For ``sweep``:
        self._is_reading = True  # a new connection owes us a request
        self._n_begun = 0
        self._n_begun_before: int | None = None
        self._n_drained = 0
        self._n_drained_before: int | None = None
        self._idle_since = self._loop.time()
        self._has_been_known = False

    # --- the transport ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Read the addresses and the certificate of the peer."""
        self.transport = cast(asyncio.Transport, transport)  # uvloop's has its methods only
        self._client = _address(transport.get_extra_info("peername"))
        self._server = _address(transport.get_extra_info("sockname"))
        secured = transport.get_extra_info("ssl_object")
        self._scheme = "http" if secured is None else "https"
        self._caller: Caller | None = None
        if isinstance(secured, SSLObject):
            self._caller = caller_from(secured.getpeercert(binary_form=True))
        self._context.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the application that nobody waits for its answers."""
        del exc
        context = self._context
        context.connections.discard(self)
        if context.is_stopping and not context.connections:
            context.is_empty.set()
        for exchange in (self._incoming, self._current, *self._queue):
            if exchange is not None:
                exchange.disconnect()
        self._queue.clear()
        self.resume_writing()
        del self._parser  # which refers to us
        if self.on_lost is not None:
            self.on_lost()

    def pause_writing(self) -> None:
        """The peer reads more slowly than we write."""
        self.is_write_paused = True

    def resume_writing(self) -> None:
        """The peer has read most of what was written."""
        self.is_write_paused = False
        self._n_drained += 1
        drained, self._drained = self._drained, None
        if drained is not None and not drained.done():
            drained.set_result(None)

    async def drain(self) -> None:
        """Wait until the peer has read enough, or is gone."""
        if self._drained is None:
            self._drained = self._loop.create_future()
        await asyncio.shield(self._drained)

    def write(self, data: bytes) -> None:
        """Send bytes, if the connection is not being closed."""
        if not self.transport.is_closing():
            self.transport.write(data)

    def abort(self) -> None:
        """Close without sending what is buffered."""
        self.transport.abort()

    # --- bytes in -----------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse, unless a request waits already."""
        if self._n_discarded is not None:
            self._discard(len(data))
        elif self._queue:
            self._unread += data
        else:
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        while data:
            room = min(MAX_PIECE_BYTES, MAX_HEAD_BYTES - self._n_head)
            if room == 0:
                self._refuse("head_too_large", _TOO_LARGE)
                return
            piece, data = (data, b"") if len(data) <= room else (data[:room], data[room:])
            self._has_advanced = False
            if not self._parse(piece):
                return
            self._n_head = 0 if self._has_advanced else self._n_head + len(piece)
            if self._queue:
                self._unread = data
                self._pause_reading()
                return

    def _parse(self, piece: bytes) -> bool:
        """Whether there may be more."""
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._end_input()  # an upgrade that is not accepted: the request is answered
        except httptools.HttpParserError as error:
            if self._is_last and self._incoming is None:
                self._end_input()
                return False
            cause = error.__context__ or error
            if isinstance(error, httptools.HttpParserCallbackError) and not isinstance(
                cause, MalformedRequestError
            ):
                _log.error("http_request_failed", kind=type(cause).__name__, exc_info=cause)
            self._log_malformed(str(cause)[:100])
            self._refuse("malformed", _MALFORMED)
        return self._n_discarded is None

    # --- what the parser finds ----------------------------------------------------------------

    def on_message_begin(self) -> None:
        """A request begins."""
        if self._is_last:
            raise MalformedRequestError("a request after the last one")
        self._target = b""
        self._headers = []
        self._n_begun += 1
        self._is_reading = True

    def on_url(self, url: bytes) -> None:
        """A piece of the request's target."""
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; trailers, which come after the body, are dropped."""
        if self._incoming is None:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """A head is complete."""
        self._has_advanced = True
        parser = self._parser
        version = parser.get_http_version()
        method = parser.get_method().decode("ascii")
        expects_continue, has_body = _check(version, method, self._headers)
        is_upgrade = parser.should_upgrade()
        if is_upgrade and has_body:  # the parser passes over the body
            raise MalformedRequestError("a body with a request for another protocol")
        keep_alive = version == "1.1" and parser.should_keep_alive() and not is_upgrade
        exchange = Exchange(
            self,
            self._scope(version, method),
            keep_alive=keep_alive,
            expects_continue=expects_continue and version == "1.1",
        )
        self._is_last = not keep_alive
        self._incoming = exchange
        if self._current is None and not self._queue:
            self._start(exchange)
        else:
            self._queue.append(exchange)

    def on_body(self, body: bytes) -> None:
        """A piece of a body."""
        self._has_advanced = True
        exchange = self._incoming
        if exchange is not None:
            exchange.add(body)
            if exchange.n_buffered > HIGH_WATER:
                self._pause_reading()

    def on_message_complete(self) -> None:
        """A request is complete."""
        self._has_advanced = True
        self._is_reading = False
        exchange, self._incoming = self._incoming, None
        if exchange is not None:
            exchange.finish()

    def _scope(self, version: str, method: str) -> Scope:
        target, _, query = self._target.partition(b"#")[0].partition(b"?")
        headers = self._headers
        if not target.startswith(b"/"):
            target, headers = _absolute(target, headers)
        path = target.decode("ascii")
        scope: Scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": self._server,
            "client": self._client,
            "scheme": self._scheme,
            "method": method,
            "root_path": "",
            "path": unquote(path) if "%" in path else path,
            "raw_path": target,
            "query_string": query,
            "headers": headers,
        }
        if self._caller is not None:
            scope[CALLER] = self._caller
        return scope

    # --- answers ------------------------------------------------------------------------------

    def _start(self, exchange: Exchange) -> None:
        self._current = exchange
        context = self._context
        context.tasks.add(self._loop.create_task(exchange.run(context.app, context.tasks)))

    def on_taken(self) -> None:
        """There is room for more of a body."""
        if self._is_read_paused and not self._queue:
            self._resume_reading()

    def on_answered(self, exchange: Exchange) -> None:
        """Go on with the next request, or close."""
        self._current = None
        self._has_been_known = self._has_been_known or CALLER in exchange.scope
        self._idle_since = self._loop.time()
        if not exchange.keep_alive or self._context.is_stopping:
            self._queue.clear()
            if exchange.is_whole and not self._unread:
                self._n_discarded = 0
                self.transport.close()
            else:
                self._linger()
            return
        if self._queue:
            self._start(self._queue.popleft())
        elif self._refusal is not None:
            self._write_refusal(self._refusal)
            return
        if self._unread and not self._queue:
            unread, self._unread = self._unread, b""
            self._feed(unread)
        if self._is_read_paused and not self._queue:
            self._resume_reading()

    def _refuse(self, reason: str, refusal: bytes) -> None:
        """Accept no more requests, and send the refusal after all earlier answers."""
        self._context.counts.closed[reason] += 1
        self._end_input()
        broken, self._incoming = self._incoming, None
        if broken is not None and not broken.is_whole:
            broken.disconnect()
            if broken is self._current:
                self._current = None
                if broken.has_begun:
                    self.abort()
                    return
            elif broken in self._queue:
                self._queue.remove(broken)
        if self._current is None:
            self._write_refusal(refusal)
        else:
            self._refusal = refusal

    def _write_refusal(self, refusal: bytes) -> None:
        self.write(refusal)
        self._linger()

    def _end_input(self) -> None:
        """Read and discard input: a socket that is closed with unread bytes resets the answer."""
        self._is_reading = False
        self._unread = b""
        if self._n_discarded is None:
            self._n_discarded = 0

    def _linger(self) -> None:
        """Close for writing now, and for reading after ``LINGER_S``."""
        self._end_input()
        if self.transport.is_closing():
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._resume_reading()
        self._loop.call_later(LINGER_S, self.transport.close)

    def _discard(self, n_bytes: int) -> None:
        self._n_discarded = (self._n_discarded or 0) + n_bytes
        if self._n_discarded > MAX_LINGER_BYTES:
            self.abort()

    def _pause_reading(self) -> None:
        if not self._is_read_paused and not self.transport.is_closing():
            self._is_read_paused = True
            self.transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._is_read_paused and not self.transport.is_closing():
            self._is_read_paused = False
            self.transport.resume_reading()

    def _log_malformed(self, reason: str) -> None:
        unlogged = self._context.throttle.admit(reason)
        if unlogged is not None:
            _log.warning("http_request_malformed", reason=reason, unlogged=unlogged)

    # --- who, and how long --------------------------------------------------------------------

    @property
    def is_known(self) -> bool:
        """Whether a valid key or certificate was shown on this connection."""
        current = self._current or self._incoming
        return self._has_been_known or (current is not None and CALLER in current.scope)

    @property
    def is_answering(self) -> bool:
        """Whether a whole request has arrived and is not answered yet."""
        return self._current is not None and self._current.is_whole

    def shut_down(self) -> None:
        """Close after the answer under way."""
        if self._current is None:
            self.transport.close()
        else:
            self._current.keep_alive = False

    def is_stuck(self) -> bool:
        """Whether a request, or the reading of an answer, made no progress since the last call."""
        is_late = self._is_reading and not self.is_answering
        is_unread = self.is_write_paused
        begun, drained = self._n_begun_before, self._n_drained_before
        self._n_begun_before = self._n_begun if is_late else None
        self._n_drained_before = self._n_drained if is_unread else None
        return (is_late and begun == self._n_begun) or (is_unread and drained == self._n_drained)

    def give_up(self) -> None:
        """Close a connection that is stuck."""
        self._context.counts.closed["unfinished"] += 1
        self.abort()

    def close_if_idle(self, now: float) -> None:
        """Close if no request came for ``KEEP_ALIVE_S``."""
        if self._is_reading or self._current is not None or self._incoming is not None:
            return
        if now - self._idle_since >= KEEP_ALIVE_S:
            if self.transport.is_closing():  # since the last call: its peer reads nothing
                self.abort()
            else:
                self.transport.close()


def sweep(connections: Iterable[Connection], now: float) -> None:
    """Close connections that made no progress since the last call, and idle ones."""
    stuck = []
    for connection in tuple(connections):
        if connection.is_stuck():
            stuck.append(connection)
        else:
            connection.close_if_idle(now)
    for connection in stuck:
        connection.give_up()
    if stuck:
        _log.warning(
            "http_connection_closed", count=len(stuck), reason="their requests were not finished"
        )


def _check(version: str, method: str, headers: list[tuple[bytes, bytes]]) -> tuple[bool, bool]:
    """Whether 100 (Continue) is waited for, and whether there is a body."""
    if version not in ("1.1", "1.0"):
        raise MalformedRequestError(f"wanted HTTP/1.1 or HTTP/1.0, got HTTP/{version}")
    if method == "CONNECT":
        raise MalformedRequestError("wanted a request for this server, got CONNECT")
    n_hosts = 0
    expects_continue = has_body = False
    for name, value in headers:
        if name == b"host":
            n_hosts += 1
        elif name == b"content-length":
            has_body = has_body or int(value) > 0
        elif name == b"expect":
            expects_continue = value.lower() == b"100-continue"
        elif name == b"transfer-encoding":
            has_body = True
            if version == "1.0" or value.strip().lower() != b"chunked":
                raise MalformedRequestError(
                    f"wanted chunked over HTTP/1.1, got {value[:40].decode('latin-1')!r} "
                    f"over HTTP/{version}"
                )
    if n_hosts > 1 or (n_hosts == 0 and version == "1.1"):
        raise MalformedRequestError(f"wanted one Host, got {n_hosts}")
    return expects_continue, has_body


def _absolute(
    target: bytes, headers: list[tuple[bytes, bytes]]
) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """The path of ``http://host/path``, whose host counts instead of the header's."""
    scheme, found, rest = target.partition(b"://")
    if not found or scheme.lower() not in (b"http", b"https"):
        # Not shown: a careless application may have put a key into it.
        raise MalformedRequestError(
            f"wanted a path or an http URL as target, got {len(target)} other bytes"
        )
    authority, _, path = rest.partition(b"/")
    host = authority.rpartition(b"@")[2]
    others = [header for header in headers if header[0] != b"host"]
    return b"/" + path, [(b"host", host), *others]


def _address(found: object) -> tuple[str, int] | None:
    """Host and port, of a socket that has them."""
    if isinstance(found, tuple) and len(found) >= 2:
        return str(found[0]), int(found[1])
    return None
