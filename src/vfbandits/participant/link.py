"""The stream of a participant or a helper to the active participant.

The participant has no port of its own.  When the stream breaks, it dials again after a random,
growing wait, so that many participants do not reconnect at the same time.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

from vfbandits.errors import LinkError, VFBanditsError
from vfbandits.protocol.messages import Hello, Message
from vfbandits.settings.services import Backoff
from vfbandits.telemetry.log import Logger, log_line
from vfbandits.transport.channel import Dialer

# Texts for any reader; the reasons are in the log, since they may name hosts and files.
DISCONNECTED = "not connected to the active participant"
REFUSED = "refused by the active participant: link_refused in the log has the reason"

T = TypeVar("T")


class Greeter(Protocol):
    """A role that begins its streams with a hello."""

    @property
    def is_welcome(self) -> bool:
        """Whether the active participant has agreed to its terms."""
        ...

    def hello(self) -> Hello:
        """The first message of a stream."""
        ...


class ActiveLink:
    """Keeps a stream to the active participant until ``stop``; ``answer`` handles its messages."""

    def __init__(
        self,
        role: Greeter,
        dialer: Dialer,
        answer: Callable[[Message], Awaitable[list[Message]]],
        *,
        log: Logger,
        backoff: Backoff,
    ) -> None:
        self._role = role
        self._dialer = dialer
        self._answer = answer
        self._log = log
        self._backoff = backoff
        self._stopping = False
        self._is_idle = False
        self._task: asyncio.Task[None] | None = None
        self.problem = DISCONNECTED

    async def run(self) -> None:
        """Dial and serve until ``stop``, again after each failure."""
        self._task = asyncio.current_task()
        waits = Waits(self._backoff)
        while not self._stopping:
            refused = False
            try:
                await self._serve_one(waits)
            except asyncio.CancelledError:
                if not self._stopping:
                    raise
            except VFBanditsError as error:
                refused = not isinstance(error, LinkError)
                self._note_failure(error)
            if not self._stopping:
                with contextlib.suppress(asyncio.CancelledError):
                    await self._idly(asyncio.sleep(waits.next(refused=refused)))
        await self._dialer.close()

    def stop(self) -> None:
        """Finish the message that is being answered, then end."""
        self._stopping = True
        if self._is_idle and self._task is not None:
            self._task.cancel()

    def _note_failure(self, error: VFBanditsError) -> None:
        event = "link_lost" if isinstance(error, LinkError) else "link_refused"
        self.problem = DISCONNECTED if event == "link_lost" else REFUSED
        log_line(self._log, event, {"reason": str(error)})

    async def _serve_one(self, waits: "Waits") -> None:
        link = await self._idly(self._dialer.dial(timeout_s=self._backoff.dial_s))
        try:
            await link.send(self._role.hello())
            await self._idly(link.serve(partial(self._hear, waits)))
        finally:
            self.problem = self.problem or DISCONNECTED
            await link.close()

    def _hear(self, waits: "Waits", message: Message) -> Awaitable[list[Message]]:
        return self._hear_first(waits, message) if self.problem else self._answer(message)

    async def _hear_first(self, waits: "Waits", message: Message) -> list[Message]:
        """Handle the messages up to the welcome."""
        replies = await self._answer(message)
        if self._role.is_welcome:
            self.problem = ""
            waits.reset()
        return replies

    async def _idly(self, waiting: Awaitable[T]) -> T:
        """Wait for something that ``stop`` may interrupt."""
        self._is_idle = True
        try:
            return await waiting
        finally:
            self._is_idle = False


class Waits:
    """Waits that double up to a bound, each drawn between half and all of its length."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._wait_s = backoff.first_s

    def next(self, *, refused: bool) -> float:
        """How long to wait now, in seconds."""
        most_s = self._backoff.refused_s if refused else self._backoff.most_s
        wait = min(self._wait_s, most_s)
        self._wait_s = min(2.0 * wait, most_s)
        return wait * random.uniform(0.5, 1.0)  # noqa: S311  (spreads load, hides nothing)

    def reset(self) -> None:
        """Return to the first wait, after a successful attempt."""
        self._wait_s = self._backoff.first_s
