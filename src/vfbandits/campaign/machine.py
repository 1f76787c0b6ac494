"""A campaign: what happens to a decision, from the request to rank until its reward is learnt.

*Propose, then apply.*  A method that answers a request reads only: it returns the events that would
happen.  ``apply`` makes them happen, live, at a restart and in a replica alike.  So an answer is
encoded before anything has changed, and a request that fails changes nothing.

Nothing here waits, locks or reads a file.  Where the journal must be asked first, because an event
has left memory or was closed, a method returns None: the caller calls again with the event's
``History``.
"""

import heapq
import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from vfbandits.campaign.answer import Answer, encode_answer
from vfbandits.campaign.assignment import HOLDBACK, POLICY, assign, shown_probabilities
from vfbandits.campaign.comparison import MIN_HOLDBACK
from vfbandits.campaign.draws import FOR_CONTEXTS, FOR_HOLDBACK, EventDraws
from vfbandits.campaign.events import (
    Activated,
    ArmsDropped,
    Configured,
    Decided,
    Event,
    Forgotten,
    GuardrailRearmed,
    GuardrailTripped,
    MasksChanged,
    Offered,
    Recalled,
    Reported,
    Retracted,
    Rewarded,
)
from vfbandits.campaign.history import History, refuse_other_value
from vfbandits.campaign.model import COUNTED, LOGGED, Model, misfit, total
from vfbandits.campaign.observer import Ranked
from vfbandits.campaign.parts import parts_of
from vfbandits.campaign.query import Contexts, Query
from vfbandits.campaign.settings import EARLIEST, FROZEN, SHADOW, SUM, CampaignSettings
from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.decision import EventId
from vfbandits.core.move import Move
from vfbandits.core.pending import Pending
from vfbandits.core.policy.base import Policy
from vfbandits.core.policy.linucb import LinUCB
from vfbandits.core.reward import Observation
from vfbandits.core.shares.terms import MAX_REWARD
from vfbandits.errors import (
    ConflictError,
    JournalError,
    RewardError,
    SettingError,
    UnknownEventError,
    VFBanditsError,
)

LEARNT: Final = "learnt"
REPEATED: Final = "repeated"
IGNORED: Final = "ignored"
LATE: Final = "late"
QUEUED: Final = "queued"
DEFAULT: Final = "default"
SUMMED: Final = "summed"
FORGOTTEN: Final = "forgotten"
MAX_LIFTS: Final = 16


class Ranking(NamedTuple):
    """A decision that was worked out: its event, the answer within it, and what observers see."""

    event: Decided
    answer: Answer
    query: Query
    contexts: Contexts
    choice: int
    parts: dict[str, float] | None

    def seen(self, campaign: str, seconds: float) -> Ranked:
        """The decision as observers receive it."""
        answer, contexts, arms = self.answer, self.contexts, self.query.arms
        estimate = answer.means[answer.shown]
        return Ranked(
            campaign=campaign,
            event_id=answer.event_id,
            user=self.query.user,
            at=self.event.at,
            arm=arms[answer.shown],
            choice=arms[self.choice],
            baseline=arms[self.query.baseline],
            group=answer.group,
            estimate=estimate,
            bonus=answer.scores[answer.shown] - estimate,
            parts=self.parts,
            probability=answer.probabilities[answer.shown],
            contributors=contexts.contributors,
            missing=contexts.missing,
            n_arms=len(arms),
            model_version=answer.model_version,
            seconds=seconds,
            bytes_received=contexts.bytes_received,
        )


class Verdict(NamedTuple):
    """The outcome of a request about one event, and the event by which it comes about.

    ``event`` is None where nothing changes; ``pending`` is the decision that it is about.
    """

    status: str
    event: Event | None
    pending: Pending
    value: float = math.nan


class Due(NamedTuple):
    """An event whose wait is over; ``past`` is what the journal has of one that left memory."""

    due: float
    event_id: str
    pending: Pending
    past: History | None = None


class Campaign:
    """One model with its settings; see the module."""

    def __init__(self, model: Model, settings: CampaignSettings) -> None:
        self.model = model
        self._draws = EventDraws(model.bandit.seed)
        self._lifts: dict[int, Move] = {}
        self._reported_cold = 0  # position of the last report for an event that is not in memory
        self._gather_due()
        self.begin_with(settings)

    def begin_with(self, settings: CampaignSettings) -> None:
        """Use these settings unless the journal has changed them."""
        self.first_settings = settings
        self._adopt_settings()

    def apply(self, position: int, event: Event) -> None:
        """Make an event happen, whose record is at ``position`` of the journal."""
        self.model.enter(position, event)
        if isinstance(event, Decided) or (isinstance(event, Activated) and not event.opened):
            self._wait_until(event.due, str(event.event_id))
        elif isinstance(event, Reported):
            if event.event_id not in self.model.pending:
                self._reported_cold = position
        elif isinstance(event, Configured):
            self._adopt_settings()

    def replay(self, position: int, event: Event) -> None:
        """As ``apply``, for a record of the journal: one that does not fit names its position."""
        try:
            self.apply(position, event)
        except VFBanditsError as error:
            raise misfit(position, error) from error

    # --- deciding ---------------------------------------------------------------------------------

    def rank(self, query: Query, contexts: Contexts, *, event_id: str, now: float) -> Ranking:
        """Choose an arm; the draws behind it come from the event's id."""
        settings, model = self.settings, self.model
        bandit, rows = model.bandit, contexts.rows
        if event_id in bandit.pending.settled:  # a shell answers from the journal if it can
            raise ConflictError(
                f"wanted a new event, got {event_id!r}: it was ranked before, and its answer has "
                "left the journal"
            )
        if contexts.epoch is not None and contexts.epoch != model.epoch:
            raise JournalError(
                f"wanted contexts behind masks of epoch {model.epoch}, got epoch {contexts.epoch}: "
                "the campaign missed a mask change, which it gets at the next one or at a restart"
            )
        fraction = self._draws.fraction(event_id, FOR_HOLDBACK) if settings.holdback else 1.0
        baseline, is_tripped = query.baseline, model.tripped is not None
        group, forced = assign(
            settings, fraction=fraction, baseline=baseline, is_tripped=is_tripped
        )
        if self._is_random:
            self._draws.seed(event_id)
        decision, observation, root = bandit.propose(
            rows if bandit.layout.layout == "per_arm" else rows[0],
            arms=query.arms,
            arm_features=contexts.arm_features,
            event_id=event_id,
            contributors=contexts.contributors,
            shown=forced,
            draws=self._draws.generator,
        )
        shown = decision.index if forced is None else forced
        if decision.propensity.is_known:
            likely = decision.propensity.probabilities()
        else:  # on secret shares nobody may know
            likely = np.full(len(query.arms), math.nan)
        probabilities = shown_probabilities(
            settings, likely, baseline=baseline, is_tripped=is_tripped
        )
        answer = Answer(
            event_id=event_id,
            arms=query.arms,
            shown=shown,
            scores=decision.scores.tolist(),
            means=decision.means.tolist(),
            probabilities=probabilities,
            contributors=contexts.contributors,
            degraded=bool(contexts.missing),
            group=group,
            model_version=model.n_learnt,
            config_version=model.n_settings,
            epoch=model.epoch,
            choice=decision.index,
        )
        wait_s = settings.reward_wait_s if query.activate else settings.activation_wait_s
        event = Decided(
            event_id=event_id,
            arm=query.arms[shown],
            index=shown,
            x=observation.x,
            model=observation.model,
            probability=None if math.isnan(probabilities[shown]) else probabilities[shown],
            contributors=contexts.contributors,
            epoch=model.epoch,
            user=query.user,
            at=now,
            root=root,
            group=group,
            due=None if wait_s is None else now + wait_s,
            held=not query.activate,
            answer=encode_answer(answer),
            holdback=settings.holdback if group in (POLICY, HOLDBACK) else 0.0,
            offered=self._offered(query, contexts, event_id),
        )
        split = contexts.split
        parts = None if split is None else parts_of(bandit, observation, split)
        return Ranking(
            event=event,
            answer=answer,
            query=query,
            contexts=contexts,
            choice=decision.index,
            parts=parts,
        )

    def _offered(self, query: Query, contexts: Contexts, event_id: str) -> Offered | None:
        """What is kept of all arms; in layout "disjoint" the record has it anyway."""
        fraction, layout = self.settings.logged_fraction, self.model.bandit.layout.layout
        if not fraction or layout == "disjoint":
            return None
        if fraction < 1.0 and self._draws.fraction(event_id, FOR_CONTEXTS) >= fraction:
            return None
        rows = contexts.rows if layout == "per_arm" else contexts.rows[:1]
        return Offered(query.arms, rows, contexts.arm_features)

    def activate(self, event_id: str, *, now: float, past: History | None = None) -> Verdict | None:
        """The arm is shown now, and the wait for a reward begins; no event if it had begun."""
        pending = self.model.pending.get(event_id)
        opened = 0
        if pending is None:
            if past is None:
                return None
            pending, opened = past.pending(), past.position
        return self._activate(event_id, pending, now, opened=opened, past=past)

    def activate_queued(self, event_id: str, *, now: float, past: History) -> Verdict:
        """The same in a replica, by what journal and inbox have of the event."""
        return self._activate(event_id, past.pending(), now, opened=0, past=past)

    def _activate(
        self, event_id: str, pending: Pending, now: float, *, opened: int, past: History | None
    ) -> Verdict:
        if not pending.held:
            return Verdict(REPEATED, None, pending)
        if pending.is_over(now) or (past is not None and not past.is_open):
            raise ConflictError(f"event {event_id!r} was not activated in time")
        wait_s = self.settings.reward_wait_s
        due = None if wait_s is None else now + wait_s
        return Verdict("activated", Activated(event_id, due, now, opened), pending)

    # --- rewards ----------------------------------------------------------------------------------

    def reward(
        self,
        event_id: str,
        value: float,
        *,
        reward_id: str = "",
        now: float,
        past: History | None = None,
    ) -> Verdict | None:
        """Take a reward: it is learnt, counted, logged, late, ignored or repeated."""
        value = self.settings.as_reward(value)
        pending = self.model.pending.get(event_id)
        if pending is not None and not pending.is_over(now):
            return self._reward_open(event_id, value, reward_id, pending, now, past)
        if past is None or not self._is_current(event_id, past):
            return None
        pending = past.pending()
        if past.is_open and not pending.is_over(now):  # it has left memory
            return self._reward_open(event_id, value, reward_id, pending, now, past)
        if past.has(reward_id, value):
            return Verdict(REPEATED, None, pending, value)
        why = IGNORED if past.due is None or now <= past.due else LATE
        return Verdict(why, Reported(event_id, value, reward_id, why, now), pending, value)

    def reward_queued(
        self, event_id: str, value: float, *, reward_id: str, now: float, past: History
    ) -> Verdict:
        """Take a reward in a replica; the leader decides later whether it is learnt."""
        value = self.settings.as_reward(value)
        pending = past.pending()
        if past.has(reward_id, value):
            return Verdict(REPEATED, None, pending, value)
        if past.is_open:
            self._refuse_endless(event_id, pending)
        return Verdict(QUEUED, Reported(event_id, value, reward_id, QUEUED, now), pending, value)

    def _reward_open(
        self,
        event_id: str,
        value: float,
        reward_id: str,
        pending: Pending,
        now: float,
        past: History | None,
    ) -> Verdict | None:
        """Take a reward that is waited for.

        Before the activation it is counted: it is learnt when the wait that the activation begins
        has ended, and never if there is no activation.
        """
        self._refuse_endless(event_id, pending)
        if self.settings.mode == FROZEN or pending.logged:
            why = LOGGED if self.settings.mode == FROZEN else IGNORED
            report = Reported(event_id, value, reward_id, why, now)
            return self._record(report, pending, past)
        if self.settings.aggregation == SUM or pending.held or pending.reports:
            if reward_id in pending.reports:
                refuse_other_value(event_id, pending.reports[reward_id], value, reward_id)
                return Verdict(REPEATED, None, pending, value)
            if pending.reports and self.settings.aggregation == EARLIEST:
                report = Reported(event_id, value, reward_id, IGNORED, now)
                return self._record(report, pending, past)
            event = Reported(event_id, value, reward_id, COUNTED, now)
            return Verdict(COUNTED, event, pending, value)
        learnt = self.learn(event_id, value, reward_id, now, past)
        return None if learnt is None else Verdict(LEARNT, learnt, pending, value)

    def _refuse_endless(self, event_id: str, pending: Pending) -> None:
        """Refuse a reward before the activation where waits never end: it would not be learnt."""
        if pending.held and self.settings.reward_wait_s is None:
            raise ConflictError(
                f"event {event_id!r} is held, and waits have no end: activate it before its reward"
            )

    def _record(self, report: Reported, pending: Pending, past: History | None) -> Verdict | None:
        """Record a reward that is not learnt; None where ``past`` is needed for it."""
        if past is None:
            return None
        if past.has(report.reward_id, report.value):
            return Verdict(REPEATED, None, pending, report.value)
        return Verdict(report.why, report, pending, report.value)

    def learn(
        self,
        event_id: EventId,
        value: float,
        reward_id: str | None,
        now: float,
        past: History | None,
    ) -> Rewarded | None:
        """The event by which a pending decision is learnt; None where ``past`` is needed for it."""
        if event_id in self.model.pending:
            return Rewarded(event_id, value, now, reward_id)
        recalled = None if past is None else self._recall(past)
        return None if recalled is None else Rewarded(event_id, value, now, reward_id, recalled)

    def _recall(self, past: History) -> Recalled | None:
        """What a decision that left memory teaches, behind the masks in force."""
        x = self.carried(past)
        return None if x is None else Recalled(past.position, x, past.decided.model)

    def carried(self, past: History) -> Vector | None:
        """The context of a decision behind the masks in force; None without older mask changes."""
        opened, known_from = past.position, self.model.mask_changes_after
        if opened < known_from and not past.has_mask_changes_to(known_from):
            return None
        x = past.decided.x
        older = [one for one in past.mask_changes if opened < one[0] <= known_from]
        for position, moved in (*older, *self.model.mask_changes):
            if position > opened:
                x = self._lift(position, moved).vector(x)
        return x

    def _lift(self, position: int, moved: MasksChanged) -> Move:
        if position not in self._lifts:
            if len(self._lifts) >= MAX_LIFTS:
                self._lifts.clear()
            self._lifts[position] = self.model.bandit.lift(self.model.make_move(moved.matrix))
        return self._lifts[position]

    def _is_current(self, event_id: str, past: History) -> bool:
        """Whether the journal was asked after the event was last closed."""
        return not (past.is_open and event_id in self.model.bandit.pending.settled)

    def retract(self, event_id: str, *, by: str, now: float, past: History | None) -> Verdict:
        """Take back the reward that an event has taught; ``past`` has all mask changes since."""
        discount = self.model.bandit.settings.discount
        if discount < 1.0:
            raise SettingError(
                f"a reward is taken back exactly only without forgetting, got discount {discount}"
            )
        if past is None:
            raise UnknownEventError(f"wanted an event that was ranked here, got {event_id!r}")
        value = past.learnt
        if value is None:
            raise ConflictError(
                f"event {event_id!r} needs a reward that was learnt, got an event that is "
                f"{past.status}; nothing was changed"
            )
        if not self.model.holds(past.learnt_at):
            raise ConflictError(
                f"event {event_id!r} has taught a model that is no longer in force: an earlier one "
                "was restored since, without its reward; nothing was changed"
            )
        if past.is_arm_dropped:
            raise ConflictError(
                f"event {event_id!r} has taught a model of arm {past.decided.model!r} that was "
                "dropped since, and its reward with it; nothing was changed"
            )
        seen, epoch = self._behind_masks_in_force(past), self.model.epoch
        event = Retracted(
            event_id=past.decided.event_id,
            value=value,
            x=seen.x,
            model=seen.model,
            epoch=epoch,
            at=now,
            by=by,
        )
        return Verdict("retracted", event, past.pending(), value)

    def _behind_masks_in_force(self, past: History) -> Observation:
        decided, model = past.decided, self.model
        wanted = range(decided.epoch + 1, model.epoch + 1)
        between = [moved for _, moved in past.mask_changes if moved.epoch in wanted]
        if [moved.epoch for moved in between] != list(wanted):
            raise ConflictError(
                f"event {decided.event_id!r} was decided behind masks of epoch {decided.epoch}, "
                f"wanted every mask change up to {model.epoch}, got {len(between)}: the journal no "
                "longer has the others"
            )
        seen = Observation(decided.x, decided.model)
        for moved in between:
            seen = model.bandit.carry(seen, model.make_move(moved.matrix))
        return seen

    # --- the end of a wait ------------------------------------------------------------------------

    def due(self, now: float, *, most: int) -> list[Due]:
        """Some events in memory whose waits are over; ``put_off`` those that are not ended."""
        if len(self._due) > 2 * len(self.model.pending) + most:
            self._gather_due()  # most had their reward before their wait was over
        over: list[Due] = []
        while self._due and self._due[0][0] <= now and len(over) < most:
            _, event_id = heapq.heappop(self._due)
            pending = self.model.pending.get(event_id)
            # Activation gives an event a later end, which is in the heap as well.
            if pending is not None and pending.due is not None and pending.due <= now:
                over.append(Due(pending.due, event_id, pending))
        return over

    def put_off(self, due: Due) -> None:
        """Give this one from ``due`` again."""
        if due.past is None:
            self._wait_until(due.due, due.event_id)

    def end(self, event_id: str, *, now: float, past: History | None = None) -> Verdict | None:
        """End the wait of an event: the default or the sum is learnt, or nothing is."""
        pending = self.model.pending.get(event_id)
        opened = 0
        if pending is None:
            if past is None or past.read_to < self._reported_cold:
                return None
            pending, opened = past.pending(), past.position
            due = self.model.cold.due(opened)
            if due is None or due > now:  # a reward or an activation was quicker
                return Verdict(REPEATED, None, pending)
        value, status = self.settings.default_reward, DEFAULT
        if pending.reports:
            value, status = self.settings.within(total(pending.reports)), SUMMED
        if value is None or pending.held or pending.logged or self.settings.mode == FROZEN:
            default = None if pending.held else value
            if past is not None and pending.logged:
                default = past.logged
            return Verdict(FORGOTTEN, Forgotten(event_id, opened, default), pending)
        learnt = self.learn(event_id, value, None, now, past)
        return None if learnt is None else Verdict(status, learnt, pending, value)

    # --- the guardrail ----------------------------------------------------------------------------

    def watch(self, *, now: float) -> GuardrailTripped | None:
        """Show the baseline from here on, if the policy loses significantly."""
        if self.model.tripped is not None or not is_watched(self.settings):
            return None
        rules = self.settings.guardrail
        loss = self.model.comparison.loss(
            margin=rules.margin, alpha=rules.alpha, min_events=rules.min_events
        )
        return None if loss is None else GuardrailTripped(**loss._asdict(), at=now)

    def rearm(self, *, by: str, now: float) -> GuardrailRearmed:
        """Let the policy decide again, and compare it from zero."""
        return GuardrailRearmed(by, now)

    # --- settings, masks, arms --------------------------------------------------------------------

    def configure(self, changes: dict[str, object], *, now: float) -> Configured | None:
        """Change settings; None if they are so already."""
        settings = self._fitted(self.settings.changed(changes))
        self._policy_for(settings)
        return None if settings == self.settings else Configured(settings.pack(), now)

    def change_masks(self, matrix: Matrix, *, epoch: int, signed_roster: bytes) -> MasksChanged:
        """Carry all that was learnt to the masks of a later epoch by R (new dim, dim)."""
        self.model.plan_move(matrix, epoch)
        return MasksChanged(epoch, matrix, signed_roster)

    def expire_arms(self, before: float, *, now: float, most: int) -> ArmsDropped | None:
        """Drop models of arms that were last shown before a time (layout "disjoint")."""
        old: list[int | str] = []
        for arm, shown_at in self.model.arms_shown.items():
            if shown_at >= before or len(old) == most:
                break
            old.append(arm)
        return ArmsDropped(tuple(old), now) if old else None

    def _gather_due(self) -> None:
        waits = self.model.pending.items()
        self._due = [(one.due, str(key)) for key, one in waits if one.due is not None]
        heapq.heapify(self._due)

    def _wait_until(self, due: float | None, event_id: str) -> None:
        if due is not None:
            heapq.heappush(self._due, (due, event_id))

    def _adopt_settings(self) -> None:
        """Use the latest settings of the journal."""
        packed, bandit = self.model.settings, self.model.bandit
        settings = CampaignSettings.unpack(packed) if packed else self.first_settings
        settings = self._fitted(settings)
        self.settings = settings
        bandit.policy, bandit.floor = self._policy_for(settings), settings.floor
        self._is_random = settings.floor > 0.0 or not isinstance(settings.policy, LinUCB)

    def _fitted(self, settings: CampaignSettings) -> CampaignSettings:
        """The same settings; on secret shares rewards have the bounds of fixed point."""
        if self.model.bandit.slots is None:
            return settings
        return settings.bounded(MAX_REWARD, why="under protection 'shares'")

    def _policy_for(self, settings: CampaignSettings) -> Policy:
        """The policy as the bandit runs it; refuses what cannot be on secret shares."""
        slots = self.model.bandit.slots
        if slots is None:
            return settings.policy
        if settings.logged_fraction:
            raise SettingError(
                "log_contexts must be 'chosen' under protection 'shares': nobody has the contexts, "
                f"got {settings.log_contexts!r}"
            )
        return slots.plan(settings.policy).policy


def is_watched(settings: CampaignSettings) -> bool:
    """Whether the guardrail stops a policy that loses: it is on, has a holdback, and waits end."""
    is_compared = MIN_HOLDBACK <= settings.holdback <= 1.0 - MIN_HOLDBACK
    may_end = settings.reward_wait_s is not None and settings.mode != SHADOW
    return settings.guardrail.enabled and is_compared and may_end


def refuse_other_reward(key: object, learnt: float, value: float) -> None:
    """A decision that has its reward takes no other."""
    if learnt != value:
        raise RewardError(
            f"decision {key!r} already has the reward {learnt}, got {value}; nothing was changed"
        )


def by_end(dues: Sequence[Due]) -> list[Due]:
    """In the order in which they end: the model must not depend on where they are kept."""
    return sorted(dues, key=lambda one: (one.due, one.event_id))
