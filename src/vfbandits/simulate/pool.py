"""Runs a study on an engine.  The results do not depend on the engine."""

from collections.abc import Callable
from functools import partial

import numpy as np

from vfbandits.core.arrays import Vector
from vfbandits.simulate.engine import Engine, OnStep
from vfbandits.simulate.processes import local_engine
from vfbandits.simulate.result import StudyResult
from vfbandits.simulate.study import Study


def run_study(
    study: Study,
    *,
    processes: int = 1,
    engine: Engine | None = None,
    on_run: Callable[[int, int], None] | None = None,
    on_step: OnStep | None = None,
) -> StudyResult:
    """Play every contestant with every seed, on ``engine`` or else on local processes.

    With ``processes`` above 1 a script needs the usual ``if __name__ == "__main__"`` guard, since
    processes are spawned.  ``on_run(done, total)`` is called after each run, ``on_step(rounds)``
    now and then with the rounds that all runs have played so far.
    """
    runner = engine or local_engine(processes)
    # Seeds outermost: after a fifth of the time every contestant has been seen once.
    tasks = [(place, seed) for seed in study.seeds for place in range(len(study.contestants))]
    curves: dict[tuple[int, int], Vector] = {}
    for position, curve in runner.run(partial(_play, study), tasks, on_step=on_step):
        curves[tasks[position]] = curve
        if on_run is not None:
            on_run(len(curves), len(tasks))
    return StudyResult(
        study,
        tuple(
            np.array([curves[place, seed] for seed in study.seeds])
            for place in range(len(study.contestants))
        ),
    )


def _play(study: Study, task: tuple[int, int]) -> Vector:
    place, seed = task
    return study.play(study.contestants[place], seed)
