"""Answers that are being worked out: whoever asks for the same one meanwhile waits with the first.

The answer is kept by others; here it is only shared while it is made.
"""

import asyncio
from collections.abc import Callable, Coroutine


class UnderWay:
    """Answers by the name of what was asked.

    >>> async def answer(name):
    ...     print("working")
    ...     return name.encode()
    >>> async def ask_twice():
    ...     under_way = UnderWay()
    ...     return await asyncio.gather(*(under_way.once("a", answer) for _ in range(2)))
    >>> asyncio.run(ask_twice())
    working
    [b'a', b'a']
    """

    def __init__(self) -> None:
        self._answers: dict[str, asyncio.Task[bytes]] = {}

    async def once(
        self, name: str, work_out: Callable[[str], Coroutine[object, object, bytes]]
    ) -> bytes:
        """The answer to ``name``, which ``work_out`` makes unless somebody is at it."""
        answer = self._answers.get(name)
        if answer is None:
            answer = asyncio.get_running_loop().create_task(work_out(name))
            self._answers[name] = answer
            answer.add_done_callback(lambda _: self._answers.pop(name, None))
        # Whoever hangs up must not take the answer from others that ask for the same.
        return await asyncio.shield(answer)
