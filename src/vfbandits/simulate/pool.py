"""Runs a study on several processes.  The figures do not depend on how many.

Every run is a pure function of the study and a seed, and BLAS is held to one thread in each:
sums that several threads make may differ in their last bits.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

import numpy as np

from vfbandits.core.arrays import Vector
from vfbandits.core.settings import whole
from vfbandits.errors import VFBanditsError
from vfbandits.simulate.result import StudyResult
from vfbandits.simulate.study import Study
from vfbandits.simulate.threads import one_thread


def available_processors() -> int:
    """Processors that this process may use, which in a container are often not all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_study(
    study: Study,
    *,
    processes: int = 1,
    on_run: Callable[[int, int], None] | None = None,
) -> StudyResult:
    """Play every contestant with every seed.

    With ``processes`` above 1 a script needs the usual ``if __name__ == "__main__"`` guard, since
    processes are spawned.  ``on_run(done, total)`` is called after each run.
    """
    whole(processes, "processes")
    # Seeds outermost: after a fifth of the time every contestant has been seen once.
    tasks = [(place, seed) for seed in study.seeds for place in range(len(study.contestants))]
    curves: dict[tuple[int, int], Vector] = {}
    runs = _here(study, tasks) if processes == 1 else _spawned(study, tasks, processes)
    for task, curve in runs:
        curves[task] = curve
        if on_run is not None:
            on_run(len(curves), len(tasks))
    return StudyResult(
        study,
        tuple(
            np.array([curves[place, seed] for seed in study.seeds])
            for place in range(len(study.contestants))
        ),
    )


def _play(study: Study, place: int, seed: int) -> Vector:
    with one_thread():
        return study.play(study.contestants[place], seed)


def _here(study: Study, tasks: list[tuple[int, int]]) -> Iterator[tuple[tuple[int, int], Vector]]:
    for task in tasks:
        yield task, _play(study, *task)


def _spawned(
    study: Study, tasks: list[tuple[int, int]], processes: int
) -> Iterator[tuple[tuple[int, int], Vector]]:
    pool = ProcessPoolExecutor(
        # No more processes than runs: one takes seconds to start.
        min(processes, len(tasks)),
        mp_context=multiprocessing.get_context("spawn"),
    )
    try:
        with _interrupts_ignored():
            futures: dict[Future[Vector], tuple[int, int]] = {
                pool.submit(_play, study, *task): task for task in tasks
            }
        for future in as_completed(futures):
            yield futures[future], future.result()
    except BrokenProcessPool as error:
        raise VFBanditsError(
            "a process of the study ended before its run did, perhaps for want of memory; "
            "try fewer processes"
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """For the moment in which processes are spawned: they inherit it, and so Ctrl-C is left to us.

    Otherwise each of them would print a traceback.  Only a main thread can arrange this.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
