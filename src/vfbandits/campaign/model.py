"""The model as a fold over its records: start from a snapshot, or from nothing, and apply the rest.

Rewards are applied one at a time in the order of the journal, with the contexts that are in it,
so the fold ends at the very Lambda and u (and inverse, theta, counters) of the run that wrote it.
Decisions are entered, not made again: no policy is asked and nothing is drawn.
"""

import base64
import json
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Final, TypeAlias

import numpy as np

from vfbandits.campaign.cold import Cold
from vfbandits.campaign.comparison import MIN_HOLDBACK, Comparison
from vfbandits.campaign.events import (
    SETTINGS_FILE,
    Activated,
    Administered,
    ArmsDropped,
    Configured,
    Decided,
    Erased,
    Event,
    Forgotten,
    GuardrailRearmed,
    GuardrailTripped,
    MasksChanged,
    Reported,
    Resized,
    Restored,
    Retracted,
    Rewarded,
    SetAside,
)
from vfbandits.core.arrays import Matrix
from vfbandits.core.bandit import Bandit
from vfbandits.core.decision import ArmId, EventId
from vfbandits.core.move import Move, Remask
from vfbandits.core.pending import Evicted, Pending
from vfbandits.core.reward import Observation
from vfbandits.core.snapshot import Record, Snapshot
from vfbandits.errors import JournalError, SettingError, SnapshotError, VFBanditsError

MakeMove: TypeAlias = Callable[[Matrix], Move]
COUNTED: Final = "counted"
LOGGED: Final = "logged"


def remask(matrix: Matrix) -> Remask:
    """The move by a remasking matrix R; its rank is ‖R‖², since R is isometric."""
    return Remask(matrix, round(float(np.vdot(matrix, matrix))))


class Model:
    """A bandit, its pending decisions and the mask epoch it is in, at one position of its journal.

    Attributes
    ----------
    cold
        Pending decisions that had to leave memory, and whose wait ends some time.
    settings, n_settings
        The settings in force in the caller's form, empty as long as none were changed; and how
        often they were.
    file_settings
        Those of the file that the campaign was last started with, by name; empty if not known.
    n_learnt, n_decided
        Rewards learnt, which is the model's version; and decisions since the model was loaded.
    arms_shown
        When each arm with a model of its own was last shown, the longest ago first.
    comparison, tripped
        The policy's rewards against the holdback's; and why the guardrail shows the baseline, None
        while the policy decides.
    mask_changes, mask_changes_after
        The mask changes at positions after ``mask_changes_after``, each with its position: all that
        a pending decision that has left memory may need.
    n_retracted
        Rewards that were taken back, whether the journal still has the records or not.
    restores
        Where an earlier model was put back, and of which position that was; None for a model of
        another journal.
    """

    __slots__ = (
        *("arms_shown", "bandit", "cold", "comparison", "epoch", "file_settings", "make_move"),
        *(
            "mask_changes",
            "mask_changes_after",
            "n_decided",
            "n_learnt",
            "n_retracted",
            "n_settings",
            "signed_roster",
        ),
        *("position", "restores", "settings", "tripped"),
    )

    def __init__(
        self,
        bandit: Bandit,
        *,
        epoch: int = 0,
        signed_roster: bytes = b"",
        make_move: MakeMove = remask,
        file_settings: Mapping[str, object] | None = None,
    ) -> None:
        self.bandit = bandit
        self.cold = Cold()
        self.settings = b""
        self.n_settings = 0
        self.file_settings = dict(file_settings or {})
        self.n_learnt = 0
        self.n_decided = 0
        self.n_retracted = 0
        self.restores: list[tuple[int, int | None]] = []
        self.arms_shown: OrderedDict[ArmId, float] = OrderedDict()
        self.comparison = Comparison()
        self.tripped: GuardrailTripped | None = None
        self.epoch = epoch
        self.signed_roster = signed_roster
        self.position = 0
        self.make_move = make_move
        self.mask_changes: list[tuple[int, MasksChanged]] = []
        self.mask_changes_after = 0

    @property
    def pending(self) -> "OrderedDict[EventId, Pending]":
        """The pending decisions in memory, oldest first."""
        return self.bandit.pending.open

    @property
    def n_pending(self) -> int:
        """Pending decisions, in memory or not."""
        return len(self.pending) + len(self.cold)

    # --- applying ---------------------------------------------------------------------------------

    def apply(self, position: int, event: Event) -> None:
        """Repeat what happened; the error of a record that does not fit names its position."""
        try:
            self.enter(position, event)
        except VFBanditsError as error:
            raise misfit(position, error) from error

    def enter(self, position: int, event: Event) -> None:  # noqa: PLR0912  (a case for each kind)
        """As ``apply``, but the error of an event that does not fit is raised unchanged."""
        match event:
            case Decided():
                self._decide(position, event)
            case Rewarded():
                self._learn(event)
            case MasksChanged():
                self._change_masks(position, event)
            case Activated():
                self._activate(event)
            case Reported():
                self._report(event)
            case Forgotten():
                self._forget(event)
            case Configured() | Administered():
                self._configure(event)
            case Retracted():
                self._retract(event)
            case ArmsDropped():
                self._drop_arms(event)
            case GuardrailTripped() | GuardrailRearmed():
                self._guard(event)
            case Restored():
                self._put_back(position, event)
            case Resized():
                self._cool(self.bandit.resize(event.max_pending))
            case SetAside() | Erased() if event.covered_by is not None:
                gone = "set aside" if isinstance(event, SetAside) else "erased with its user"
                raise JournalError(
                    f"it was {gone}, and the snapshot of position {event.covered_by} replaces it: "
                    "wanted that snapshot or a later one to begin with"
                )
        self.position = position

    def _decide(self, position: int, event: Decided) -> None:
        pending = Pending(
            observation=Observation(event.x, event.model),
            arm=event.arm,
            group=event.group,
            at=event.at,
            due=event.due,
            held=event.held,
            position=position,
        )
        evicted = self.bandit.enter(event.event_id, pending, root=event.root)
        self.n_decided += 1
        if MIN_HOLDBACK <= event.holdback <= 1.0 - MIN_HOLDBACK and event.due is not None:
            is_policy = event.group == "policy"
            self.comparison.enter(
                position, holdback=event.holdback, is_policy=is_policy, at=event.at
            )
        if event.model is not None:
            self._show(event.model, event.at)
        if evicted is not None:
            self._cool([evicted])

    def _learn(self, event: Rewarded) -> None:
        seen = event.recalled
        opened = self._opened(event.event_id) if seen is None else seen.opened
        if seen is not None:
            observation = Observation(seen.x, seen.model)
            self.bandit.reward_recalled(event.event_id, observation, event.value)
            self.cold.close(seen.opened)
        elif not self.bandit.reward(event.event_id, event.value):
            raise JournalError(f"decision {event.event_id!r} has its reward already")
        self.n_learnt += 1
        self.comparison.settle(opened, event.value)

    def _activate(self, event: Activated) -> None:
        pending = self.pending.get(event.event_id)
        opened = event.opened or self._opened(event.event_id)
        if event.opened and event.due is not None:
            self.cold.postpone(event.opened, event.due)
        elif event.opened:
            self.cold.close(event.opened)  # no wait ends: its reward is looked up when it comes
        elif pending is not None:
            self.bandit.pending.change(event.event_id, held=False, due=event.due)
        if event.due is None:
            self.comparison.end(opened, None)

    def _report(self, event: Reported) -> None:
        pending = self.pending.get(event.event_id)
        if pending is not None and event.why == COUNTED:
            reports = {**pending.reports, event.reward_id: event.value}
            self.bandit.pending.change(event.event_id, reports=reports)
        elif pending is not None and event.why == LOGGED:
            self.bandit.pending.change(event.event_id, logged=True)
            self.comparison.note(pending.position, event.value)

    def _forget(self, event: Forgotten) -> None:
        opened = event.opened or self._opened(event.event_id)
        if event.opened:
            self.cold.close(event.opened)
        else:
            self.bandit.forget(event.event_id)
        self.comparison.end(opened, event.default)

    def _opened(self, event_id: EventId) -> int:
        """Position of a pending decision in memory; 0 if it is not there."""
        pending = self.pending.get(event_id)
        return 0 if pending is None else pending.position

    def _configure(self, event: Configured | Administered) -> None:
        if isinstance(event, Configured):
            self.settings = event.settings
            self.n_settings += 1
        elif event.what == SETTINGS_FILE:
            self.file_settings |= _from_json(event.detail)

    def _retract(self, event: Retracted) -> None:
        if event.epoch != self.epoch:
            raise JournalError(f"masks must be of epoch {self.epoch}, got {event.epoch}")
        if event.x.size:
            self.bandit.retract(Observation(event.x, event.model), event.value)
        self.n_learnt += 1  # that makes another version of the model
        self.n_retracted += 1

    def _put_back(self, position: int, event: Restored) -> None:
        if event.epoch != self.epoch:
            raise JournalError(f"masks must be of epoch {self.epoch}, got {event.epoch}")
        self.bandit.take_learnt(event.model)
        for arm in self.bandit.states:
            if arm is not None and arm not in self.arms_shown:  # else it would never expire
                self._show(arm, event.at)
        self.restores.append((position, event.of))
        self.n_learnt += 1

    def holds(self, position: int, *, until: int | None = None) -> bool:
        """Whether what the record at ``position`` did to the model is still part of it.

        That ends when a model from before it is put back.  ``until`` asks for the model as it was
        after that position.
        """
        end = math.inf if until is None else until
        for at, of in reversed(self.restores):
            if at <= end:
                if position > at:
                    break
                if of is None:
                    return False
                end = of
        return position <= end

    def _drop_arms(self, event: ArmsDropped) -> None:
        self.bandit.drop_arms(event.arms)
        for arm in event.arms:
            self.arms_shown.pop(arm, None)

    def _guard(self, event: GuardrailTripped | GuardrailRearmed) -> None:
        if isinstance(event, GuardrailTripped):
            self.tripped = event
        else:
            self.tripped, self.comparison = None, Comparison()

    def _change_masks(self, position: int, event: MasksChanged) -> None:
        self.bandit.move(self.plan_move(event.matrix, event.epoch))
        self.epoch, self.signed_roster = event.epoch, event.signed_roster
        first = self.first_pending
        self.mask_changes.append((position, MasksChanged(event.epoch, event.matrix)))
        while self.mask_changes and (first is None or self.mask_changes[0][0] < first):
            self.mask_changes_after, _ = self.mask_changes.pop(0)

    def plan_move(self, matrix: Matrix, epoch: int) -> Move:
        """The move to a later epoch by ``matrix`` (new dim, dim), checked; changes nothing."""
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch <= self.epoch:
            raise SettingError(f"a mask change needs an epoch after {self.epoch}, got {epoch!r}")
        if matrix.ndim != 2 or matrix.shape[1] != self.bandit.dim or not np.isfinite(matrix).all():
            raise SettingError(
                f"a mask change needs a finite matrix of {self.bandit.dim} columns, got "
                f"{matrix.shape}"
            )
        return self.make_move(matrix)

    @property
    def first_pending(self) -> int | None:
        """Position of the oldest pending decision."""
        if self.cold.first is not None or not self.pending:
            return self.cold.first
        return next(iter(self.pending.values())).position

    def _show(self, arm: ArmId, at: float) -> None:
        """An arm that has a model of its own, or may get one, was shown."""
        self.arms_shown[arm] = at
        self.arms_shown.move_to_end(arm)
        if len(self.arms_shown) > self.bandit.layout.max_arms:
            self.arms_shown.popitem(last=False)

    def _cool(self, evicted: Iterable[Evicted]) -> None:
        """Decisions have left memory: those whose wait ends are remembered by their positions."""
        for _, pending in evicted:
            if pending.due is not None and pending.position:
                self.cold.add(pending.position, pending.due)

    # --- snapshots --------------------------------------------------------------------------------

    def pack(self) -> dict[str, object]:
        """What a snapshot keeps beside the bandit and its pending decisions."""
        return {
            "epoch": self.epoch,
            "signed_roster": base64.b64encode(self.signed_roster).decode(),
            "settings": base64.b64encode(self.settings).decode(),
            "n_settings": self.n_settings,
            "n_learnt": self.n_learnt,
            "arms_shown": list(self.arms_shown.items()),
            "mask_changes": [(position, change.epoch) for position, change in self.mask_changes],
            "mask_changes_after": self.mask_changes_after,
            "comparison": self.comparison.pack(),
            "tripped": None if self.tripped is None else asdict(self.tripped),
            # Only where there are any: snapshots from before have none.
            **({"file_settings": self.file_settings} if self.file_settings else {}),
            **({"n_retracted": self.n_retracted} if self.n_retracted else {}),
            **({"restores": list(self.restores)} if self.restores else {}),
        }

    def snapshot(self) -> Snapshot:
        """The model as it is now: later changes do not show in it."""
        inner = self.bandit.snapshot()
        held = {  # arrays are those of the learner, and change with the next reward
            name: part.copy(order="K") if isinstance(part, np.ndarray) else part
            for name, part in inner.held.items()
        }
        for position, change in self.mask_changes:
            held[f"mask_changes/{position}"] = change.matrix
        held["cold"] = self.cold.pack()
        held["comparison"] = self.comparison.pack_waiting()
        return Snapshot({**inner.header, "durable": self.pack()}, held)

    @classmethod
    def restore(cls, position: int, snapshot: Snapshot, *, make_move: MakeMove = remask) -> "Model":
        """The model that the snapshot of ``position`` was taken of."""
        kept = snapshot.record.child("durable")
        bandit = Bandit.restore(snapshot)
        epoch, signed = kept.integer("epoch"), _from_base64(kept, "signed_roster")
        model = cls(bandit, epoch=epoch, signed_roster=signed, make_move=make_move)
        model.settings = _from_base64(kept, "settings")
        model.n_settings = kept.integer("n_settings")
        model.n_learnt = kept.integer("n_learnt")
        model.arms_shown.update(map(_shown, kept.items("arms_shown")))
        model.cold.unpack(_stored(snapshot, "cold"))
        model.mask_changes = [
            _mask_change(packed, snapshot) for packed in kept.items("mask_changes")
        ]
        model.mask_changes_after = kept.integer("mask_changes_after")
        if kept.has("comparison"):  # older snapshots have none
            waiting = _stored(snapshot, "comparison")
            model.comparison = Comparison.unpack(kept.child("comparison"), waiting)
        if kept.has("tripped"):
            model.tripped = _tripped(kept.child("tripped"))
        model.n_retracted = kept.integer("n_retracted") if kept.has("n_retracted") else 0
        if kept.has("file_settings"):
            model.file_settings = kept.plain("file_settings")
        if kept.has("restores"):
            model.restores = [*map(_put_back, kept.items("restores"))]
        model.position = position
        return model


def misfit(position: int, error: VFBanditsError) -> JournalError:
    """The error of a record that does not fit after those before it."""
    return JournalError(f"record {position} of the journal does not fit: {error}")


def fold(events: Iterable[tuple[int, Event]], model: Model) -> Model:
    """Apply numbered events to a model, which is changed and returned."""
    for position, event in events:
        model.apply(position, event)
    return model


def total(reports: Mapping[str, float]) -> float:
    """The sum of rewards, in an order that does not depend on when they came."""
    return float(sum(reports[key] for key in sorted(reports)))


def _stored(snapshot: Snapshot, name: str) -> Matrix:
    if name not in snapshot.arrays:
        raise SnapshotError(f"the snapshot needs an array at {name!r}, got none")
    return snapshot.arrays[name]


def _mask_change(packed: object, snapshot: Snapshot) -> tuple[int, MasksChanged]:
    match packed:
        case [int(position), int(epoch)]:
            return position, MasksChanged(epoch, _stored(snapshot, f"mask_changes/{position}"))
    raise SnapshotError("a mask change in a snapshot needs its position and epoch")


def _tripped(record: Record) -> GuardrailTripped:
    return GuardrailTripped(
        n_policy=record.integer("n_policy"),
        n_holdback=record.integer("n_holdback"),
        mean_policy=record.number("mean_policy"),
        mean_holdback=record.number("mean_holdback"),
        difference=record.number("difference"),
        low=record.number("low"),
        high=record.number("high"),
        alpha=record.number("alpha"),
        at=record.number("at"),
        by=record.text("by"),
    )


def _from_json(detail: str) -> dict[str, object]:
    try:
        found = json.loads(detail)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise JournalError("settings of a file are a JSON object, got other text")
    return found


def _put_back(packed: object) -> tuple[int, int | None]:
    match packed:
        case [int(position), int() | None as of]:
            return position, of
    raise SnapshotError("a model that was put back needs its position and whose model it is")


def _shown(packed: object) -> tuple[ArmId, float]:
    match packed:
        case [int() | str() as arm, int() | float() as at] if math.isfinite(at):
            return arm, float(at)
    raise SnapshotError("an arm that was shown needs its id and a finite time")


def _from_base64(record: Record, key: str) -> bytes:
    try:
        return base64.b64decode(record.text(key), validate=True)
    except ValueError as error:
        raise SnapshotError(f"the snapshot needs base64 at {key!r}: {error}") from error
