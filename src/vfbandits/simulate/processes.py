"""The default engine: a pool of processes on this machine."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized
from typing import Any

from vfbandits.core.settings import whole
from vfbandits.errors import VFBanditsError
from vfbandits.simulate.engine import Engine, HereEngine, OnStep, Result, Task, in_one_thread
from vfbandits.simulate.steps import count_into

LOOK_S = 0.2


def available_processors() -> int:
    """Processors that this process may use, which in a container are often not all."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def local_engine(processes: int) -> Engine:
    """The calling process alone, or a pool of ``processes``."""
    return HereEngine() if whole(processes, "processes") == 1 else ProcessEngine(processes)


class ProcessEngine:
    """Spawned processes; a script needs the usual ``if __name__ == "__main__"`` guard."""

    def __init__(self, processes: int) -> None:
        self.processes = whole(processes, "processes")

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        on_step: OnStep | None = None,
    ) -> Iterator[tuple[int, Result]]:
        """Results as tasks finish; when the caller stops asking, running tasks are terminated."""
        if not tasks:
            return
        context = multiprocessing.get_context("spawn")
        steps = context.Value("q", 0)
        others = set(multiprocessing.active_children())
        pool = ProcessPoolExecutor(
            # No more processes than tasks: one takes seconds to start.
            min(self.processes, len(tasks)),
            mp_context=context,
            initializer=_begin,
            # Not with each task: one that fills the pipe of tasks makes the pool hang when its
            # processes are terminated (some releases of Python 3.11).
            initargs=(steps, function),
        )
        is_done = False
        try:
            with _interrupts_put_off():
                futures: dict[Future[Result], int] = {
                    pool.submit(_carry_out, task): position for position, task in enumerate(tasks)
                }
            pending = set(futures)
            while pending:
                done, pending = wait(pending, LOOK_S, return_when=FIRST_COMPLETED)
                if on_step is not None:
                    on_step(steps.value)
                for future in done:
                    yield futures[future], future.result()
            is_done = True
        except BrokenProcessPool as error:
            raise VFBanditsError(
                "a process of the pool ended before its task did, perhaps for lack of memory; "
                "try fewer processes"
            ) from error
        finally:
            # A second Ctrl-C must not leave processes, since the interpreter waits for them.
            with _interrupts_put_off():
                if not is_done:
                    # A task may be minutes from its end, and its result is not needed.
                    for process in set(multiprocessing.active_children()) - others:
                        process.terminate()
                pool.shutdown(cancel_futures=True)


_given: list[Callable[[Any], Any]] = []  # the function of this process of a pool


def _begin(steps: "Synchronized[int]", function: Callable[[Task], Result]) -> None:
    """Prepare a process of the pool."""
    _given.append(function)

    def count(number: int) -> None:
        with steps.get_lock():
            steps.value += number

    count_into(count)
    _end_with_parent()


def _carry_out(task: object) -> Any:  # noqa: ANN401  (whatever the function makes)
    return in_one_thread(_given[0], task)


def _end_with_parent() -> None:
    """Exit when the parent does: a parent that is killed cannot end its processes."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _interrupts_put_off() -> Iterator[None]:
    """Defer Ctrl-C while processes are spawned or ended.

    Processes inherit the blocked signal: with Ctrl-C each of them would print a traceback.
    Blocking is not enough here, since a thread of a numerical library may take the signal instead.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not hasattr(signal, "pthread_sigmask"):  # Windows has none
        yield
        return
    came: list[int] = []
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)
