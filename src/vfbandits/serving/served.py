"""A served campaign: it ranks and takes rewards, durably, in a leader or in a replica.

Event ids are idempotency keys.  The same id gets the same answer, from the journal if need be, and
the random draws behind a decision come from the id, so that the same events give the same
decisions.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from vfbandits.campaign.answer import Answer
from vfbandits.campaign.events import Decided, Event
from vfbandits.campaign.history import History
from vfbandits.campaign.machine import Campaign, Ranking, Verdict
from vfbandits.campaign.model import Model
from vfbandits.campaign.observer import Observer, RewardSeen
from vfbandits.campaign.query import Query
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.core.pending import Pending
from vfbandits.errors import ArmError, ConflictError, ErasedEventError, UnknownEventError
from vfbandits.journal.commit import BATCH_SIZE
from vfbandits.serving.concurrency import SingleFlight, portions
from vfbandits.serving.event_ids import EventIds

Named: TypeAlias = tuple[str, Query]


class Answered(NamedTuple):
    """The encoded answer of an event; ``decided`` has it unencoded if this call has decided it.

    ``bytes_received`` is what participants sent for it in this call.
    """

    answer: bytes
    bytes_received: int = 0
    decided: Answer | None = None


Result: TypeAlias = Answered | Exception
_Asked: TypeAlias = tuple[Query, "asyncio.Future[Answered]"]


class Served(ABC):
    """One campaign, by name; ``Leader`` and ``Replica`` say where decisions and rewards go."""

    def __init__(self, name: str, *, clock: Callable[[], float] = time.time) -> None:
        self.name = name
        self.observers: tuple[Observer, ...] = ()
        self._clock = clock
        self._ids = EventIds()
        self._flights = SingleFlight(self._rank_known)
        self._asked: list[_Asked] = []  # in this turn of the event loop
        self._n_under_way = 0
        self._tasks: set[asyncio.Task[object]] = set()

    @property
    @abstractmethod
    def campaign(self) -> Campaign:
        """The campaign's state machine."""

    @property
    def model(self) -> Model:
        """The model, for reading."""
        return self.campaign.model

    @property
    def settings(self) -> CampaignSettings:
        """The settings in force."""
        return self.campaign.settings

    @property
    def config_version(self) -> int:
        """Number of changes of the settings."""
        return self.model.n_settings

    @property
    def layout(self) -> str:
        """Layout of the contexts: "per_arm", "outer" or "disjoint"."""
        return self.model.bandit.layout.layout

    @property
    def model_norm(self) -> float | None:
        """Norm of theta; None on secret shares, where no process knows it."""
        bandit = self.model.bandit
        return bandit.estimate_norm() if bandit.slots is None else None

    @property
    def n_waiting(self) -> int:
        """Pending events, in memory or not."""
        return self.model.n_pending

    def observe(self, observers: Iterable[Observer]) -> None:
        """Add observers."""
        self.observers = (*self.observers, *observers)

    # --- deciding ---------------------------------------------------------------------------------

    async def rank(self, query: Query) -> bytes:
        """Decide, durably; an event that was decided before gets the same answer."""
        return (await self.decide(query)).answer

    def decide(self, query: Query) -> Awaitable[Answered]:
        """As ``rank``, with the unencoded answer and the bytes received.

        Queries that come in one turn of the event loop are decided in one batch: it costs little
        more than a single decision, and its records are made durable together.
        """
        loop = asyncio.get_running_loop()
        if not self._asked:
            loop.call_soon(self._take_turn)
        answered: asyncio.Future[Answered] = loop.create_future()
        self._asked.append((query, answered))
        return answered

    def _take_turn(self) -> None:
        asked, self._asked = self._asked, []
        # A larger batch would save little, and all would wait for its last decision.
        for start in range(0, len(asked), BATCH_SIZE):
            self._go_on(self._answer(asked[start : start + BATCH_SIZE]))

    def _go_on(self, work: Coroutine[object, object, object]) -> None:
        """Run work to its end, whether a caller waits for it or not."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, asked: Sequence[_Asked]) -> None:
        results: Sequence[Result]
        self._n_under_way += 1
        try:
            results = await self.decide_many([query for query, _ in asked])
        except Exception as error:  # noqa: BLE001  (raised again in each caller)
            results = [error] * len(asked)
        finally:
            self._n_under_way -= 1
        for (_, answered), result in zip(asked, results, strict=True):
            if answered.done():  # the caller has gone; the decision is durable
                continue
            if isinstance(result, Answered):
                answered.set_result(result)
            else:
                answered.set_exception(result)

    async def rank_many(self, queries: Sequence[Query]) -> list[bytes | Exception]:
        """As ``rank`` for each query; one that fails gets its error instead of an answer."""
        results = await self.decide_many(queries)
        return [one.answer if isinstance(one, Answered) else one for one in results]

    async def decide_many(self, queries: Sequence[Query]) -> list[Result]:
        """As ``rank_many``, with results as of ``decide``; queries are decided in batches."""
        names = [self._ids.draw() if one.event_id is None else one.event_id for one in queries]
        new: dict[str, Query] = {}
        known: dict[str, Query] = {}
        for name, one in zip(names, queries, strict=True):
            (new if one.event_id is None else known).setdefault(name, one)
        if not known:
            results = await self._rank_new(new)
        elif not new:
            results = await self._flights.run(known)
        else:
            both = await asyncio.gather(self._rank_new(new), self._flights.run(known))
            results = both[0] | both[1]
        return [results[name] for name in names]

    async def _rank_known(self, queries: dict[str, Query]) -> dict[str, Result]:
        """The earlier answers of these events; those without one are decided."""
        results = await self._answers_of([*queries])
        new = {name: one for name, one in queries.items() if name not in results}
        return results | await self._rank_new(new)

    async def _rank_new(self, queries: Mapping[str, Query]) -> dict[str, Result]:
        """Decide on events that were not decided before, as far as is known."""
        started = time.perf_counter()
        named = [(name, one) for name, one in queries.items() if one.arms]
        sizes = [self._size_of(one) for _, one in named]
        batches = [*portions(named, sizes, most=self._max_batch, max_items=BATCH_SIZE)]
        if len(batches) == 1:
            ranked = await self._rank_batch(named, started)
        else:
            works = [self._rank_batch(batch, started) for batch in batches]
            ranked = [*chain.from_iterable(await asyncio.gather(*works))]
        results = dict(zip([name for name, _ in named], ranked, strict=True))
        if len(named) < len(queries):
            refused = ArmError("a decision needs at least one arm that is not excluded, got none")
            results |= {name: refused for name, one in queries.items() if not one.arms}
        return results

    @property
    @abstractmethod
    def _max_batch(self) -> int:
        """The maximum size of a batch, as a sum of ``_size_of``."""

    @abstractmethod
    def _size_of(self, query: Query) -> int:
        """The size that a query adds to a batch."""

    @abstractmethod
    async def _answers_of(self, ids: Sequence[str]) -> dict[str, Result]:
        """The answers of the events that were decided before."""

    @abstractmethod
    async def _rank_batch(self, batch: Sequence[Named], started: float) -> list[Result]:
        """Decide on these in one batch, in their order, durably."""

    def _tell_soon(self, ranked: Sequence[Ranking], started: float) -> None:
        """Notify observers of durable decisions, without delaying the caller."""
        if ranked and self.observers:
            seconds = time.perf_counter() - started
            asyncio.get_running_loop().call_soon(self._tell_of, ranked, seconds)

    def _tell_of(self, ranked: Sequence[Ranking], seconds: float) -> None:
        seen = [one.seen(self.name, seconds) for one in ranked]
        for observer in self.observers:
            observer.on_ranked(seen)

    # --- rewards ----------------------------------------------------------------------------------

    @abstractmethod
    async def reward(self, event_id: str, value: float, *, reward_id: str = "") -> str:
        """Take a reward; returns its status, durably (``client.schemas.RewardStatus``)."""

    @abstractmethod
    async def activate(self, event_id: str) -> bool:
        """The arm is shown now: the wait for a reward begins.  False if it had begun before."""

    @abstractmethod
    async def retract(self, event_id: str, *, by: str) -> float:
        """Take back the learnt reward of an event, durably; returns it."""

    def _tell(self, event_id: str, verdict: Verdict) -> str:
        """Notify observers of the outcome of a reward; returns its status."""
        self._tell_end(event_id, verdict.pending, verdict.status, verdict.value)
        return verdict.status

    def _tell_end(self, event_id: str, pending: Pending, status: str, value: float) -> None:
        now = self._clock()
        seen = RewardSeen(
            campaign=self.name,
            event_id=event_id,
            arm=str(pending.arm),
            group=pending.group,
            status=status,
            value=value,
            at=now,
            waited_s=now - pending.at,
        )
        for observer in self.observers:
            observer.on_reward(seen)

    @abstractmethod
    async def rearm_guardrail(self, *, by: str) -> None:
        """Let the policy decide again, durably; ``by`` names the requester."""

    # --- looking and changing ---------------------------------------------------------------------

    @abstractmethod
    async def history(self, event_id: str) -> History:
        """All that is known of an event."""

    @abstractmethod
    async def configure(self, changes: dict[str, object], *, by: str) -> CampaignSettings:
        """Change settings, durably; returns the new ones.  ``by`` names the requester."""


def found(past: History | None, event_id: str) -> History:
    """The history of an event, if there is one."""
    if past is None:
        raise UnknownEventError(f"wanted an event that was ranked here, got {event_id!r}")
    return past


def answer_in(decided: Decided) -> Result:
    """The answer that was kept with a decision."""
    if decided.answer:
        return Answered(decided.answer)
    return ConflictError(f"event {decided.event_id!r} was decided through another interface")


def answers_in(events: Mapping[str, Iterable[Event]]) -> dict[str, Result]:
    """The answers of the events that were decided before; the error of those that were erased."""
    results: dict[str, Result] = {}
    for name, found_events in events.items():
        try:
            past = History.of(found_events)
        except ErasedEventError as error:
            results[name] = error
        else:
            if past is not None:
                results[name] = answer_in(past.decided)
    return results


S = TypeVar("S", bound=Served)


class ByName(Generic[S]):
    """Campaigns by their names, the default first."""

    def __init__(self, campaigns: Iterable[S]) -> None:
        self._by_name = {campaign.name: campaign for campaign in campaigns}
        self.is_stopping = False

    def __iter__(self) -> Iterator[S]:
        """All of them, the default first."""
        return iter(self._by_name.values())

    def __getitem__(self, name: str) -> S:
        """The campaign of this name."""
        if name not in self._by_name:
            known = ", ".join(self._by_name)
            raise UnknownEventError(f"campaign must be one of {known}, got {name!r}")
        return self._by_name[name]

    @property
    def names(self) -> list[str]:
        """Names of the campaigns, the default first."""
        return list(self._by_name)


class ServedCampaigns(Protocol):
    """All campaigns of one process."""

    def __getitem__(self, name: str, /) -> Served:
        """The campaign of this name."""
        ...

    @property
    def names(self) -> list[str]:
        """Names of the campaigns, the default first."""
        ...

    def problems(self) -> list[str]:
        """Why the process is not ready; empty if it is."""
        ...
