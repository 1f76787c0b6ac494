"""A bare gRPC fan-out: what a decision with passive participants cannot do without.

A server, four processes that each keep one stream over mutual TLS, and for every round a message to
each and one back, as many bytes as ours: no decision, no log, no HTTP, no masks, no checks.  Either
each round sends messages of its own, or, ``batched``, rounds that wait share them, as ours do.
As a program it plays a turn for each line that comes (see ``http_line``).
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

import grpc

from benchmarks.http_line import Turn, answer_lines
from benchmarks.loopback_tls import HOST, issue_certificates
from benchmarks.process import ONE_THREAD, ROOT
from vfbandits.transport.event_loop import run
from vfbandits.transport.rpc.options import SERVER, channel_options

SERVICE, METHOD = "benchmark.FanOut", "Join"
JOIN = f"/{SERVICE}/{METHOD}"
CLIENT = channel_options(f"{HOST}:0", server_name="", back_off_ms=1_000)
ASKED_BYTES = 200
MAX_OPEN = 2  # batches under way, as with ours
START_S, STOP_S = 60.0, 5.0

Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]
Round: TypeAlias = "asyncio.Future[None]"


class Batch:
    """Rounds that share their messages, until everybody has answered."""

    def __init__(self, rounds: list[Round], left: int) -> None:
        self._rounds = rounds
        self._left = left

    def answered(self) -> bool:
        """One answer more; True if it was the last."""
        self._left -= 1
        if not self._left:
            for each in self._rounds:
                each.set_result(None)
        return not self._left


class FanOut:
    """The server and its answering processes, for the length of an ``async with``."""

    def __init__(self, n_answerers: int, size_bytes: int, *, batched: bool) -> None:
        self._n_answerers = n_answerers
        self._size_bytes = size_bytes
        self._batched = batched
        self._outboxes: list[asyncio.Queue[tuple[bytes, Batch]]] = []
        self._waiting: list[Round] = []
        self._n_open = 0
        self._all_in = asyncio.Event()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start the processes and wait until all of them have dialled in."""
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            made = issue_certificates(folder)
            server = grpc.aio.server(options=SERVER)
            join: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_stream_rpc_method_handler(
                self._join
            )
            services = grpc.method_handlers_generic_handler(SERVICE, {METHOD: join})
            server.add_generic_rpc_handlers((services,))
            pair = (made.key.read_bytes(), made.certificate.read_bytes())
            credentials = grpc.ssl_server_credentials(
                [pair], made.authority.read_bytes(), require_client_auth=True
            )
            port = server.add_secure_port(f"{HOST}:0", credentials)
            await server.start()
            stack.push_async_callback(server.stop, 0.5)
            for _ in range(self._n_answerers):
                stack.callback(_end, _start(folder, port, self._size_bytes))
            async with asyncio.timeout(START_S):
                await self._all_in.wait()
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the processes."""
        await self._stack.__aexit__(kind, error, trace)

    async def round(self) -> None:
        """Ask everybody, and wait for all answers."""
        waiting: Round = asyncio.get_running_loop().create_future()
        if self._batched:
            self._waiting.append(waiting)
            asyncio.get_running_loop().call_soon(self._flush)
        else:
            self._send([waiting])
        await waiting

    def _flush(self) -> None:
        if self._waiting and self._n_open < MAX_OPEN:
            rounds, self._waiting = self._waiting, []
            self._send(rounds)

    def _send(self, rounds: list[Round]) -> None:
        self._n_open += 1
        batch = Batch(rounds, self._n_answerers)
        for outbox in self._outboxes:
            outbox.put_nowait((bytes(ASKED_BYTES * len(rounds)), batch))

    async def _join(self, _: object, context: Context) -> None:
        await context.read()
        outbox: asyncio.Queue[tuple[bytes, Batch]] = asyncio.Queue()
        asked: deque[Batch] = deque()
        self._outboxes.append(outbox)
        if len(self._outboxes) == self._n_answerers:
            self._all_in.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read(context, asked))
            while True:
                message, batch = await outbox.get()
                asked.append(batch)
                await context.write(message)

    async def _read(self, context: Context, asked: deque[Batch]) -> None:
        while isinstance(await context.read(), bytes):
            if asked.popleft().answered():
                self._n_open -= 1
                self._flush()


async def play(fan_out: FanOut, *, in_flight: int, seconds: float) -> Turn:
    """Play rounds for some seconds, so many at a time."""
    taken: list[float] = []
    start = time.perf_counter()

    async def play_on() -> None:
        while (begun := time.perf_counter()) < start + seconds:
            await fan_out.round()
            taken.append(time.perf_counter() - begun)

    await asyncio.gather(*(play_on() for _ in range(in_flight)))
    return Turn.of(taken, time.perf_counter() - start)


async def serve(n_answerers: int, size_bytes: int, *, batched: bool) -> None:
    """Play whenever a line comes."""
    async with FanOut(n_answerers, size_bytes, batched=batched) as fan_out:

        async def turn(line: str) -> Turn:
            asked = json.loads(line)
            return await play(fan_out, in_flight=asked["in_flight"], seconds=asked["seconds"])

        await answer_lines(turn)


def _start(folder: Path, port: int, size_bytes: int) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "benchmarks.http_answerer", str(folder), str(port)]
    return subprocess.Popen([*command, str(size_bytes)], cwd=ROOT, env={**os.environ, **ONE_THREAD})


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    process.wait(STOP_S)


if __name__ == "__main__":
    run(serve(int(sys.argv[1]), int(sys.argv[2]), batched=sys.argv[3] == "batched"))
