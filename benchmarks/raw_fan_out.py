"""What a bare fan-out over mutual TLS costs: ``python -m benchmarks.raw_fan_out``.

The baseline of the federation's speed bars: no messages, no checks, no deadlines, no roles.  One
asyncio process sends a small request to answering processes that have dialled in, all at once, and
waits for an answer of ``size_bytes`` from each.  ``ready`` answers lie in memory and are only
counted; with ``compute`` the answerers mask their blocks, and the asker adds them up, decides and
learns.
"""

import asyncio
import json
import os
import sys
import tempfile
from asyncio.subprocess import Process
from collections import deque
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from rich.console import Console
from rich.table import Table

import vfbandits as vfb
from benchmarks.contestant import Matrix
from benchmarks.latencies import Latencies, measure_rounds
from benchmarks.loopback_tls import HOST, issue_certificates
from benchmarks.masked_arithmetic import Participant, RoundShape, make_participant
from benchmarks.process import ONE_THREAD, ROOT, WorkerDiedError, last_line
from benchmarks.raw_answerer import AnswererSettings, Mode
from benchmarks.raw_frames import HEADER, FrameConnection
from vfbandits.simulate.threads import one_thread

REQUEST_BYTES = 200
REQUEST = HEADER.pack(REQUEST_BYTES) + bytes(REQUEST_BYTES)
BETA, REWARD = 0.5, 0.5
START_TIMEOUT_S, STOP_TIMEOUT_S = 60.0, 5.0


class ActiveSide:
    """The participant that decides: it holds the first block, adds up all, chooses and learns."""

    def __init__(self, shape: RoundShape) -> None:
        self.own: Participant = make_participant(shape, 0)
        self.bandit = vfb.Bandit(vfb.LinUCB(beta=BETA), dim=shape.dim)

    def decide(self, masked: Matrix) -> int:
        """Choose on masked contexts (n_arms, dim) and take a reward that never changes."""
        decision = self.bandit.decide(masked)
        self.bandit.reward(decision, REWARD)
        return int(decision.arm)


@dataclass(slots=True)
class _Gathering:
    """One round in flight: how many answers it still lacks, and their sum if anyone wants it."""

    missing: int
    done: asyncio.Future[None]
    total: Matrix | None


class RawFanOut:
    """Answering processes and the connections to them, for the length of an ``async with``.

    ``round`` may be awaited many times at once: answers come back in the order of the requests.
    ``n_arms`` only matters to ``compute``, where ``size_bytes`` is 8 * n_arms * dim.
    """

    def __init__(
        self,
        n_answerers: int = 4,
        size_bytes: int = 8000,
        mode: Mode = "ready",
        *,
        n_arms: int = 10,
    ) -> None:
        if size_bytes < 1 or size_bytes % (8 * n_arms):
            raise ValueError(
                f"answers are rows of float64 for {n_arms} arms, got {size_bytes} bytes"
            )
        self.shape = RoundShape(1 + n_answerers, n_arms, size_bytes // (8 * n_arms))
        self.n_answerers, self.mode = n_answerers, mode
        self._active = ActiveSide(self.shape) if mode == "compute" else None
        self.process_ids: list[int] = []
        self._waiting: dict[FrameConnection, deque[_Gathering]] = {}
        self._stack = AsyncExitStack()
        self._is_open = False

    async def __aenter__(self) -> Self:
        """Start the processes and wait until all of them have dialled in."""
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            await self._start(folder, stack)
            self._stack = stack.pop_all()
        self._is_open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the connections; the processes end with them."""
        self._is_open = False
        await self._stack.__aexit__(kind, error, trace)

    async def round(self) -> int | None:
        """Ask everyone, wait for all answers, and with ``compute`` return the arm chosen."""
        if not self._is_open:
            raise ConnectionError("a round needs every answerer, and the fan-out is not open")
        total = None if self._active is None else self._active.own.masked_block()
        done = asyncio.get_running_loop().create_future()
        gathering = _Gathering(len(self._waiting), done, total)
        for connection, waiting in self._waiting.items():
            waiting.append(gathering)
            connection.send(REQUEST)
        await done
        return None if self._active is None or total is None else self._active.decide(total)

    async def measure(self, rounds: int, *, in_flight: int = 1) -> Latencies:
        """Time rounds, ``in_flight`` of them at a time."""
        return await measure_rounds(self.round, rounds, in_flight=in_flight)

    async def _start(self, folder: Path, stack: AsyncExitStack) -> None:
        loop = asyncio.get_running_loop()
        all_in = loop.create_future()
        server = await loop.create_server(
            partial(
                FrameConnection,
                self.shape.size_bytes,
                on_made=partial(self._greet, all_in),
                on_frame=self._take,
                on_lost=self._fail,
            ),
            HOST,
            ssl=issue_certificates(folder).listener(),
        )
        stack.callback(server.close)
        port = server.sockets[0].getsockname()[1]
        processes = []
        for position in range(1, 1 + self.n_answerers):
            process = await self._start_answerer(folder, position=position, port=port)
            stack.push_async_callback(_end, process)
            processes.append(process)
            self.process_ids.append(process.pid)
        stack.callback(self._close_connections)
        await _first_of(all_in, processes, folder)

    async def _start_answerer(self, folder: Path, *, position: int, port: int) -> Process:
        shape = (self.shape.n_participants, self.shape.n_arms, self.shape.dim)
        settings = AnswererSettings(port, str(folder), self.mode, position, shape)
        with _errors_of(folder).open("a") as errors:
            return await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "benchmarks.raw_answerer",
                json.dumps(asdict(settings)),
                cwd=ROOT,
                env={**os.environ, **ONE_THREAD},
                stderr=errors,
            )

    def _greet(self, all_in: asyncio.Future[None], connection: FrameConnection) -> None:
        self._waiting[connection] = deque()
        if len(self._waiting) == self.n_answerers:
            all_in.set_result(None)

    def _take(self, connection: FrameConnection, answer: memoryview) -> None:
        gathering = self._waiting[connection].popleft()
        if gathering.total is not None:
            gathering.total += np.frombuffer(answer).reshape(gathering.total.shape)
        gathering.missing -= 1
        if not gathering.missing and not gathering.done.done():
            gathering.done.set_result(None)

    def _fail(self) -> None:
        """Tell every round in flight: without one answerer it would wait for ever."""
        self._is_open = False
        for waiting in self._waiting.values():
            for gathering in waiting:
                if not gathering.done.done():
                    gathering.done.set_exception(ConnectionError("an answerer went away"))

    def _close_connections(self) -> None:
        for connection in self._waiting:
            connection.close()


def _errors_of(folder: Path) -> Path:
    return folder / "errors.txt"


async def _first_of(all_in: asyncio.Future[None], processes: list[Process], folder: Path) -> None:
    """Wait until all have dialled in, or say how the first of them died."""
    deaths = [asyncio.ensure_future(process.wait()) for process in processes]
    watched: list[asyncio.Future[None] | asyncio.Future[int]] = [all_in, *deaths]
    await asyncio.wait(watched, timeout=START_TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
    for death in deaths:
        death.cancel()
    if not all_in.done():
        said = last_line(_errors_of(folder).read_text())
        raise WorkerDiedError(said or f"no full house within {START_TIMEOUT_S:g} s")


async def _end(process: Process) -> None:
    """Give it a moment to see the end of its connection."""
    try:
        await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
    except TimeoutError:
        process.kill()
        await process.wait()


async def measure_all(rounds_of: dict[tuple[int, int], int]) -> Table:
    """Measure both modes at every (size_bytes, n_arms), one round and 64 at a time."""
    heads = ("bytes", "arms", "mode", "in flight", "p50 µs", "p99 µs", "rounds/s")
    shown = Table(*heads, title="Raw fan-out to 4 processes, mutual TLS 1.3")
    modes: tuple[Mode, ...] = ("ready", "compute")
    for (size_bytes, n_arms), rounds in rounds_of.items():
        for mode in modes:
            async with RawFanOut(size_bytes=size_bytes, mode=mode, n_arms=n_arms) as fan_out:
                for in_flight in (1, 64):
                    await fan_out.measure(rounds // 10, in_flight=in_flight)
                    seen = await fan_out.measure(rounds, in_flight=in_flight)
                    figures = (1e6 * seen.p50_s, 1e6 * seen.p99_s, seen.rounds_per_s)
                    cells = (size_bytes, n_arms, mode, in_flight)
                    shown.add_row(*map(str, cells), *(f"{figure:.0f}" for figure in figures))
    return shown


def main() -> None:
    """Print what the baseline costs on this machine."""
    rounds_of = {(800, 1): 2000, (8000, 1): 2000, (8000, 10): 2000, (800_000, 100): 200}
    with one_thread():
        Console().print(asyncio.run(measure_all(rounds_of)))


if __name__ == "__main__":
    main()
