"""The leader's side of an inbox: what rankers promised goes into the log, in order, once.

An event is applied by the campaign's own rules and marked as taken once it is durable.  Should the
process die in between, the next leader applies it again, and the campaign finds that it has it.
"""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from vfbandits.errors import JournalError, VFBanditsError, WireError
from vfbandits.service.campaign import Campaign
from vfbandits.service.carry import carried
from vfbandits.service.supervised import Supervised, Supervisor
from vfbandits.store.events import Activated, Decided, Moved, Reported
from vfbandits.store.inbox import KEPT_S, Inbox, Waiting

AT_ONCE = 500
LOOK_EVERY_S = 0.05
LOOK_SELDOM_S = 0.5  # as long as no ranker was ever seen
RETRY_S = 0.5
GRACE_S = 1.0
PRUNE_EVERY_S = 60.0
PRUNE_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True)
class Hearers:
    """Who is told: of decisions that came in, and of what could not be taken or done, and why."""

    entered: Callable[[str, Sequence[Decided]], None]
    refused: Callable[[str, str], None]
    failed: Callable[[str, str], None]


class Consumer:
    """Takes in what arrives for one campaign; implements ``Arrivals``.

    ``is_in_use`` says whether rankers were seen otherwise: until there are any, nobody waits for
    the inbox.
    """

    def __init__(
        self,
        campaign: Campaign,
        inbox: Inbox,
        hearers: Hearers,
        *,
        is_in_use: Callable[[], bool] = lambda: False,
        supervisor: Supervisor | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._campaign = campaign
        self._inbox = inbox
        self._hearers = hearers
        self._is_in_use = is_in_use
        self._clock = clock
        self._was_used: bool | None = None
        self._complete_to = float("-inf")
        self._opened_at = clock()
        self._one_at_a_time = asyncio.Lock()
        self._n_begun = self._n_done = 0
        self._moves: list[Moved] = []
        self._spanned = (0, -1)
        self._told = ""
        self._supervisor = Supervisor() if supervisor is None else supervisor
        self._task: Supervised | None = None
        self._pruned_at = 0.0

    @property
    def complete_to(self) -> float:
        """Whatever came before is in the log; a moment ago, to let slow processes finish."""
        return self._complete_to if self._is_used() else float("inf")

    @property
    def campaign(self) -> str:
        """Name of the campaign."""
        return self._campaign.name

    @property
    def lag_s(self) -> float:
        """How far the log is behind what arrived, in seconds; 0 while no ranker was seen."""
        return max(0.0, self._clock() - GRACE_S - max(self.complete_to, self._opened_at))

    def start(self) -> None:
        """Begin to look for arrivals."""
        self._campaign.arrivals = self
        name = f"inbox {self._campaign.name}"
        self._task = self._supervisor.start(name, self._run_for_ever)

    async def stop(self) -> None:
        """Look no more; what is under way is applied again by the next leader."""
        if self._task is not None:
            await self._task.stop()
        async with self._one_at_a_time:
            await asyncio.to_thread(self._inbox.close)

    async def drain(self) -> None:
        """Take in all that had arrived when this was called."""
        if not self._is_used():
            return
        # A look that begins after now will do, whoever makes it.
        wanted = self._n_begun + 1
        async with self._one_at_a_time:
            if self._n_done < wanted:
                await self._look()

    async def _run_for_ever(self) -> None:
        while True:
            try:
                async with self._one_at_a_time:
                    await self._look()
                await self._prune()
                self._told = ""
            except JournalError as error:
                # The database is away, or the campaign is broken, which its own check says too.
                if str(error) != self._told:
                    self._told = str(error)
                    self._hearers.failed(self._campaign.name, self._told)
                await asyncio.sleep(RETRY_S)
            await asyncio.sleep(LOOK_EVERY_S if self._is_used() else LOOK_SELDOM_S)

    def _is_used(self) -> bool:
        return self._was_used is not False or self._is_in_use()

    async def _look(self) -> None:
        """Take in what is there, a batch at a time, until there is no more."""
        self._n_begun = number = self._n_begun + 1
        if self._was_used is None:
            self._was_used = await asyncio.to_thread(self._inbox.is_used)
        while True:
            began = self._clock()
            waiting = await asyncio.to_thread(self._inbox.waiting, AT_ONCE)
            if waiting:
                self._was_used = True
                await self._take_in(waiting)
            if len(waiting) < AT_ONCE:
                break
        self._complete_to = began - GRACE_S
        self._n_done = number

    async def _take_in(self, waiting: Sequence[Waiting]) -> None:
        decided = [one.event for one in waiting if isinstance(one.event, Decided)]
        known = await self._known(decided)
        await self._read_moves(decided)
        # All begin in order, and each changes the model before it first waits: so they are
        # applied in order, and share a commit.
        ends = await asyncio.gather(
            *(self._apply(one, known) for one in waiting), return_exceptions=True
        )
        for end in ends:
            if end is not None and not _is_final(end):
                raise end
        refused = {one.id for one, end in zip(waiting, ends, strict=True) if end is not None}
        for end in ends:
            if end is not None:
                self._hearers.refused(self._campaign.name, str(end))
        await asyncio.to_thread(self._inbox.set_aside, sorted(refused))
        taken = [one.id for one in waiting if one.id not in refused]
        await asyncio.to_thread(self._inbox.take, taken)

    async def _known(self, decided: Sequence[Decided]) -> frozenset[object]:
        """Ids of those that the log has already: the last leader died before it could say so."""
        model = self._campaign.model
        found = await asyncio.gather(*(model.find(one.decision_id) for one in decided))
        return frozenset(one.decision_id for one, past in zip(decided, found, strict=True) if past)

    async def _read_moves(self, decided: Sequence[Decided]) -> None:
        """Have the changes of masks at hand that these decisions have missed."""
        model = self._campaign.model
        missed = min((one.epoch for one in decided), default=model.epoch)
        first, last = self._spanned
        if missed < model.epoch and not first <= missed <= model.epoch == last:
            epoch, recent = model.epoch, list(model.recent_moves)
            is_enough = bool(recent) and recent[0].epoch <= missed + 1
            self._moves = recent if is_enough else await model.moves()
            self._spanned = (recent[0].epoch - 1 if is_enough else 0, epoch)

    async def _apply(self, waiting: Waiting, known: frozenset[object]) -> None:
        campaign, event = self._campaign, waiting.event
        if event is None:
            raise WireError(waiting.reason)
        if isinstance(event, Decided):
            if event.decision_id not in known:
                await campaign.enter(self._carried(event))
                # Before a reward of it, which may have come in the same batch.
                self._hearers.entered(campaign.name, [event])
        elif isinstance(event, Reported):
            name = str(event.decision_id)
            await campaign.reward(name, event.value, reward_id=event.reward_id, at=event.at)
        elif isinstance(event, Activated):
            await campaign.activate(str(event.decision_id), at=event.at)
        else:
            await campaign.configure(json.loads(event.settings))

    def _carried(self, event: Decided) -> Decided:
        model = self._campaign.model
        if event.epoch < model.epoch != self._spanned[1]:
            raise JournalError("the masks have changed meanwhile; again, with the new ones")
        return carried(event, self._moves, epoch=model.epoch, layout=model.bandit.layout)

    async def _prune(self) -> None:
        if self._clock() - self._pruned_at >= PRUNE_EVERY_S:
            prune = partial(self._inbox.prune, older_s=KEPT_S, most=PRUNE_AT_ONCE)
            if await asyncio.to_thread(prune) < PRUNE_AT_ONCE:  # otherwise there may be more
                self._pruned_at = self._clock()


def _is_final(error: BaseException) -> bool:
    """Whether an event will never be taken: by the campaign's rules, not for want of a log."""
    return isinstance(error, VFBanditsError) and not isinstance(error, JournalError)
