"""Shared work: in batches, once for all callers, or one at a time per name."""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Generic, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from vfbandits.errors import VFBanditsError

T = TypeVar("T")
Q = TypeVar("Q")
A = TypeVar("A")
Answers: TypeAlias = Callable[
    [dict[str, Q]], Coroutine[object, object, Mapping[str, A | Exception]]
]

BATCH_SIZE = 1_000


class Batcher(Generic[Q, A]):
    """Collects questions into batches for ``call``, which answers in order; one call at a time.

    Questions that come while a call is under way go into the next one.

    Parameters
    ----------
    call
        Answers a batch of questions, in order.
    size_of, max_size
        A batch has at most ``max_size`` in all, or is a single larger question.
    thread
        Shut down by ``close``.
    """

    def __init__(
        self,
        call: Callable[[Sequence[Q]], Awaitable[Sequence[A]]],
        *,
        size_of: Callable[[Q], int] = lambda _: 1,
        max_size: int = BATCH_SIZE,
        thread: ThreadPoolExecutor | None = None,
    ) -> None:
        self.n_calls = 0
        self.n_asked = 0
        self._call = call
        self._size_of = size_of
        self._max_size = max_size
        self._asked: list[tuple[Q, asyncio.Future[A]]] = []
        self._task: asyncio.Task[None] | None = None
        self._thread = thread

    @classmethod
    def in_thread(
        cls,
        call: Callable[[Sequence[Q]], Sequence[A]],
        *,
        size_of: Callable[[Q], int] = lambda _: 1,
    ) -> "Batcher[Q, A]":
        """Run ``call`` in a thread of its own.

        >>> async def ask():
        ...     squares = Batcher.in_thread(lambda numbers: [number**2 for number in numbers])
        ...     answers = await asyncio.gather(*(squares.submit(number) for number in range(3)))
        ...     await squares.close()
        ...     return answers, squares.n_calls
        >>> asyncio.run(ask())
        ([0, 1, 4], 1)
        """
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="batcher")

        async def in_thread(questions: Sequence[Q]) -> Sequence[A]:
            return await asyncio.get_running_loop().run_in_executor(thread, call, questions)

        return cls(in_thread, size_of=size_of, thread=thread)

    async def submit(self, question: Q) -> A:
        """The answer, from a call that starts after this one."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[A] = loop.create_future()
        self._asked.append((question, waiter))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._ask_all())
        return await waiter

    async def close(self) -> None:
        """Wait for the open call and stop the thread."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        if self._thread is not None:
            await asyncio.to_thread(self._thread.shutdown)

    async def _ask_all(self) -> None:
        while self._asked:
            await self._ask_some(self._next())

    async def _ask_some(self, asked: list[tuple[Q, asyncio.Future[A]]]) -> None:
        try:
            answers = await self._call([question for question, _ in asked])
            if len(answers) != len(asked):
                raise RuntimeError(f"{len(asked)} questions need as many answers, "
                                   f"got {len(answers)}")  # fmt: skip
        except Exception as error:  # noqa: BLE001  (every waiter gets the error, whatever it was)
            for _, waiter in asked:
                if not waiter.done():
                    waiter.set_exception(error)
            return
        except asyncio.CancelledError:
            for _, waiter in asked:
                waiter.cancel()
            raise
        self.n_calls += 1
        self.n_asked += len(asked)
        for (_, waiter), answer in zip(asked, answers, strict=True):
            if not waiter.done():
                waiter.set_result(answer)

    def _next(self) -> list[tuple[Q, asyncio.Future[A]]]:
        """The first questions that fit into a call."""
        size = count = 0
        for question, _ in self._asked:
            size += self._size_of(question)
            if count and size > self._max_size:
                break
            count += 1
        asked, self._asked = self._asked[:count], self._asked[count:]
        return asked


class SingleFlight(Generic[Q, A]):
    """Runs one request per name: a second one for the same name waits for the first.

    ``answer`` takes several names in one call.  The work outlives its first caller: if that one
    disconnects, the others still get the answer.

    >>> async def answer(asked):
    ...     print("working on", asked)
    ...     return {name: question.encode() for name, question in asked.items()}
    >>> async def ask_twice():
    ...     flights = SingleFlight(answer)
    ...     first, second = {"a": "one", "b": "two"}, {"b": "other", "c": "three"}
    ...     return await asyncio.gather(flights.run(first), flights.run(second))
    >>> asyncio.run(ask_twice())
    working on {'a': 'one', 'b': 'two'}
    working on {'c': 'three'}
    [{'a': b'one', 'b': b'two'}, {'b': b'two', 'c': b'three'}]
    """

    def __init__(self, answer: Answers[Q, A]) -> None:
        self._make = answer
        self._answers: dict[str, asyncio.Future[A | Exception]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, asked: Mapping[str, Q]) -> dict[str, A | Exception]:
        """The answers of these names; a name whose request is running joins it."""
        loop = asyncio.get_running_loop()
        waiting, new = {}, {}
        for name, question in asked.items():
            if name not in self._answers:
                self._answers[name] = loop.create_future()
                new[name] = question
            waiting[name] = self._answers[name]
        if new:
            task = loop.create_task(self._answer(new))
            task.add_done_callback(self._tasks.discard)
            self._tasks.add(task)
        return {name: await asyncio.shield(answer) for name, answer in waiting.items()}

    async def _answer(self, asked: dict[str, Q]) -> None:
        answers: Mapping[str, A | Exception] = {}
        failed: Exception = VFBanditsError("the work was cancelled")
        try:
            answers = await self._make(asked)
        except Exception as error:  # noqa: BLE001  (every waiter gets the error, whatever it was)
            failed = error
        finally:
            for name in asked:
                self._answers.pop(name).set_result(answers.get(name, failed))


class KeyedLock:
    """A lock for each name, kept as long as a task holds or awaits it.

    >>> locks = KeyedLock()
    >>> mine = locks["a"]
    >>> mine is locks["a"], mine is locks["b"]
    (True, False)
    """

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str | int, asyncio.Lock] = WeakValueDictionary()

    def __getitem__(self, name: str | int) -> asyncio.Lock:
        """The lock of this name."""
        lock = self._locks.get(name)
        if lock is None:
            lock = asyncio.Lock()
            self._locks[name] = lock
        return lock


class SharedLock:
    """Many tasks hold it together, or one alone; a task that waits to be alone blocks later ones.

    >>> async def both():
    ...     lock = SharedLock()
    ...     async with lock.shared(), lock.shared():
    ...         alone = asyncio.create_task(lock.exclusive().__aenter__())
    ...         await asyncio.sleep(0)
    ...         waited = not alone.done()
    ...     await alone
    ...     return waited
    >>> asyncio.run(both())
    True
    """

    def __init__(self) -> None:
        self._n_shared = 0
        self._turn = asyncio.Lock()
        self._is_free = asyncio.Event()
        self._is_free.set()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Hold it with others."""
        async with self._turn:
            self._n_shared += 1
            self._is_free.clear()
        try:
            yield
        finally:
            self._n_shared -= 1
            if not self._n_shared:
                self._is_free.set()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Hold it alone."""
        async with self._turn:
            await self._is_free.wait()
            yield


async def both(
    one: Coroutine[object, object, Q], other: Coroutine[object, object, A]
) -> tuple[Q, A]:
    """The results of two coroutines, run concurrently; the first error cancels the other one.

    >>> async def word(text):
    ...     return text
    >>> asyncio.run(both(word("one"), word("two")))
    ('one', 'two')
    """
    first, second = asyncio.ensure_future(one), asyncio.ensure_future(other)
    try:
        results = await asyncio.gather(first, second)
        return results[0], results[1]
    except BaseException:
        for task in (first, second):
            task.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        raise


def portions(
    items: Sequence[T], sizes: Sequence[int], *, most: int, max_items: int
) -> Iterator[list[T]]:
    """Items in order, in lists of up to ``max_items`` and a total size up to ``most``.

    A single larger item is a list of its own.

    >>> list(portions("abcdef", [1, 1, 1, 9, 1, 1], most=5, max_items=2))
    [['a', 'b'], ['c'], ['d'], ['e', 'f']]
    """
    portion: list[T] = []
    total = 0
    for item, size in zip(items, sizes, strict=True):
        if portion and (total + size > most or len(portion) == max_items):
            yield portion
            portion, total = [], 0
        portion.append(item)
        total += size
    if portion:
        yield portion
