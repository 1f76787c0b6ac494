"""The process of a passive participant: dials out, and answers from its own features.

It has no port of its own.  Whatever breaks the stream, it dials again, after a wait that grows and
is drawn at random so that many participants do not come back in the same instant.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Awaitable
from functools import partial
from typing import TypeVar

from vfbandits.errors import (
    ConfigError,
    FeatureError,
    LinkError,
    VFBanditsError,
)
from vfbandits.features.open import Features
from vfbandits.journal.mask_shares import ShareFiles
from vfbandits.participant.outbox import Outbox
from vfbandits.participant.state_lock import StateLock
from vfbandits.protocol.instructions import (
    DropShares,
    Fetch,
    Keep,
    Note,
    PassiveInstruction,
    Reply,
    Resend,
    StoreShare,
)
from vfbandits.protocol.messages import Answer, Ask, Declined, Message
from vfbandits.protocol.passive import HeldShare, PassiveParticipant
from vfbandits.settings.services import Backoff
from vfbandits.telemetry.log import Logger, note
from vfbandits.transport.channel import Dialer
from vfbandits.transport.rpc.codec import decode_to_active, encode

SLOW_LOOKUP = ("sql", "redis")

T = TypeVar("T")


class PassiveService:
    """A role, its files and its features, on a channel."""

    def __init__(  # noqa: PLR0913  (one argument for each thing that it owns)
        self,
        role: PassiveParticipant,
        dialer: Dialer,
        features: Features,
        *,
        shares: ShareFiles,
        outbox: Outbox | None,
        log: Logger,
        backoff: Backoff,
        lock: StateLock | None = None,
    ) -> None:
        self._lock = lock
        self._role = role
        self._dialer = dialer
        self._features = features
        self._shares = shares
        self._outbox = outbox
        self._log = log
        self._backoff = backoff
        self._stopping = False
        self._is_idle = False
        self._task: asyncio.Task[None] | None = None
        self._in_thread = features.describe().get("kind") in SLOW_LOOKUP
        self._answered = 0

    async def run(self) -> None:
        """Serve until ``stop``."""
        self._task = asyncio.current_task()
        waits = Waits(self._backoff)
        while not self._stopping:
            refused = False
            try:
                await self._serve_one_link(waits)
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
        if self._outbox is not None:
            self._outbox.close()
        if self._lock is not None:
            self._lock.release()
        self._log.info("stopped", answered=self._answered)

    def stop(self) -> None:
        """Finish the ask that is being answered, then end."""
        self._stopping = True
        if self._is_idle and self._task is not None:
            self._task.cancel()

    def _note_failure(self, error: VFBanditsError) -> None:
        event = "link_lost" if isinstance(error, LinkError) else "refused"
        note(self._log, event, {"reason": str(error)})

    async def _serve_one_link(self, waits: "Waits") -> None:
        link = await self._idly(self._dialer.dial(timeout_s=self._backoff.dial_s))
        try:
            await link.send(self._role.hello())
            await self._idly(link.serve(partial(self._answer, waits)))
        finally:
            await link.close()

    async def _answer(self, waits: "Waits", message: Message) -> list[Message]:
        replies: list[Message] = []
        for todo in self._role.hear(message):  # type: ignore[arg-type]  # it refuses others
            if isinstance(todo, Fetch):
                for then in await self._fetch(todo.ask):
                    self._carry_out(then, replies)
            else:
                self._carry_out(todo, replies)
        if self._role.is_welcome:
            waits.reset()
        return replies

    async def _idly(self, waiting: Awaitable[T]) -> T:
        """Wait for something that ``stop`` may cut short."""
        self._is_idle = True
        try:
            return await waiting
        finally:
            self._is_idle = False

    def _carry_out(self, todo: PassiveInstruction, replies: list[Message]) -> None:
        """Do as the role says, and note what it says to send."""
        if isinstance(todo, Reply):
            replies.append(todo.message)
        elif isinstance(todo, Keep):
            kept = encode(todo.answer)
            self._needed_outbox().keep(todo.stamp, todo.senders, kept, asked=todo.asked)
        elif isinstance(todo, Resend):
            replies.append(self._again(todo))
        elif isinstance(todo, StoreShare):
            self._shares.store(todo.epoch, HeldShare(todo.share, todo.roster))
        elif isinstance(todo, DropShares):
            self._shares.keep_only(todo.keep)
        elif isinstance(todo, Note):
            note(self._log, todo.event, todo.facts)

    async def _fetch(self, ask: Ask) -> list[PassiveInstruction]:
        if ask.trial:
            return self._role.answer(ask, self._role.trial_rows(ask))
        started = time.perf_counter()
        keys = ask.keys()
        try:
            if self._in_thread:
                lookup = await asyncio.to_thread(self._features.block, keys)
            else:
                lookup = self._features.block(keys)
        except FeatureError as error:
            note(self._log, "features_failed", {"round": ask.round, "reason": str(error)})
            return self._role.no_features(ask, "the feature store failed")
        self._answered += 1
        if lookup.missing or lookup.clipped:
            self._log.info(
                "features_missing",
                round=ask.round,
                missing=lookup.missing,
                clipped=lookup.clipped,
                rows=len(keys),
                seconds=round(time.perf_counter() - started, 6),
            )
        return self._role.answer(ask, lookup.values, missing=lookup.missing)

    def _again(self, todo: Resend) -> Answer | Declined:
        """The bytes that were sent before, or nothing."""
        number, attempt = todo.ask.round, todo.ask.attempt
        found = self._needed_outbox().find(todo.stamp)
        if found is None:
            reason = "these bytes are no longer in the outbox"
            return Declined(number, attempt, "lost_bytes", reason)
        if (found.senders, found.asked) != (tuple(sorted(todo.ask.senders)), todo.asked):
            reason = "the bytes that were sent under this stamp are for another ask"
            return Declined(number, attempt, "pads", reason)
        message = decode_to_active(found.message)
        if not isinstance(message, Answer):
            raise ConfigError("the outbox holds something that is not an answer")
        return message

    def _needed_outbox(self) -> Outbox:
        if self._outbox is None:
            raise ConfigError("secure sums need an outbox")
        return self._outbox


class Waits:
    """Waits that double up to a bound, each drawn between half of it and the whole."""

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
        """Start small again: the last attempt went well."""
        self._wait_s = self._backoff.first_s
