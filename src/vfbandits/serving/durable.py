"""A bandit that survives a kill: every decision and reward is in the log before it is answered.

The model in memory changes at once, the answer waits for the log.  So a decision may rest on a
reward that is not durable yet; but its event stands behind that reward in the log, and when it
is answered both are durable.  What was answered is therefore always a fold over a beginning of
the log.  If the log cannot be written, the model in memory may be ahead of it: then everything
is refused until it is opened again, which folds the log anew.  What was not answered may be in
the log or not; a reward sent again is learnt once either way.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from vfbandits.campaign.events import (
    Activated,
    ArmsDropped,
    Configured,
    Decided,
    Event,
    Forgotten,
    Found,
    Moved,
    Recalled,
    Reported,
    Retracted,
    Rewarded,
)
from vfbandits.campaign.history import History
from vfbandits.campaign.pending import Book
from vfbandits.core.arrays import Vector
from vfbandits.core.bandit import ALONE, Bandit
from vfbandits.core.decision import ArmId, Decision, DecisionId
from vfbandits.core.move import Move
from vfbandits.core.reward import Observation, as_reward
from vfbandits.errors import (
    ArmError,
    ConflictError,
    ContextError,
    JournalError,
    RecordError,
    RewardError,
    SettingError,
    UnknownDecisionError,
    UnknownEventError,
    VFBanditsError,
)
from vfbandits.journal.base import Journal
from vfbandits.journal.fold import MakeMove, Model, Recovery, recover, remask
from vfbandits.journal.places import events_at
from vfbandits.journal.repair import readable
from vfbandits.serving.commit import GroupCommit
from vfbandits.serving.grouped import Grouped
from vfbandits.serving.showing import Kept, Showing, decided_of
from vfbandits.serving.turns import Turns

MOVES_KEPT = 4
LIFTS_KEPT = 16
NO_OLDER_MOVES: Final = (float("inf"), list[tuple[int, Moved]]())
_TEXT = {str}


class DurableBandit:
    """A ``Bandit`` behind a log of events; make it with ``open``.

    ``has_failed`` says that the model in memory is not what the log says, while the log itself can
    be written: ``rebuild`` folds it again.  ``n_recalled`` counts the rewards that were learnt for
    decisions which had left memory.

    Its methods belong to one event loop.  A caller that is cancelled while it waits takes nothing
    back: the event is committed all the same.

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
        self._make_model = make_model
        self._model = model
        self._journal = journal
        self._commit = GroupCommit(journal)
        self._lookup: Grouped[tuple[DecisionId, ...], dict[DecisionId, Found] | RecordError]
        self._lookup = Grouped.in_thread(self._find_all)
        self._log_probabilities = log_probabilities
        self._clock = clock
        self._is_closed = False
        self._snapshot_position = recovery.start or 0
        self._replayed = (model.book.n_decided, model.book.n_learnt)
        self._one_snapshot = asyncio.Lock()
        self._one_retraction = asyncio.Lock()
        self.recent_moves: deque[Moved] = deque(maxlen=MOVES_KEPT)
        self.n_recalled = 0
        self._turns: Turns = Turns()
        self._lifts: dict[int, Move] = {}
        self._one_read = asyncio.Lock()
        self._older: tuple[float, list[tuple[int, Moved]]] = NO_OLDER_MOVES
        self._follow_moves: list[list[tuple[int, Moved]]] = []

    @classmethod
    def open(
        cls,
        journal: Journal,
        make_bandit: Callable[[], Bandit],
        *,
        make_move: MakeMove = remask,
        epoch: int = 0,
        note: bytes = b"",
        log_probabilities: bool = True,
        clock: Callable[[], float] = time.time,
    ) -> "DurableBandit":
        """The bandit at the end of the log; ``recovery`` tells how it came back.

        Parameters
        ----------
        journal
            Belongs to the bandit from now on, which closes it.
        make_bandit
            Gives what a new log begins with.  Later its policy and ``floor`` are taken, and its
            other settings must be those that the log was begun with.
        make_move
            Makes the move of a matrix, now and whenever the log is replayed.
        epoch, note
            What a new log begins with; ``move`` changes them.
        log_probabilities
            Whether decisions are logged with their probability: exact and cheap for most
            policies, a Monte Carlo of ``n_draws`` for LinTS.
        clock
            Seconds since 1970, noted with decisions and rewards.
        """

        def make_model() -> Model:
            return Model(make_bandit(), epoch=epoch, note=note, make_move=make_move)

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
    def bandit(self) -> Bandit:
        """The model in memory, for reading; it may be ahead of what is durable, never behind."""
        self._refuse_unless_well()
        return self._model.bandit

    @property
    def book(self) -> Book:
        """The events that wait for a reward, for reading; as far ahead as the model is."""
        return self._model.book

    @property
    def n_pending(self) -> int:
        """Decisions that wait for a reward, in memory or not."""
        return self._model.book.n_pending

    @property
    def norm(self) -> float:
        """The length of theta; told even when nothing is taken any more."""
        return self._model.bandit.estimate_norm()

    @property
    def repairs(self) -> int:
        """How often the model was put right after numbers too large for float64."""
        return self._model.bandit.n_repairs

    @property
    def n_arms(self) -> int:
        """Arms with a model of their own, in layout "disjoint"."""
        return self._model.bandit.n_arms

    @property
    def n_arms_dropped(self) -> int:
        """Arms whose model was let go."""
        return self._model.bandit.n_arms_dropped

    @property
    def epoch(self) -> int:
        """Of the masks that contexts must be behind."""
        return self._model.epoch

    @property
    def note(self) -> bytes:
        """What the last ``move`` left for the caller."""
        return self._model.note

    @property
    def broken_by(self) -> str | None:
        """Why nothing is taken any more; None while all is well."""
        return "it is closed" if self._is_closed else self._commit.broken_by

    @property
    def position(self) -> int:
        """Of the last event in the log, once all that is under way is durable."""
        return self._commit.position

    @property
    def since_snapshot(self) -> int:
        """Events that a restart would replay: when there are many, take a ``snapshot``."""
        return self._commit.position - self._snapshot_position

    @property
    def n_decisions(self) -> int:
        """Decisions since it was opened, here or in another process."""
        return self._model.book.n_decided - self._replayed[0]

    @property
    def n_rewards(self) -> int:
        """Rewards learnt since it was opened."""
        return self._model.book.n_learnt - self._replayed[1]

    @property
    def commits(self) -> tuple[int, int]:
        """How many commits were made since it was opened, and of how many events."""
        return self._commit.n_commits, self._commit.n_events

    async def decide(
        self,
        contexts: ArrayLike,
        *,
        arms: Sequence[ArmId] | None = None,
        arm_features: ArrayLike | None = None,
        decision_id: str | None = None,
        contributors: tuple[str, ...] = ALONE,
        user: str | None = None,
        showing: Showing | None = None,
    ) -> Decision:
        """Choose an arm, as ``Bandit.decide``; returns when the decision is durable."""
        decision = self.decide_soon(
            contexts,
            arms=arms,
            arm_features=arm_features,
            decision_id=decision_id,
            contributors=contributors,
            user=user,
            showing=showing,
        )
        await self._commit.flush()
        return decision

    def decide_soon(
        self,
        contexts: ArrayLike,
        *,
        arms: Sequence[ArmId] | None = None,
        arm_features: ArrayLike | None = None,
        decision_id: str | None = None,
        contributors: tuple[str, ...] = ALONE,
        user: str | None = None,
        showing: Showing | None = None,
    ) -> Decision:
        """Choose an arm; nobody may be told of it before ``flush`` has returned."""
        self._refuse_unless_well()
        if {*map(type, contributors)} - _TEXT:
            raise SettingError(f"contributors must be names, got {contributors!r}")
        if user is not None and not isinstance(user, str):
            raise SettingError(f"user must be text or None, got {type(user).__name__}")
        decision = self._model.bandit.decide(
            contexts,
            arms=arms,
            arm_features=arm_features,
            decision_id=decision_id,
            contributors=contributors,
            shown=None if showing is None else showing.forced,
        )
        bandit, epoch, at = self._model.bandit, self._model.epoch, self._clock()
        try:
            kept = self._plain(decision) if showing is None else showing.keep(decision)
            event = decided_of(bandit, decision, kept, user=user, epoch=epoch, at=at)
            self._model.book.apply(event, self._commit.position + 1)
        except Exception as error:
            self._fail(error)
            raise
        self._commit.add(event)
        return decision

    def enter_soon(self, event: Decided) -> None:
        """Take in a decision that another process made with this model; ``flush`` makes it durable.

        Its context must be behind the masks of ``epoch``.  An id that was used before is refused.
        """
        self._refuse_unless_well()
        if event.epoch != self.epoch:
            raise SettingError(f"masks must be of epoch {self.epoch}, got {event.epoch}")
        with self._or_break_off(SettingError, ContextError, ArmError):
            seen = Observation(event.x, event.model)
            self._model.bandit.recall(event.decision_id, seen, root=event.root)
            self._model.book.apply(event, self._commit.position + 1)
        self._commit.add(event)

    async def reward(
        self,
        decision: Decision | DecisionId,
        value: float,
        *,
        reward_id: str | None = "",
        at: float | None = None,
        past: History | None = None,
    ) -> bool:
        """Learn a reward exactly once; returns when it is durable.

        ``reward_id`` and ``at``, when it came, are only logged; the id is None for one that nobody
        sent.  False, and nothing is changed, when this very reward was learnt before; a different
        one is refused.  Both answers, too, wait until the first reward is durable.

        A decision that is no longer in memory is found in the log, unless ``past`` is what the
        log has of it, and carried to the masks in force.
        """
        self._refuse_unless_well()
        key = decision.id if isinstance(decision, Decision) else decision
        if not self._model.bandit.knows(key):
            came = self._clock() if at is None else at
            new = Rewarded(key, as_reward(value), came, reward_id)
            return await self._reward_recalled(new, past)
        try:
            with self._or_break_off(UnknownDecisionError, RewardError):
                is_new = self._model.bandit.reward(key, value)
        except RewardError:
            await self._commit.flush()
            raise
        if is_new:
            self._model.book.learnt(key)
            came = self._clock() if at is None else at
            await self._log(Rewarded(key, as_reward(value), came, reward_id))
        else:
            await self._commit.flush()
        return is_new

    async def retract(self, decision_id: DecisionId, *, by: str) -> float:
        """Take back the reward that a decision has taught; returns it when that is durable.

        Exact up to rounding: the model is as if the reward had never come.  The decision stays
        closed, and the same reward again changes nothing.  Refused under forgetting
        (``discount`` below 1), and where the journal no longer has the decision, or the changes of
        masks since.  ``by`` is who asks for it.
        """
        if self._model.bandit.options["discount"] < 1.0:
            raise SettingError(
                "a reward is taken back exactly only without forgetting, got discount "
                f"{self._model.bandit.options['discount']}"
            )
        async with self._one_retraction:
            past = History.of(await self.find(decision_id))
            if past is None:
                raise UnknownEventError(
                    f"wanted an event that was ranked here, got {decision_id!r}"
                )
            value = past.learnt
            if value is None:
                raise ConflictError(
                    f"event {decision_id!r} needs a reward that was learnt, got an event that is "
                    f"{past.status}; nothing was changed"
                )
            await self._refuse_if_dropped(past.decided)
            seen = await self._carried(past.decided)
            with self._or_break_off(SettingError, ContextError, ArmError):
                self._model.bandit.retract(seen, value)
                self._model.book.retracted()
            model, epoch, at = seen.model, self._model.epoch, self._clock()
            await self._log(Retracted(decision_id, value, seen.x, model, epoch, at, by))
        return value

    async def _refuse_if_dropped(self, decided: Decided) -> None:
        """An arm's model that was let go has taken the reward with it."""
        if decided.model is None:
            return

        def is_dropped() -> bool:
            kept = self._journal.remains()
            whole = self._journal.read(after=self._journal.compacted_to)
            is_learnt = False
            for _, event in chain(kept, whole):
                if isinstance(event, Rewarded) and event.decision_id == decided.decision_id:
                    is_learnt = True
                elif is_learnt and isinstance(event, ArmsDropped) and decided.model in event.arms:
                    return True
            return False

        if await asyncio.to_thread(is_dropped):
            raise ConflictError(
                f"event {decided.decision_id!r} has taught a model of arm {decided.model!r} that "
                "was let go since, and its reward with it; nothing was changed"
            )

    async def _carried(self, decided: Decided) -> Observation:
        """What a decision left to learn from, behind the masks of now."""
        between: list[Moved] = []
        read_at = decided.epoch
        while read_at != self._model.epoch:  # they may change while the journal is read
            read_at = self._model.epoch
            await self._commit.flush()
            wanted = range(decided.epoch + 1, read_at + 1)
            between = [moved for moved in await self.moves() if moved.epoch in wanted]
            if [moved.epoch for moved in between] != list(wanted):
                raise ConflictError(
                    f"event {decided.decision_id!r} was decided behind masks of epoch "
                    f"{decided.epoch}, wanted every change of masks up to {read_at}, got "
                    f"{len(between)}: the journal no longer has the others"
                )
        seen = Observation(decided.x, decided.model)
        for moved in between:
            seen = self._model.bandit.carry(seen, self._model.make_move(moved.matrix))
        return seen

    async def forget(self, decision: Decision | DecisionId, *, past: History | None = None) -> None:
        """Drop an open decision whose reward will never come; returns when that is durable.

        ``past`` is what the log has of it, if that is known.
        """
        self._refuse_unless_well()
        key = decision.id if isinstance(decision, Decision) else decision
        if self._model.bandit.knows(key):
            self._model.bandit.forget(key)
            self._model.book.close(key)
            await self._log(Forgotten(key))
            return
        async with self._turns[key]:
            past = await self._past(key, past)
            if past is None or not past.is_open:
                raise UnknownDecisionError(f"there is no open decision {key!r} to forget")
            self._model.book.close(key, opened=past.position)
            await self._log(Forgotten(key, past.position))

    async def _reward_recalled(self, new: Rewarded, past: History | None) -> bool:
        """Learn the reward of a decision that has left memory, from what the log has of it."""
        key, value = new.decision_id, new.value
        async with self._turns[key]:
            past = await self._past(key, past)
            if self._model.bandit.knows(key):  # somebody was quicker
                return await self.reward(key, value, reward_id=new.reward_id, at=new.at)
            if past is not None and past.learnt is not None:
                if past.learnt != value:
                    raise RewardError(
                        f"decision {key!r} already has the reward {past.learnt}, got {value}; "
                        "nothing was changed"
                    )
                return False
            if past is None or not past.is_open:
                raise UnknownDecisionError(
                    f"a reward needs an open decision, got id {key!r}, which was never made, was "
                    "forgotten, or is no longer in the log"
                )
            x = await self._carried_since(past)
            self._refuse_unless_well()
            recalled = Recalled(past.position, x, past.decided.model)
            with self._or_break_off(SettingError, ContextError, ArmError, RewardError):
                self._model.learn_recalled(key, recalled, value)
            self.n_recalled += 1
            await self._log(replace(new, recalled=recalled))
        return True

    async def _past(self, key: DecisionId, known: History | None) -> History | None:
        """What the log has of a decision; ``known`` will do as long as it is pending."""
        if known is not None and self._model.book.cold.due(known.position) is not None:
            return known
        return History.found((await self.find_placed([key]))[key])

    async def _carried_since(self, past: History) -> Vector:
        """The context of a decision, behind the masks in force when this returns."""
        opened, moves = past.position, self._model.moves
        if opened < self._model.moves_after:  # one whose wait has no end
            async with self._one_read:
                if opened < self._older[0]:
                    await self._read_older_moves(opened)
            moves = self._older[1]
        x = past.decided.x
        for position, moved in moves:
            if position > opened:
                x = self._lifted(position, moved).vector(x)
        return x

    async def _read_older_moves(self, after: int) -> None:
        """Have all changes of masks behind this position at hand, from now on."""
        arriving: list[tuple[int, Moved]] = []
        self._follow_moves = [arriving]
        await self._commit.flush()
        read = await asyncio.to_thread(self._moves_behind, after)
        last = read[-1][0] if read else 0
        moves = read + [one for one in arriving if one[0] > last]
        self._older, self._follow_moves = (after, moves), [moves]

    def _lifted(self, position: int, moved: Moved) -> Move:
        if position not in self._lifts:
            if len(self._lifts) >= LIFTS_KEPT:
                self._lifts.clear()
            move = self._model.make_move(moved.matrix)
            self._lifts[position] = self._model.bandit.lift(move)
        return self._lifts[position]

    def _moves_behind(self, position: int) -> list[tuple[int, Moved]]:
        journal = self._journal
        after = journal.compacted_to
        events = chain(journal.remains(position), journal.read(max(after, position)))
        return [(at, event) for at, event in events if isinstance(event, Moved)]

    async def drop_arms(self, arms: Sequence[ArmId], *, at: float) -> None:
        """Let the models of these arms go (layout "disjoint"); returns when that is durable."""
        self._refuse_unless_well()
        event = ArmsDropped(tuple(arms), at)
        with self._or_break_off(SettingError):
            self._model.drop_arms(event)
        await self._log(event)

    async def flush(self) -> None:
        """Wait until all that was said so far is durable."""
        await self._commit.flush()

    async def record(self, event: Activated | Reported | Configured) -> None:
        """Log what the book takes note of and the model does not learn from."""
        self._refuse_unless_well()
        self._model.book.apply(event, self._commit.position + 1)
        await self._log(event)

    async def find(self, decision_id: DecisionId) -> list[Event]:
        """All that the log has of a decision; returns when that is durable."""
        return (await self.find_many([decision_id]))[decision_id]

    async def find_many(self, ids: Sequence[DecisionId]) -> dict[DecisionId, list[Event]]:
        """All that the log has of several decisions; returns when that is durable.

        A damaged record of one of them is a RecordError; what others ask for is not affected.
        """
        found = await self.find_placed(ids)
        return {decision_id: [event for _, event in found[decision_id]] for decision_id in ids}

    async def find_placed(self, ids: Sequence[DecisionId]) -> dict[DecisionId, Found]:
        """As ``find_many``, each event with its position."""
        self._refuse_unless_well()
        await self._commit.flush()
        found = await self._lookup.ask(tuple(ids))
        if isinstance(found, RecordError):
            raise found
        return {decision_id: found[decision_id] for decision_id in ids}

    async def events_at(self, positions: Sequence[int]) -> dict[int, Event]:
        """The events at these positions, in ascending order, as far as the log has them."""
        await self._commit.flush()
        return await asyncio.to_thread(events_at, self._journal, positions)

    def _find_all(
        self, questions: Sequence[tuple[DecisionId, ...]]
    ) -> list[dict[DecisionId, Found] | RecordError]:
        """What the log has, for all that ask in a batch; each takes its own out of it."""
        try:
            found = self._journal.find_many(tuple(dict.fromkeys(chain.from_iterable(questions))))
        except RecordError:
            return [self._find_alone(ids) for ids in questions]
        return [found] * len(questions)

    def _find_alone(self, ids: tuple[DecisionId, ...]) -> dict[DecisionId, Found] | RecordError:
        try:
            return self._journal.find_many(ids)
        except RecordError as error:
            return error

    async def moves(self) -> list[Moved]:
        """The changes of masks that the log still has, in order."""

        def read() -> list[Moved]:
            kept = self._journal.remains()
            whole = self._journal.read(after=self._journal.compacted_to)
            return [event for _, event in chain(kept, whole) if isinstance(event, Moved)]

        return await asyncio.to_thread(read)

    async def read_end(self, n_events: int) -> list[tuple[int, Event]]:
        """The last events of the log, or those behind its compaction if there are fewer.

        Records that cannot be read are left out, and logged: a snapshot may cover them.
        """
        after = max(self._journal.compacted_to, self._journal.last_position - n_events)
        return await asyncio.to_thread(readable, self._journal.read, after)

    async def move(self, matrix: ArrayLike, *, epoch: int, note: bytes = b"") -> None:
        """Carry all that was learnt to the masks of a later epoch; returns when that is durable.

        ``matrix`` is R (new dim, dim).  The move is made of it by the ``make_move`` of ``open``,
        here as when the log is replayed: the same function of the same bytes.
        """
        self._refuse_unless_well()
        if not isinstance(note, bytes):
            raise SettingError(f"note must be bytes, got {type(note).__name__}")
        event = Moved(epoch, np.array(matrix, dtype=np.float64, order="C"), note)
        move = self._model.plan_move(event.matrix, epoch)
        with self._or_break_off():
            self._model.move(move, event, self._commit.position + 1)
        self.recent_moves.append(event)
        for moves in self._follow_moves:
            moves.append((self._commit.position + 1, event))
        await self._log(event)

    async def snapshot(self) -> int:
        """Write a snapshot of the model as it is now; returns its position in the log.

        The model is copied at once and written in a thread: decisions go on meanwhile.
        """
        self._refuse_unless_well()
        async with self._one_snapshot:
            self._refuse_unless_well()
            position, frozen = self._commit.position, self._model.snapshot()
            await self._commit.flush()
            await asyncio.to_thread(self._journal.save_snapshot, position, frozen)
            self._snapshot_position = position
        return position

    async def rebuild(self) -> None:
        """Fold the log again after the model has failed, and take events again.

        What was not acknowledged then is in the log or not, as after a restart.
        """
        async with self._one_snapshot:
            await self._commit.idle()
            counted = self.n_decisions, self.n_rewards
            model = self._make_model()
            self._model, _ = await asyncio.to_thread(recover, self._journal, model)
            book = self._model.book
            self._replayed = (book.n_decided - counted[0], book.n_learnt - counted[1])
            self._commit.mend()
            self._lifts.clear()
            self._older, self._follow_moves = NO_OLDER_MOVES, []
            self.has_failed = False

    async def close(self) -> None:
        """Finish what is under way and close the journal; safe to call twice."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._commit.close()
        await self._lookup.close()
        async with self._one_snapshot:
            await asyncio.to_thread(self._journal.close)

    def _plain(self, decision: Decision) -> Kept:
        probability = decision.probability if self._log_probabilities else None
        return Kept(decision.arm, decision.index, probability)

    async def _log(self, event: Event) -> None:
        self._commit.add(event)
        await self._commit.flush()

    def _refuse_unless_well(self) -> None:
        if self._is_closed:
            raise JournalError("the bandit is closed; open it again")
        self._commit.refuse_unless_well()

    @contextmanager
    def _or_break_off(self, *harmless: type[VFBanditsError]) -> Iterator[None]:
        """An error that is not ``harmless`` may leave the model changed and the log not."""
        try:
            yield
        except harmless:
            raise
        except Exception as error:
            self._fail(error)
            raise

    def _fail(self, error: Exception) -> None:
        self.has_failed = self._commit.broken_by is None
        self._commit.break_off(f"the model failed with {type(error).__name__}")
