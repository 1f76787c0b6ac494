"""How long rounds take that wait on other processes: medians, tails and throughput, in turns.

CPU time, which the in-process races compare, says little about a round that mostly waits; here the
wall clock decides.  Contestants share one event loop and play in turns, so that whatever slows the
machine for a while slows all of them.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median, quantiles
from typing import TypeAlias

Play: TypeAlias = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Latencies:
    """Wall seconds of every round, and of all of them together, which may overlap.

    >>> seen = Latencies(seconds=(0.1, 0.2, 0.6), elapsed_s=0.6)
    >>> seen.p50_s, seen.rounds_per_s
    (0.2, 5.0)
    """

    seconds: tuple[float, ...]
    elapsed_s: float

    @property
    def p50_s(self) -> float:
        """The median, the figure that all ratios are made of."""
        return median(self.seconds)

    @property
    def p99_s(self) -> float:
        """The tail that one round in a hundred meets."""
        return quantiles(self.seconds, n=100, method="inclusive")[98]

    @property
    def rounds_per_s(self) -> float:
        """Throughput, with as many rounds in flight as were measured."""
        return len(self.seconds) / self.elapsed_s


async def measure_rounds(play: Play, rounds: int, *, in_flight: int = 1) -> Latencies:
    """Play rounds, ``in_flight`` at a time; a round starts as soon as one before it ends."""
    seconds: list[float] = []
    coming = iter(range(rounds))
    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(_play_on(play, coming, seconds))
    return Latencies(tuple(seconds), time.perf_counter() - start)


async def interleave_rounds(
    plays: Mapping[str, Play], *, turns: int, rounds: int, in_flight: int = 1
) -> dict[str, Latencies]:
    """Let everyone play ``rounds`` a turn: one turn to warm up, then ``turns`` that count."""
    played: dict[str, list[Latencies]] = {name: [] for name in plays}
    for _ in range(1 + turns):
        for name, play in plays.items():
            played[name].append(await measure_rounds(play, rounds, in_flight=in_flight))
    return {
        name: Latencies(
            tuple(s for turn in measured[1:] for s in turn.seconds),
            sum(turn.elapsed_s for turn in measured[1:]),
        )
        for name, measured in played.items()
    }


async def _play_on(play: Play, coming: Iterator[int], seconds: list[float]) -> None:
    for _ in coming:
        start = time.perf_counter()
        await play()
        seconds.append(time.perf_counter() - start)
