"""What is measured, and how much of it: the grid, the sections, and the stages of a run."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from benchmarks import probes
from benchmarks.bars import bars_of_race
from benchmarks.contestant import Algorithm, Task
from benchmarks.process import WorkerDiedError, WorkerProcess
from benchmarks.race import run_race
from benchmarks.report import Report
from benchmarks.roster import OURS, OURS_PURE, PEERS, TEXTBOOK
from benchmarks.stable import Stable

RACES: dict[str, Algorithm] = {"linucb": "LinUCB", "lints": "LinTS"}
SECTIONS = (*RACES, "product", "federation", "growth", "flatness", "memory")
Stage: TypeAlias = Callable[[Stable, Report], None]
Measure: TypeAlias = Callable[[WorkerProcess], list[probes.Probe]]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured.

    A cell of the grid is d, K and the rounds of its agreement runs; horizons are rounds by d.
    """

    grid: tuple[tuple[int, int, int], ...]
    dims: tuple[int, ...]
    horizons: dict[int, int]
    repetitions: int
    has_peers: bool


FULL = Plan(
    grid=((20, 10, 1000), (100, 10, 1000), (100, 1000, 300)),
    dims=(100, 200, 500, 1000, 2000),
    horizons={50: 20_000, 20: 250_000},
    repetitions=15,
    has_peers=True,
)
QUICK = Plan(
    grid=((20, 10, 500), (100, 10, 500)),
    dims=(100, 200, 500),
    horizons={50: 20_000},
    repetitions=3,
    has_peers=False,
)


def stages(plan: Plan, sections: Collection[str]) -> Iterator[tuple[str, Stage]]:
    """Name every stage of the sections asked for; nothing is measured yet."""
    for section, algorithm in RACES.items():
        if section in sections:
            for dim, n_arms, rounds in plan.grid:
                task = Task(algorithm, dim, n_arms, seed=7)
                yield f"{algorithm} at ({dim}, {n_arms})", _race_stage(plan, task, rounds)
    for section, measure in _measures(plan).items():
        if section in sections:
            yield section, _probe_stage(section, measure)


def _measures(plan: Plan) -> dict[str, Measure]:
    n = plan.repetitions
    return {
        "product": lambda worker: probes.product(worker, repetitions=n),
        "federation": lambda worker: probes.federation(worker, repetitions=n),
        "growth": lambda worker: probes.growth(worker, repetitions=n, dims=plan.dims),
        "flatness": lambda worker: probes.flatness(worker, horizons=plan.horizons),
        "memory": probes.memory,
    }


def _race_stage(plan: Plan, task: Task, rounds: int) -> Stage:
    peers = [peer for peer in PEERS if plan.has_peers and task.algorithm in peer.algorithms]
    entries = (TEXTBOOK, OURS, OURS_PURE, *peers)

    def stage(stable: Stable, report: Report) -> None:
        race = run_race(stable, entries, task, rounds=rounds, repetitions=plan.repetitions)
        report.races.append(race)
        report.bars.extend(bars_of_race(race))
        for entry in (OURS, OURS_PURE):
            failure = race.result(entry).failure
            if failure:
                report.failures[entry.name] = failure

    return stage


def _probe_stage(section: str, measure: Measure) -> Stage:
    def stage(stable: Stable, report: Report) -> None:
        try:
            found = measure(stable.worker(OURS))
        except WorkerDiedError as death:
            report.failures[section] = str(death)
        else:
            report.probes.extend(found)
            report.bars.extend(probe.bar for probe in found)

    return stage
