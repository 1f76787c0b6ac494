"""Questions that are asked many at a time: those that come meanwhile go into the next call."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")

MOST_AT_ONCE = 1_000


class Grouped(Generic[Q, A]):
    """Asks questions by ``call``, which gives an answer for each, in order; one call at a time.

    Parameters
    ----------
    call
        What answers several questions together.
    size_of, max_size
        A call has questions of at most this size in all, or a single larger one.
    thread
        Is shut down by ``close``.
    """

    def __init__(
        self,
        call: Callable[[Sequence[Q]], Awaitable[Sequence[A]]],
        *,
        size_of: Callable[[Q], int] = lambda _: 1,
        max_size: int = MOST_AT_ONCE,
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
    ) -> "Grouped[Q, A]":
        """Makes ``call`` in a thread of its own.

        >>> async def ask():
        ...     squares = Grouped.in_thread(lambda numbers: [number**2 for number in numbers])
        ...     answers = await asyncio.gather(*(squares.ask(number) for number in range(3)))
        ...     await squares.close()
        ...     return answers, squares.n_calls
        >>> asyncio.run(ask())
        ([0, 1, 4], 1)
        """
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grouped")

        async def in_thread(questions: Sequence[Q]) -> Sequence[A]:
            return await asyncio.get_running_loop().run_in_executor(thread, call, questions)

        return cls(in_thread, size_of=size_of, thread=thread)

    async def ask(self, question: Q) -> A:
        """The answer, from a call that begins after this one did."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[A] = loop.create_future()
        self._asked.append((question, waiter))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._ask_all())
        return await waiter

    async def close(self) -> None:
        """Wait for what is under way and stop the thread."""
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
