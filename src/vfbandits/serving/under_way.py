"""Answers that are being worked out: whoever asks for the same one meanwhile waits with the first.

The answer is kept by others; here it is only shared while it is made.  The work is not the first
asker's: whoever hangs up must not take the answer from others that ask for the same.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Generic, TypeAlias, TypeVar

from vfbandits.errors import VFBanditsError
from vfbandits.serving.in_groups import Told

Q = TypeVar("Q")
WorkOut: TypeAlias = Callable[[dict[str, Q]], Coroutine[object, object, Mapping[str, Told]]]


class UnderWay(Generic[Q]):
    """Answers by the name of what was asked; ``work_out`` makes several at a time.

    >>> async def work_out(asked):
    ...     print("working on", asked)
    ...     return {name: question.encode() for name, question in asked.items()}
    >>> async def ask_twice():
    ...     under_way = UnderWay(work_out)
    ...     first, second = {"a": "one", "b": "two"}, {"b": "other", "c": "three"}
    ...     return await asyncio.gather(under_way.ask(first), under_way.ask(second))
    >>> asyncio.run(ask_twice())
    working on {'a': 'one', 'b': 'two'}
    working on {'c': 'three'}
    [{'a': b'one', 'b': b'two'}, {'b': b'two', 'c': b'three'}]
    """

    def __init__(self, work_out: WorkOut[Q]) -> None:
        self._work_out = work_out
        self._answers: dict[str, asyncio.Future[Told]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, asked: Mapping[str, Q]) -> dict[str, Told]:
        """The answers by these names, which are worked out unless somebody is at it."""
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
        answers: Mapping[str, Told] = {}
        failed: Exception = VFBanditsError("the work was broken off")
        try:
            answers = await self._work_out(asked)
        except Exception as error:  # noqa: BLE001  (whoever waits is told, whatever it was)
            failed = error
        finally:
            for name in asked:
                self._answers.pop(name).set_result(answers.get(name, failed))
