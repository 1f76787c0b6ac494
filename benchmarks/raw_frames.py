"""Frames over one connection: four bytes of length, then the bytes; the least that asyncio allows.

Of streams, ``Protocol`` and ``BufferedProtocol`` the last was the fastest: TLS decrypts straight
into a buffer that is made once, and a frame is handed on as a view of it, without a copy.
"""

import asyncio
import struct
from collections.abc import Callable

HEADER = struct.Struct("<I")
# Room behind the frame awaited: a read that fills its buffer costs one more turn of the loop.
SPARE_BYTES = 1 << 16


class FrameConnection(asyncio.BufferedProtocol):
    """One end of a connection; ``on_frame`` must be done with its view when it returns."""

    def __init__(
        self,
        largest_bytes: int,
        *,
        on_made: Callable[["FrameConnection"], None],
        on_frame: Callable[["FrameConnection", memoryview], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._largest = largest_bytes
        self._view = memoryview(bytearray(HEADER.size + largest_bytes + SPARE_BYTES))
        self._filled = 0
        self._on_made, self._on_frame, self._on_lost = on_made, on_frame, on_lost
        self._transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio calls this once the handshake is done."""
        if not isinstance(transport, asyncio.WriteTransport):
            raise TypeError(f"frames need a transport to write to, got {type(transport).__name__}")
        self._transport = transport
        self._on_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Asyncio asks where to read to."""
        del sizehint
        return self._view[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Asyncio says how much it read; hand on the frames that are whole."""
        self._filled += nbytes
        start = 0
        while self._filled - start >= HEADER.size:
            (size,) = HEADER.unpack_from(self._view, start)
            if size > self._largest:
                raise ValueError(f"frames of at most {self._largest} bytes are read, got {size}")
            end = start + HEADER.size + size
            if end > self._filled:
                break
            self._on_frame(self, self._view[start + HEADER.size : end])
            start = end
        if start:
            self._view[: self._filled - start] = self._view[start : self._filled]
            self._filled -= start

    def connection_lost(self, exc: Exception | None) -> None:
        """Asyncio calls this once, however the connection ended."""
        del exc
        self._on_lost()

    def send(self, *parts: bytes | memoryview) -> None:
        """Write what is already a frame; parts must not change until they are sent."""
        self._transport.writelines(parts)

    def close(self) -> None:
        """End the connection."""
        self._transport.close()
