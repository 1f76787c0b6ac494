"""What is served: a campaign that ranks and takes rewards, durably, in a leader or in a replica.

Event ids are idempotency keys.  The same id gets the same answer, from the journal if need be, and
the random draws behind a decision come from the id, so that the same events give the same
decisions.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from vfbandits.campaign.event_ids import EventIds
from vfbandits.campaign.events import Decided
from vfbandits.campaign.history import History
from vfbandits.campaign.machine import Campaign, Ranking, Verdict
from vfbandits.campaign.model import Model
from vfbandits.campaign.observer import Heard, Observer
from vfbandits.campaign.query import Query
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.core.pending import Pending
from vfbandits.errors import ArmError, ConflictError, UnknownEventError
from vfbandits.serving.commit import ENOUGH
from vfbandits.serving.concurrency import SingleFlight, Told, all_of, answer_or_raise, portions

BATCH_SIZE = ENOUGH  # decisions that are worth a commit of their own
Named: TypeAlias = tuple[str, Query]


class Answered(NamedTuple):
    """The answer that an event got, and what participants sent for it if it was decided now."""

    answer: bytes
    bytes_received: int = 0


Result: TypeAlias = Answered | Exception


class Served(ABC):
    """One campaign, by name; ``Leader`` and ``Replica`` say where decisions and rewards go."""

    def __init__(self, name: str, *, clock: Callable[[], float] = time.time) -> None:
        self.name = name
        self.observers: tuple[Observer, ...] = ()
        self._clock = clock
        self._ids = EventIds()
        self._flights = SingleFlight(self._rank_known)

    @property
    @abstractmethod
    def campaign(self) -> Campaign:
        """The machine that says what happens."""

    @property
    def model(self) -> Model:
        """What was learnt, for reading."""
        return self.campaign.model

    @property
    def settings(self) -> CampaignSettings:
        """In force now."""
        return self.campaign.settings

    @property
    def config_version(self) -> int:
        """How often the settings were changed."""
        return self.model.n_settings

    @property
    def layout(self) -> str:
        """Of the contexts: "per_arm", "outer" or "disjoint"."""
        return self.model.bandit.layout.layout

    @property
    def n_waiting(self) -> int:
        """Events that wait for a reward, in memory or not."""
        return self.model.n_pending

    def observe(self, observers: Iterable[Observer]) -> None:
        """Tell these as well, from now on."""
        self.observers = (*self.observers, *observers)

    # --- deciding ---------------------------------------------------------------------------------

    async def rank(self, query: Query) -> bytes:
        """Decide, durably; the answer is the one that this event got before, if it did."""
        return answer_or_raise((await self.rank_many([query]))[0])

    async def rank_many(self, queries: Sequence[Query]) -> list[Told]:
        """As ``rank`` does for each; where one fails its error stands in the place of an answer."""
        results = await self.decide_many(queries)
        return [one.answer if isinstance(one, Answered) else one for one in results]

    async def decide_many(self, queries: Sequence[Query]) -> list[Result]:
        """As ``rank_many``, with what came of each; they are decided in batches."""
        names = [self._ids.draw() if one.event_id is None else one.event_id for one in queries]
        new: dict[str, Query] = {}
        known: dict[str, Query] = {}
        for name, one in zip(names, queries, strict=True):
            (new if one.event_id is None else known).setdefault(name, one)
        results: dict[str, Result] = {}

        async def take(answering: Awaitable[Mapping[str, Result]]) -> None:
            results.update(await answering)

        works = [take(self._rank_new(new))] if new else []
        if known:
            works.append(take(self._flights.run(known)))
        await all_of(works)
        return [results[name] for name in names]

    async def _rank_known(self, queries: dict[str, Query]) -> dict[str, Result]:
        """The answers that these got before; those that did not are decided."""
        results = await self._answers_of([*queries])
        new = {name: one for name, one in queries.items() if name not in results}
        return results | await self._rank_new(new)

    async def _rank_new(self, queries: Mapping[str, Query]) -> dict[str, Result]:
        """Decide on events that nobody has decided on, as far as is known."""
        results: dict[str, Result] = {}
        named = [(name, one) for name, one in queries.items() if one.arms]
        if len(named) < len(queries):
            refused = ArmError("a decision needs at least one arm that is not excluded, got none")
            results.update({name: refused for name, one in queries.items() if not one.arms})

        async def rank_some(batch: Sequence[Named]) -> None:
            ranked = await self._rank_batch(batch, time.perf_counter())
            results.update(zip([name for name, _ in batch], ranked, strict=True))

        sizes = [self._size_of(one) for _, one in named]
        batches = portions(named, sizes, most=self._max_batch, at_once=BATCH_SIZE)
        await all_of([*map(rank_some, batches)])
        return results

    @property
    @abstractmethod
    def _max_batch(self) -> int:
        """The size of what may be decided in one batch, in terms of ``_size_of``."""

    @abstractmethod
    def _size_of(self, query: Query) -> int:
        """What a query adds to a batch."""

    @abstractmethod
    async def _answers_of(self, ids: Sequence[str]) -> dict[str, Result]:
        """The answers of those events that were decided before."""

    @abstractmethod
    async def _rank_batch(self, batch: Sequence[Named], started: float) -> list[Result]:
        """Decide on these in one batch, in their order, durably."""

    def _tell_soon(self, ranked: Sequence[Ranking], started: float) -> None:
        """Tell observers of decisions that are durable; the caller need not wait for that."""
        if ranked and self.observers:
            seconds = time.perf_counter() - started
            asyncio.get_running_loop().call_soon(self._tell_of, ranked, seconds)

    def _tell_of(self, ranked: Sequence[Ranking], seconds: float) -> None:
        seen = [one.seen(self.name, seconds) for one in ranked]
        for observer in self.observers:
            observer.ranked(seen)

    # --- rewards ----------------------------------------------------------------------------------

    @abstractmethod
    async def reward(self, event_id: str, value: float, *, reward_id: str = "") -> str:
        """Take a reward; returns what became of it, durably (``client.schemas.RewardStatus``)."""

    @abstractmethod
    async def activate(self, event_id: str) -> bool:
        """The arm is shown now: the wait for a reward begins.  False if it had begun before."""

    @abstractmethod
    async def retract(self, event_id: str, *, by: str) -> float:
        """Take back the reward that an event has taught, durably; returns it."""

    def _tell(self, event_id: str, verdict: Verdict) -> str:
        """Tell observers what became of a reward; returns that."""
        self._tell_end(event_id, verdict.pending, verdict.status, verdict.value)
        return verdict.status

    def _tell_end(self, event_id: str, pending: Pending, status: str, value: float) -> None:
        now = self._clock()
        seen = Heard(
            self.name,
            event_id,
            str(pending.arm),
            pending.group,
            status,
            value,
            now,
            now - pending.at,
        )
        for observer in self.observers:
            observer.heard(seen)

    # --- looking and changing ---------------------------------------------------------------------

    @abstractmethod
    async def history(self, event_id: str) -> History:
        """All that is known of an event."""

    @abstractmethod
    async def configure(self, changes: dict[str, object]) -> CampaignSettings:
        """Change settings, durably; returns what they are, or will be."""


def found(past: History | None, event_id: str) -> History:
    """The history of an event, if there is one."""
    if past is None:
        raise UnknownEventError(f"wanted an event that was ranked here, got {event_id!r}")
    return past


def answer_in(decided: Decided) -> Result:
    """The answer that was kept with a decision."""
    if decided.note:
        return Answered(decided.note)
    return ConflictError(f"event {decided.decision_id!r} was decided through another interface")


class ServedCampaigns(Protocol):
    """All campaigns of one process."""

    def __getitem__(self, name: str, /) -> Served:
        """The campaign of this name."""
        ...

    @property
    def names(self) -> list[str]:
        """Their names."""
        ...

    def problems(self) -> list[str]:
        """Why no traffic should come, if there is a reason."""
        ...
