"""The raw fan-out as most people would write it: asyncio's streams at both ends.

``raw_fan_out`` is what asyncio can do at best, with protocols of its own over ready buffers; this
is ``start_server``, ``open_connection`` and ``readexactly``.  As a program it is an answerer.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.loopback_tls import HOST, LoopbackCertificates, issue_certificates
from benchmarks.process import ONE_THREAD, ROOT
from benchmarks.raw_frames import HEADER

REQUEST = HEADER.pack(200) + bytes(200)
LIMIT = 4 << 20
START_TIMEOUT_S, STOP_TIMEOUT_S = 60.0, 5.0


class RawStreams:
    """Answering processes and the streams to them, for the length of an ``async with``."""

    def __init__(self, n_answerers: int, size_bytes: int) -> None:
        self._n_answerers = n_answerers
        self._size_bytes = size_bytes
        self._streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start the processes and wait until all of them have dialled in."""
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            context = issue_certificates(folder).listener()
            all_in = asyncio.Event()

            def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                self._streams.append((reader, writer))
                if len(self._streams) == self._n_answerers:
                    all_in.set()

            server = await asyncio.start_server(greet, HOST, ssl=context, limit=LIMIT)
            stack.callback(server.close)
            port = server.sockets[0].getsockname()[1]
            for _ in range(self._n_answerers):
                stack.callback(_end, _start(folder, port, self._size_bytes))
            stack.callback(self._close)
            async with asyncio.timeout(START_TIMEOUT_S):
                await all_in.wait()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the streams; the processes end with them."""
        await self._stack.__aexit__(kind, error, trace)

    async def round(self) -> None:
        """Ask everyone, and wait for all answers."""
        for _, writer in self._streams:
            writer.write(REQUEST)
        await asyncio.gather(*(self._answer(reader) for reader, _ in self._streams))

    async def _answer(self, reader: asyncio.StreamReader) -> bytes:
        (size,) = HEADER.unpack(await reader.readexactly(HEADER.size))
        return await reader.readexactly(size)

    def _close(self) -> None:
        for _, writer in self._streams:
            writer.close()


def _start(folder: Path, port: int, size_bytes: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "benchmarks.raw_streams", str(folder), str(port)]
    return subprocess.Popen([*command, str(size_bytes)], cwd=ROOT, env={**os.environ, **ONE_THREAD})


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    process.wait(STOP_TIMEOUT_S)


async def answer(folder: Path, port: int, size_bytes: int) -> None:
    """Answer every request until the other end closes."""
    reader, writer = await asyncio.open_connection(
        HOST, port, ssl=LoopbackCertificates(folder).dialler(), limit=LIMIT
    )
    frame = HEADER.pack(size_bytes) + os.urandom(size_bytes)
    try:
        while True:
            await reader.readexactly(len(REQUEST))
            writer.write(frame)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


if __name__ == "__main__":
    asyncio.run(answer(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
