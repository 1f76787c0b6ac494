"""Background tasks of one process: none of them fails unnoticed.

A task that ends without being stopped is logged, counted, named in ``problems`` (which
``/readyz`` and the metrics read) and started again after a pause that doubles.  A task
handles the errors that it expects, such as an unreachable database.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TypeAlias

import structlog

from vfbandits.errors import VFBanditsError
from vfbandits.telemetry.log import Logger

FIRST_PAUSE_S = 0.5
MAX_PAUSE_S = 30.0
STUCK_AFTER = 4
CALM_S = 5.0  # a task that has run for so long after a restart counts as healthy
UNNAMED = "unnamed"

Work: TypeAlias = Callable[[], Coroutine[object, object, None]]


class Supervised:
    """One background task; ``Supervisor.start`` makes it.

    Attributes
    ----------
    name
        In log lines, in ``problems`` and as a label of metrics.
    is_expected
        Whether its end is expected, and so not a failure.
    """

    def __init__(self, supervisor: "Supervisor", name: str, work: Work, *, restart: bool) -> None:
        self.name = name
        self._supervisor = supervisor
        self._work = work
        self._restart = restart
        self._reason: str | None = None
        self._began: float | None = None
        self._n_in_a_row = 0
        self._is_pausing = False
        self.is_expected = False
        self._task = asyncio.get_running_loop().create_task(self._run(), name=name)

    @property
    def is_over(self) -> bool:
        """Whether it has ended and is not started again."""
        return self._task.done()

    @property
    def problem(self) -> str | None:
        """How it died, until it has run for ``CALM_S`` again; None while it is healthy."""
        if self._began is not None and time.monotonic() - self._began >= CALM_S:
            self._reason, self._n_in_a_row = None, 0
        return self._reason

    @property
    def is_stuck(self) -> bool:
        """Whether it has died so often that another restart will hardly help."""
        return self.problem is not None and self._n_in_a_row >= STUCK_AFTER

    async def stop(self) -> None:
        """Cancel it and wait for its end."""
        self._task.cancel()
        await self.finish()

    async def finish(self) -> None:
        """Wait for its end, which is expected now."""
        self.is_expected = True
        if self._is_pausing:
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._supervisor.release(self)

    async def _run(self) -> None:
        while True:
            self._began = time.monotonic()
            error: BaseException | None = None
            try:
                await self._work()
            except asyncio.CancelledError as cancelled:
                # Something that it awaited was cancelled, and not the task itself.
                if self._task.cancelling():
                    raise
                error = cancelled
            except Exception as failed:  # noqa: BLE001  (the one place that must see all of them)
                error = failed
            if self.is_expected:
                return
            self._n_in_a_row = 1 if self.problem is None else self._n_in_a_row + 1
            self._began = None
            self._reason = f"background task {self.name!r} died: {_kind(error)}"
            self._supervisor.failed(self.name, error)
            if not self._restart:
                self._supervisor.lost(self._reason)
                return
            self._is_pausing = True
            await asyncio.sleep(min(FIRST_PAUSE_S * 2.0 ** (self._n_in_a_row - 1), MAX_PAUSE_S))
            self._is_pausing = False


class Supervisor:
    """Starts background tasks and knows how they are.

    >>> async def run():
    ...     async def work():
    ...         raise ValueError("no more")
    ...     supervisor = Supervisor(structlog.get_logger("example"))
    ...     with structlog.testing.capture_logs() as lines:
    ...         task = supervisor.start("example", work)
    ...         await asyncio.sleep(0.01)
    ...     problems = supervisor.problems()
    ...     await task.stop()
    ...     return problems, [line["event"] for line in lines], supervisor.failures
    >>> asyncio.run(run())
    (["background task 'example' died: ValueError"], ['task_failed'], {'example': 1})
    """

    def __init__(self, log: Logger | None = None) -> None:
        self._log: Logger = structlog.get_logger() if log is None else log
        self._tasks: dict[str, Supervised] = {}
        self._failures: Counter[str] = Counter()
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def failures(self) -> Mapping[str, int]:
        """How often each task has died; tasks that never did are included."""
        return dict(self._failures)

    def start(self, name: str, work: Work, *, restart: bool = True) -> Supervised:
        """Run ``work`` until it is stopped; another task of the same name must be over.

        Without ``restart`` the process cannot go on once the work has ended: ``until`` then raises.
        """
        known = self._tasks.get(name)
        if known is not None and not known.is_over:
            raise RuntimeError(f"a background task needs a name of its own, got {name!r} twice")
        self._failures.setdefault(name, 0)
        task = self._tasks[name] = Supervised(self, name, work, restart=restart)
        return task

    def problems(self, *, stuck: bool = False) -> list[str]:
        """Of the tasks that have died: which and how; or only of those that are ``stuck``."""
        found = [task.problem for task in self._tasks.values() if task.is_stuck or not stuck]
        return [problem for problem in found if problem is not None]

    async def until(self, asked: Awaitable[None]) -> None:
        """Wait for ``asked``; raises if a task dies meanwhile that is not started again."""
        died: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asking = asyncio.ensure_future(asked)
        self._waiting.add(died)
        try:
            await asyncio.wait({asking, died}, return_when=asyncio.FIRST_COMPLETED)
            await (died if died.done() else asking)
        finally:
            self._waiting.discard(died)
            asking.cancel()

    def failed(self, name: str, error: BaseException | None) -> None:
        """Log and count the death of a task."""
        self._failures[name] += 1
        self._log.error("task_failed", task=name, error=_kind(error), exc_info=error)

    def lost(self, reason: str) -> None:
        """A task has died for good: the process cannot go on."""
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(VFBanditsError(reason))

    def release(self, task: Supervised) -> None:
        """Stop watching a task that was stopped."""
        if self._tasks.get(task.name) is task:
            del self._tasks[task.name]

    def watch_loop(self) -> None:
        """Log and count what else fails in this process: callbacks, short tasks, threads."""
        asyncio.get_running_loop().set_exception_handler(self._on_loop_error)
        threading.excepthook = self._on_thread_error

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        del loop
        error = context.get("exception")
        self._unnamed(
            error if isinstance(error, BaseException) else None, str(context.get("message", ""))
        )

    def _on_thread_error(self, args: threading.ExceptHookArgs) -> None:
        name = "unknown" if args.thread is None else args.thread.name
        self._unnamed(args.exc_value, f"in thread {name!r}")

    def _unnamed(self, error: BaseException | None, reason: str) -> None:
        self._failures[UNNAMED] += 1
        kind = _kind(error)
        self._log.error("task_failed", task=UNNAMED, error=kind, reason=reason, exc_info=error)


def _kind(error: BaseException | None) -> str:
    return "it ended" if error is None else type(error).__name__
