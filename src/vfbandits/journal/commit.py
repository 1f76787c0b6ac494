"""Group commit: events that gather while a commit is under way go into the next one, together.

One thread writes, so the order of the log is the order of ``add``.  Alone, an event is committed
at once; under load one fsync serves as many as came in the meantime.  Those who wait for a commit
ask again together when it is done: so a commit also takes along what each next turn of the event
loop brings, for a moment.  Else they would come apart into ever more and smaller commits.  A commit
that has enough goes at once, and those who bring the next one work meanwhile.

A journal in memory is written without the thread: to wake it and to be woken by it takes longer
than the write.
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
    """A journal, or another log of which each event has a position."""

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
    """Brings events into a journal from one event loop.

    Attributes
    ----------
    position
        Of the last event added: what the log will have once all is durable.
    n_commits, n_events
        How many commits were made, of how many events.
    broken_by
        Why nothing more is taken; None while all is well.
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
                "the journal and the model may differ, so nothing is taken until it is opened "
                f"again: {self.broken_by}"
            )

    def add(self, event: T) -> None:
        """Put an event that the model has just applied in line."""
        self._events.append(event)
        self.position += 1

    async def flush(self) -> None:
        """Wait until all that was added so far is durable; raises if it will not be.

        To cancel the waiting takes nothing back: the events are committed all the same.
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
        """Refuse everything from now on, and tell those who wait."""
        if self.broken_by is None:
            self.broken_by = reason
        for waiter in _still_waiting([*self._in_flight, *self._waiters]):
            waiter.set_exception(JournalError(f"not acknowledged: {reason}"))
        self._in_flight, self._waiters, self._events = [], [], []

    async def idle(self) -> None:
        """Wait until the commit that is under way has ended, if any is."""
        await asyncio.get_running_loop().run_in_executor(self._thread, _nothing)

    def mend(self) -> None:
        """Take events again, where the journal ends now; nothing may be under way."""
        self.position = self._journal.last_position
        self.broken_by = None
        self._is_busy = False

    async def close(self) -> None:
        """Wait for what is under way and stop the thread."""
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
        else:  # they wait for what was committed meanwhile
            self._go_on(loop)

    def _commit_here(self) -> None:
        events, self._events = self._events, []
        try:
            last = self._journal.append(events)
        except Exception as error:  # noqa: BLE001  (whatever it was, nothing more is taken)
            self._fail_by(error)
        else:
            self._count(last, wanted=self.position, n_events=len(events))
        if self.broken_by is not None:
            raise JournalError(f"not acknowledged: {self.broken_by}")

    def _finish(self, wanted: int, n_events: int, writing: "asyncio.Future[int]") -> None:
        """A commit has ended; whatever ended it, nobody may wait for ever."""
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
        """What was committed is durable; see what has gathered behind it."""
        for waiter in _still_waiting(self._in_flight):
            waiter.set_result(None)
        self._in_flight = []
        if self._events or self._waiters:
            loop.call_soon(self._gather, loop, 0, MAX_TURNS)
        else:
            self._is_busy = False


def _nothing() -> None:
    """The thread has come to this: all before it is done."""


def _still_waiting(waiters: Iterable[asyncio.Future[None]]) -> list[asyncio.Future[None]]:
    return [waiter for waiter in waiters if not waiter.done()]
