"""The process that learns: a campaign, its journal, and the contexts of a federation.

``campaign/machine.py`` decides what happens to an event.  Here its records are appended, made
durable, and then answered.
"""

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

import structlog

from vfbandits.campaign.events import (
    GUARDRAIL,
    SETTINGS,
    SETTINGS_FILE,
    Administered,
    Decided,
    Event,
)
from vfbandits.campaign.history import History
from vfbandits.campaign.machine import Campaign, Due, Ranking, Verdict, by_end
from vfbandits.campaign.observer import Guarded, Reconfigured
from vfbandits.campaign.query import Contexts, Query
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.errors import JournalError, RecordError, UnknownDecisionError, VFBanditsError
from vfbandits.serving.durable import DurableBandit
from vfbandits.serving.served import Answered, Named, Result, Served, answers_in, found
from vfbandits.telemetry.log import Logger

BATCH_SIZE = 1_000
RETIRED_PER_BATCH = 5_000
DAY_S = 86_400.0
RETAIN_EVERY_S = 3_600.0


class Arrivals(Protocol):
    """Records of other processes on their way into the journal."""

    @property
    def complete_to(self) -> float:
        """All arrivals before this time are in the journal; seconds since 1970."""
        ...

    async def drain(self) -> None:
        """Take in all that has arrived by now."""
        ...


Keep: TypeAlias = Callable[[Ranking | None], Awaitable[None]]


class ContextSource(Protocol):
    """Where the masked contexts of decisions come from."""

    @property
    def max_rows(self) -> int:
        """Maximum number of rows in one batch."""
        ...

    def n_rows(self, query: Query) -> int:
        """How many rows a query needs."""
        ...

    async def contexts(self, queries: Sequence[Query], *, campaign: str) -> Sequence[Contexts]:
        """The contexts of these, in their order; the masks stay in force until ``release``."""
        ...

    @property
    def keep(self) -> "Keep | None":
        """Called with each decision before it is in the journal, or with None if it failed.

        A source that keeps nothing has None instead.
        """
        ...

    def release(self) -> None:
        """Release the contexts of one call of ``contexts``."""
        ...


class Leader(Served):
    """One campaign with its journal."""

    def __init__(
        self,
        name: str,
        durable: DurableBandit,
        source: ContextSource,
        settings: CampaignSettings,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(name, clock=clock)
        self.durable = durable
        self.arm_expiry_s: float | None = None
        self.retain_s: float | None = None
        self._retain_at = float("-inf")
        self.log: Logger = structlog.get_logger()
        self.arrivals: Arrivals | None = None
        self._source = source
        durable.campaign.begin_with(settings)

    @property
    def campaign(self) -> Campaign:
        """The campaign's state machine."""
        return self.durable.campaign

    # --- deciding ---------------------------------------------------------------------------------

    def decide(self, query: Query) -> Awaitable[Answered]:
        """As ``Served.decide``; with no other request open, a query does not wait a turn."""
        return super().decide(query) if self._n_under_way else self._decide_alone(query)

    async def _decide_alone(self, query: Query) -> Answered:
        self._n_under_way += 1
        try:
            (result,) = await self.decide_many([query])
        finally:
            self._n_under_way -= 1
        if isinstance(result, Answered):
            return result
        raise result

    @property
    def _max_batch(self) -> int:
        return self._source.max_rows

    def _size_of(self, query: Query) -> int:
        return self._source.n_rows(query)

    async def _answers_of(self, ids: Sequence[str]) -> dict[str, Result]:
        await self._catch_up()
        try:
            events = await self.durable.find_many(ids)
        except RecordError as error:
            if len(ids) == 1:
                return {ids[0]: error}
            # One of them has a damaged record: answer the others.
            alone = await asyncio.gather(*(self._answers_of([one]) for one in ids))
            return {name: result for each in alone for name, result in each.items()}
        return answers_in({name: events[name] for name in ids})

    async def _rank_batch(self, batch: Sequence[Named], started: float) -> list[Result]:
        try:
            contexts = await self._contexts(batch)
        except VFBanditsError as error:
            if len(batch) == 1:
                return [error]
        else:
            try:
                ranked = await self._decide(batch, contexts, started)
                return await self._make_durable(ranked, started)
            finally:
                self._source.release()
        # At least one query fails: try each alone.
        alone = await asyncio.gather(*(self._rank_batch([one], started) for one in batch))
        return [result for (result,) in alone]

    def _contexts(self, batch: Sequence[Named]) -> Awaitable[Sequence[Contexts]]:
        return self._source.contexts([query for _, query in batch], campaign=self.name)

    async def _decide(
        self, batch: Sequence[Named], contexts: Sequence[Contexts], started: float
    ) -> list[Ranking | Exception]:
        """Decide one after the other; a decision that fails gets its error."""
        campaign, now, keep = self.campaign, self._clock(), self._source.keep
        ranked: list[Ranking | Exception] = []
        for (event_id, query), its_contexts in zip(batch, contexts, strict=True):
            try:
                ranking = campaign.rank(query, its_contexts, event_id=event_id, now=now)
            except Exception as error:  # noqa: BLE001  (nothing has changed: it fails alone)
                ranked.append(error)
                if keep is not None:
                    await keep(None)
                continue
            if keep is not None:
                await keep(ranking)
            ranking.event.seconds = round(time.perf_counter() - started, 6)
            try:
                self.durable.append(ranking.event)
            except VFBanditsError as error:
                ranked.append(error)
            else:
                ranked.append(ranking)
        return ranked

    async def _make_durable(
        self, ranked: Sequence[Ranking | Exception], started: float
    ) -> list[Result]:
        try:
            await self._flush()
        except VFBanditsError as error:
            return [error] * len(ranked)
        except asyncio.CancelledError:  # the caller has gone; its decisions are in the journal
            self._go_on(self._make_durable(ranked, started))
            raise
        self._tell_soon([one for one in ranked if isinstance(one, Ranking)], started)
        return [
            Answered(one.event.answer, one.contexts.bytes_received, one.answer)
            if isinstance(one, Ranking)
            else one
            for one in ranked
        ]

    def _flush(self) -> Awaitable[None]:
        return self.durable.flush()

    async def enter_many(self, decided: Sequence[Decided]) -> list[VFBanditsError | None]:
        """Take in decisions of a replica, in one commit; returns an error or None for each."""
        ends = [self._enter(one) for one in decided]
        await self.durable.flush()
        return ends

    def _enter(self, decided: Decided) -> VFBanditsError | None:
        try:
            self.durable.enter(decided)
        except JournalError:  # it concerns all of them
            raise
        except VFBanditsError as error:
            return error
        return None

    # --- rewards ----------------------------------------------------------------------------------

    async def reward(
        self, event_id: str, value: float, *, reward_id: str = "", at: float | None = None
    ) -> str:
        """Take a reward; ``at`` is when another process received it."""
        now = await self._now(at)

        def propose(past: History | None) -> Verdict | None:
            return self.campaign.reward(event_id, value, reward_id=reward_id, now=now, past=past)

        return self._tell(event_id, await self._ask(event_id, propose))

    async def activate(self, event_id: str, *, at: float | None = None) -> bool:
        """The arm is shown now; ``at`` is when another process received that."""
        now = await self._now(at)

        def propose(past: History | None) -> Verdict | None:
            return self.campaign.activate(event_id, now=now, past=past)

        return (await self._ask(event_id, propose)).event is not None

    async def retract(self, event_id: str, *, by: str) -> float:
        """Take back the learnt reward of an event, durably; returns it."""
        await self._catch_up()
        verdict = await self.durable.retract(event_id, by=by)
        self.log.warning("reward_retracted", campaign=self.name, event_id=event_id, by=by)
        self._tell(event_id, verdict)
        return verdict.value

    async def _ask(
        self, event_id: str, propose: Callable[[History | None], Verdict | None]
    ) -> Verdict:
        """The campaign's verdict on a request about an event, durably."""
        verdict = propose(None)
        if verdict is not None:
            return await self._make_so(verdict)
        async with self.durable.locks[event_id]:
            while True:  # the event may change while the journal is read
                verdict = propose(await self._past(event_id))
                if verdict is not None:
                    return await self._make_so(verdict)

    async def _make_so(self, verdict: Verdict) -> Verdict:
        if verdict.event is not None:
            self.durable.append(verdict.event)
        await self.durable.flush()
        return verdict

    # --- the end of a wait ------------------------------------------------------------------------

    async def settle(self) -> int:
        """End the waits that are over: learn sums and defaults; returns how many ended."""
        await self._rebuild_if_failed()
        now = self._clock()
        if self.arrivals is not None:  # a reward that came in time may be on its way
            now = min(now, self.arrivals.complete_to)
        ready = by_end([*await self._due_in_journal(now), *self.campaign.due(now, most=BATCH_SIZE)])
        over, later = ready[:BATCH_SIZE], ready[BATCH_SIZE:]
        for one in later:
            self.campaign.put_off(one)
        ends = await asyncio.gather(*(self._end(one, now) for one in over), return_exceptions=True)
        is_broken, may_mend = self.durable.broken_by is not None, self.durable.has_failed
        for one, error in zip(over, ends, strict=True):
            if is_broken and isinstance(error, JournalError):
                if not may_mend:
                    raise error
                # Not the event's fault: it is pending again in the rebuilt model.
            elif error is not None:
                await self._give_up(one, error)
        return len(over)

    async def _end(self, due: Due, now: float) -> None:
        event_id = due.event_id

        def propose(past: History | None) -> Verdict | None:
            return self.campaign.end(event_id, now=now, past=past or due.past)

        verdict = await self._ask(event_id, propose)
        if verdict.event is not None:
            self._tell(event_id, verdict)

    async def _due_in_journal(self, now: float) -> list[Due]:
        """Some events that have left memory and whose waits are over."""
        cold = self.model.cold
        positions = cold.over(now, most=BATCH_SIZE)
        if not positions:
            return []
        read_to = self.durable.position
        decided = {
            position: str(event.event_id)
            for position, event in (await self._events_at(sorted(positions))).items()
            if isinstance(event, Decided)
        }
        events = await self.durable.find_placed([*dict.fromkeys(decided.values())])
        over = []
        for position in positions:
            past = History.found(events[decided[position]]) if position in decided else None
            if past is None or past.position != position or not past.is_open:
                # It cannot be read, or another decision has its id now.
                cold.set_aside(position)
                facts = {"campaign": self.name, "position": position}
                self.log.error("event_unreadable", **facts)
            elif past.due is not None:
                past.read_to = read_to
                over.append(Due(past.due, decided[position], past.pending(), past))
        return over

    async def _events_at(self, positions: Sequence[int]) -> dict[int, Event]:
        """The readable records at these positions: a damaged one must not block the others."""
        try:
            return await self.durable.events_at(positions)
        except JournalError:
            if self.durable.broken_by is not None:
                raise
        readable: dict[int, Event] = {}
        for position in positions:
            try:
                readable |= await self.durable.events_at([position])
            except JournalError as error:
                facts = {"campaign": self.name, "position": position, "reason": str(error)}
                self.log.error("record_unreadable", **facts)
        return readable

    async def _give_up(self, due: Due, error: BaseException) -> None:
        """Forget an event whose wait cannot be ended, so that the others go on."""
        kind, reason, event_id = type(error).__name__, str(error), due.event_id
        facts = {"campaign": self.name, "event_id": event_id, "error": kind, "reason": reason}
        self.log.error("event_failed", **facts)
        await self._rebuild_if_failed()
        try:
            await self.durable.forget(event_id)
        except UnknownDecisionError:
            self.log.info("event_already_settled", campaign=self.name, event_id=event_id)
        self._tell_end(event_id, due.pending, "failed", math.nan)

    async def _rebuild_if_failed(self) -> None:
        """Fold the journal again if an error has left a different model."""
        if self.durable.has_failed:
            await self.durable.rebuild()
            self.log.warning("model_rebuilt", campaign=self.name, position=self.durable.position)

    # --- the guardrail ----------------------------------------------------------------------------

    async def watch(self) -> bool:
        """Switch to the baseline if the policy loses to the holdback; returns whether it did."""
        event = self.campaign.watch(now=self._clock())
        if event is None:
            return False
        asked = Administered(GUARDRAIL, event.describe(), event.by, event.at)
        await self.durable.log(event, asked)
        self.log.warning(
            "guardrail_tripped",
            campaign=self.name,
            n_policy=event.n_policy,
            n_holdback=event.n_holdback,
            mean_policy=event.mean_policy,
            mean_holdback=event.mean_holdback,
            difference=event.difference,
            low=event.low,
            high=event.high,
        )
        self._tell_guarded(Guarded(self.name, asked.detail, event.at, is_tripped=True))
        return True

    async def rearm_guardrail(self, *, by: str) -> None:
        """Let the policy decide again, durably."""
        event = self.campaign.rearm(by=by, now=self._clock())
        asked = Administered(GUARDRAIL, event.describe(), by, event.at)
        await self.durable.log(event, asked)
        self.log.warning("guardrail_rearmed", campaign=self.name, by=by)
        self._tell_guarded(Guarded(self.name, asked.detail, event.at, is_tripped=False))

    def _tell_guarded(self, seen: Guarded) -> None:
        for observer in self.observers:
            observer.on_guardrail(seen)

    # --- looking and changing ---------------------------------------------------------------------

    async def expire_arms(self) -> int:
        """Drop the models of arms that were not shown for ``arm_expiry_s``; returns how many.

        A record of the journal names them, so that a replay drops the same ones.  A later reward
        for one of them is learnt from the prior.
        """
        if self.arm_expiry_s is None:
            return 0
        now = self._clock()
        event = self.campaign.expire_arms(now - self.arm_expiry_s, now=now, most=BATCH_SIZE)
        if event is None:
            return 0
        await self.durable.log(event)
        return len(event.arms)

    async def retain(self) -> int:
        """Drop records that are older than ``retain_s``; returns how many.

        Each call drops a part of them; once none are left, the next look is an hour later.
        """
        now = self._clock()
        if self.retain_s is None or now < self._retain_at:
            return 0
        try:
            count = await self.durable.retain(now - self.retain_s, most=RETIRED_PER_BATCH)
        except JournalError as error:
            if self.durable.broken_by is not None:
                raise
            self._retain_at = now + RETAIN_EVERY_S
            self.log.error("retention_failed", campaign=self.name, reason=str(error))
            return 0
        if count < RETIRED_PER_BATCH:
            self._retain_at = now + RETAIN_EVERY_S
        if count:
            facts = {"campaign": self.name, "records": count, "days": self.retain_s / DAY_S}
            self.log.info("records_retired", **facts)
        return count

    async def history(self, event_id: str) -> History:
        """All that is known of an event."""
        await self._catch_up()
        return await self._past(event_id)

    async def configure(self, changes: dict[str, object], *, by: str) -> CampaignSettings:
        """Change settings, durably; decisions that follow are made and logged under them."""
        event = self.campaign.configure(changes, now=self._clock())
        if event is not None:
            before = self.settings
            asked = Administered(SETTINGS, json.dumps(changes, sort_keys=True), by, event.at)
            await self.durable.log(event, asked)
            seen = Reconfigured(self.name, before.pack(), event.settings, event.at)
            for observer in self.observers:
                observer.on_configured(seen)
        return self.settings

    async def note_file(self, described: Mapping[str, object], *, by: str) -> None:
        """Record what has changed in the settings file since it was last read."""
        before = self.model.file_settings
        changes = {
            name: value
            for name, value in described.items()
            if name not in before or before[name] != value
        }
        if changes:
            detail = json.dumps(changes, sort_keys=True)
            await self.durable.log(Administered(SETTINGS_FILE, detail, by, self._clock()))

    async def _past(self, event_id: str) -> History:
        return found(await self.durable.past(event_id), event_id)

    async def _now(self, at: float | None) -> float:
        """The time of a request; one to this process follows earlier ones to other processes."""
        if at is not None:
            return at
        await self._catch_up()
        return self._clock()

    async def _catch_up(self) -> None:
        if self.arrivals is not None:
            await self.arrivals.drain()
