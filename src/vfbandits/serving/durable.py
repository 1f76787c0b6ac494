"""A crash-safe bandit: a campaign, and the journal of all its records.

The model in memory changes immediately; the answer waits for the journal.  So a decision may rest
on a reward that is not durable yet.  Its record follows that reward in the journal, so both are
durable once the decision is answered: every answer comes from a fold over a prefix of the journal.

If the journal cannot be written, the model in memory may be ahead of it.  All calls are then
refused until the journal is opened and folded again.  A request without an answer may be in the
journal or not; a reward that is sent again is learnt once either way.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from vfbandits.campaign.events import (
    RETENTION,
    Administered,
    ArmsDropped,
    Decided,
    Event,
    Forgotten,
    Found,
    MasksChanged,
    Retracted,
    Rewarded,
)
from vfbandits.campaign.history import History
from vfbandits.campaign.machine import Campaign, Verdict, refuse_other_reward
from vfbandits.campaign.model import MakeMove, Model, remask
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.core.bandit import ALONE, Bandit
from vfbandits.core.decision import ArmId, Decision, EventId
from vfbandits.core.pending import Pending
from vfbandits.core.reward import as_reward
from vfbandits.errors import (
    ArmError,
    ContextError,
    JournalError,
    RecordError,
    RewardError,
    SettingError,
    UnknownDecisionError,
)
from vfbandits.journal.base import SNAPSHOTS_KEPT, Journal
from vfbandits.journal.commit import GroupCommit
from vfbandits.journal.places import events_at
from vfbandits.journal.recover import Recovery, recover
from vfbandits.journal.repair import readable_end
from vfbandits.journal.retain import Waited, old_records
from vfbandits.serving.concurrency import Batcher, KeyedLock

MASK_CHANGES_KEPT = 4
# Errors that refuse a record which does not fit; the model is unchanged.
HARMLESS = (ArmError, ContextError, RewardError, SettingError, UnknownDecisionError)
_TEXT = {str}


class OlderMaskChanges(NamedTuple):
    """Mask changes read from the journal: all after position ``after``, up to ``to``."""

    after: int
    to: int
    mask_changes: list[tuple[int, MasksChanged]]


class DurableBandit:
    """A ``Bandit`` with a journal; create it with ``open``.

    ``has_failed`` means that the model in memory differs from the journal, while the journal itself
    can be written: ``rebuild`` folds it again.  ``n_recalled`` counts the rewards that were learnt
    for decisions which had left memory, ``n_retired`` the records that ``retain`` has dropped.

    Call its methods from one event loop.  Cancelling a caller that waits undoes nothing: the record
    is still committed.

    Examples
    --------
    >>> import asyncio, vfbandits as vfb
    >>> from vfbandits.journal.memory import MemoryDisk, MemoryJournal
    >>> disk = MemoryDisk()
    >>> async def visit():
    ...     bandit = DurableBandit.open(
    ...         MemoryJournal(disk), lambda: vfb.Bandit(vfb.LinUCB(), dim=2)
    ...     )
    ...     decision = await bandit.decide([[1.0, 0.0], [0.0, 1.0]], arms=["tea", "coffee"])
    ...     await bandit.reward(decision, 0.0)
    ...     await bandit.close()
    ...     return decision.id, decision.arm, bandit.recovery.replayed
    >>> asyncio.run(visit()), asyncio.run(visit())
    ((0, 'tea', 0), (1, 'coffee', 2))
    """

    def __init__(
        self,
        model: Model,
        journal: Journal,
        recovery: Recovery,
        *,
        make_model: Callable[[], Model],
        log_probabilities: bool,
        clock: Callable[[], float],
    ) -> None:
        self.recovery = recovery
        self.has_failed = False
        self.campaign = Campaign(model, _plain_settings(model.bandit))
        self._make_model = make_model
        self._journal = journal
        self._commit = GroupCommit(journal)
        self._lookup: Batcher[tuple[EventId, ...], dict[EventId, Found] | RecordError]
        self._lookup = Batcher.in_thread(self._find_all)
        self._log_probabilities = log_probabilities
        self._clock = clock
        self._is_closed = False
        self._snapshot_position = recovery.start or 0
        self._replayed = (model.n_decided, model.n_learnt)
        self._one_snapshot = asyncio.Lock()
        self.recent_mask_changes: deque[MasksChanged] = deque(maxlen=MASK_CHANGES_KEPT)
        self.n_recalled = 0
        self.n_retired = 0
        self._n_retracted = 0
        self.locks: KeyedLock = KeyedLock()
        self._one_read = asyncio.Lock()
        self._older_mask_changes = OlderMaskChanges(0, 0, [])

    @classmethod
    def open(  # noqa: PLR0913  (settings, by name)
        cls,
        journal: Journal,
        make_bandit: Callable[[], Bandit],
        *,
        make_move: MakeMove = remask,
        epoch: int = 0,
        signed_roster: bytes = b"",
        file_settings: Mapping[str, object] | None = None,
        log_probabilities: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> "DurableBandit":
        """The bandit at the end of the journal; ``recovery`` describes how it was restored.

        Parameters
        ----------
        journal
            Owned by the bandit from now on, which closes it.
        make_bandit
            Makes the bandit of a new journal.  For an existing one its policy and ``floor`` are
            used, and its other settings must equal those that the journal was created with.
        make_move
            Makes the move of a matrix, now and at every replay of the journal.
        epoch, signed_roster
            The first values of a new journal; ``change_masks`` changes them.
        file_settings
            What a new journal records of the settings file (``Model.file_settings``).
        log_probabilities
            Whether the records of decisions have the probability: exact and cheap for most
            policies, a Monte Carlo of ``n_draws`` for LinTS.
        clock
            Seconds since 1970, recorded with decisions and rewards.
        """

        def make_model() -> Model:
            return Model(
                make_bandit(),
                epoch=epoch,
                signed_roster=signed_roster,
                make_move=make_move,
                file_settings=file_settings,
            )

        recovered, recovery = recover(journal, make_model())
        return cls(
            recovered,
            journal,
            recovery,
            make_model=make_model,
            log_probabilities=log_probabilities,
            clock=clock,
        )

    @property
    def model(self) -> Model:
        """The model in memory, for reading, even after a failure."""
        return self.campaign.model

    @property
    def bandit(self) -> Bandit:
        """The bandit in memory, for reading; it may be ahead of what is durable, never behind."""
        self._check_healthy()
        return self.model.bandit

    @property
    def pending(self) -> "OrderedDict[EventId, Pending]":
        """The pending decisions in memory, for reading."""
        return self.model.pending

    @property
    def n_pending(self) -> int:
        """Pending decisions, in memory or not."""
        return self.model.n_pending

    @property
    def epoch(self) -> int:
        """The epoch of the masks that contexts must be behind."""
        return self.model.epoch

    @property
    def signed_roster(self) -> bytes:
        """The signed roster of the last mask change."""
        return self.model.signed_roster

    @property
    def broken_by(self) -> str | None:
        """Why all calls are refused; None while they are not."""
        return "it is closed" if self._is_closed else self._commit.broken_by

    @property
    def position(self) -> int:
        """The position of the last record, whether it is durable yet or not."""
        return self._commit.position

    @property
    def since_snapshot(self) -> int:
        """Records that a restart would replay: when there are many, take a ``snapshot``."""
        return self._commit.position - self._snapshot_position

    @property
    def n_decisions(self) -> int:
        """Decisions since it was opened, here or in another process."""
        return self.model.n_decided - self._replayed[0]

    @property
    def n_rewards(self) -> int:
        """Rewards learnt since it was opened, later retracted ones included."""
        return self.model.n_learnt - self._replayed[1] - self._n_retracted

    @property
    def commits(self) -> tuple[int, int]:
        """Commits since it was opened, and the number of records in them."""
        return self._commit.n_commits, self._commit.n_events

    # --- records ----------------------------------------------------------------------------------

    def append(self, event: Event) -> None:
        """Apply a record and queue it for the journal; answer only after ``flush`` has returned.

        A record that does not fit is refused, and nothing is changed.
        """
        self._check_healthy()
        position = self._commit.position + 1
        try:
            self.campaign.apply(position, event)
        except Exception as error:
            # An error that is not harmless may leave the model changed and the journal not, and a
            # mask change that fails half-way has changed something, whatever the error is.
            if isinstance(event, MasksChanged) or not isinstance(error, HARMLESS):
                self.has_failed = self._commit.broken_by is None
                self._commit.fail(f"the model failed with {type(error).__name__}")
            raise
        if isinstance(event, MasksChanged):
            self.recent_mask_changes.append(event)
        elif isinstance(event, Retracted):
            self._n_retracted += 1
        elif isinstance(event, Rewarded) and event.recalled is not None:
            self.n_recalled += 1
        self._commit.add(event)

    def enter(self, event: Decided) -> None:
        """Append a decision that another process made with this model.

        Its context must be behind the masks of ``epoch``.  An id that was used before is refused.
        """
        if event.epoch != self.epoch:
            raise SettingError(f"masks must be of epoch {self.epoch}, got {event.epoch}")
        self.append(event)

    async def log(self, *events: Event) -> None:
        """Append records in one commit; returns when they are durable."""
        for event in events:
            self.append(event)
        await self._commit.flush()

    def flush(self) -> Awaitable[None]:
        """Wait until all records so far are durable."""
        return self._commit.flush()

    # --- a bandit's own methods -------------------------------------------------------------------

    async def decide(
        self,
        contexts: ArrayLike,
        *,
        arms: Sequence[ArmId] | None = None,
        arm_features: ArrayLike | None = None,
        event_id: str | None = None,
        contributors: tuple[str, ...] = ALONE,
        user: str | None = None,
    ) -> Decision:
        """Choose an arm, as ``Bandit.decide``; returns when the decision is durable."""
        self._check_healthy()
        if {*map(type, contributors)} - _TEXT:
            raise SettingError(f"contributors must be names, got {contributors!r}")
        if user is not None and not isinstance(user, str):
            raise SettingError(f"user must be text or None, got {type(user).__name__}")
        bandit = self.model.bandit
        decision, seen, root = bandit.propose(
            contexts,
            arms=arms,
            arm_features=arm_features,
            event_id=event_id,
            contributors=contributors,
            draws=bandit.draws,
        )
        event = Decided(
            event_id=decision.id,
            arm=decision.arm,
            index=decision.index,
            x=seen.x,
            model=seen.model,
            probability=decision.probability if self._log_probabilities else None,
            contributors=contributors,
            epoch=self.epoch,
            user=user,
            at=self._clock(),
            root=root,
        )
        await self.log(event)
        return decision

    async def reward(self, decision: Decision | EventId, value: float) -> bool:
        """Learn a reward exactly once; returns when it is durable.

        Returns False, and changes nothing, if the same reward was learnt before; a different one is
        refused.  Both outcomes wait until the first reward is durable.  A decision that has left
        memory is read from the journal, and its context is brought to the masks in force.
        """
        self._check_healthy()
        key = decision.id if isinstance(decision, Decision) else decision
        reward, pending = as_reward(value), self.model.bandit.pending
        if key in pending.open:
            await self.log(Rewarded(key, reward, self._clock()))
            return True
        if key in pending.settled:
            await self._commit.flush()
            refuse_other_reward(key, pending.settled.get(key, reward), reward)
            return False
        async with self.locks[key]:
            return await self._reward_recalled(key, reward)

    async def _reward_recalled(self, key: EventId, reward: float) -> bool:
        """Learn the reward of a decision that has left memory."""
        event = None
        while event is None:
            past = await self.past(key)
            if past is not None and past.learnt is not None:
                refuse_other_reward(key, past.learnt, reward)
                return False
            if past is None or not past.is_open:
                raise UnknownDecisionError(
                    f"a reward needs an open decision, got id {key!r}, which was never made, was "
                    "forgotten, or is no longer in the journal"
                )
            event = self.campaign.learn(key, reward, "", self._clock(), past)
        await self.log(event)
        return True

    async def forget(self, decision: Decision | EventId) -> None:
        """Drop an open decision whose reward will never come; returns when that is durable."""
        self._check_healthy()
        key = decision.id if isinstance(decision, Decision) else decision
        if self.model.bandit.knows(key):
            await self.log(Forgotten(key))
            return
        async with self.locks[key]:
            past = await self.past(key)
            if past is None or not past.is_open:
                raise UnknownDecisionError(f"there is no open decision {key!r} to forget")
            await self.log(Forgotten(key, past.position))

    async def retract(self, event_id: EventId, *, by: str) -> Verdict:
        """Take back the learnt reward of a decision; returns when that is durable.

        Exact up to rounding: the model is as if the reward had never come.  The decision stays
        closed, and the same reward again changes nothing.  Refused under forgetting
        (``discount`` below 1), and where the journal no longer has the decision, or the mask
        changes since.  ``by`` names the requester.
        """
        async with self.locks[event_id]:
            while True:
                past = await self.past(event_id)
                epoch = self.epoch
                if past is not None and past.learnt is not None:
                    past.mask_changes = await self._mask_changes_after(0)
                    past.is_arm_dropped = await self._is_arm_dropped(past)
                if epoch == self.epoch:  # the masks may change while the journal is read
                    break
            now = self._clock()
            verdict = self.campaign.retract(str(event_id), by=by, now=now, past=past)
            if verdict.event is not None:
                await self.log(verdict.event)
        return verdict

    async def change_masks(
        self,
        matrix: ArrayLike,
        *,
        epoch: int,
        signed_roster: bytes = b"",
        asked: Administered | None = None,
    ) -> None:
        """Change the model to the masks of a later epoch; returns when that is durable.

        ``asked`` names the requester; its record follows the mask change in the journal.

        ``matrix`` is R (new dim, dim).  The ``make_move`` of ``open`` makes the move of it, here
        and in a replay of the journal: the same function of the same bytes.
        """
        self._check_healthy()
        if not isinstance(signed_roster, bytes):
            raise SettingError(f"signed_roster must be bytes, got {type(signed_roster).__name__}")
        remasking = np.array(matrix, dtype=np.float64, order="C")
        changed = self.campaign.change_masks(remasking, epoch=epoch, signed_roster=signed_roster)
        await self.log(changed, *(() if asked is None else (asked,)))

    # --- the journal ------------------------------------------------------------------------------

    async def past(self, event_id: EventId) -> History | None:
        """All records of a decision, and the mask changes that ``Campaign`` needs for them."""
        past = History.found((await self.find_placed([event_id]))[event_id])
        if past is not None and past.is_open and past.position < self.model.mask_changes_after:
            older = await self._read_older_mask_changes(past.position)
            past.mask_changes, past.mask_changes_to = older.mask_changes, older.to
        return past

    async def find(self, event_id: EventId) -> list[Event]:
        """All records of a decision; returns when they are durable."""
        return (await self.find_many([event_id]))[event_id]

    async def find_many(self, ids: Sequence[EventId]) -> dict[EventId, list[Event]]:
        """All records of several decisions; returns when they are durable.

        A damaged record of one of them raises RecordError; other callers are not affected.
        """
        found = await self.find_placed(ids)
        return {event_id: [event for _, event in found[event_id]] for event_id in ids}

    async def find_placed(self, ids: Sequence[EventId]) -> dict[EventId, Found]:
        """As ``find_many``, each record with its position."""
        self._check_healthy()
        await self._commit.flush()
        found = await self._lookup.submit(tuple(ids))
        if isinstance(found, RecordError):
            raise found
        return {event_id: found[event_id] for event_id in ids}

    async def events_at(self, positions: Sequence[int]) -> dict[int, Event]:
        """The records at these positions, in ascending order, as far as the journal has them."""
        await self._commit.flush()
        return await asyncio.to_thread(events_at, self._journal, positions)

    def _find_all(
        self, questions: Sequence[tuple[EventId, ...]]
    ) -> list[dict[EventId, Found] | RecordError]:
        """The records for all callers of a batch; each caller takes its own out of them."""
        try:
            found = self._journal.find_many(tuple(dict.fromkeys(chain.from_iterable(questions))))
        except RecordError:
            return [self._find_alone(ids) for ids in questions]
        return [found] * len(questions)

    def _find_alone(self, ids: tuple[EventId, ...]) -> dict[EventId, Found] | RecordError:
        try:
            return self._journal.find_many(ids)
        except RecordError as error:
            return error

    async def mask_changes(self) -> list[MasksChanged]:
        """The mask changes that the journal still has, in order."""
        return [moved for _, moved in await self._mask_changes_after(0)]

    async def _mask_changes_after(self, position: int) -> list[tuple[int, MasksChanged]]:
        """The durable mask changes after a position, each with its own position."""

        def read() -> list[tuple[int, MasksChanged]]:
            journal = self._journal
            after = max(journal.compacted_to, position)
            events = chain(journal.remains(position), journal.read(after))
            return [(at, event) for at, event in events if isinstance(event, MasksChanged)]

        await self._commit.flush()
        return await asyncio.to_thread(read)

    async def _read_older_mask_changes(self, after: int) -> OlderMaskChanges:
        """Mask changes after a position that the model no longer has, and perhaps later ones."""
        async with self._one_read:
            older = self._older_mask_changes
            if not older.after <= after or older.to < self.model.mask_changes_after:
                to = self._commit.position
                self._older_mask_changes = OlderMaskChanges(
                    after, to, await self._mask_changes_after(after)
                )
            return self._older_mask_changes

    async def _is_arm_dropped(self, past: History) -> bool:
        """Whether the model of the arm was dropped since, and the reward with it."""
        arm, learnt_at = past.decided.model, past.learnt_at
        if arm is None:
            return False

        def read() -> list[int]:
            after = max(self._journal.compacted_to, learnt_at)
            events = chain(self._journal.remains(learnt_at), self._journal.read(after))
            return [at for at, one in events if isinstance(one, ArmsDropped) and arm in one.arms]

        return any(map(self.model.holds, await asyncio.to_thread(read)))

    async def read_end(self, n_events: int) -> list[tuple[int, Event]]:
        """The last records of the journal, as far as they are kept.

        Records that cannot be read are left out, and logged: a snapshot may cover them.
        """
        after = max(0, self._journal.last_position - n_events)
        return await asyncio.to_thread(readable_end, self._journal, after=after)

    # --- life -------------------------------------------------------------------------------------

    async def snapshot(self) -> int:
        """Write a snapshot of the present model; returns its position in the journal.

        The model is copied immediately and written in a thread: decisions go on meanwhile.
        """
        self._check_healthy()
        async with self._one_snapshot:
            self._check_healthy()
            position, frozen = self._commit.position, self.model.snapshot()
            await self._commit.flush()
            await asyncio.to_thread(self._journal.save_snapshot, position, frozen)
            self._snapshot_position = position
        return position

    async def retain(self, before: float, *, most: int) -> int:
        """Drop records from before a time, at most ``most`` of them; returns how many.

        Two snapshots cover them, and are taken first if necessary.  Pending decisions are kept.
        """
        await self._commit.flush()
        waited = Waited.of(self.model)
        look = partial(old_records, self._journal, before=before, waited=waited, most=most)
        old = await asyncio.to_thread(look)
        if old:
            covered_by = await self._cover(old[-1])
            retire = partial(self._journal.retire, old, covered_by=covered_by)
            await asyncio.to_thread(retire)
            self.n_retired += len(old)
        return len(old)

    async def _cover(self, position: int) -> int:
        """The older of two snapshots at or after a position; takes them if necessary."""
        while True:
            found = await asyncio.to_thread(self._journal.snapshot_positions)
            fit = [one for one in found if one >= position]
            if len(fit) >= SNAPSHOTS_KEPT:
                return fit[SNAPSHOTS_KEPT - 1]
            if self.since_snapshot == 0:  # a second one needs a position of its own
                detail = "a snapshot was taken to retire records"
                await self.log(Administered(RETENTION, detail, "retain_days", self._clock()))
            await self.snapshot()

    async def rebuild(self) -> None:
        """Fold the journal again after the model has failed, then accept records again.

        A record that was not acknowledged is in the journal or not, as after a restart.
        """
        async with self._one_snapshot:
            await self._commit.idle()
            counted = self.n_decisions, self.n_rewards
            first = self._make_model()
            model, _ = await asyncio.to_thread(recover, self._journal, first)
            self.campaign = Campaign(model, self.campaign.first_settings)
            learnt = model.n_learnt - self._n_retracted
            self._replayed = (model.n_decided - counted[0], learnt - counted[1])
            self._commit.mend()
            self.has_failed = False

    async def close(self) -> None:
        """Finish open calls and close the journal; safe to call twice."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._commit.close()
        await self._lookup.close()
        async with self._one_snapshot:
            await asyncio.to_thread(self._journal.close)

    def _check_healthy(self) -> None:
        if self._is_closed:
            raise JournalError("the bandit is closed; open it again")
        self._commit.check_healthy()


def _plain_settings(bandit: Bandit) -> CampaignSettings:
    """The settings of a bandit without a campaign: the wait for a reward has no end."""
    return CampaignSettings(bandit.policy, bandit.floor, reward_wait_s=None)
