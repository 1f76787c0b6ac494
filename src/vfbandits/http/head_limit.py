"""A bound on all that is not body: request line, headers, trailers, chunk extensions.

The parser keeps an unfinished header in memory and copies it whenever more of it arrives, and that
happens before anybody has shown a key.  So bytes are counted as they arrive, and 431 is the answer
once there are more than ``MAX_HEAD_BYTES`` without an end.
"""

import asyncio
from typing import Final

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from vfbandits.client.schemas import Problem
from vfbandits.http.problems import MEDIA_TYPE
from vfbandits.telemetry.connection_counts import ConnectionCounts

MAX_HEAD_BYTES: Final = 64 << 10
LINGER_S: Final = 1.0
MAX_LINGER_BYTES: Final = 1 << 20

_PROBLEM: Final = msgspec.json.encode(
    Problem(
        "/problems/headers-too-large",
        "The headers are too large",
        431,
        f"wanted at most {MAX_HEAD_BYTES} bytes of request line and headers, got more",
    )
)
_ANSWER: Final = b"\r\n".join(
    (
        b"HTTP/1.1 431 Request Header Fields Too Large",
        b"content-type: " + MEDIA_TYPE.encode(),
        b"content-length: %d" % len(_PROBLEM),
        b"cache-control: no-store",
        b"connection: close",
        b"",
        _PROBLEM,
    )
)


class BoundedProtocol(HttpToolsProtocol):
    """A connection that takes a head of ``MAX_HEAD_BYTES``.

    The count begins again with whatever ends a head: its empty line, a piece of a body, the end of
    a request.  A second request that begins in the same read is counted from the next read on, so
    it may have as many bytes more as one piece holds.
    """

    counts: ConnectionCounts | None = None
    _n_head = 0  # bytes since the parser last came to an end of something
    _has_advanced = False
    _n_discarded: int | None = None  # after a refusal

    def data_received(self, data: bytes) -> None:
        """Hand on no more than there is room for."""
        if self._n_discarded is not None:
            self._discard(len(data))
            return
        while data:
            room = MAX_HEAD_BYTES - self._n_head
            if room == 0:
                self._refuse_head()
                return
            piece, data = (data, b"") if len(data) <= room else (data[:room], data[room:])
            self._has_advanced = False
            super().data_received(piece)
            if self.transport.is_closing():
                return
            self._n_head = 0 if self._has_advanced else self._n_head + len(piece)

    def on_headers_complete(self) -> None:
        """A head has come as a whole."""
        self._has_advanced = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of a body has come."""
        self._has_advanced = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request has come as a whole."""
        self._has_advanced = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP."""
        self.count_closed("malformed")
        super().send_400_response(msg)

    def count_closed(self, reason: str) -> None:
        """Count that we close this connection."""
        if self.counts is not None:
            self.counts.closed[reason] += 1

    def _refuse_head(self) -> None:
        """Answer, and read on for a moment: a socket closed on unread bytes resets the answer."""
        self.count_closed("head_too_large")
        self._n_discarded = 0
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()  # an answer to an earlier request is still to come
            return
        self.transport.write(_ANSWER)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        asyncio.get_running_loop().call_later(LINGER_S, self.transport.close)

    def _discard(self, n_bytes: int) -> None:
        self._n_discarded = (self._n_discarded or 0) + n_bytes
        if self._n_discarded > MAX_LINGER_BYTES:
            self.transport.abort()
