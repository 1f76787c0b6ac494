"""Messages to the helper of secret shares, on the stream that it keeps open, and its answers."""

import asyncio
from collections.abc import Callable

from vfbandits.errors import LinkError, SharesError
from vfbandits.protocol.messages import Help, Helped


class HelperLink:
    """One message at a time to the helper; ``post`` hands it to the stream, if there is one."""

    def __init__(self, post: Callable[[Help], bool], *, timeout_s: float) -> None:
        self._post = post
        self._timeout_s = timeout_s
        self._number = 0
        self._waiting: dict[int, asyncio.Future[bytes]] = {}

    async def answer(self, data: bytes) -> bytes:
        """The helper's answer.

        LinkError if none comes in time, SharesError with the reason if the helper refuses.
        """
        self._number += 1
        number = self._number
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            if not self._post(Help(number, data)):
                raise LinkError("the helper is not connected")
            return await asyncio.wait_for(answer, self._timeout_s)
        except TimeoutError:
            raise LinkError(f"the helper did not answer within {self._timeout_s:g} s") from None
        finally:
            self._waiting.pop(number, None)

    def deliver(self, helped: Helped) -> None:
        """Hand an answer to its waiter; an answer without one is dropped."""
        waiting = self._waiting.get(helped.number)
        if waiting is None or waiting.done():
            return
        if helped.problem:
            waiting.set_exception(SharesError(f"the helper refuses: {helped.problem}"))
        else:
            waiting.set_result(helped.data)

    def lose(self) -> None:
        """Fail all waiters immediately: the stream has ended."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(LinkError("the helper has disconnected"))
