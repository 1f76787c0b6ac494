"""A process that plays a turn for each line that it is sent, and answers with a line."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from types import TracebackType
from typing import Self

from benchmarks.process import ONE_THREAD, ROOT, WorkerDiedError

STOP_S = 10.0


@dataclass(frozen=True, slots=True)
class Turn:
    """What came of one turn, in requests or rounds; ``cpu_s`` is what each took of the server."""

    count: int
    elapsed_s: float
    p50_s: float
    p99_s: float
    cpu_s: float | None = None

    @classmethod
    def of(cls, seconds: Sequence[float], elapsed_s: float) -> Self:
        """A turn whose requests took so long each.

        >>> Turn.of([0.1, 0.2, 0.6], 0.5).per_s
        6.0
        """
        # On a busy machine a short turn may have a single request.
        tail = quantiles(seconds, n=100, method="inclusive")[98] if seconds[1:] else seconds[0]
        return cls(len(seconds), elapsed_s, median(seconds), tail)

    @property
    def per_s(self) -> float:
        """Throughput."""
        return self.count / self.elapsed_s


class LineProcess:
    """``python -m module arguments`` for the length of a ``with``; it ends with its input.

    What it prints first it prints when it is ready: a number, such as a port.  ``python`` is that
    of another environment.
    """

    def __init__(self, module: str, *arguments: str, python: str = sys.executable) -> None:
        self._process = subprocess.Popen(
            [python, "-m", module, *arguments],
            cwd=ROOT,
            env={**os.environ, **ONE_THREAD},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = 0
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        """Wait until it is ready."""
        self.port = int(self._hear())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """No more lines: it ends by itself."""
        try:
            self._process.communicate(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def play(self, asked: dict[str, object]) -> Turn:
        """Play one turn."""
        if self._process.stdin is None:
            raise WorkerDiedError("the process has no standard input")
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return Turn(**json.loads(self._hear()))

    def _hear(self) -> str:
        line = "" if self._process.stdout is None else self._process.stdout.readline()
        if not line:
            raise WorkerDiedError(f"a contestant ended with code {self._process.wait()}")
        return line


async def answer_lines(answer: Callable[[str], Awaitable[Turn]], *, ready: int = 0) -> None:
    """The process's own side: say that it is ready, and play whenever a line comes."""
    loop = asyncio.get_running_loop()
    print(ready, flush=True)  # noqa: T201  (the other end reads it)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(asdict(await answer(line))), flush=True)  # noqa: T201
