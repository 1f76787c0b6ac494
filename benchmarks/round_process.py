"""The other end of ``round_worker``: tell a contestant to play, and hear how long it took."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from types import TracebackType
from typing import Self

from benchmarks.cpu_time import family_cpu_s
from benchmarks.latencies import Latencies
from benchmarks.process import ONE_THREAD, ROOT, WorkerDiedError


@dataclass(frozen=True, slots=True)
class Played:
    """Rounds that one contestant has played.

    ``turns_s`` are the medians of its turns; ``cpu_s`` is the CPU time of a round in each turn, of
    all processes of the contestant, and empty where the kernel does not tell.
    """

    latencies: Latencies
    bytes: int
    turns_s: tuple[float, ...] = ()
    cpu_s: tuple[float, ...] = ()

    @classmethod
    def of(cls, turns: "Sequence[Played]") -> "Played":
        """All turns together."""
        seconds = tuple(s for turn in turns for s in turn.latencies.seconds)
        elapsed = sum(turn.latencies.elapsed_s for turn in turns)
        medians = tuple(turn.p50_s for turn in turns)
        cpu = tuple(s for turn in turns for s in turn.cpu_s)
        return cls(Latencies(seconds, elapsed), turns[-1].bytes, medians, cpu)

    def over(self, other: "Played") -> float:
        """How many times as long ours takes: the median of the turns, each beside the other's.

        A machine that others share is now fast and now slow; turns that follow each other are
        both one or the other.
        """
        return median(_ratios(self.turns_s, other.turns_s))

    def spread_over(self, other: "Played") -> str:
        """Between which ratios the middle half of the turns lies."""
        low, _, high = quantiles(_ratios(self.turns_s, other.turns_s), n=4, method="inclusive")
        return f"{low:.2f} to {high:.2f}"

    def cpu_over(self, other: "Played") -> float:
        """How many times as much CPU time ours takes; NaN where it is not known."""
        ratios = _ratios(self.cpu_s, other.cpu_s) if len(self.cpu_s) == len(other.cpu_s) else []
        return median(ratios) if ratios else math.nan

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
            "cpu": 1e6 * median(self.cpu_s) if self.cpu_s else math.nan,
        }


def _ratios(ours: Sequence[float], its: Sequence[float]) -> list[float]:
    """Of turns that were played beside each other."""
    return [a / b for a, b in zip(ours, its, strict=True)]


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
        before = family_cpu_s(self._process.pid)
        self._say(f"{rounds} {in_flight}")
        heard = self._hear()
        after = family_cpu_s(self._process.pid)
        if not isinstance(heard, dict):
            raise WorkerDiedError(f"wanted seconds, got {heard!r}")
        latencies = Latencies(tuple(heard["seconds"]), heard["elapsed_s"])
        cpu = () if before is None or after is None else ((after - before) / rounds,)
        return Played(latencies, int(heard["bytes"]), cpu_s=cpu)

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
