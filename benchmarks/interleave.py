"""Timing in turns: whatever slows the machine for a while slows every contestant alike."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median, quantiles
from typing import TypeAlias

TURN_S = 0.2
PROBE_S = 0.05
MIN_ROUNDS, MAX_ROUNDS = 2, 50_000
Run: TypeAlias = Callable[[int], dict[str, float]]


@dataclass(frozen=True, slots=True)
class Timing:
    """CPU and wall seconds per round, one number for every repetition after the warm-up."""

    rounds: int
    cpu_s: tuple[float, ...]
    wall_s: tuple[float, ...]

    @property
    def median_s(self) -> float:
        """CPU seconds per round, the figure that all ratios are made of."""
        return median(self.cpu_s)

    @property
    def spread(self) -> float:
        """Half the interquartile range, as a fraction of the median."""
        low, _, high = quantiles(self.cpu_s, n=4)
        return (high - low) / 2 / self.median_s


def interleave(runs: Mapping[str, Run], *, repetitions: int) -> dict[str, Timing]:
    """Let everyone play in turn, once to warm up and then ``repetitions`` times.

    A turn takes about a fifth of a second whoever plays: the slow play fewer rounds.
    """
    rounds = {name: calibrate(run) for name, run in runs.items()}
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in runs}
    for _ in range(1 + repetitions):
        for name, run in runs.items():
            turns[name].append(run(rounds[name]))
    return {
        name: Timing(
            rounds[name],
            tuple(turn["cpu_s"] for turn in played[1:]),
            tuple(turn["wall_s"] for turn in played[1:]),
        )
        for name, played in turns.items()
    }


def calibrate(run: Run) -> int:
    """Find how many rounds fill a turn.

    The first rounds are thrown away, because they may compile; then the run doubles until it is
    long enough to be believed.
    """
    run(MIN_ROUNDS)
    rounds = MIN_ROUNDS
    while True:
        cost_s = run(rounds)["cpu_s"]
        if rounds * cost_s >= PROBE_S or rounds >= MAX_ROUNDS:
            return max(MIN_ROUNDS, min(MAX_ROUNDS, round(TURN_S / cost_s)))
        rounds *= 2
