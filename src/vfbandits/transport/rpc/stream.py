"""A link on one gRPC stream; its two ends differ only in how they read, write and end it.

Tasks of its own talk to gRPC, one that reads and, from the first message that is sent, one that
writes; two queues are between them and the link.  So a ``send`` or ``receive`` can be cancelled,
as by a timeout, and nothing is lost: to cancel a call into gRPC would end the stream.  A link that
only answers needs neither queue: what comes is answered by the task that reads, in the same turn
of the event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NoReturn, Protocol

import grpc

from vfbandits.errors import LinkError
from vfbandits.protocol.messages import Message
from vfbandits.transport.channel import Answerer, Peer
from vfbandits.transport.rpc.codec import encode
from vfbandits.transport.rpc.status import error_of
from vfbandits.transport.rpc.waiting import Waiting

CLOSE_S: Final = 1.0
_ENDED: Final = "it ended the stream"
_TAKES_NO_MORE: Final = (grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError)


class Stream(Protocol):
    """What a link needs of either end of gRPC's stream."""

    async def read(self) -> object:
        """The bytes of the next message, or ``grpc.aio.EOF``."""
        ...

    async def write(self, message: bytes, /) -> None:
        """Send bytes."""
        ...


@dataclass(frozen=True, slots=True)
class End:
    """One end of a stream: its gRPC object, and what it understands.

    An end that dialled says that nothing follows with ``hang_up``, and closes its connection
    with ``free``.  A listening end ends its stream when the link is over.
    """

    stream: Stream
    decode: Callable[[bytes], Message]
    hang_up: Callable[[], Awaitable[None]] | None = None
    free: Callable[[], Awaitable[None]] | None = None


class StreamLink:
    """Implements ``Link``."""

    def __init__(self, peer: Peer, end: End) -> None:
        self._peer = peer
        self._end = end
        self._closed = False
        self._over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._inbox, self._outbox = Waiting(), Waiting()
        self._take: Callable[[Message], None] | None = None
        self._answer: Answerer | None = None
        self._is_answering = False
        self._is_writing = False  # gRPC takes one message at a time
        self._idle: asyncio.Future[None] | None = None
        self._refused: Exception | None = None
        self._writing: asyncio.Task[None] | None = None
        self._parked: asyncio.Future[bytes | None] | None = None  # the task that writes waits
        self._reading = asyncio.ensure_future(self._read())
        # Even a task that is cancelled before it began must release those that wait for it.
        self._reading.add_done_callback(lambda _: self.lose(_ENDED))

    @property
    def peer(self) -> Peer:
        """Who is at the other end."""
        return self._peer

    @property
    def over(self) -> asyncio.Future[str]:
        """Done, with the reason, once the stream has ended."""
        return self._over

    async def send(self, message: Message) -> int:
        """Hand a message over; waits only while many are under way."""
        data = encode(message)
        if not self._write_soon(data) and not await self._wait_behind(data):
            raise self._gone()
        return len(data)

    def post(self, message: Message) -> bool:
        """Hand a message over without waiting; False if it cannot be taken."""
        data = encode(message)
        return self._write_soon(data) or self._outbox.put_at_once(data)

    async def receive(self) -> Message:
        """The next message; those that came before the end of the stream come before LinkError."""
        data = None if self._closed else await self._inbox.take()
        if data is None or self._closed:
            raise self._gone()
        return self._end.decode(data)

    async def listen(self, take: Callable[[Message], None]) -> None:
        """Hand each message to ``take`` as soon as it comes; raises when the stream has ended.

        What ``take`` raises ends the stream and is raised here.
        """
        while (data := self._inbox.take_at_once()) is not None:
            take(self._end.decode(data))
        self._take = take
        try:
            await self._until_over()
        finally:
            self._take = None

    async def serve(self, answer: Answerer) -> None:
        """Answer each message before the next is read; raises when the stream has ended."""
        try:
            while (data := self._inbox.take_at_once()) is not None:
                await self._reply(answer, data)
            self._answer = answer
            await self._until_over()
        finally:
            self._answer = None
            await self._until_idle()

    async def close(self) -> None:
        """End the stream, after what was sent before; an end that is slow to read may miss it."""
        if self._closed:
            return
        self._closed = True
        try:
            self._outbox.end()
            await self._until_idle()
            self.lose("it was closed at this end")
            if self._end.hang_up is not None:
                await self._hang_up(self._end.hang_up)
        finally:
            if self._end.free is not None:
                await self._end.free()
            self.drop()

    def lose(self, reason: str) -> None:
        """Mark the stream as ended; those that wait get ``reason`` in a LinkError."""
        if not self._over.done():
            self._over.set_result(f"the link to {self._peer.name!r} is gone: {reason}")
        self._inbox.end()
        self._outbox.end()
        if self._parked is not None:
            self._parked.cancel()
            self._parked = None

    def drop(self) -> None:
        """Release gRPC's stream."""
        self._reading.cancel()
        if self._writing is not None:
            self._writing.cancel()

    async def _hang_up(self, say: Callable[[], Awaitable[None]]) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await say()
                # The other end has all that we sent when it ends the stream too.
                await asyncio.wait((self._reading,))

    async def _until_over(self) -> NoReturn:
        """Wait while the task that reads hands over what comes."""
        await asyncio.shield(self._over)
        raise self._refused or self._gone()

    async def _reply(self, answer: Answerer, data: bytes) -> None:
        self._is_answering = True
        try:
            for reply in await answer(self._end.decode(data)):
                data = encode(reply)
                if self._is_writing:
                    await self._wait_behind(data)
                else:
                    self._is_writing = True
                    await self._write(data)
        finally:
            self._is_answering = False
            self._tell_of_an_end()

    def _write_soon(self, data: bytes) -> bool:
        """Start to write, if nothing is being written."""
        if self._is_writing or self._outbox.has_ended:
            return False
        self._start_writing(data)
        return True

    async def _wait_behind(self, data: bytes) -> bool:
        """Wait in the queue of what is being written; False if nothing is written any more."""
        is_taken = await self._outbox.put(data)
        if is_taken and not self._is_writing:  # all else was written while this waited for room
            self._start_writing(self._outbox.take_at_once())
        return is_taken

    def _start_writing(self, data: bytes | None) -> None:
        self._is_writing = True
        if self._parked is None:
            self._writing = self._over.get_loop().create_task(self._keep_writing(data))
        else:
            self._parked.set_result(data)
            self._parked = None

    async def _keep_writing(self, data: bytes | None) -> None:
        """Write this, and what comes later: a task for each message costs more than a wait."""
        await self._write(data)
        while not self._outbox.has_ended:
            self._parked = self._over.get_loop().create_future()
            await self._write(await self._parked)

    async def _read(self) -> None:
        try:
            while isinstance(data := await self._end.stream.read(), bytes):
                if self._take is not None:
                    self._take(self._end.decode(data))
                elif self._answer is not None:
                    await self._reply(self._answer, data)
                else:
                    await self._inbox.put(data)
        except grpc.aio.AioRpcError as error:
            self.lose(str(error_of(error)))
        except _TAKES_NO_MORE:
            self.lose(_ENDED)
        except Exception as error:  # noqa: BLE001  (raised where the messages are handled)
            self._refused = error
            self.lose("a message was refused")

    async def _write(self, data: bytes | None) -> None:
        """Write this, and what is queued after it."""
        try:
            while data is not None:
                await self._end.stream.write(data)
                data = self._outbox.take_at_once()
        except _TAKES_NO_MORE:  # the task that reads gets the reason
            self._outbox.end()
        except Exception as error:  # noqa: BLE001  (raised where the messages are handled)
            self._refused = error
            self.lose("a message could not be sent")
        finally:
            self._is_writing = False
            self._tell_of_an_end()

    async def _until_idle(self) -> None:
        """Wait until nothing is being answered or written, but not for ever."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                while self._is_answering or self._is_writing:
                    self._idle = self._idle or self._over.get_loop().create_future()
                    await asyncio.shield(self._idle)

    def _tell_of_an_end(self) -> None:
        if self._idle is not None:
            self._idle.set_result(None)
            self._idle = None

    def _gone(self) -> LinkError:
        gone = f"the link to {self._peer.name!r} is gone: {_ENDED}"
        return LinkError(self._over.result() if self._over.done() else gone)
