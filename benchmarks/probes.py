"""The bars that are not races: what a round costs beside a bare product, in d, in T, in bytes.

All slots of a probe live in one worker process and are timed in turns.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from benchmarks.bars import Bar
from benchmarks.contestant import Algorithm, Task
from benchmarks.interleave import Timing, interleave
from benchmarks.process import WorkerProcess
from benchmarks.race import runner

BANDIT = "benchmarks.ours:build"
FEDERATION = "benchmarks.ours:build_federation"
SQUARE = "benchmarks.products:build_square"
MASKING = "benchmarks.products:build_masking"
SEED = 7
TURNS_OF_A_TENTH = 20
FLATNESS = 1.15


@dataclass(frozen=True, slots=True)
class Probe:
    """A bar, and the figures it was made from, by name."""

    bar: Bar
    figures: dict[str, float]


def product(worker: WorkerProcess, *, repetitions: int) -> list[Probe]:
    """LinUCB at (1000, 1000) in units of one K x d x d product."""
    task = Task("LinUCB", 1000, 1000, SEED)
    timings = _time(worker, {"bandit": (BANDIT, task), "product": (SQUARE, task)}, repetitions)
    bandit, bare = timings["bandit"].median_s, timings["product"].median_s
    bar = Bar("LinUCB at (1000, 1000): times one K×d×d product", "≤", 1.6, bandit / bare)
    return [Probe(bar, {"bandit, s": bandit, "product, s": bare})]


def federation(worker: WorkerProcess, *, repetitions: int) -> list[Probe]:
    """Blockwise federation of five beside the plain bandit, the masking product taken off."""
    task = Task("LinUCB", 100, 10, SEED)
    slots = {"bandit": (BANDIT, task), "federation": (FEDERATION, task), "masking": (MASKING, task)}
    cost = {name: t.median_s for name, t in _time(worker, slots, repetitions).items()}
    ratio = (cost["federation"] - cost["masking"]) / cost["bandit"]
    bar = Bar("Federation at (100, 10, M=5): times the bandit, beyond masking", "≤", 1.3, ratio)
    return [Probe(bar, {f"{name}, s": value for name, value in cost.items()})]


def growth(worker: WorkerProcess, *, repetitions: int, dims: tuple[int, ...]) -> list[Probe]:
    """Exponent of d in the cost of a round, by least squares on logarithms, at K = 10."""
    return [_growth(worker, name, repetitions, dims) for name in ("LinUCB", "LinTS")]


def flatness(worker: WorkerProcess, *, horizons: Mapping[int, int]) -> list[Probe]:
    """Cost in the last tenth of a long run over that in its second; the first one warms up.

    ``horizons`` gives the rounds for each d.  One that passes 100,000 rounds also shows what a
    bandit does with the decisions it has begun to forget.
    """
    return [_flatness(worker, dim, horizon) for dim, horizon in horizons.items()]


def memory(worker: WorkerProcess) -> list[Probe]:
    """Bytes a bandit of d = 1000 holds, in units of d^2 doubles, after 200 rounds.

    Not seen at that age: what is remembered of decisions long settled.
    """
    return [_memory(worker, name) for name in ("LinUCB", "LinTS")]


def _growth(
    worker: WorkerProcess, algorithm: Algorithm, repetitions: int, dims: tuple[int, ...]
) -> Probe:
    slots = {str(dim): (BANDIT, Task(algorithm, dim, 10, SEED)) for dim in dims}
    cost = {name: t.median_s for name, t in _time(worker, slots, repetitions).items()}
    slope, _ = np.polyfit([math.log(dim) for dim in dims], np.log(list(cost.values())), 1)
    name = f"{algorithm}, exponent of d for d = {dims[0]}…{dims[-1]} at K = 10"
    return Probe(Bar(name, "≤", 2.15, float(slope)), {f"d={d}, s": s for d, s in cost.items()})


def _flatness(worker: WorkerProcess, dim: int, horizon: int) -> Probe:
    """Let two bandits play the same world, one of them far ahead, and time them in turns."""
    ages = {"young": horizon // 10, "old": 9 * horizon // 10}
    for name, age in ages.items():
        worker.setup(name, factory=BANDIT, task=Task("LinUCB", dim, 10, SEED))
        worker.run(name, age)
    turns: dict[str, list[float]] = {name: [] for name in ages}
    for _ in range(TURNS_OF_A_TENTH):
        for name, costs in turns.items():
            costs.append(worker.run(name, horizon // 10 // TURNS_OF_A_TENTH)["cpu_s"])
    for name in ages:
        worker.drop(name)
    young, old = median(turns["young"]), median(turns["old"])
    name = f"last tenth of {horizon:,} rounds at d = {dim}: times the second tenth"
    figures = {"second tenth, s": young, "last tenth, s": old}
    # A median passes over what happens once in many rounds; a mean would show it.
    figures |= {f"{name}, mean, s": fmean(costs) for name, costs in turns.items()}
    return Probe(Bar(name, "≤", FLATNESS, old / young, "bound chosen here"), figures)


def _memory(worker: WorkerProcess, algorithm: Algorithm) -> Probe:
    task = Task(algorithm, 1000, 10, SEED)
    unit = 8 * task.dim**2
    weight = worker.memory(factory=BANDIT, task=task, rounds=200)
    held, peak = weight["held_bytes"] / unit, weight["peak_bytes"] / unit
    bar = Bar(f"{algorithm} at d = 1000: memory in d² doubles", "≤", 2.5, held, "after 200 rounds")
    return Probe(bar, {"held": held, "peak": peak})


def _time(
    worker: WorkerProcess, slots: Mapping[str, tuple[str, Task]], repetitions: int
) -> dict[str, Timing]:
    for name, (factory, task) in slots.items():
        worker.setup(name, factory=factory, task=task)
    timings = interleave({name: runner(worker, name) for name in slots}, repetitions=repetitions)
    for name in slots:
        worker.drop(name)
    return timings
