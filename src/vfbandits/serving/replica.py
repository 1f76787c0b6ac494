"""A campaign in a process that follows the journal: it decides, and the leader learns.

Its records are in the inbox before a request is answered; the leader takes them into the journal.
Its answers equal those of the leader at the same position of the journal: the same state machine,
the same settings, and draws that come from the event.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from vfbandits.campaign.events import Activated, Configured, Decided, Reported
from vfbandits.campaign.history import History, refuse_other_value
from vfbandits.campaign.machine import REPEATED, Campaign, Ranking, Verdict
from vfbandits.campaign.query import Contexts, Query
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.core.context import Split
from vfbandits.errors import (
    ConflictError,
    ContextError,
    LinkError,
    VFBanditsError,
)
from vfbandits.journal.inbox.base import pack_change
from vfbandits.protocol.application import DecideRequest, GatherOutcome, GatherReply
from vfbandits.protocol.roster import Roster, Terms
from vfbandits.serving.batches import MAX_BATCH_BYTES
from vfbandits.serving.leader_link import LeaderLink
from vfbandits.serving.replica_journal import ReplicaJournal
from vfbandits.serving.rounds import arm_features_of, missing_of
from vfbandits.serving.served import (
    Answered,
    ByName,
    Named,
    Result,
    Served,
    answer_in,
    answers_in,
    found,
)
from vfbandits.serving.tail import Tail
from vfbandits.telemetry.supervised import Supervisor

CATCH_UP_S = 3.0
CHANGE_S = 3.0


@dataclass(frozen=True, slots=True)
class Shape:
    """The shape of the contexts: the columns of each participant, and the meaning of a row."""

    split: Split
    is_blockwise: bool
    is_per_arm: bool
    terms: Terms = field(default_factory=Terms)

    @classmethod
    def of(cls, roster: Roster) -> "Shape":
        """The shape by a roster."""
        terms = roster.terms
        return cls(roster.split, terms.mask != "dense", terms.layout == "per_arm", terms)


class Gather(Protocol):
    """Asks the leader for the masked contexts of decisions (``LeaderLink.gather``)."""

    def __call__(
        self, requests: Sequence[DecideRequest], /, *, size_bytes: int
    ) -> Awaitable[Sequence[GatherOutcome]]:
        """An outcome for each, in their order."""
        ...


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a replica's contexts come from, and their shape by the roster that is in force."""

    gather: Gather
    shape_of: Callable[[bytes], Shape]


class Replica(Served):
    """One campaign that follows the leader's."""

    def __init__(
        self,
        name: str,
        tail: Tail,
        journal: ReplicaJournal,
        sources: Sources,
        settings: CampaignSettings,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(name, clock=clock)
        self.tail = tail
        self.journal = journal
        self._sources = sources
        self._shape_roster: bytes | None = None
        tail.begin_with(settings)

    @property
    def campaign(self) -> Campaign:
        """The campaign, as of the records read so far."""
        return self.tail.campaign

    async def close(self) -> None:
        """Finish open calls."""
        await self.tail.stop()
        await self.journal.close()

    # --- deciding ---------------------------------------------------------------------------------

    @property
    def _max_batch(self) -> int:
        return MAX_BATCH_BYTES

    def _size_of(self, query: Query) -> int:
        """The approximate size of a query and its contexts in the call to the leader, in bytes."""
        sent = len(query.own) + len(query.arm_features) + sum(map(len, query.arms))
        return sent + 8 * self._n_rows(query) * self.model.bandit.dim

    def _n_rows(self, query: Query) -> int:
        return len(query.arms) if self._shape().is_per_arm else 1

    async def _answers_of(self, ids: Sequence[str]) -> dict[str, Result]:
        return answers_in(await self.journal.find_many(ids))

    async def _rank_batch(self, batch: Sequence[Named], started: float) -> list[Result]:
        """Decide on these, and put the decisions into the inbox in one commit."""
        results: dict[str, Result] = {}
        ranked: list[Ranking] = []
        for (event_id, query), outcome in zip(batch, await self._gather(batch), strict=True):
            try:
                ranked.append(self._decide(event_id, query, outcome, started))
            except VFBanditsError as error:
                results[event_id] = error
        try:
            stored = await self.journal.put_many([one.event for one in ranked]) if ranked else []
        except VFBanditsError as error:
            results |= {one.answer.event_id: error for one in ranked}
            return [results[name] for name, _ in batch]
        ours: list[Ranking] = []
        for one, kept in zip(ranked, stored, strict=True):
            if kept is one.event:
                ours.append(one)
                size = one.contexts.bytes_received
                results[one.answer.event_id] = Answered(one.event.answer, size)
            elif isinstance(kept, Decided):  # another replica was faster
                results[one.answer.event_id] = answer_in(kept)
            else:
                came = type(kept).__name__
                raise RuntimeError(f"the key of a decision must hold a Decided, got {came}")
        self._tell_soon(ours, started)
        return [results[name] for name, _ in batch]

    def _decide(
        self, event_id: str, query: Query, outcome: GatherOutcome, started: float
    ) -> Ranking:
        contexts, now = self._contexts(query, outcome), self._clock()
        ranking = self.campaign.rank(query, contexts, event_id=event_id, now=now)
        ranking.event.seconds = round(time.perf_counter() - started, 6)
        return ranking

    async def _gather(self, batch: Sequence[Named]) -> list[GatherOutcome]:
        """Contexts behind the masks of the model, or the errors instead."""
        outcomes = await self._gather_once(batch)
        await self._catch_up(outcomes)
        epoch = self.model.epoch
        old = [
            place
            for place, one in enumerate(outcomes)
            if isinstance(one, GatherReply) and one.epoch < epoch
        ]
        if old:  # the masks changed meanwhile: gather these again
            again = await self._gather_once([batch[place] for place in old])
            for place, outcome in zip(old, again, strict=True):
                outcomes[place] = outcome
            await self._catch_up(outcomes)
        return outcomes

    async def _gather_once(self, batch: Sequence[Named]) -> list[GatherOutcome]:
        requests = [
            DecideRequest(
                user=query.user,
                arms=query.arms,
                own=query.own,
                arm_features=query.arm_features,
                event_id=event_id,
                campaign=self.name,
            )
            for event_id, query in batch
        ]
        size_bytes = sum(self._size_of(query) for _, query in batch)
        return [*await self._sources.gather(requests, size_bytes=size_bytes)]

    async def _catch_up(self, outcomes: Sequence[GatherOutcome]) -> None:
        """Wait until the model has reached the masks of these contexts, up to ``CATCH_UP_S``."""
        epochs = [one.epoch for one in outcomes if isinstance(one, GatherReply)]
        latest = max(epochs, default=0)
        if latest > self.model.epoch:
            await self.tail.until(lambda model: model.epoch >= latest, timeout_s=CATCH_UP_S)

    def _contexts(self, query: Query, outcome: GatherOutcome) -> Contexts:
        """The contexts that came, checked."""
        if isinstance(outcome, VFBanditsError):
            raise outcome
        epoch, shape = self.model.epoch, self._shape()
        if outcome.epoch > epoch:
            raise LinkError(
                f"wanted contexts behind masks of epoch {epoch}, as far as the journal was read, "
                f"got epoch {outcome.epoch}"
            )
        if outcome.epoch < epoch:
            raise LinkError("the masks changed twice while contexts were gathered")
        n_rows, dim = self._n_rows(query), self.model.bandit.dim
        if len(outcome.rows) != 8 * n_rows * dim:
            raise ContextError(
                f"wanted contexts of {n_rows} rows and {dim} columns, got {len(outcome.rows)} bytes"
            )
        return Contexts(
            rows=np.frombuffer(outcome.rows, dtype="<f8").reshape(n_rows, dim),
            contributors=outcome.contributors,
            missing=missing_of(shape.split, outcome.contributors),
            arm_features=arm_features_of(query, shape.terms),
            split=shape.split if shape.is_blockwise else None,
            bytes_received=outcome.bytes_received,
            epoch=outcome.epoch,
        )

    def _shape(self) -> Shape:
        if self._shape_roster is not self.model.signed_roster:
            self._last_shape = self._sources.shape_of(self.model.signed_roster)
            self._shape_roster = self.model.signed_roster
        return self._last_shape

    # --- rewards ----------------------------------------------------------------------------------

    async def reward(self, event_id: str, value: float, *, reward_id: str = "") -> str:
        """Take a reward: "queued" once it is durable; the leader settles it later."""
        # Not what the model knows of the event: the journal may be ahead of it.
        past, now = await self.history(event_id), self._clock()
        verdict = self.campaign.reward_queued(
            event_id, value, reward_id=reward_id, now=now, past=past
        )
        event = verdict.event
        if isinstance(event, Reported):
            kept = await self.journal.put(event)
            if isinstance(kept, Reported) and kept is not event:
                refuse_other_value(event_id, kept.value, event.value, reward_id)
                verdict = Verdict(REPEATED, None, verdict.pending, event.value)
        return self._tell(event_id, verdict)

    async def activate(self, event_id: str) -> bool:
        """The arm is shown now: the wait for a reward begins.  False if it had begun before."""
        past, now = await self.history(event_id), self._clock()
        event = self.campaign.activate_queued(event_id, now=now, past=past).event
        return isinstance(event, Activated) and await self.journal.put(event) is event

    async def retract(self, event_id: str, *, by: str) -> float:
        """Refused: only the process that learns can take a reward back."""
        del by
        raise ConflictError(
            f"a ranker does not learn, so it cannot take back the reward of event {event_id!r}: "
            "ask the trainer that leads, or a process of role both"
        )

    async def rearm_guardrail(self, *, by: str) -> None:
        """Refused: only the process that learns compares policy and holdback."""
        del by
        raise ConflictError(
            "a ranker does not learn, so it cannot re-arm the guardrail: ask the trainer that "
            "leads, or a process of role both"
        )

    # --- looking and changing ---------------------------------------------------------------------

    async def history(self, event_id: str) -> History:
        """All that journal and inbox have of an event."""
        return found(await self.journal.history(event_id), event_id)

    async def configure(self, changes: dict[str, object], *, by: str) -> CampaignSettings:
        """Change settings, durably, and wait briefly for the leader; returns the new ones."""
        settings, now = self.settings.changed(changes), self._clock()
        if settings != self.settings:
            version = self.config_version
            await self.journal.put(Configured(pack_change(changes, by=by), now))
            await self.tail.until(lambda model: model.n_settings > version, timeout_s=CHANGE_S)
        return settings


class Replicas(ByName[Replica]):
    """Replicas by name, and the leader that they ask; implements ``ServedCampaigns``."""

    def __init__(
        self,
        replicas: Iterable[Replica],
        leader: LeaderLink,
        read_roster: Callable[[bytes], Roster],
        supervisor: Supervisor,
    ) -> None:
        super().__init__(replicas)
        self.leader = leader
        self._read_roster = read_roster
        self._supervisor = supervisor

    @property
    def roster(self) -> Roster:
        """The roster in force, as of the records read so far."""
        return self._read_roster(next(iter(self)).model.signed_roster)

    def problems(self) -> list[str]:
        """Why the process is not ready: without its journal a replica cannot take a reward."""
        if self.is_stopping:
            return ["the server is stopping"]
        failing = [(replica.name, replica.tail.failing) for replica in self]
        broken = [f"campaign {name!r}: {reason}" for name, reason in failing if reason is not None]
        return [*broken, *self._supervisor.problems()]

    def lag_s(self, name: str) -> float:
        """Seconds that a replica is behind the end of its journal."""
        return self[name].tail.lag_s

    def start(self) -> None:
        """Follow the journals, and poll the federation's status."""
        self.leader.start()
        for replica in self:
            replica.tail.start(self._supervisor, name=f"tail {replica.name}")

    async def stop(self) -> None:
        """Finish open requests, then disconnect."""
        self.is_stopping = True
        await self.leader.stop()
        for replica in self:
            await replica.close()
