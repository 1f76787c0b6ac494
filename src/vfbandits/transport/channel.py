"""The interface by which roles send messages; ``tests/contracts/test_channel.py`` specifies it.

A ``Listener`` is the active participant's end: it hands every stream that a peer opens to one
handler.  A ``Dialer`` is a passive participant's.  Both give a ``Link``: messages in order, each
once, until one end closes.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from vfbandits.protocol.messages import Message


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end, from its certificate.

    ``certificate`` is the SHA-256 of its public key, hex, as in a roster; empty without TLS, where
    ``name`` is only what the peer says of itself.
    """

    name: str
    role: str
    certificate: str
    address: str = ""


Answerer: TypeAlias = Callable[[Message], Awaitable[Sequence[Message]]]


class Link(Protocol):
    """One open stream."""

    @property
    def peer(self) -> Peer:
        """Who is at the other end."""
        ...

    async def send(self, message: Message) -> int:
        """Hand a message over; returns its size in bytes.  LinkError if the stream is gone."""
        ...

    def post(self, message: Message) -> bool:
        """Hand a message over without waiting; False if many wait, or the stream is gone."""
        ...

    async def receive(self) -> Message:
        """The next message.  LinkError when the stream has ended, WireError if it is invalid."""
        ...

    async def listen(self, take: Callable[[Message], None]) -> None:
        """Hand each message to ``take`` as soon as it comes; LinkError when the stream has ended.

        What ``take`` raises is raised here.
        """
        ...

    async def serve(self, answer: Answerer) -> None:
        """Send the replies of ``answer`` to a message before the next is read: the fastest way.

        It ends as ``listen`` does.  If it is cancelled, an answer under way still goes out.
        """
        ...

    async def close(self) -> None:
        """End the stream; what was sent before still arrives.  A second call does nothing."""
        ...


Handler: TypeAlias = Callable[[Link], Awaitable[None]]


class Listener(Protocol):
    """Accepts streams."""

    async def start(self, handler: Handler) -> int:
        """Listen, and run ``handler`` for every stream; returns the port."""
        ...

    async def stop(self, *, grace_s: float) -> None:
        """Accept no more streams, and end those that are still open after ``grace_s``."""
        ...


class Dialer(Protocol):
    """Opens streams."""

    async def dial(self, *, timeout_s: float) -> Link:
        """Open a stream to the active participant.  LinkError says why it failed."""
        ...

    async def close(self) -> None:
        """Release what the dialer holds."""
        ...
