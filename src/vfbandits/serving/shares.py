"""Decisions on secret shares: slots are used one after the other, rewards learnt in between.

A decision takes a slot, gathers words of all participants, and exchanges messages with the helper
that release the arm.  The arm that the campaign shows is sent to the helper under a mask before the
decision is written to the journal: a decision in the journal names a slot whose context both
servers have.  Rewards are learnt in the order of the journal, once they are durable there.

Without the helper, or without words, a decision is made on the active participant's own features.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import Final, Protocol, TypeVar

import numpy as np

from vfbandits.campaign.machine import Ranking
from vfbandits.campaign.observer import Guarded, Ranked, Reconfigured, RewardSeen
from vfbandits.campaign.query import Contexts, Query
from vfbandits.core.arrays import Matrix, PlainBlock
from vfbandits.core.decision import ArmId
from vfbandits.core.shares.active import Event, Opened, Prepared
from vfbandits.core.shares.messages import Contribution, Place
from vfbandits.core.shares.offer import Offer, checked_arms
from vfbandits.core.shares.participant import SharingParticipant
from vfbandits.core.shares.slots import (
    ALONE,
    SlotLearner,
    lone_rows,
    rows_of,
)
from vfbandits.core.shares.terms import ShareTerms
from vfbandits.errors import (
    ArmError,
    ContextError,
    HandshakeError,
    JournalError,
    LinkError,
    SettingError,
    SharesError,
    StockError,
    WireError,
)
from vfbandits.protocol.active import ActiveParticipant
from vfbandits.protocol.change import Change
from vfbandits.protocol.instructions import ActiveInstruction, Gathered
from vfbandits.protocol.slots import from_rows
from vfbandits.serving.concurrency import both
from vfbandits.serving.deal_stock import StockLeft
from vfbandits.serving.rounds import Rounds, arm_features_of, missing_of
from vfbandits.serving.share_server import Successor
from vfbandits.telemetry.log import Logger, log_line
from vfbandits.telemetry.readings import SharesGauges

MAX_ASKS: Final = 3
RETRY_S: Final = 1.0
WAIT_S: Final = 2.0
BATCH_SIZE: Final = 32
POLL_S: Final = 0.01
NOT_CONNECTED: Final = "the helper is not connected"
FAILURES: Final = (LinkError, SharesError, JournalError)

_Result = TypeVar("_Result")


class SlotOfA(Protocol):
    """One slot, for one decision."""

    @property
    def place(self) -> Place:
        """Its place among the dealt slots."""
        ...

    async def fill_absent(self, numbers: Sequence[int], *, n_arms: int) -> list[Contribution]:
        """Blocks of zeros for participants that never answer in this slot."""
        ...

    async def prepare(self) -> Prepared:
        """Exchange what does not depend on the participants' blocks, while they are asked."""
        ...

    async def decide(
        self, ready: Prepared, blocks: list[Contribution], offer: Offer | None
    ) -> Opened:
        """The best arm for blocks that the participants have sent for this slot."""
        ...

    async def pick(self, opened: Opened, arm: int, *, ref: str) -> Event:
        """Keep the context of the arm that is shown, durably."""
        ...


class ServerA(Protocol):
    """Server A with its dealt windows, and the files of both."""

    @property
    def terms(self) -> ShareTerms:
        """The terms of the deal."""
        ...

    def check_arms(self, arms: Sequence[ArmId]) -> None:
        """Refuse arms for which nothing was dealt."""
        ...

    async def offer(self, arms: Sequence[ArmId], features: Matrix | None) -> Offer | None:
        """The arms of a decision, where participants share one row for all of them."""
        ...

    def decision(self) -> AbstractAsyncContextManager[SlotOfA]:
        """An unused slot; it counts as used when the block ends."""
        ...

    def status(self, ref: str) -> str:
        """Where a reward of this reference is: it "waits", was "learnt", or is "unknown"."""
        ...

    async def learn(self, ref: str, value: float) -> bool:
        """Learn a reward once, durably; False if it was learnt before."""
        ...

    def left(self) -> StockLeft:
        """What is left of the dealt words."""
        ...

    @property
    def next_round(self) -> int:
        """The number of the first slot that is certainly unused."""
        ...

    @property
    def is_moving(self) -> bool:
        """Whether its state must be handed over to another epoch before any other call."""
        ...

    def move_on(self, successor: Successor) -> None:
        """Hand the state over to the next epoch before the next decision or reward."""
        ...

    async def start(self) -> None:
        """Compare receipts with the helper, and finish interrupted work."""
        ...

    async def get_ready(self) -> None:
        """As ``start``, and have words for the next decision."""
        ...

    def meet(self) -> None:
        """Compare receipts before the next message: the helper has reconnected."""
        ...

    async def close(self) -> None:
        """Wait for open calls, and release its files."""
        ...


class Learning(Protocol):
    """The journal of the one campaign, and its queue of rewards."""

    @property
    def slots(self) -> SlotLearner:
        """The queue of rewards."""
        ...

    async def flush(self) -> None:
        """Wait until all records so far are durable."""
        ...


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision whose arm is released and not yet picked; ``ends`` gives its slot back."""

    slot: SlotOfA
    opened: Opened
    ends: AsyncExitStack


class BusyError(LinkError):
    """A decision has waited too long for its turn; the helper is connected."""


class LateError(LinkError):
    """Participants do not answer in time; the helper is connected."""


class StillAwayError(LinkError):
    """The last attempt has failed, and it is too early for another one."""


@dataclass(frozen=True, slots=True)
class NextDeal:
    """The next epoch, of server A and of its own participant."""

    successor: Successor
    own: SharingParticipant


class Epochs(Protocol):
    """The files of the dealer's epochs."""

    def open(self, change: Change, terms: ShareTerms) -> NextDeal:
        """Open what was dealt for a change; refuse the change if a part is missing."""
        ...

    def finish(self) -> None:
        """Drop the files of earlier epochs: the state is in the epoch in force."""
        ...


class Cause(Enum):
    """What keeps the servers from deciding."""

    HELPER = "helper"
    WORDS = "words"
    OTHER = "other"

    @classmethod
    def of(cls, error: Exception) -> "Cause":
        """The cause of an error; server A's own disk and late participants are not the helper."""
        if isinstance(error, StockError):
            return cls.WORDS
        return cls.OTHER if isinstance(error, LateError | JournalError) else cls.HELPER


@dataclass(frozen=True, slots=True)
class Away:
    """Why decisions use own features alone now, and the time of the next attempt."""

    reason: str
    cause: Cause
    until: float


@dataclass(frozen=True, slots=True)
class Alone:
    """Since when decisions use own features alone, and the number of such decisions before."""

    at: float
    n_alone: int


class SharedRounds:
    """Contexts of decisions on secret shares; one slot is in use at a time."""

    max_rows = 1

    def __init__(
        self,
        role: ActiveParticipant,
        rounds: Rounds,
        server: ServerA,
        own: SharingParticipant,
        carry_out: Callable[[list[ActiveInstruction]], None],
        *,
        epochs: Epochs,
        log: Logger,
    ) -> None:
        self._role = role
        self._rounds = rounds
        self._server = server
        self._own = own
        self._epochs = epochs
        self._next: NextDeal | None = None
        self._carry_out = carry_out
        self._log = log
        self._lock = asyncio.Lock()
        self._decision: Decision | None = None
        self._gathering: dict[int, asyncio.Future[Gathered]] = {}
        self._away: Away | None = None
        self._alone: Alone | None = None
        self._wake = asyncio.Event()
        self.learning: Learning | None = None
        self.n_released = 0
        self.n_alone = 0

    # --- contexts -------------------------------------------------------------------------------

    def n_rows(self, query: Query) -> int:
        """One: a slot is for one decision."""
        del query
        return 1

    async def contexts(self, queries: Sequence[Query], *, campaign: str) -> list[Contexts]:
        """The released arm of one query, or its own rows alone; ``keep`` must follow."""
        (query,) = queries
        features = arm_features_of(query, self._role.roster.terms)
        own = self._own_rows(query, features)
        masked = self._role.share.mask(own)
        split = self._role.split
        try:
            contexts = await self._released(query, own, masked, features, campaign)
        except FAILURES as error:
            self._note_away(error)
            self.n_alone += 1
            missing = missing_of(split, (split.active,))
            rows = lone_rows(self._server.terms, masked, len(query.arms))
            return [Contexts(rows, (split.active,), missing, features)]
        self._note_back()
        self.n_released += 1
        return [contexts]

    def _own_rows(self, query: Query, features: Matrix | None) -> PlainBlock:
        if query.trial:
            raise SettingError(
                "protection 'shares' has no trials: nobody knows the noise of a decision"
            )
        rows, terms = self._rounds.own_rows([query]), self._server.terms
        if len(query.arms) > terms.max_arms:
            raise ArmError(
                f"a decision on secret shares has at most max_arms={terms.max_arms} "
                f"arms, got {len(query.arms)}"
            )
        self._server.check_arms(checked_arms(terms, query.arms, features)[0] or ())
        try:
            self._own.check(rows)
        except SharesError as error:
            raise ContextError(f"features of {self._role.split.active!r}: {error}") from error
        self._rounds.drift.look_at_own(rows)
        return rows

    async def _released(
        self,
        query: Query,
        own: PlainBlock,
        masked: Matrix,
        features: Matrix | None,
        campaign: str,
    ) -> Contexts:
        """Release the arm; the lock is held until ``keep``."""
        self._refuse_while_away()
        try:
            await asyncio.wait_for(self._lock.acquire(), WAIT_S)
        except TimeoutError:
            raise BusyError("earlier decisions and rewards still wait for the helper") from None
        async with AsyncExitStack() as ends:
            ends.callback(self._lock.release)
            self._refuse_while_away()  # the decision before it may have failed
            await self._learn_queued()
            offer = await self._server.offer(query.arms, features)
            slot, ready, blocks, gathered = await self._gather(query, own, campaign, ends)
            opened = await _readable(slot.decide(ready, blocks, offer))
            rows = rows_of(self._server.terms, opened, masked)
            self._decision = Decision(slot, opened, ends.pop_all())
        names = gathered.contributors
        missing = missing_of(self._role.split, names)
        size = gathered.bytes_received
        return Contexts(rows, names, missing, features, bytes_received=size)

    async def _gather(
        self, query: Query, own: PlainBlock, campaign: str, ends: AsyncExitStack
    ) -> tuple[SlotOfA, Prepared, list[Contribution], Gathered]:
        """Gather words of all participants; a late one is absent from the next slot."""
        role, names = self._role, self._role.split.names
        present = role.askable()
        absent = tuple(name for name in names[1:] if name not in present)
        for _ in range(MAX_ASKS):
            # A slot is given back before the next is taken, which may have to end its window.
            async with AsyncExitStack() as taken:
                slot = await taken.enter_async_context(self._next_slot())
                gathered, ready = await both(
                    self._ask(query, own, campaign, slot.place, absent), _readable(slot.prepare())
                )
                late = missing_of(role.split, gathered.contributors)
                if set(late) <= set(absent):
                    ends.push_async_callback(taken.pop_all().aclose)
                    break
                absent = late
        else:
            raise LateError(f"participants were late in {MAX_ASKS} slots: {', '.join(absent)}")
        place, n_arms = slot.place, len(own)
        blocks = [self._own.share(place, own)]
        for name, rows in gathered.blocks.items():
            words = from_rows(rows.tobytes(), n_rows=n_arms)
            blocks.append(Contribution(place, participant=names.index(name), contexts=words))
        if absent:
            numbers = [names.index(name) for name in absent]
            blocks += await _readable(slot.fill_absent(numbers, n_arms=n_arms))
        blocks.sort(key=lambda block: block.participant)
        return slot, ready, blocks, gathered

    @asynccontextmanager
    async def _next_slot(self) -> AsyncIterator[SlotOfA]:
        """A slot that no participant has used; slots that one has used are skipped."""
        while True:
            async with self._server.decision() as slot:
                if self._server.terms.round_of(slot.place) >= self._role.next_round:
                    yield slot
                    return

    async def _ask(
        self,
        query: Query,
        own: PlainBlock,
        campaign: str,
        place: Place,
        absent: tuple[str, ...],
    ) -> Gathered:
        number, todo = self._role.ask(
            (query.user,),
            (query.arms,),
            own,
            time.monotonic(),
            campaigns=(campaign,),
            place=place,
            absent=absent,
        )
        gathered: asyncio.Future[Gathered] = asyncio.get_running_loop().create_future()
        self._gathering[number] = gathered
        self._carry_out(todo)
        try:
            return await gathered
        finally:
            del self._gathering[number]

    def deliver(self, gathered: Gathered) -> None:
        """Take a complete round."""
        waiting = self._gathering.get(gathered.round)
        if waiting is not None and not waiting.done():
            waiting.set_result(gathered)

    async def keep(self, ranking: Ranking | None) -> None:
        """Have the servers keep the context of the arm that is shown.

        If they cannot, the decision is kept, and its reward is learnt on own features alone.
        """
        decision, self._decision = self._decision, None
        if decision is None:
            return
        async with decision.ends:
            if ranking is None:
                return
            event, opened = ranking.event, decision.opened
            try:
                picked = decision.slot.pick(opened, event.index, ref=reference(opened.event))
                await _readable(picked)
            except FAILURES as error:
                self._note_away(error)
                event.x = np.array((*ALONE, *event.x[2:]), dtype=np.float64)

    # --- another epoch ---------------------------------------------------------------------------

    def refuse_while_moving(self) -> None:
        """Refuse a mask change until the last hand-over is complete."""
        if self._server.is_moving:
            raise HandshakeError(
                f"wanted the servers in epoch {self._role.epoch}, got an unfinished hand-over: "
                f"{self.away or 'try again in a few seconds'}"
            )

    async def prepare(self, change: Change) -> None:
        """Open what was dealt for the next epoch, before any participant is asked to change."""
        terms = self._server.terms
        try:
            self._next = await asyncio.to_thread(self._epochs.open, change, terms)
        except SharesError as error:  # operators get the text of a HandshakeError only
            raise HandshakeError(str(error)) from error

    @asynccontextmanager
    async def between_decisions(self) -> AsyncIterator[None]:
        """Block decisions and rewards: no slot is in use and no round is open."""
        async with self._lock:
            # A decision whose caller has disconnected leaves a round, which ends by its deadline.
            while self._role.n_open:  # noqa: ASYNC110  (there is no event to wait for)
                await asyncio.sleep(POLL_S)
            yield

    def move_on(self) -> None:
        """Hand over to the next epoch, which the journal is in, before any other exchange."""
        if self._next is None:
            raise SharesError("wanted a hand-over that was prepared, got none")
        if self.learning is not None:
            self.learning.slots.take_terms(self._role.roster.share_terms)
        self.go_to(self._next)

    def go_to(self, following: "NextDeal") -> None:
        """Hand over to an epoch, no later than at the next decision or reward."""

        def on_done() -> None:
            self._own = following.own
            self._role.resume_at(self._server.next_round)
            self._epochs.finish()
            log_line(self._log, "shares_handed_over", {"epoch": self._role.epoch})

        self._next = None
        self._server.move_on(replace(following.successor, on_done=on_done))
        self._wake.set()

    async def finish_hand_over(self) -> None:
        """Hand over now if the helper is connected, otherwise when it reconnects."""
        try:
            self._refuse_while_away()
            async with self._lock:
                await _readable(self._server.start())
            self._note_back()  # else /readyz names the old reason until the next decision
        except FAILURES as error:
            self._note_away(error)

    def release(self) -> None:
        """Do nothing: ``keep`` has given the slot back."""

    async def quiet(self) -> None:
        """Wait until no slot is in use."""
        async with self._lock:
            pass

    async def close(self) -> None:
        """Release the files of server A."""
        await self._server.close()

    def describe(self) -> SharesGauges:
        """The helper, the rewards that wait for it, and what is left of the dealt words."""
        rules, left = self._role.roster.terms.shares, self._server.left()
        return SharesGauges(
            helper="" if rules is None else rules.helper,
            learns=self._role.roster.terms.learns,
            away=self.away,
            is_helper_away=self._is_away_for(Cause.HELPER) or not self._is_helper_there,
            is_out_of_words=self._is_away_for(Cause.WORDS),
            released=self.n_released,
            alone=self.n_alone,
            queued=0 if self.learning is None else len(self.learning.slots.queue),
            windows=left.windows,
            decisions=left.decisions,
            lasts_s=left.lasts_s,
            is_low=left.is_low,
        )

    # --- the helper comes and goes ----------------------------------------------------------------

    @property
    def away(self) -> str:
        """Why decisions are made on own features alone; empty if they are not."""
        if not self._is_helper_there:
            return NOT_CONNECTED
        return "" if self._away is None else self._away.reason

    @property
    def _is_helper_there(self) -> bool:
        rules = self._role.roster.terms.shares
        return rules is None or rules.helper in self._role.seats

    def _is_away_for(self, cause: Cause) -> bool:
        return self._away is not None and self._away.cause is cause

    def helper_joined(self) -> None:
        """Try the helper again: it has reconnected."""
        self._server.meet()
        self._away = None
        self._wake.set()

    def _refuse_while_away(self) -> None:
        if not self._is_helper_there:
            raise LinkError(NOT_CONNECTED)
        if self._away is not None and time.monotonic() < self._away.until:
            raise StillAwayError(self._away.reason)

    def _note_away(self, error: Exception) -> None:
        if isinstance(error, StillAwayError):
            return  # otherwise each decision would delay the next attempt
        if isinstance(error, BusyError):
            log_line(self._log, "shares_busy", {"reason": str(error), "waited_s": WAIT_S})
            return
        if self._away is None or self._away.reason != str(error):
            log_line(self._log, "shares_away", {"reason": str(error)})
        now = time.monotonic()
        self._away = Away(str(error), Cause.of(error), now + RETRY_S)
        self._alone = self._alone or Alone(now, self.n_alone)

    def _note_back(self) -> None:
        """Both servers work again: log it if their failure was logged."""
        alone, self._away, self._alone = self._alone, None, None
        if alone is not None:
            seconds = round(time.monotonic() - alone.at, 3)
            decisions = self.n_alone - alone.n_alone
            log_line(self._log, "shares_back", {"seconds": seconds, "decisions_alone": decisions})

    async def _look_again(self) -> None:
        """Check whether both servers could decide again, without waiting for a request."""
        try:
            self._refuse_while_away()
            async with self._lock:
                await _readable(self._server.get_ready())
            self._note_back()
        except FAILURES as error:
            self._note_away(error)

    # --- rewards ----------------------------------------------------------------------------------

    async def learn_for_ever(self) -> None:
        """Learn queued rewards whenever there are some and the helper is connected."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), RETRY_S)
            self._wake.clear()
            if self._server.is_moving:
                await self.finish_hand_over()
            # The helper has reconnected, or more words may have been dealt.
            if self._alone is not None and (self._away is None or self._is_away_for(Cause.WORDS)):
                await self._look_again()
            if self.learning is None or not self.learning.slots.queue:
                continue
            try:
                self._refuse_while_away()
                async with self._lock:
                    await self._learn_queued()
                self._note_back()
                if self.learning.slots.queue:  # decisions have their turn in between
                    self._wake.set()
            except FAILURES as error:
                self._note_away(error)

    def attach(self, learning: Learning) -> None:
        """Learn the rewards of this journal that were not learnt before the restart."""
        learning.slots.leave_out(lambda one: self._server.status(reference(one.event)) != "waits")
        self.learning = learning
        self._wake.set()

    async def _learn_queued(self) -> None:
        """Learn some rewards that are durable in the journal, in its order; the lock is held."""
        learning = self.learning
        if learning is None or not learning.slots.queue:
            return
        ready = [*islice(learning.slots.queue, BATCH_SIZE)]
        await learning.flush()
        for number, event, value in ready:
            # A reward that was learnt before a restart, or is too old to wait for, is skipped.
            if self._server.status(reference(event)) == "waits":
                await _readable(self._server.learn(reference(event), value))
            learning.slots.learnt_to(number)

    # --- an observer of the campaign --------------------------------------------------------------

    def on_ranked(self, seen: Sequence[Ranked]) -> None:
        """Nothing to do."""

    def on_reward(self, seen: RewardSeen) -> None:
        """Wake the task that learns: a reward is in the journal."""
        self._wake.set()

    def on_configured(self, seen: Reconfigured) -> None:
        """Nothing to do."""

    def on_guardrail(self, seen: Guarded) -> None:
        """Nothing to do."""


async def _readable(answered: Awaitable[_Result]) -> _Result:
    """The result of an exchange with the helper; SharesError if its bytes cannot be read."""
    try:
        return await answered
    except WireError as error:
        raise SharesError(f"the helper's answer cannot be read: {error}") from error


def reference(event: Event) -> str:
    """Server A's name of a decision: its slot, as recorded in the journal."""
    return f"{event[0]}/{event[1]}"
