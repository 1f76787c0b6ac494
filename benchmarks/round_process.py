"""The other end of ``round_worker``: tell a contestant to play, and hear how long it took."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Self

from benchmarks.latencies import Latencies
from benchmarks.process import ONE_THREAD, ROOT, WorkerDiedError


@dataclass(frozen=True, slots=True)
class Played:
    """Rounds that one contestant has played; ``turns_s`` are the medians of its turns."""

    latencies: Latencies
    bytes: int
    turns_s: tuple[float, ...] = ()

    @classmethod
    def of(cls, turns: "Sequence[Played]") -> "Played":
        """All turns together."""
        seconds = tuple(s for turn in turns for s in turn.latencies.seconds)
        elapsed = sum(turn.latencies.elapsed_s for turn in turns)
        medians = tuple(turn.p50_s for turn in turns)
        return cls(Latencies(seconds, elapsed), turns[-1].bytes, medians)

    def over(self, other: "Played") -> float:
        """How many times as long ours takes: the median of the turns, each beside the other's.

        A machine that others share is now fast and now slow; turns that follow each other are
        both one or the other.
        """
        return median(ours / its for ours, its in zip(self.turns_s, other.turns_s, strict=True))

    @property
    def p50_s(self) -> float:
        """The median."""
        return self.latencies.p50_s

    @property
    def rounds_per_s(self) -> float:
        """Throughput."""
        return self.latencies.rounds_per_s

    def figures(self) -> dict[str, float]:
        """As a table shows them."""
        return {
            "p50": 1e6 * self.p50_s,
            "p99": 1e6 * self.latencies.p99_s,
            "per_s": self.rounds_per_s,
            "bytes": float(self.bytes),
        }


class RoundProcess:
    """A contestant in a process of its own, for the length of a ``with``.

    It runs the code of ``tree``, a checkout of this repository.
    """

    def __init__(self, settings: Mapping[str, object], *, tree: Path = ROOT) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.round_worker"],
            cwd=tree,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": str(tree / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._say(json.dumps(settings))

    def __enter__(self) -> Self:
        """Wait until it is ready."""
        self._hear()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """No more lines: it ends by itself."""
        self._process.communicate()

    def play(self, rounds: int, in_flight: int = 1) -> Played:
        """Play rounds, so many at a time."""
        self._say(f"{rounds} {in_flight}")
        heard = self._hear()
        if not isinstance(heard, dict):
            raise WorkerDiedError(f"wanted seconds, got {heard!r}")
        latencies = Latencies(tuple(heard["seconds"]), heard["elapsed_s"])
        return Played(latencies, int(heard["bytes"]))

    def _say(self, line: str) -> None:
        if self._process.stdin is None:
            raise WorkerDiedError("the process has no standard input")
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _hear(self) -> object:
        line = "" if self._process.stdout is None else self._process.stdout.readline()
        if not line:
            raise WorkerDiedError(f"a contestant ended with code {self._process.wait()}")
        heard: object = json.loads(line)
        return heard
