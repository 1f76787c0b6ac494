"""The leader's side of an inbox: records of rankers go into the journal, in order, once.

A record is applied by the campaign's own rules and marked as taken once it is durable.  If the
process is killed in between, the next leader applies it again, and the campaign recognises it.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from itertools import groupby

from vfbandits.campaign.carry import carried
from vfbandits.campaign.events import Activated, Configured, Decided, MasksChanged, Reported
from vfbandits.errors import JournalError, VFBanditsError, WireError
from vfbandits.journal.inbox.base import KEPT_S, Inbox, Waiting, unpack_change
from vfbandits.serving.leader import Leader
from vfbandits.telemetry.supervised import Supervised, Supervisor

BATCH_SIZE = 500
LOOK_EVERY_S = 0.05
LOOK_SELDOM_S = 0.5  # until the first ranker was seen
RETRY_S = 0.5
GRACE_S = 1.0
PRUNE_EVERY_S = 60.0
RETIRE_EVERY_S = 3_600.0
PRUNE_PER_BATCH = 5_000


class Consumer:
    """Takes in the arrivals of one campaign; implements ``Arrivals``.

    ``is_in_use`` says whether rankers were seen by other means: until then no request waits for the
    inbox.  ``on_entered`` is called with the campaign's name and the decisions that were taken in.
    """

    def __init__(
        self,
        campaign: Leader,
        inbox: Inbox,
        *,
        is_in_use: Callable[[], bool] = lambda: False,
        supervisor: Supervisor | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._campaign = campaign
        self._log = campaign.log
        self._inbox = inbox
        self.on_entered: Callable[[str, Sequence[Decided]], None] = _nobody
        self._is_in_use = is_in_use
        self._clock = clock
        self._was_used: bool | None = None
        self._complete_to = float("-inf")
        self._opened_at = clock()
        self._one_at_a_time = asyncio.Lock()
        self._n_begun = self._n_done = 0
        self._mask_changes: list[MasksChanged] = []
        self._spanned = (0, -1)
        self._told = ""
        self._supervisor = Supervisor() if supervisor is None else supervisor
        self._task: Supervised | None = None
        self._pruned_at = self._retired_at = 0.0

    @property
    def complete_to(self) -> float:
        """All earlier arrivals are in the journal; ``GRACE_S`` in the past, for slow processes."""
        return self._complete_to if self._is_used() else float("inf")

    @property
    def campaign(self) -> str:
        """Name of the campaign."""
        return self._campaign.name

    @property
    def lag_s(self) -> float:
        """Seconds that the journal is behind the arrivals; 0 while no ranker was seen."""
        return max(0.0, self._clock() - GRACE_S - max(self.complete_to, self._opened_at))

    def start(self) -> None:
        """Start to look for arrivals."""
        self._campaign.arrivals = self
        name = f"inbox {self._campaign.name}"
        self._task = self._supervisor.start(name, self._run_for_ever)

    async def stop(self) -> None:
        """Stop looking; the next leader applies unfinished arrivals again."""
        if self._task is not None:
            await self._task.stop()
        async with self._one_at_a_time:
            await asyncio.to_thread(self._inbox.close)

    async def drain(self) -> None:
        """Take in all that had arrived when this was called."""
        if not self._is_used():
            return
        # Any look that begins after this line suffices.
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
                # The database is unreachable, or the campaign is broken (``problems`` reports it).
                if str(error) != self._told:
                    self._told = str(error)
                    self._log.error("inbox_failed", campaign=self.campaign, reason=self._told)
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
            waiting = await asyncio.to_thread(self._inbox.waiting, BATCH_SIZE)
            if waiting:
                self._was_used = True
                await self._take_in(waiting)
            if len(waiting) < BATCH_SIZE:
                break
        self._complete_to = began - GRACE_S
        self._n_done = number

    async def _take_in(self, waiting: Sequence[Waiting]) -> None:
        decided = [one.event for one in waiting if isinstance(one.event, Decided)]
        known = await self._known(decided)
        await self._read_moves(decided)
        ends = await self._apply_all(waiting, known)
        refused = {one.id: end for one, end in zip(waiting, ends, strict=True) if end is not None}
        for end in refused.values():
            self._log.error("inbox_record_refused", campaign=self.campaign, reason=str(end))
        if refused:
            await asyncio.to_thread(self._inbox.set_aside, sorted(refused))
        taken = [one.id for one in waiting if one.id not in refused]
        await asyncio.to_thread(self._inbox.take, taken)

    async def _known(self, decided: Sequence[Decided]) -> frozenset[object]:
        """Ids of decisions in the journal: the last leader was killed before it marked them."""
        if not decided:
            return frozenset()
        found = await self._campaign.durable.find_many([one.event_id for one in decided])
        return frozenset(event_id for event_id, past in found.items() if past)

    async def _apply_all(
        self, waiting: Sequence[Waiting], known: frozenset[object]
    ) -> list[VFBanditsError | None]:
        """Apply records in their order; returns the error of each that can never be applied."""
        # All start in order, and each changes the model before its first await: so records are
        # applied in order, and share a commit.
        works: list[Coroutine[object, object, Sequence[VFBanditsError | None]]] = []
        for is_decided, run in groupby(waiting, lambda one: isinstance(one.event, Decided)):
            if is_decided:
                decided = [one.event for one in run if isinstance(one.event, Decided)]
                works.append(self._enter(decided, known))
            else:
                works.extend(self._apply(one) for one in run)
        ends: list[VFBanditsError | None] = []
        for done in await asyncio.gather(*works, return_exceptions=True):
            if isinstance(done, BaseException):
                raise done
            ends.extend(done)
        return ends

    async def _enter(
        self, decided: Sequence[Decided], known: frozenset[object]
    ) -> list[VFBanditsError | None]:
        """Take in consecutive decisions, unless they are known."""
        ends: list[VFBanditsError | None] = [None] * len(decided)
        new: dict[int, Decided] = {}
        for place, event in enumerate(decided):
            if event.event_id not in known:
                try:
                    new[place] = self._carried(event)
                except JournalError:
                    raise
                except VFBanditsError as error:
                    ends[place] = error
        for place, end in zip(new, await self._campaign.enter_many([*new.values()]), strict=True):
            ends[place] = end
        entered = [event for place, event in new.items() if ends[place] is None]
        if entered:  # before rewards of these, which may have come in the same batch
            self.on_entered(self._campaign.name, entered)
        return ends

    async def _read_moves(self, decided: Sequence[Decided]) -> None:
        """Read the mask changes that these decisions have missed."""
        model = self._campaign.durable
        missed = min((one.epoch for one in decided), default=model.epoch)
        first, last = self._spanned
        if missed < model.epoch and not first <= missed <= model.epoch == last:
            epoch, recent = model.epoch, list(model.recent_mask_changes)
            is_enough = bool(recent) and recent[0].epoch <= missed + 1
            self._mask_changes = recent if is_enough else await model.mask_changes()
            self._spanned = (recent[0].epoch - 1 if is_enough else 0, epoch)

    async def _apply(self, waiting: Waiting) -> list[VFBanditsError | None]:
        """Apply a record that is not a decision; returns the error if it can never be applied."""
        try:
            await self._apply_other(waiting)
        except JournalError:  # the journal failed, not a rule of the campaign
            raise
        except VFBanditsError as error:
            return [error]
        return [None]

    async def _apply_other(self, waiting: Waiting) -> None:
        campaign, event = self._campaign, waiting.event
        if event is None:
            raise WireError(waiting.reason)
        if isinstance(event, Reported):
            name = str(event.event_id)
            await campaign.reward(name, event.value, reward_id=event.reward_id, at=event.at)
        elif isinstance(event, Activated):
            await campaign.activate(str(event.event_id), at=event.at)
        elif isinstance(event, Configured):
            changes, by = unpack_change(event.settings)
            await campaign.configure(changes, by=by)

    def _carried(self, event: Decided) -> Decided:
        model = self._campaign.durable
        if event.epoch < model.epoch != self._spanned[1]:
            raise JournalError("the masks changed while records were read; they are read again")
        return carried(event, self._mask_changes, epoch=model.epoch, layout=model.bandit.layout)

    async def _prune(self) -> None:
        if self._clock() - self._pruned_at >= PRUNE_EVERY_S:
            prune = partial(self._inbox.prune, older_s=KEPT_S, most=PRUNE_PER_BATCH)
            if await asyncio.to_thread(prune) < PRUNE_PER_BATCH:  # otherwise there may be more
                self._pruned_at = self._clock()
        retain_s = self._campaign.retain_s
        if retain_s is not None and self._clock() - self._retired_at >= RETIRE_EVERY_S:
            before = self._clock() - retain_s
            retire = partial(self._inbox.retire, before=before, most=PRUNE_PER_BATCH)
            if await asyncio.to_thread(retire) < PRUNE_PER_BATCH:
                self._retired_at = self._clock()


def _nobody(campaign: str, entered: Sequence[Decided]) -> None:
    """Do nothing: there is no observer."""
