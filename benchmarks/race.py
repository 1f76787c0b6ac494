"""One cell of the grid: whether contestants learn the same thing, and what a round costs them."""

from dataclasses import dataclass, replace
from statistics import mean

from benchmarks.contestant import Task
from benchmarks.interleave import Run, Timing, interleave
from benchmarks.process import WorkerDiedError, WorkerProcess
from benchmarks.roster import TEXTBOOK, Entry
from benchmarks.stable import Stable

SLOT = "race"
AGREEMENT_SEEDS = 3
AGREEMENT_FACTOR = 1.25


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one contestant: its mean regret and timing, or why there is none."""

    entry: Entry
    regret: float | None = None
    timing: Timing | None = None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Race:
    """All results of one task; a regret is the sum over ``rounds``, averaged over seeds."""

    task: Task
    rounds: int
    results: tuple[Result, ...]

    def result(self, entry: Entry) -> Result:
        """Find a contestant's result; an empty one if it did not take part."""
        found = (result for result in self.results if result.entry == entry)
        return next(found, Result(entry, failure="did not take part"))

    @property
    def fastest_peer(self) -> Result | None:
        """The fastest of those that run our algorithm, whether they agree or not.

        A peer that draws from a wrong law is flagged, and must be beaten all the same.
        """
        timed = {
            result.timing.median_s: result
            for result in self.results
            if result.entry.kind == "peer" and result.entry.is_same_algorithm and result.timing
        }
        return timed[min(timed)] if timed else None

    def regret_factor(self, result: Result) -> float | None:
        """Give a contestant's regret in units of the textbook's."""
        unit = self.result(TEXTBOOK).regret
        return result.regret / unit if unit and result.regret is not None else None

    def agrees(self, result: Result) -> bool:
        """Whether a contestant's regret is within the stated factor of the textbook's."""
        factor = self.regret_factor(result)
        return factor is not None and 1 / AGREEMENT_FACTOR <= factor <= AGREEMENT_FACTOR


def speedup(*, of: Result | None, over: Result | None) -> float | None:
    """How many times cheaper a round of one is than a round of the other."""
    if of is None or over is None or of.timing is None or over.timing is None:
        return None
    return over.timing.median_s / of.timing.median_s


def run_race(
    stable: Stable, entries: tuple[Entry, ...], task: Task, *, rounds: int, repetitions: int
) -> Race:
    """Check agreement over a fixed run, then time those that are still standing."""
    regrets: dict[str, float] = {}
    failures: dict[str, str] = {}
    for entry in entries:
        try:
            regrets[entry.name] = _mean_regret(stable.worker(entry), entry, task, rounds)
        except WorkerDiedError as death:
            failures[entry.name] = str(death)
    standing = {entry.name: stable.worker(entry) for entry in entries if entry.name in regrets}
    runs = {name: runner(worker, SLOT) for name, worker in standing.items()}
    timings = interleave(runs, repetitions=repetitions)
    for worker in standing.values():
        worker.drop(SLOT)
    return Race(
        task,
        rounds,
        tuple(
            Result(
                entry,
                regrets.get(entry.name),
                timings.get(entry.name),
                failures.get(entry.name, ""),
            )
            for entry in entries
        ),
    )


def runner(worker: WorkerProcess, slot: str) -> Run:
    """Bind a slot, so that timing need not know about workers."""
    return lambda rounds: worker.run(slot, rounds)


def _mean_regret(worker: WorkerProcess, entry: Entry, task: Task, rounds: int) -> float:
    """Play fresh worlds; the last one stays in the slot and is the one that is timed."""
    regrets = []
    for seed in range(task.seed, task.seed + AGREEMENT_SEEDS):
        worker.setup(SLOT, factory=entry.factory, task=replace(task, seed=seed))
        regrets.append(worker.run(SLOT, rounds)["regret"])
    return mean(regrets)
