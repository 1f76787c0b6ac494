"""Questions that are asked many at a time: those that come meanwhile go into the next call."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Q = TypeVar("Q")
A = TypeVar("A")

MOST_AT_ONCE = 1_000


class Grouped(Generic[Q, A]):
    """Makes ``call`` in a thread of its own; it gives an answer for each question, in order.

    >>> async def ask():
    ...     squares = Grouped(lambda numbers: [number**2 for number in numbers])
    ...     answers = await asyncio.gather(*(squares.ask(number) for number in range(3)))
    ...     await squares.close()
    ...     return answers, squares.n_calls
    >>> asyncio.run(ask())
    ([0, 1, 4], 1)
    """

    def __init__(self, call: Callable[[Sequence[Q]], Sequence[A]]) -> None:
        self.n_calls = 0
        self.n_asked = 0
        self._call = call
        self._asked: list[tuple[Q, asyncio.Future[A]]] = []
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="grouped")

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
        await asyncio.to_thread(self._thread.shutdown)

    async def _ask_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._asked:
            asked, self._asked = self._asked[:MOST_AT_ONCE], self._asked[MOST_AT_ONCE:]
            questions = [question for question, _ in asked]
            try:
                answers = await loop.run_in_executor(self._thread, self._call, questions)
                if len(answers) != len(asked):
                    raise RuntimeError(f"{len(asked)} questions need as many answers, "
                                       f"got {len(answers)}")  # fmt: skip
            except Exception as error:  # noqa: BLE001  (whoever waits is told, whatever it was)
                for _, waiter in asked:
                    if not waiter.done():
                        waiter.set_exception(error)
                continue
            self.n_calls += 1
            self.n_asked += len(asked)
            for (_, waiter), answer in zip(asked, answers, strict=True):
                if not waiter.done():
                    waiter.set_result(answer)
