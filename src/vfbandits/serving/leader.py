"""A campaign: one model that is asked, told rewards, and waits for them; many may share a server.

Event ids are idempotency keys.  The same id gets the same answer, from the log if need be, and the
random draws behind a decision come from the id, so that the same events give the same decisions.
"""

import asyncio
import heapq
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from typing import NamedTuple, Protocol

import structlog

from vfbandits.campaign.event_ids import EventIds
from vfbandits.campaign.events import Activated, Configured, Decided, Event, Reported
from vfbandits.campaign.history import History, refuse_other_value
from vfbandits.campaign.observer import Heard, Observer, Reconfigured
from vfbandits.campaign.pending import COUNTED, LOGGED, Entry, total
from vfbandits.campaign.settings import FROZEN, SUM, CampaignSettings
from vfbandits.errors import (
    ConflictError,
    JournalError,
    RecordError,
    UnknownDecisionError,
    UnknownEventError,
    VFBanditsError,
)
from vfbandits.serving.decider import ContextSource, Decider, Made, Named
from vfbandits.serving.deciding import Asked, Deciding, Outcome
from vfbandits.serving.durable import DurableBandit
from vfbandits.serving.in_groups import Told, all_of, answer_or_raise
from vfbandits.serving.traced import TracedContexts
from vfbandits.serving.turns import Turns
from vfbandits.serving.under_way import UnderWay
from vfbandits.telemetry.log import Logger
from vfbandits.telemetry.tracer import Attributes, NoTracer, Span, Tracer

AT_ONCE = 1_000
NO_TRACER = NoTracer()


class Arrivals(Protocol):
    """What other processes have promised, on its way into the log."""

    @property
    def complete_to(self) -> float:
        """Whatever came before this time is in the log; seconds since 1970."""
        ...

    async def drain(self) -> None:
        """Take in all that has arrived by now."""
        ...


class Over(NamedTuple):
    """An event whose wait is over; ``past`` is what the journal has of one that left memory."""

    due: float
    event_id: str
    entry: Entry
    past: History | None = None


class Campaign:
    """One model with its log; ``encode`` makes the answer that is kept and given."""

    def __init__(
        self,
        name: str,
        model: DurableBandit,
        source: ContextSource,
        settings: CampaignSettings,
        *,
        encode: Callable[[Outcome], bytes],
        tracer: Tracer = NO_TRACER,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.arm_expiry_s: float | None = None
        self.log: Logger = structlog.get_logger()
        self.model = model
        self._observers: tuple[Observer, ...] = ()
        self._tracer = tracer
        self._clock = clock
        self._ids = EventIds()
        self._under_way = UnderWay(self._rank_known)
        self._turns = Turns()
        self.arrivals: Arrivals | None = None
        self._first_settings = settings
        self.settings = self._settings_in_force()
        self._decider = Decider(model, source, self.settings, encode=encode, clock=clock)
        self._due: list[tuple[float, str]] = []
        self._gather_due()

    @property
    def config_version(self) -> int:
        """How often the settings were changed."""
        return self.model.book.n_settings

    @property
    def layout(self) -> str:
        """Of the contexts: "per_arm", "outer" or "disjoint"."""
        return self.model.bandit.layout.layout

    @property
    def n_waiting(self) -> int:
        """Events that wait for a reward, in memory or not."""
        return self.model.book.n_pending

    # --- deciding ---------------------------------------------------------------------------------

    async def rank(self, asked: Asked) -> bytes:
        """Decide, durably; the answer is the one that this event got before, if it did."""
        return answer_or_raise((await self.rank_many([asked]))[0])

    async def rank_many(self, asked: Sequence[Asked]) -> list[Told]:
        """As ``rank`` does for each; where one fails its error stands in the place of an answer.

        They are decided together, which takes less time than one by one.
        """
        answers: dict[str, Told] = {}
        new: dict[str, Asked] = {}
        known: dict[str, Asked] = {}
        names = [self._ids.draw() if one.event_id is None else one.event_id for one in asked]
        for name, one in zip(names, asked, strict=True):
            (new if one.event_id is None else known).setdefault(name, one)

        async def take(answering: Awaitable[Mapping[str, Told]]) -> None:
            answers.update(await answering)

        works = [take(self._rank_all(new))] if new else []
        if known:
            works.append(take(self._under_way.ask(known)))
        await all_of(works)
        return [answers[name] for name in names]

    async def _rank_known(self, asked: dict[str, Asked]) -> dict[str, Told]:
        """The answers that these got before; those that did not are decided."""
        await self._catch_up()
        try:
            found = await self.model.find_many(list(asked))
        except RecordError as error:
            if len(asked) == 1:
                return dict.fromkeys(asked, error)
            # One of them has a damaged record: the others are answered all the same.
            alone = [self._rank_known({name: one}) for name, one in asked.items()]
            return {
                name: told for each in await asyncio.gather(*alone) for name, told in each.items()
            }
        pasts = {name: History.of(found[name]) for name in asked}
        answers = {name: _answer_in(past) for name, past in pasts.items() if past is not None}
        new = {name: one for name, one in asked.items() if name not in answers}
        return answers | await self._rank_all(new)

    async def _rank_all(self, asked: Mapping[str, Asked]) -> dict[str, Told]:
        """Decide on events that nobody has decided on; ids are theirs alone."""
        answers: dict[str, Told] = {}

        async def rank_some(named: Sequence[Named]) -> None:
            told = await self._rank_group(named)
            answers.update(zip([name for name, _ in named], told, strict=True))

        await all_of([*map(rank_some, self._decider.portions([*asked.items()]))])
        return answers

    async def _rank_group(self, named: Sequence[Named]) -> list[Told]:
        """Decide on these together, in their order."""
        started = time.perf_counter()
        async with AsyncExitStack() as stack:
            stack.enter_context(self._span_of(named))
            try:
                rounds = self._decider.rounds(named)
                leased = TracedContexts(self._decider.contexts(rounds), self._tracer)
                contexts = await stack.enter_async_context(leased)
            except VFBanditsError as error:
                if len(named) == 1:
                    return [error]
            else:
                with self._tracer.span("decide", model_version=self.model.book.n_learnt):
                    made = self._decider.decide(rounds, contexts, started=started)
                return await self._make_durable(made, started)
        # One of them cannot be had, or none: each by itself will be told.
        alone = await asyncio.gather(*(self._rank_group([each]) for each in named))
        return [answer for (answer,) in alone]

    def _span_of(self, named: Sequence[Named]) -> AbstractContextManager[Span]:
        """What is timed as a whole: one event, or several together."""
        told: Attributes = {"campaign": self.name}
        if len(named) == 1:
            ((event_id, asked),) = named
            told |= {"event_id": event_id, "n_arms": len(asked.arms)}
        return self._tracer.span("rank", **told)

    async def _make_durable(self, made: Sequence[Made], started: float) -> list[Told]:
        try:
            with self._tracer.span("log"):
                await self.model.flush()
        except VFBanditsError as error:
            return [error] * len(made)
        for one in made:
            if isinstance(one, Deciding):
                heapq.heappush(self._due, (one.due, one.event_id))
        if self._observers:
            # Afterwards: whoever asked need not wait for those who look on.
            seconds = time.perf_counter() - started
            asyncio.get_running_loop().call_soon(self._tell_of, made, seconds)
        return [one.answer if isinstance(one, Deciding) else one for one in made]

    def _tell_of(self, made: Sequence[Made], seconds: float) -> None:
        """Tell observers of decisions that are durable."""
        seen = [one.seen(self.name, seconds) for one in made if isinstance(one, Deciding)]
        if seen:
            for observer in self._observers:
                observer.ranked(seen)

    async def enter_many(self, decided: Sequence[Decided]) -> list[VFBanditsError | None]:
        """Take in decisions that another process made, in one commit; why not, for each."""
        ends = [self._enter(one) for one in decided]
        await self.model.flush()
        return ends

    def _enter(self, decided: Decided) -> VFBanditsError | None:
        try:
            self.model.enter_soon(decided)
        except JournalError:  # of all of them
            raise
        except VFBanditsError as error:
            return error
        if decided.due is not None:
            heapq.heappush(self._due, (decided.due, str(decided.decision_id)))
        return None

    async def activate(self, event_id: str, *, at: float | None = None) -> bool:
        """The arm is shown now: the wait for a reward begins.  False if it had begun before.

        ``at`` is when another process was told.
        """
        now = await self._now(at)
        entry = self.model.book.entries.get(event_id)
        if entry is None:
            async with self._turns[event_id]:
                return await self._activate_recalled(event_id, now)
        if not entry.held:
            await self.model.flush()
            return False
        if entry.due is not None and now > entry.due:
            raise ConflictError(f"event {event_id!r} was not activated in time")
        due = now + self.settings.reward_wait_s
        heapq.heappush(self._due, (due, event_id))
        await self.model.record(Activated(event_id, due, now))
        return True

    async def _activate_recalled(self, event_id: str, now: float) -> bool:
        """The same for an event that has left memory."""
        past = await self._past(event_id)
        if not past.held:
            return False
        if not past.is_open or (past.due is not None and now > past.due):
            raise ConflictError(f"event {event_id!r} was not activated in time")
        due = now + self.settings.reward_wait_s
        await self.model.record(Activated(event_id, due, now, past.position))
        return True

    # --- rewards ----------------------------------------------------------------------------------

    async def reward(
        self, event_id: str, value: float, *, reward_id: str = "", at: float | None = None
    ) -> str:
        """Take a reward; returns what became of it, durably (``client.schemas.RewardStatus``).

        ``at`` is when it came, if that was to another process.
        """
        value = self.settings.as_reward(value)
        now = await self._now(at)
        entry = self.model.book.entries.get(event_id)
        if entry is not None and not _is_over(entry, now):
            return await self._reward_open(event_id, value, reward_id, entry, now)
        async with self._turns[event_id]:
            past = await self._past(event_id)
            entry = past.entry()
            if past.is_open and not _is_over(entry, now):  # it has left memory
                return await self._reward_open(event_id, value, reward_id, entry, now, past)
            return await self._reward_closed(event_id, value, reward_id, past, now)

    async def _reward_open(
        self,
        event_id: str,
        value: float,
        reward_id: str,
        entry: Entry,
        now: float,
        past: History | None = None,
    ) -> str:
        """Take a reward that is waited for; ``past`` if the event has left memory."""
        if entry.held:
            raise ConflictError(f"event {event_id!r} is held; activate it before its reward")
        if self.settings.mode == FROZEN or entry.logged:
            if past is not None:
                return await self._reward_logged(event_id, value, reward_id, entry, now)
            async with self._turns[event_id]:
                return await self._reward_logged(event_id, value, reward_id, entry, now)
        if self.settings.aggregation == SUM or entry.reports:
            return await self._count(event_id, value, reward_id, entry, now)
        await self.model.reward(event_id, value, reward_id=reward_id, at=now, past=past)
        return self._tell(event_id, entry, "learnt", value)

    def as_reward(self, value: float) -> float:
        """A reward that may be learnt by the settings in force; a RewardError otherwise."""
        return self.settings.as_reward(value)

    async def _count(
        self, event_id: str, value: float, reward_id: str, entry: Entry, now: float
    ) -> str:
        if reward_id in entry.reports:
            refuse_other_value(event_id, entry.reports[reward_id], value, reward_id)
            await self.model.flush()
            return self._tell(event_id, entry, "repeated", value)
        await self.model.record(Reported(event_id, value, reward_id, COUNTED, now))
        return self._tell(event_id, entry, COUNTED, value)

    async def _reward_logged(
        self, event_id: str, value: float, reward_id: str, entry: Entry, now: float
    ) -> str:
        if (await self._past(event_id)).has(reward_id, value):
            return self._tell(event_id, entry, "repeated", value)
        why = LOGGED if self.settings.mode == FROZEN else "ignored"
        await self.model.record(Reported(event_id, value, reward_id, why, now))
        return self._tell(event_id, entry, why, value)

    async def _reward_closed(
        self, event_id: str, value: float, reward_id: str, past: History, now: float
    ) -> str:
        entry = past.entry()
        if past.has(reward_id, value):
            return self._tell(event_id, entry, "repeated", value)
        why = "ignored" if past.due is None or now <= past.due else "late"
        await self.model.record(Reported(event_id, value, reward_id, why, now))
        return self._tell(event_id, entry, why, value)

    async def retract(self, event_id: str, *, by: str) -> float:
        """Take back the reward that an event has taught, durably; returns it."""
        await self._catch_up()
        async with self._turns[event_id]:
            value = await self.model.retract(event_id, by=by)
        self.log.warning("reward_retracted", campaign=self.name, event_id=event_id, by=by)
        return value

    def _tidy(self) -> None:
        """Let go of events that had their reward before their wait was over."""
        if len(self._due) > 2 * len(self.model.book.entries) + AT_ONCE:
            self._gather_due()

    def _gather_due(self) -> None:
        entries = self.model.book.entries
        self._due = [(e.due, str(key)) for key, e in entries.items() if e.due is not None]
        heapq.heapify(self._due)

    async def expire_arms(self) -> int:
        """Let the models of arms go that were not shown for ``arm_expiry_s``; returns how many.

        A record of the journal says which, so that a replay lets go of the same.  A reward that
        comes for one of them later is learnt from the prior on.
        """
        if self.arm_expiry_s is None:
            return 0
        now = self._clock()
        old = self.model.book.arms_not_shown_since(now - self.arm_expiry_s, most=AT_ONCE)
        if old:
            await self.model.drop_arms(old, at=now)
        return len(old)

    async def settle(self) -> int:
        """End the waits that are over: learn sums and defaults; returns how many ended."""
        await self._rebuild_if_failed()
        self._tidy()
        now = self._clock()
        if self.arrivals is not None:  # a reward that came in time may be on its way
            now = min(now, self.arrivals.complete_to)
        # In the order in which they end, wherever they are kept: so it does not shape the model.
        ready = sorted([*await self._over_in_journal(now), *self._over(now)], key=_by_end)
        over, later = ready[:AT_ONCE], ready[AT_ONCE:]
        for one in later:
            if one.past is None:
                heapq.heappush(self._due, (one.due, one.event_id))
        ends = await asyncio.gather(*(self._end(one, now) for one in over), return_exceptions=True)
        is_broken, may_mend = self.model.broken_by is not None, self.model.has_failed
        for one, error in zip(over, ends, strict=True):
            if is_broken and isinstance(error, JournalError):
                if not may_mend:
                    raise error
                # Not the event's fault: it is open in the model that is built again.
            elif error is not None:
                await self._give_up(one.event_id, one.entry, error)
        return len(over)

    def _over(self, now: float) -> list[Over]:
        """Some events in memory whose waits are over."""
        over: list[Over] = []
        while self._due and self._due[0][0] <= now and len(over) < AT_ONCE:
            _, event_id = heapq.heappop(self._due)
            entry = self.model.book.entries.get(event_id)
            # Activation gives an event a later end, which stands in the heap as well.
            if entry is not None and entry.due is not None and entry.due <= now:
                over.append(Over(entry.due, event_id, entry))
        return over

    async def _over_in_journal(self, now: float) -> list[Over]:
        """Some events that have left memory whose waits are over."""
        cold = self.model.book.cold
        positions = cold.over(now, most=AT_ONCE)
        if not positions:
            return []
        decided = {
            position: str(event.decision_id)
            for position, event in (await self._events_at(sorted(positions))).items()
            if isinstance(event, Decided)
        }
        found = await self.model.find_placed([*dict.fromkeys(decided.values())])
        over = []
        for position in positions:
            past = History.found(found[decided[position]]) if position in decided else None
            if past is None or past.position != position or not past.is_open:
                # It cannot be read, or another decision has its name now.
                cold.set_aside(position)
                facts = {"campaign": self.name, "position": position}
                self.log.error("wait_lost", **facts)
            elif past.due is not None:
                over.append(Over(past.due, decided[position], past.entry(), past))
        return over

    async def _events_at(self, positions: Sequence[int]) -> dict[int, Event]:
        """As far as the journal can be read: one damaged record must not hold up the others."""
        try:
            return await self.model.events_at(positions)
        except JournalError:
            if self.model.broken_by is not None:
                raise
        readable: dict[int, Event] = {}
        for position in positions:
            try:
                readable |= await self.model.events_at([position])
            except JournalError as error:
                facts = {"campaign": self.name, "position": position, "reason": str(error)}
                self.log.error("record_unreadable", **facts)
        return readable

    async def _give_up(self, event_id: str, entry: Entry, error: BaseException) -> None:
        """An event cannot be ended as it should: it is forgotten, and the others go on."""
        kind, reason = type(error).__name__, str(error)
        facts = {"campaign": self.name, "event_id": event_id, "error": kind, "reason": reason}
        self.log.error("event_failed", **facts)
        await self._rebuild_if_failed()
        try:
            await self.model.forget(event_id)
        except UnknownDecisionError:
            self.log.info("event_gone", campaign=self.name, event_id=event_id)
        self._tell(event_id, entry, "failed", math.nan)

    async def _rebuild_if_failed(self) -> None:
        """Have the model as the log says it, if an error has left another one."""
        if self.model.has_failed:
            await self.model.rebuild()
            self.settings = self._settings_in_force()
            self._decider.adopt(self.settings)
            self._gather_due()
            self.log.warning("model_rebuilt", campaign=self.name, position=self.model.position)

    def _settings_in_force(self) -> CampaignSettings:
        kept = self.model.book.settings
        return CampaignSettings.unpack(kept) if kept else self._first_settings

    async def _end(self, over: Over, now: float) -> None:
        event_id, past = over.event_id, over.past
        if past is None and event_id in self.model.book.entries:
            await self._close(event_id, over.entry)
            return
        async with self._turns[event_id]:
            if past is None:  # it has left memory a moment ago
                past = await self._past(event_id)
            due = self.model.book.cold.due(past.position)
            if due is not None and due <= now:  # nobody was quicker
                await self._close(event_id, past.entry(), past)

    async def _close(self, event_id: str, entry: Entry, past: History | None = None) -> None:
        value, status = self.settings.default_reward, "default"
        if entry.reports:
            value, status = self.settings.within(total(entry.reports)), "summed"
        if value is None or entry.held or entry.logged or self.settings.mode == FROZEN:
            value, status = None, "forgotten"
            await self.model.forget(event_id, past=past)
        else:
            await self.model.reward(event_id, value, reward_id=None, past=past)
        self._tell(event_id, entry, status, math.nan if value is None else value)

    def _tell(self, event_id: str, entry: Entry, status: str, value: float) -> str:
        """Tell observers what became of a reward; returns that."""
        now = self._clock()
        waited = now - entry.at
        seen = Heard(self.name, event_id, str(entry.arm), entry.group, status, value, now, waited)
        for observer in self._observers:
            observer.heard(seen)
        return status

    # --- looking and changing ---------------------------------------------------------------------

    async def history(self, event_id: str) -> History:
        """All that is known of an event."""
        await self._catch_up()
        return await self._past(event_id)

    async def configure(self, changes: dict[str, object]) -> CampaignSettings:
        """Change settings, durably; decisions that follow are made and logged under them."""
        settings = self.settings.changed(changes)
        if settings != self.settings:
            before, self.settings = self.settings, settings
            self._decider.adopt(settings)
            event = Configured(settings.pack(), self._clock())
            await self.model.record(event)
            seen = Reconfigured(self.name, before.pack(), event.settings, event.at)
            for observer in self._observers:
                observer.configured(seen)
        return settings

    def observe(self, observers: Iterable[Observer]) -> None:
        """Tell these as well, from now on."""
        self._observers = (*self._observers, *observers)

    async def _past(self, event_id: str) -> History:
        past = History.found((await self.model.find_placed([event_id]))[event_id])
        if past is None:
            raise UnknownEventError(f"wanted an event that was ranked here, got {event_id!r}")
        return past

    async def _now(self, at: float | None) -> float:
        """When something came; what came here stands behind all that came elsewhere before."""
        if at is not None:
            return at
        await self._catch_up()
        return self._clock()

    async def _catch_up(self) -> None:
        if self.arrivals is not None:
            await self.arrivals.drain()


def _by_end(over: Over) -> tuple[float, str]:
    return over.due, over.event_id


def _is_over(entry: Entry, now: float) -> bool:
    return entry.due is not None and now > entry.due


def _answer_in(past: History) -> Told:
    event_id, note = past.decided.decision_id, past.decided.note
    return note or ConflictError(f"event {event_id!r} was decided through another interface")
