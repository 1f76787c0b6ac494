"""Group commit: events that arrive during a commit are written together by the next one.

One thread writes, so the order of the journal is the order of ``add``.  A single event is committed
immediately; under load one fsync serves all events that arrived meanwhile.  Callers that waited for
the same commit add their next events together, within a few turns of the event loop.  So a commit
waits while each turn brings more events, for ``MAX_TURNS`` turns at most: otherwise these callers
would be spread over more and smaller commits.  With ``BATCH_SIZE`` events a commit starts without
waiting, and the event loop goes on meanwhile.

A journal that ``is_quick`` is written without the thread, since waking a thread takes longer than
the write.
"""

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Generic, Protocol, TypeVar

from vfbandits.errors import JournalError

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

MAX_TURNS = 8
BATCH_SIZE = 16


class Appendable(Protocol[T_contra]):
    """A journal, or another store that gives each event a position."""

    @property
    def last_position(self) -> int:
        """Position of the last durable event."""
        ...

    @property
    def is_quick(self) -> bool:
        """Whether ``append`` waits for no disk or network, so that an event loop may call it."""
        ...

    def append(self, events: Sequence[T_contra], /) -> int:
        """Make events durable, all or none; returns the position of the last."""
        ...


class GroupCommit(Generic[T]):
    """Writes the events of one event loop to a journal.

    Attributes
    ----------
    position
        Position of the last event added, durable or not.
    n_commits, n_events
        Number of commits, and of the events in them.
    broken_by
        Why further events are refused; None while the journal is healthy.
    """

    def __init__(self, journal: Appendable[T]) -> None:
        self.position = journal.last_position
        self.n_commits = 0
        self.n_events = 0
        self.broken_by: str | None = None
        self._journal = journal
        self._events: list[T] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._in_flight: list[asyncio.Future[None]] = []
        self._is_busy = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")

    def check_healthy(self) -> None:
        """Raise once a commit has failed."""
        if self.broken_by is not None:
            raise JournalError(
                "the journal and the model may differ, so writes are refused until the journal is "
                f"opened again: {self.broken_by}"
            )

    def add(self, event: T) -> None:
        """Queue an event that the model has just applied."""
        self._events.append(event)
        self.position += 1

    async def flush(self) -> None:
        """Wait until all events added so far are durable; raises if that fails.

        A cancelled wait takes nothing back: the events are still committed.
        """
        self.check_healthy()
        if not self._events and not self._is_busy:
            return
        if self._journal.is_quick:
            self._commit_here()
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append(waiter)
        if not self._is_busy:
            self._is_busy = True
            self._gather(loop, 0, MAX_TURNS)
        await waiter

    def fail(self, reason: str) -> None:
        """Refuse all further events, and fail all waiters."""
        if self.broken_by is None:
            self.broken_by = reason
        for waiter in _still_waiting([*self._in_flight, *self._waiters]):
            waiter.set_exception(JournalError(f"not acknowledged: {reason}"))
        self._in_flight, self._waiters, self._events = [], [], []

    async def idle(self) -> None:
        """Wait until the commit that is under way has ended, if any is."""
        await asyncio.get_running_loop().run_in_executor(self._thread, _nothing)

    def mend(self) -> None:
        """Accept events again, after the present end of the journal; no commit may be under way."""
        self.position = self._journal.last_position
        self.broken_by = None
        self._is_busy = False

    async def close(self) -> None:
        """Wait for the commits under way, and stop the thread."""
        if self.broken_by is None and (self._events or self._is_busy):
            await asyncio.gather(self.flush(), return_exceptions=True)
        await asyncio.to_thread(self._thread.shutdown)

    def _gather(self, loop: asyncio.AbstractEventLoop, n_before: int, turns: int) -> None:
        """Wait while every turn of the loop brings more events, a few turns at most."""
        n_events = len(self._events)
        if n_before < n_events < BATCH_SIZE and turns:
            loop.call_soon(self._gather, loop, n_events, turns - 1)
        else:
            self._commit(loop)

    def _commit(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.broken_by is not None:
            return
        events, self._events = self._events, []
        self._in_flight, self._waiters = self._waiters, []
        if events:
            writing = loop.run_in_executor(self._thread, self._journal.append, events)
            writing.add_done_callback(partial(self._finish, self.position, len(events)))
        else:  # the events of these waiters were committed meanwhile
            self._go_on(loop)

    def _commit_here(self) -> None:
        events, self._events = self._events, []
        try:
            last = self._journal.append(events)
        except Exception as error:  # noqa: BLE001  (any error makes the journal refuse events)
            self._fail_by(error)
        else:
            self._count(last, wanted=self.position, n_events=len(events))
        if self.broken_by is not None:
            raise JournalError(f"not acknowledged: {self.broken_by}")

    def _finish(self, wanted: int, n_events: int, writing: "asyncio.Future[int]") -> None:
        """Handle the end of a commit; whatever ended it, no waiter may wait for ever."""
        error = writing.exception()
        if error is not None:
            self._fail_by(error)
        else:
            self._count(writing.result(), wanted=wanted, n_events=n_events)
        if self.broken_by is None:
            self._go_on(writing.get_loop())

    def _count(self, last: int, *, wanted: int, n_events: int) -> None:
        if last != wanted:
            self.fail(f"the journal must end at {wanted}, got {last}: another process wrote to it")
            return
        self.n_commits += 1
        self.n_events += n_events

    def _fail_by(self, error: BaseException) -> None:
        self.fail(str(error) if isinstance(error, JournalError) else type(error).__name__)

    def _go_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Release the waiters of a durable commit, and start the next one if there are events."""
        for waiter in _still_waiting(self._in_flight):
            waiter.set_result(None)
        self._in_flight = []
        if self._events or self._waiters:
            loop.call_soon(self._gather, loop, 0, MAX_TURNS)
        else:
            self._is_busy = False


def _nothing() -> None:
    """Run in the thread, which has then finished all earlier calls."""


def _still_waiting(waiters: Iterable[asyncio.Future[None]]) -> list[asyncio.Future[None]]:
    return [waiter for waiter in waiters if not waiter.done()]
