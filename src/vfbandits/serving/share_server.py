"""Durable server A of secret shares: after a kill it resumes where it was, bit for bit.

Three things are on the disk before the first message that depends on them is sent: that a window is
in use, that its slots are reserved, and which reward is learnt next.  A slot that was reserved and
not used is lost with the process; a reward that was begun is sent again, with the same bytes.  The
helper's answers to rewards are kept until the window is folded, so that the state can be rebuilt
without asking again.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar

from vfbandits.core.arrays import Matrix
from vfbandits.core.decision import ArmId
from vfbandits.core.shares.active import BLANK, ActiveServer, Event, Opened, Prepared
from vfbandits.core.shares.covariance.form import HeldCovariance
from vfbandits.core.shares.dealer import ServerSecrets
from vfbandits.core.shares.handover.epoch import Handover, HandoverDeal
from vfbandits.core.shares.handover.passage import NextEpoch, hand_over
from vfbandits.core.shares.helper import MAX_OPEN
from vfbandits.core.shares.kept import Kept
from vfbandits.core.shares.messages import (
    Contribution,
    Exchange,
    Lift,
    Message,
    Place,
    expect,
    read_message,
)
from vfbandits.core.shares.offer import ArmBlocks, Offer
from vfbandits.core.shares.root import Held
from vfbandits.core.shares.terms import MAX_REWARD, ShareTerms
from vfbandits.errors import (
    ConflictError,
    JournalError,
    LinkError,
    RewardError,
    RollbackError,
    SharesError,
    UnknownDecisionError,
)
from vfbandits.journal.commit import GroupCommit
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.shares.active_log import (
    MAX_LEARNT,
    ActiveLog,
    Begun,
    Forgotten,
    MovedOn,
    Numbered,
    Reserved,
    Reward,
    Step,
    Waits,
)
from vfbandits.protocol.dealt import first_window
from vfbandits.protocol.receipts import Greeting, Own, Receipt, Seen, Standing, check_standing
from vfbandits.serving.concurrency import SharedLock
from vfbandits.serving.deal_stock import DealStock, StockLeft

FILE = "shares.db"
RESERVE = 4
"""Slots reserved with one fsync; at most so many are lost when the process is killed."""
_Result = TypeVar("_Result")
Ask: TypeAlias = Callable[[bytes], Awaitable[bytes]]
"""Sends bytes to the helper and returns its answer; LinkError if there is none in time, SharesError
if the helper refuses."""
Status: TypeAlias = Literal["waits", "learnt", "unknown"]


@dataclass(frozen=True, slots=True, eq=False)
class Successor:
    """The next epoch of server A: its secrets, its dealt words, and the plan of the hand-over.

    ``plan`` makes the terms and the hand-over from the terms of the state.  ``on_done`` is called
    when the hand-over is durable.
    """

    secrets: ServerSecrets = field(repr=False)
    stock: DealStock
    plan: Callable[[ShareTerms], tuple[ShareTerms, Handover]]
    on_done: Callable[[], None] = lambda: None

    @property
    def window(self) -> int:
        """The first window of the epoch."""
        return first_window(self.stock.dealt.epoch)

    def refuse_unless_ready(self, terms: ShareTerms) -> None:
        """Refuse the epoch, before any change, unless the words of the hand-over are there."""
        words = expect(HandoverDeal, self.stock.look(self.window).deals[-1])
        NextEpoch(*self.plan(terms), self.secrets).refuse_other_words(words)


class DurableActive:
    """Decides and learns with the helper that ``ask`` reaches.

    Decisions may run concurrently; rewards are learnt one after the other.  Events are named by the
    campaign's references.  ``start`` must come first.

    A context waits for its reward during the next ``max_open`` decisions.  The helper must keep
    contexts of more decisions than that: a reward whose context it has dropped could neither be
    learnt nor skipped.
    """

    def __init__(
        self,
        path: Path,
        secrets: ServerSecrets,
        *,
        stock: DealStock,
        ask: Ask,
        key: JournalKey | None = None,
        max_open: int = MAX_OPEN,
    ) -> None:
        self._stock = stock
        self._ask = ask
        self._max_open = max_open
        self._log = ActiveLog(path, dealt=stock.dealt, key=key)
        try:
            if self._log.state is None:
                window = first_window(stock.dealt.epoch)
                fresh = ActiveServer(stock.terms, secrets, first_window=window)
                self._log.state = fresh.snapshot().to_bytes()
                self._log.append([Step(Begun(window, self._log.state), Receipt())])
            kept = Kept.from_bytes(self._log.state)
            self.terms = replace(stock.terms, idle=kept.idle)
            progress, rewards, contexts = (
                self._log.progress(),
                self._log.rewards(),
                self._log.contexts(),
            )
            self._blocks = ArmBlocks(stock.terms.max_arms, self._log.arms())
            self._seen = Seen(progress.seen)
            self._reserved = progress.reserved
            self._durable_to = progress.window, progress.reserved
            self._learnt = self._log.learnt()
            self._learning = {reward.name for reward in rewards}
            self._events = {
                context.name: (context.event, context.number)
                for context in contexts
                if context.name not in self._learnt
            }
            self._n_picks = self._log.n_contexts()
            self._pending: Reward | None = None
            self._server = ActiveServer.restore(
                self.terms,
                secrets,
                kept,
                contexts=[(context.event, context.share) for context in contexts],
                max_open=2 * max_open,  # this class decides what is dropped, and when
            )
            self._resume(rewards)
        except BaseException:
            self._log.close()
            raise
        self._commit = GroupCommit(self._log)
        self._serial = asyncio.Lock()
        self._rows = SharedLock()
        self._window = SharedLock()
        self._must_greet = True
        self._refused: RollbackError | None = None
        self._successor: Successor | None = None

    def __repr__(self) -> str:
        """Counts; no share."""
        return f"DurableActive({self._server!r}, waiting={len(self._events)})"

    @property
    def window(self) -> int:
        """The number of the window that is open, or must be dealt."""
        return self._server.window

    @property
    def next_round(self) -> int:
        """The number of the first slot that is certainly unused."""
        place = Place(self._stock.dealt.epoch, self._server.window, 0, self._reserved)
        return self.terms.round_of(place)

    @property
    def epoch(self) -> int:
        """The epoch of the dealer that its state is of."""
        return self._stock.dealt.epoch

    @property
    def is_moving(self) -> bool:
        """Whether its state must be handed over to another epoch before any other call."""
        return self._successor is not None

    def move_on(self, successor: Successor) -> None:
        """Hand the state over to the next epoch before the next decision or reward.

        This cannot be undone: no slot of this epoch is used any more.
        """
        wanted, came = self.epoch + 1, successor.stock.dealt.epoch
        if came != wanted or self._successor is not None:
            raise SharesError(f"wanted a hand-over to epoch {wanted}, once, got one to {came}")
        self._successor = successor

    def held(self) -> Held | HeldCovariance:
        """A's side of the state: for tests, which put both sides together."""
        return self._server.held()

    def left(self) -> StockLeft:
        """What is left of the dealt words."""
        return self._stock.left()

    def status(self, ref: str) -> Status:
        """Whether an event waits for its reward, or its reward was learnt.

        "unknown" is one that was never picked, was forgotten, or was learnt long ago.  A campaign
        that reads its journal again learns the rewards of events that wait, and no others.
        """
        name = self._log.blobs.name(ref)
        if name in self._learnt:
            return "learnt"
        return "waits" if name in self._events else "unknown"

    async def start(self) -> None:
        """Compare receipts with the helper, and finish interrupted work."""
        async with self._serial:
            await self._settle()
            if self._must_greet:
                await self._greet()

    async def get_ready(self) -> None:
        """As ``start``, and have words for the next decision; StockError if there are none."""
        async with self._serial:
            await self._settle()
            if self._must_greet:  # slots that are reserved first would hide an older copy
                await self._greet()
            if self._server.is_used_up:
                await self._close_window()
            await self._begin_window()

    def meet(self) -> None:
        """Compare receipts before the next message: the helper has reconnected."""
        self._must_greet = True

    async def close(self) -> None:
        """Wait for open writes, and release the file."""
        await self._commit.close()
        self._log.close()

    # Decisions.

    @asynccontextmanager
    async def decision(self) -> AsyncIterator["Slot"]:
        """A slot for one decision, from the ask to the pick; it counts as used when the block ends.

        A fold waits until all open decisions have ended: give them deadlines, and learn no
        reward within one.
        """
        while True:
            await self.get_ready()
            async with self._window.shared():
                if self._server.needs_deal or self._server.is_used_up:
                    continue  # other decisions took the last slots
                place = self._server.next_place()
                await self._reserve(place)
                yield Slot(self, place)
                return

    async def _reserve(self, place: Place) -> None:
        """Wait until it is durable that this slot counts as used."""
        if place.slot >= self._reserved:
            self._reserved = min(place.slot + RESERVE, self.terms.decisions)
            self._add(Reserved(self._reserved))
        if (place.window, place.slot) >= self._durable_to:
            until = place.window, self._reserved
            await self._commit.flush()
            self._durable_to = max(self._durable_to, until)

    async def fill_absent(
        self, place: Place, numbers: Sequence[int], *, n_arms: int
    ) -> list[Contribution]:
        """Blocks of zeros for participants that never answer in a slot of ``decision``."""
        return await self._run(self._server.fill_absent(place, numbers, n_arms=n_arms))

    def check_arms(self, arms: Sequence[ArmId]) -> None:
        """Refuse arms for which there is no block of the state left, in layout "disjoint"."""
        if self.terms.layout == "disjoint":
            self._blocks.new(arms)

    async def offer(self, arms: Sequence[ArmId], features: Matrix | None) -> Offer | None:
        """The arms of a decision; blocks for new ones are durable when this returns."""
        if self.terms.layout != "disjoint":
            return None if features is None else Offer(features=features)
        for arm in self._blocks.new(arms):
            (number,) = self._blocks.numbers([arm])
            self._add(Numbered(number, arm))
        await self._commit.flush()  # also those that another decision has numbered
        return self._blocks.offer(arms)

    async def prepare(self, place: Place) -> Prepared:
        """Exchange what a decision needs before its contexts, in a slot of ``decision``."""
        # The first message says how many rewards the window has: none may be learnt meanwhile.
        async with self._rows.shared():
            return await self._run(self._server.prepare(place))

    async def decide(
        self, ready: Prepared, blocks: list[Contribution], offer: Offer | None = None
    ) -> Opened:
        """The arm with the best score, in a slot of ``decision``."""
        exchange = self._server.decide(ready, blocks, offer)
        # As above: without noise this message is the first, except for those of arm features.
        async with self._rows.shared():
            message = next(exchange)
            reply = await self._send(message)
            while isinstance(message, Lift):
                message = exchange.send(read_message(reply))
                reply = await self._send(message)
        return await self._run(exchange, reply=reply)

    async def pick(self, opened: Opened, arm: int, *, ref: str) -> Event:
        """Keep the context of the arm that is shown; it is durable when this returns."""
        name = self._log.blobs.name(ref)
        if name in self._learnt or name in self._learning:
            raise ConflictError(f"the reward of event {ref[:64]!r} was learnt before")
        event = await self._run(self._server.pick(opened, arm))
        before = self._events.pop(name, None)
        if before is not None:  # decided again: the first decision was never answered
            self._server.forget(before[0])
        self._n_picks += 1
        self._events[name] = event, self._n_picks
        self._add(Waits(ref, event, self._n_picks, self._server.open_contexts()[event]))
        self._forget(self._too_old())
        await self._commit.flush()
        return event

    async def forget(self, refs: Iterable[str]) -> None:
        """Stop waiting for the rewards of these events; those that do not wait are skipped."""
        names = [self._log.blobs.name(ref) for ref in refs]
        self._forget([n for n in names if n in self._events and n not in self._learning])
        await self._commit.flush()

    def _too_old(self) -> list[str]:
        """Events whose context the helper may drop soon."""
        old = []
        for name, (_, number) in self._events.items():
            if number > self._n_picks - self._max_open:
                break
            if name not in self._learning:
                old.append(name)
        return old

    def _forget(self, names: list[str]) -> None:
        for name in names:
            self._server.forget(self._events.pop(name)[0])
        if names:
            self._add(Forgotten(tuple(names)))

    # Rewards.

    async def learn(self, ref: str, value: float) -> bool:
        """Learn the reward of an event, once; False if it was learnt before.

        A reward whose exchange was interrupted is finished by the next call of any kind: it keeps
        its row, which no other reward can have.
        """
        if not abs(value) <= MAX_REWARD:
            raise RewardError(
                f"a reward on secret shares must be at most {MAX_REWARD:g} in size, got {value}"
            )
        name = self._log.blobs.name(ref)
        async with self._serial:
            await self._settle()
            known = self._learnt.get(name)
            if known is not None:
                if known != value:
                    raise RewardError(
                        f"event {ref[:64]!r} has learnt another reward: wanted {known}, got {value}"
                    )
                return False
            if name in self._events:
                await self._begin_window()
            event, _ = self._events.get(name, (None, 0))  # it may have become too old meanwhile
            if event is None:
                raise UnknownDecisionError(f"no context waits for a reward of event {ref[:64]!r}")
            await self._learn(Reward(self._server.n_rows, name, event, value))
            if self._server.is_full:
                with suppress(LinkError):  # the next call tries again
                    await self._fold()
        return True

    async def _learn(self, reward: Reward) -> None:
        async with self._rows.exclusive():
            if reward != self._pending:
                self._pending = reward
                self._learning.add(reward.name)
                self._add(reward)
            await self._commit.flush()  # also if another task that waited for it was cancelled
            replies: list[bytes] = []
            await self._run(self._exchange(reward), replies=replies)
            done = Reward(reward.row, reward.name, reward.event, reward.value, tuple(replies))
            self._add(done)
            self._note_learnt(done)
            await self._commit.flush()

    def _exchange(self, reward: Reward) -> Exchange[None]:
        if reward.event == BLANK:
            return self._server.fill()
        return self._server.learn(reward.event, reward.value)

    def _note_learnt(self, reward: Reward) -> None:
        self._pending = None
        if reward.name:
            self._events.pop(reward.name, None)
            self._learnt[reward.name] = reward.value

    # Windows.

    async def _settle(self) -> None:
        """Finish a reward, fold or hand-over that was interrupted."""
        self._commit.check_healthy()
        if self._refused is not None:
            raise self._refused
        if self._pending is not None:
            await self._learn(self._pending)
        if self._server.is_full:
            await self._fold()
        if self._successor is not None:
            await self._hand_over(self._successor)

    async def _hand_over(self, successor: Successor) -> None:
        """Hand the state over to the next epoch.

        After an interruption all of it is repeated, with the same bytes; until the end the state is
        in the epoch before.
        """
        if not self._server.needs_deal:
            await self._close_window()
        async with self._window.exclusive():
            stock, owner = successor.stock, self._log.identity.hex()
            deal = await asyncio.to_thread(stock.take, successor.window, owner=owner)
            terms, plan = successor.plan(self.terms)
            after = NextEpoch(terms, plan, successor.secrets)
            words = expect(HandoverDeal, deal.deals[-1])
            exchange = hand_over(self._server, after, words, max_open=2 * self._max_open)
            server = await self._run(exchange)
            contexts = [*server.open_contexts().items()]
            state = server.snapshot().to_bytes()
            self._add(MovedOn(server.window, stock.dealt, state, contexts))
            self._server, self.terms, self._stock = server, terms, stock
            self._successor = None
            self._reserved, self._durable_to = 0, (server.window, 0)
            self._learning.clear()
            await self._commit.flush()
            self._seen.forget_before(self._seen.head)
        # An older copy of this disk would repeat it and reuse slots: the helper detects that.
        self._must_greet = True
        successor.on_done()

    async def _begin_window(self) -> None:
        if self._server.needs_deal:
            async with self._window.exclusive():
                window, owner = self._server.window, self._log.identity.hex()
                deal = await asyncio.to_thread(self._stock.take, window, owner=owner)
                self._server.take(deal)

    async def _close_window(self) -> None:
        """Fill the remaining rows with blanks, which change nothing, and fold."""
        while not self._server.is_full:
            await self._learn(Reward(self._server.n_rows, "", BLANK, 0.0))
        await self._fold()

    async def _fold(self) -> None:
        async with self._window.exclusive():
            await self._run(self._server.fold())
            self._add(Begun(self._server.window, self._server.snapshot().to_bytes()))
            self._reserved = 0
            self._learning.clear()
            self._trim_learnt()
            await self._commit.flush()
            self._seen.forget_before(self._seen.head)
            await asyncio.to_thread(self._stock.finish, self._server.window - 1)

    # Messages.

    async def _run(
        self,
        exchange: Exchange[_Result],
        *,
        reply: bytes | None = None,
        replies: list[bytes] | None = None,
    ) -> _Result:
        """Run an exchange, from its beginning or from the answer ``reply`` on."""
        try:
            message = next(exchange) if reply is None else exchange.send(read_message(reply))
            while True:
                reply = await self._send(message)
                if replies is not None:
                    replies.append(reply)
                message = exchange.send(read_message(reply))
        except StopIteration as end:
            result: _Result = end.value
            return result

    async def _send(self, message: Message) -> bytes:
        """Send a message; returns the helper's answer, once its receipt was compared."""
        if self._must_greet:
            await self._greet()
        request = message.to_bytes()
        try:
            answer = await self._ask(request)
        except LinkError:
            self._must_greet = True
            raise
        receipt, reply = Receipt.split(answer)
        try:
            self._seen.note(request, reply, receipt)
        except RollbackError as error:
            self._refused = error
            raise
        return reply

    async def _greet(self) -> None:
        """Compare receipts with the helper; RollbackError if one of the two is an older copy."""
        if self._refused is not None:
            raise self._refused
        seen, before = self._seen.head, self._own()
        greeting = Greeting(self._stock.dealt.epoch, self._stock.dealt.deal, seen)
        standing = Standing.from_bytes(await self._ask(greeting.to_bytes()))
        try:
            check_standing(standing, seen=seen, before=before, after=self._own())
        except RollbackError as error:
            self._refused = error
            raise
        self._must_greet = False

    def _own(self) -> Own:
        return Own(
            window=self._server.window,
            n_rows=self._server.n_rows,
            next_slot=self._reserved,
            is_learning=self._pending is not None,
            is_full=self._server.is_full,
            moves_to=-1 if self._successor is None else self._successor.window,
        )

    # The disk.

    def _add(
        self, change: Begun | MovedOn | Reserved | Numbered | Waits | Forgotten | Reward
    ) -> None:
        self._commit.add(Step(change, self._seen.head))

    def _trim_learnt(self) -> None:
        while len(self._learnt) > MAX_LEARNT:
            del self._learnt[next(iter(self._learnt))]

    def _resume(self, rewards: list[Reward]) -> None:
        """Resume the window that was in use."""
        if self._reserved or rewards:
            owner = self._log.identity.hex()
            self._server.take(self._stock.take(self._server.window, owner=owner))
            self._server.skip_to(self._reserved)
        for reward in rewards:
            if reward.replies is None:
                self._pending = reward
            else:
                self._replay(reward, reward.replies)

    def _replay(self, reward: Reward, replies: tuple[bytes, ...]) -> None:
        """Learn a reward again from the recorded answers of the helper."""
        exchange = self._exchange(reward)
        is_over = False
        try:
            next(exchange)
            for reply in replies:
                try:
                    exchange.send(read_message(reply))
                except StopIteration:
                    is_over = True
        except SharesError as error:
            raise self._other(reward.row) from error
        if not is_over:
            raise self._other(reward.row)

    def _other(self, row: int) -> JournalError:
        return JournalError(
            f"{self._log.path}: reward {row} of the window cannot be learnt again.  The file is "
            "damaged, or belongs to other secrets, terms or another version: restore them"
        )


class Slot:
    """One slot of the window, for one decision."""

    __slots__ = ("_server", "place")

    def __init__(self, server: DurableActive, place: Place) -> None:
        self._server = server
        self.place = place

    async def fill_absent(self, numbers: Sequence[int], *, n_arms: int) -> list[Contribution]:
        """Blocks of zeros for participants that never answer in this slot."""
        return await self._server.fill_absent(self.place, numbers, n_arms=n_arms)

    async def prepare(self) -> Prepared:
        """Exchange what a decision needs before its contexts; ask participants meanwhile."""
        return await self._server.prepare(self.place)

    async def decide(
        self, ready: Prepared, blocks: list[Contribution], offer: Offer | None = None
    ) -> Opened:
        """The arm with the best score for blocks that the participants have sent for this slot."""
        return await self._server.decide(ready, blocks, offer)

    async def pick(self, opened: Opened, arm: int, *, ref: str) -> Event:
        """Keep the context of the arm that is shown, under the campaign's reference."""
        return await self._server.pick(opened, arm, ref=ref)
