"""The default engine: a pool of processes on this machine."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

from vfbandits.core.settings import whole
from vfbandits.errors import VFBanditsError
from vfbandits.simulate.engine import Engine, HereEngine, Result, Task, in_one_thread


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
        self, function: Callable[[Task], Result], tasks: Sequence[Task]
    ) -> Iterator[tuple[int, Result]]:
        """As they are done; what has not begun is given up when the caller stops asking."""
        if not tasks:
            return
        pool = ProcessPoolExecutor(
            # No more processes than tasks: one takes seconds to start.
            min(self.processes, len(tasks)),
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_end_with_parent,
        )
        try:
            with _interrupts_ignored():
                futures: dict[Future[Result], int] = {
                    pool.submit(in_one_thread, function, task): position
                    for position, task in enumerate(tasks)
                }
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool as error:
            raise VFBanditsError(
                "a process of the pool ended before its task did, perhaps for want of memory; "
                "try fewer processes"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """A parent that is killed cannot tell its processes; each watches for itself."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


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
