"""A campaign as a ranker has it: it decides with a model that follows the log, and keeps nothing.

What it promises stands in the inbox before it is answered; the leader takes it into the log.  Its
answers are those that the leader would give at the same position of the log: same model, same
settings, and draws that come from the event.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from vfbandits.campaign.draws import EventDraws
from vfbandits.campaign.event_ids import EventIds
from vfbandits.campaign.events import Activated, Configured, Decided, Reported
from vfbandits.campaign.history import History, refuse_other_value
from vfbandits.campaign.observer import Heard, Observer
from vfbandits.campaign.pending import Entry
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.core.context import Split
from vfbandits.errors import (
    ArmError,
    ConflictError,
    ContextError,
    LinkError,
    UnknownEventError,
    VFBanditsError,
)
from vfbandits.journal.fold import Model
from vfbandits.journal.inbox.base import QUEUED
from vfbandits.protocol.application import DecideRequest, GatherOutcome, GatherReply
from vfbandits.protocol.roster import Roster, Terms
from vfbandits.serving.decider import MOST_TOGETHER
from vfbandits.serving.deciding import Asked, Deciding, Occasion, Outcome
from vfbandits.serving.decisions import arm_features_of
from vfbandits.serving.in_groups import Told, all_of, answer_or_raise, portions
from vfbandits.serving.replica_journal import RankerLog
from vfbandits.serving.rounds import MOST_BATCH_BYTES, Contexts
from vfbandits.serving.showing import decided_of
from vfbandits.serving.tail import Tail
from vfbandits.serving.under_way import UnderWay

REPEATED = "repeated"
CATCH_UP_S = 3.0
CHANGE_S = 3.0


class _Request(NamedTuple):
    """What is asked for one event, and what the leader is asked for it."""

    asked: Asked
    request: DecideRequest


@dataclass(frozen=True, slots=True)
class Shape:
    """Of the contexts: whose columns are which, and what a row belongs to."""

    split: Split
    is_blockwise: bool
    is_per_arm: bool
    terms: Terms = field(default_factory=Terms)

    @classmethod
    def of(cls, roster: Roster) -> "Shape":
        """As a roster has it."""
        terms = roster.terms
        return cls(roster.split, terms.mask != "dense", terms.layout == "per_arm", terms)


class Gather(Protocol):
    """Asks the leader for the masked contexts of decisions (``Leader.gather``)."""

    def __call__(
        self, requests: Sequence[DecideRequest], /, *, size_bytes: int
    ) -> Awaitable[Sequence[GatherOutcome]]:
        """An outcome for each, in their order."""
        ...


@dataclass(frozen=True, slots=True)
class Sources:
    """Where a ranker's contexts come from, and how they look by what the log notes of the masks."""

    gather: Gather
    shape_of: Callable[[bytes], Shape]


class Ranker:
    """One campaign; ``encode`` makes the answer that is kept and given."""

    def __init__(
        self,
        name: str,
        tail: Tail,
        log: RankerLog,
        sources: Sources,
        settings: CampaignSettings,
        *,
        encode: Callable[[Outcome], bytes],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.log = log
        self.tail = tail
        self._sources = sources
        self._first_settings = settings
        self._encode = encode
        self._clock = clock
        self._ids = EventIds()
        self._under_way = UnderWay(self._rank_named)
        self._observers: tuple[Observer, ...] = ()
        self._draws = EventDraws(tail.model.bandit.seed)
        self._adopted: tuple[Model, int] | None = None
        self._noted: bytes | None = None

    @property
    def model(self) -> Model:
        """What the log has taught it so far."""
        return self.tail.model

    @property
    def settings(self) -> CampaignSettings:
        """In force at this position of the log."""
        self._adopt()
        return self._settings

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
        """Events that wait for a reward, in the leader's memory or not."""
        return self.model.book.n_pending

    def observe(self, observers: Iterable[Observer]) -> None:
        """Tell these as well, from now on."""
        self._observers = (*self._observers, *observers)

    async def close(self) -> None:
        """Finish what is under way."""
        await self.tail.stop()
        await self.log.close()

    # --- deciding ---------------------------------------------------------------------------------

    async def rank(self, asked: Asked) -> bytes:
        """Decide, durably; the answer is the one that this event got before, wherever it did."""
        return answer_or_raise((await self.rank_many([asked]))[0])

    async def rank_many(self, asked: Sequence[Asked]) -> list[Told]:
        """As ``rank`` does for each, in batches; where one fails, its error."""
        names = [self._ids.draw() if one.event_id is None else one.event_id for one in asked]
        new: dict[str, Asked] = {}
        named: dict[str, Asked] = {}
        for name, one in zip(names, asked, strict=True):
            (new if one.event_id is None else named).setdefault(name, one)
        answers: dict[str, Told] = {}

        async def take(answering: Awaitable[Mapping[str, Told]]) -> None:
            answers.update(await answering)

        works = [take(self._rank_all(new))] if new else []
        if named:
            works.append(take(self._under_way.ask(named)))
        await all_of(works)
        return [answers[name] for name in names]

    async def _rank_named(self, asked: dict[str, Asked]) -> dict[str, Told]:
        """The answers that these got before; those that did not are decided."""
        pasts = await self.log.histories(list(asked))
        answers = {
            name: _answer_in(past.decided)
            for name, past in zip(asked, pasts, strict=True)
            if past is not None
        }
        new = {name: one for name, one in asked.items() if name not in answers}
        return answers | await self._rank_all(new)

    async def _rank_all(self, asked: Mapping[str, Asked]) -> dict[str, Told]:
        """Decide on events that no process has decided on as far as is known."""
        answers: dict[str, Told] = {}
        requests: list[_Request] = []
        for name, one in asked.items():
            if one.arms:
                request = DecideRequest(one.user, one.arms, one.own, one.arm_features, name)
                requests.append(_Request(one, request))
            else:
                answers[name] = ArmError(
                    "a decision needs at least one arm that is not excluded, got none"
                )

        async def rank_some(some: Sequence[_Request]) -> None:
            answers.update(await self._rank_batch(some))

        sizes = [self._size_bytes(one.request) for one in requests]
        batches = portions(requests, sizes, most=MOST_BATCH_BYTES, at_once=MOST_TOGETHER)
        await all_of([*map(rank_some, batches)])
        return answers

    async def _rank_batch(self, requests: Sequence[_Request]) -> dict[str, Told]:
        """Decide on these together, and make them durable in one commit."""
        started = time.perf_counter()
        answers: dict[str, Told] = {}
        made: list[tuple[Deciding, Decided]] = []
        for one, outcome in zip(requests, await self._contexts(requests), strict=True):
            try:
                made.append(self._decide(one, outcome, started))
            except VFBanditsError as error:
                answers[one.request.decision_id] = error
        if not made:
            return answers
        try:
            standing = await self.log.put_many([event for _, event in made])
        except VFBanditsError as error:
            return answers | {deciding.event_id: error for deciding, _ in made}
        ours: list[Deciding] = []
        for (deciding, event), stands in zip(made, standing, strict=True):
            answers[deciding.event_id] = deciding.answer
            if stands is event:
                ours.append(deciding)
            elif isinstance(stands, Decided):  # another ranker was quicker
                answers[deciding.event_id] = _answer_in(stands)
            else:
                raise RuntimeError("under the key of a decision stands a decision")
        if ours and self._observers:
            # Afterwards: a caller need not wait for observers.
            seconds = time.perf_counter() - started
            asyncio.get_running_loop().call_soon(self._tell_of, ours, seconds)
        return answers

    def _tell_of(self, made: Sequence[Deciding], seconds: float) -> None:
        """Tell observers of decisions that are durable."""
        seen = [one.seen(self.name, seconds) for one in made]
        for observer in self._observers:
            observer.ranked(seen)

    async def _contexts(self, requests: Sequence[_Request]) -> list[GatherOutcome]:
        """Contexts behind the masks that the model is behind, or why there are none."""
        outcomes = await self._gather(requests)
        await self._catch_up(outcomes)
        epoch = self.model.epoch
        old = [
            place
            for place, one in enumerate(outcomes)
            if isinstance(one, GatherReply) and one.epoch < epoch
        ]
        if old:  # the masks changed on the way: once more for these
            again = await self._gather([requests[place] for place in old])
            for place, outcome in zip(old, again, strict=True):
                outcomes[place] = outcome
            await self._catch_up(outcomes)
        return outcomes

    async def _gather(self, requests: Sequence[_Request]) -> list[GatherOutcome]:
        asked = [one.request for one in requests]
        size_bytes = sum(map(self._size_bytes, asked))
        return [*await self._sources.gather(asked, size_bytes=size_bytes)]

    async def _catch_up(self, outcomes: Sequence[GatherOutcome]) -> None:
        """Let the model follow the log to the masks that these contexts are behind, for a while."""
        epochs = [one.epoch for one in outcomes if isinstance(one, GatherReply)]
        latest = max(epochs, default=0)
        if latest > self.model.epoch:
            await self.tail.until(lambda model: model.epoch >= latest, timeout_s=CATCH_UP_S)

    def _size_bytes(self, request: DecideRequest) -> int:
        """About what a request and its contexts need on the way to the leader and back."""
        n_rows = len(request.arms) if self._shape().is_per_arm else 1
        sent = len(request.own) + len(request.arm_features) + sum(map(len, request.arms))
        return sent + 8 * n_rows * self.model.bandit.dim

    def _rows(self, request: DecideRequest, outcome: GatherOutcome) -> Contexts:
        """The contexts that came, checked."""
        if isinstance(outcome, VFBanditsError):
            raise outcome
        reply, epoch = outcome, self.model.epoch
        if reply.epoch > epoch:
            raise LinkError(
                f"contexts are behind masks of epoch {reply.epoch}, and the log has not come "
                f"further than {epoch}"
            )
        if reply.epoch < epoch:
            raise LinkError("the masks changed twice while contexts were gathered")
        n_rows = len(request.arms) if self._shape().is_per_arm else 1
        dim = self.model.bandit.dim
        if len(reply.rows) != 8 * n_rows * dim:
            raise ContextError(
                f"wanted contexts of {n_rows} rows and {dim} columns, got {len(reply.rows)} bytes"
            )
        rows = np.frombuffer(reply.rows, dtype="<f8").reshape(n_rows, dim)
        return Contexts(rows, reply.contributors, reply.bytes_received)

    def _deciding(
        self, event_id: str, asked: Asked, contexts: Contexts, started: float
    ) -> Deciding:
        settings, shape = self.settings, self._shape()
        occasion = Occasion(
            settings,
            contexts,
            at=self._clock(),
            config_version=self.config_version,
            epoch=self.model.epoch,
            model=self.model,
            split=shape.split,
            is_blockwise=shape.is_blockwise,
            encode=self._encode,
            started=started,
        )
        share = self._draws.share(event_id) if settings.holdback else 1.0
        return Deciding(event_id, asked, occasion, share)

    def _decide(
        self, one: _Request, outcome: GatherOutcome, started: float
    ) -> tuple[Deciding, Decided]:
        """The decision, and as an event; the model stays as it is."""
        request = one.request
        contexts = self._rows(request, outcome)
        deciding = self._deciding(request.decision_id, one.asked, contexts, started)
        shape, bandit, occasion = self._shape(), self.tail.bandit, deciding.occasion
        rows = contexts.rows
        self._draws.seed(deciding.event_id)
        with bandit.aside():
            decision = bandit.decide(
                rows if shape.is_per_arm else rows[0],
                arms=request.arms,
                arm_features=arm_features_of(request, shape.terms),
                decision_id=deciding.event_id,
                contributors=occasion.contexts.contributors,
                shown=deciding.forced,
            )
            kept = deciding.keep(decision)
            event = decided_of(
                bandit, decision, kept, user=request.user, epoch=occasion.epoch, at=occasion.at
            )
        return deciding, event

    def _adopt(self) -> None:
        """Take up the settings that the log has come to."""
        state = (self.model, self.model.book.n_settings)
        if self._adopted == state:
            return
        kept, bandit = self.model.book.settings, self.model.bandit
        self._settings = CampaignSettings.unpack(kept) if kept else self._first_settings
        bandit.policy, bandit.floor = self._settings.policy, self._settings.floor
        bandit.draw_from(self._draws.generator)
        self._adopted = state

    def _shape(self) -> Shape:
        if self._noted is not self.model.note:
            self._last_shape = self._sources.shape_of(self.model.note)
            self._noted = self.model.note
        return self._last_shape

    # --- rewards ----------------------------------------------------------------------------------

    async def reward(self, event_id: str, value: float, *, reward_id: str = "") -> str:
        """Take a reward: "queued" when it is durable; what becomes of it, the leader says later."""
        value = self.settings.as_reward(value)
        # Not what the model knows of the event: the log may be ahead of it.
        past = await self._past(event_id)
        decided = past.decided
        entry = Entry(decided.arm, decided.group, decided.at, past.due, held=False)
        if past.has(reward_id, value):
            return self._tell(event_id, entry, REPEATED, value)
        if past.held:
            raise ConflictError(f"event {event_id!r} is held; activate it before its reward")
        event = Reported(event_id, value, reward_id, QUEUED, self._clock())
        stands = await self.log.put(event)
        if isinstance(stands, Reported) and stands is not event:
            refuse_other_value(event_id, stands.value, value, reward_id)
            return self._tell(event_id, entry, REPEATED, value)
        return self._tell(event_id, entry, QUEUED, value)

    async def activate(self, event_id: str) -> bool:
        """The arm is shown now: the wait for a reward begins.  False if it had begun before."""
        past = await self._past(event_id)
        now = self._clock()
        if not past.held:
            return False
        if past.status == "forgotten" or (past.due is not None and now > past.due):
            raise ConflictError(f"event {event_id!r} was not activated in time")
        event = Activated(event_id, now + self.settings.reward_wait_s, now)
        return await self.log.put(event) is event

    async def retract(self, event_id: str, *, by: str) -> float:
        """Refused: only the process that learns can take a reward back."""
        del by
        raise ConflictError(
            f"a ranker does not learn, so it cannot take back the reward of event {event_id!r}: "
            "ask the trainer that leads, or a process of role both"
        )

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
        return await self._past(event_id)

    async def configure(self, changes: dict[str, object]) -> CampaignSettings:
        """Change settings, durably, and wait a little for the leader; returns what they will be."""
        settings = self.settings.changed(changes)
        if settings != self.settings:
            version = self.config_version
            await self.log.put(Configured(json.dumps(changes).encode(), self._clock()))
            await self.tail.until(lambda model: model.book.n_settings > version, timeout_s=CHANGE_S)
        return settings

    async def _past(self, event_id: str) -> History:
        past = await self.log.history(event_id)
        if past is None:
            raise UnknownEventError(f"wanted an event that was ranked here, got {event_id!r}")
        return past


def _answer_in(decided: Decided) -> Told:
    return decided.note or ConflictError(
        f"event {decided.decision_id!r} was decided through another interface"
    )
