"""A network inside one process, for tests and for fault injection.

Messages pass as bytes through the same codec that the network uses, and a plan decides the fate
of each.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from vfbandits.errors import LinkError, VFBanditsError
from vfbandits.protocol.messages import Message
from vfbandits.protocol.roster import ACTIVE, PASSIVE
from vfbandits.transport.channel import Answerer, Handler, Peer
from vfbandits.transport.rpc.codec import decode_to_active, decode_to_passive, encode

ADDRESS = "memory"
END_S = 1.0


@dataclass(frozen=True, slots=True)
class Fate:
    """What happens to one message.

    ``copies`` 0 loses it and 2 delivers it twice; ``delay_s`` lets later ones overtake it; ``cut``
    ends the link in its place, without notice, and loses all messages in flight.
    """

    copies: int = 1
    delay_s: float = 0.0
    cut: bool = False


Plan: TypeAlias = Callable[[str, Message], Fate]


def as_sent(_sender: str, _message: Message) -> Fate:
    """The plan of a good network."""
    return Fate()


class MemoryNetwork:
    """An active participant's port and all lines to it; implements ``Listener``.

    ``plan`` gives the fate of every message, by its sender's name, and may be replaced at any time.

    >>> async def main():
    ...     network = MemoryNetwork()
    ...     async def greet(link):
    ...         await link.send(Welcome(epoch=1))
    ...     await network.start(greet)
    ...     link = await network.dialer("bank").dial(timeout_s=10.0)
    ...     print(await link.receive())
    ...     await network.stop(grace_s=1.0)
    >>> from vfbandits.protocol.messages import Welcome
    >>> asyncio.run(main())
    Welcome(epoch=1, protocol=1)
    """

    def __init__(self, name: str = "shop", *, plan: Plan = as_sent) -> None:
        self.name = name
        self.plan = plan
        self._handler: Handler | None = None
        self._open: dict[asyncio.Task[None], MemoryLink] = {}

    async def start(self, handler: Handler) -> int:
        """Listen; there is no port, so it is 0."""
        self._handler = handler
        return 0

    async def stop(self, *, grace_s: float) -> None:
        """Accept no more streams, and end those still open; raises the error of a handler."""
        self._handler = None
        handling = dict(self._open)
        if handling:
            await asyncio.wait(handling, timeout=grace_s)
        for link in handling.values():
            link.cut()
        if handling:
            await asyncio.wait(handling, timeout=END_S)
        for task in handling:
            task.cancel()
        for outcome in await asyncio.gather(*handling, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    def dialer(self, name: str, *, role: str = PASSIVE, certificate: str = "") -> "MemoryDialer":
        """A way to the port for the participant of that name."""
        return MemoryDialer(self, Peer(name, role, certificate, ADDRESS))

    def open(self, peer: Peer) -> "MemoryLink":
        """A new line between ``peer``, whose end is returned, and the handler."""
        if self._handler is None:
            raise LinkError(f"no connection to {self.name!r}: nobody listens there")
        up, down = _Line(self, peer.name), _Line(self, self.name)
        theirs = MemoryLink(Peer(self.name, ACTIVE, "", ADDRESS), up, down, decode_to_passive)
        ours = MemoryLink(peer, down, up, decode_to_active)
        task = asyncio.ensure_future(_handled(self._handler, ours))
        self._open[task] = ours
        task.add_done_callback(self._forget)
        return theirs

    def cut(self, name: str) -> None:
        """End every line to the participant of that name as a crashed machine would."""
        for link in self._open.values():
            if link.peer.name == name:
                link.cut()

    def _forget(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or task.exception() is None:
            del self._open[task]


class MemoryDialer:
    """Implements ``Dialer``."""

    def __init__(self, network: MemoryNetwork, peer: Peer) -> None:
        self._network = network
        self._peer = peer

    async def dial(self, *, timeout_s: float) -> "MemoryLink":
        """Open a stream."""
        return self._network.open(self._peer)

    async def close(self) -> None:
        """Nothing to release."""


class MemoryLink:
    """Implements ``Link``."""

    def __init__(
        self, peer: Peer, out: "_Line", into: "_Line", decode: Callable[[bytes], Message]
    ) -> None:
        self._peer = peer
        self._out = out
        self._in = into
        self._decode = decode
        self._closed = False

    @property
    def peer(self) -> Peer:
        """Who is at the other end."""
        return self._peer

    async def send(self, message: Message) -> int:
        """Hand a message over."""
        data = encode(message)
        if not self._carry(message, data):
            raise self._gone()
        return len(data)

    def post(self, message: Message) -> bool:
        """Hand a message over without waiting."""
        return self._carry(message, encode(message))

    def _carry(self, message: Message, data: bytes) -> bool:
        if self._out.ended:
            return False
        self._out.carry(message, data)
        if self._out.is_cut:
            self.cut()
        return True

    async def receive(self) -> Message:
        """The next message."""
        data = None if self._closed else await self._in.take()
        if data is None or self._closed:
            raise self._gone()
        return self._decode(data)

    async def listen(self, take: Callable[[Message], None]) -> None:
        """Hand each message to ``take``."""
        while True:
            take(await self.receive())

    async def serve(self, answer: Answerer) -> None:
        """Answer each message before the next is read."""
        while True:
            answering = asyncio.ensure_future(self._answer(answer, await self.receive()))
            try:
                await asyncio.shield(answering)
            except asyncio.CancelledError:
                await answering
                raise

    async def _answer(self, answer: Answerer, message: Message) -> None:
        for reply in await answer(message):
            await self.send(reply)

    async def close(self) -> None:
        """End the stream; what was sent before still arrives."""
        self._closed = True
        self._out.end()
        self._in.end()

    def cut(self) -> None:
        """End the stream at both ends immediately, and lose all messages in flight."""
        self._out.cut()
        self._in.cut()

    def _gone(self) -> LinkError:
        return LinkError(f"the link to {self._peer.name!r} is gone")


class _Line:
    """One direction of a link; None at its end."""

    def __init__(self, network: MemoryNetwork, sender: str) -> None:
        self._network = network
        self._sender = sender
        self._queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.ended = False
        self.is_cut = False

    def carry(self, message: Message, data: bytes) -> None:
        fate = self._network.plan(self._sender, message)
        self.is_cut = fate.cut
        for _ in range(0 if fate.cut else fate.copies):
            if fate.delay_s:
                asyncio.get_running_loop().call_later(fate.delay_s, self._put, data)
            else:
                self._put(data)

    def end(self) -> None:
        self._put(None)
        self.ended = True

    def cut(self) -> None:
        while not self._queue.empty():
            self._queue.get_nowait()
        self.ended = False
        self.end()

    async def take(self) -> bytes | None:
        data = await self._queue.get()
        if data is None:
            self._queue.put_nowait(None)
        return data

    def _put(self, data: bytes | None) -> None:
        if not self.ended:
            self._queue.put_nowait(data)


async def _handled(handler: Handler, link: MemoryLink) -> None:
    try:
        await handler(link)
    except VFBanditsError:
        # The network would send the peer a status.  The link ends in either case.
        return
    finally:
        await link.close()
