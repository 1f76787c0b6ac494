"""The model as a fold over its log: take a snapshot, or begin anew, and apply the events behind.

Rewards are applied one at a time in the order of the log, with the contexts that stand in it, so
the fold ends at the very Lambda and u (and inverse, theta, counters) of the run that wrote it.
Decisions are entered, not made again: no policy is asked and nothing is drawn.
"""

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from vfbandits.core.arrays import Matrix
from vfbandits.core.bandit import Bandit
from vfbandits.core.move import Move, Remask
from vfbandits.core.reward import Observation
from vfbandits.core.snapshot import Snapshot
from vfbandits.errors import JournalError, SettingError, SnapshotError, VFBanditsError
from vfbandits.store.book import Book
from vfbandits.store.events import (
    ArmsDropped,
    Decided,
    Event,
    Forgotten,
    Moved,
    Retracted,
    Rewarded,
    SetAside,
)
from vfbandits.store.journal import Damage, Journal

MakeMove: TypeAlias = Callable[[Matrix], Move]
_RECOVERED = 0x7265636F  # keeps these random streams apart from all others of the same seed
_MAY_CHANGE = ("seed", "floor")


def remask(matrix: Matrix) -> Remask:
    """The move that a remasking matrix R stands for; its rank is ‖R‖², since R is isometric."""
    return Remask(matrix, round(float(np.vdot(matrix, matrix))))


class Model:
    """A bandit, the mask epoch it is in, and its book, at one position of its log."""

    __slots__ = ("bandit", "book", "epoch", "make_move", "note", "position")

    def __init__(
        self, bandit: Bandit, *, epoch: int = 0, note: bytes = b"", make_move: MakeMove = remask
    ) -> None:
        self.bandit = bandit
        self.book = Book(most=bandit.options["max_open"], max_arms=bandit.options["max_arms"])
        self.epoch = epoch
        self.note = note
        self.position = 0
        self.make_move = make_move

    def apply(self, position: int, event: Event) -> None:
        """Repeat what happened; an event that does not fit names its position."""
        try:
            self._apply(event)
        except VFBanditsError as error:
            raise JournalError(f"record {position} of the log does not fit: {error}") from error
        self.position = position

    def plan_move(self, matrix: Matrix, epoch: int) -> Move:
        """The move to a later epoch by ``matrix`` (new dim, dim), checked; changes nothing."""
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch <= self.epoch:
            raise SettingError(f"a move needs an epoch after {self.epoch}, got {epoch!r}")
        if matrix.ndim != 2 or matrix.shape[1] != self.bandit.dim or not np.isfinite(matrix).all():
            raise SettingError(
                f"a move needs a finite matrix of {self.bandit.dim} columns, got {matrix.shape}"
            )
        return self.make_move(matrix)

    def move(self, move: Move, event: Moved) -> None:
        """Carry everything over to the masks of the event."""
        self.bandit.move(move)
        self.epoch, self.note = event.epoch, event.note

    def drop_arms(self, event: ArmsDropped) -> None:
        """Let the models of these arms go."""
        self.bandit.drop_arms(event.arms)
        self.book.apply(event)

    def snapshot(self) -> Snapshot:
        """The model as it is now: later changes do not show in it."""
        inner = self.bandit.snapshot()
        kept = {
            "epoch": self.epoch,
            "note": base64.b64encode(self.note).decode(),
            "book": self.book.pack(),
        }
        held = {  # arrays are those of the learner, and change with the next reward
            name: part if isinstance(part, list) else part.copy(order="K")
            for name, part in inner.held.items()
        }
        return Snapshot({**inner.header, "durable": kept}, held)

    @classmethod
    def restore(cls, position: int, snapshot: Snapshot, *, make_move: MakeMove = remask) -> "Model":
        """The model that the snapshot of ``position`` was taken of."""
        kept = snapshot.record.child("durable")
        try:
            note = base64.b64decode(kept.text("note"), validate=True)
        except ValueError as error:
            raise SnapshotError(f"the snapshot needs base64 at 'note': {error}") from error
        bandit = Bandit.restore(snapshot)
        model = cls(bandit, epoch=kept.integer("epoch"), note=note, make_move=make_move)
        model.book.unpack(kept.child("book"))
        if tuple(model.book.entries) != bandit.open_decisions:
            raise SnapshotError("the book of a snapshot needs its open decisions, got others")
        model.position = position
        return model

    def _apply(self, event: Event) -> None:
        match event:
            case Decided():
                seen = Observation(event.x, event.model)
                self.bandit.recall(event.decision_id, seen, root=event.root)
                self.book.apply(event)
            case Rewarded():
                if not self.bandit.reward(event.decision_id, event.value):
                    raise JournalError(f"decision {event.decision_id!r} has its reward already")
                self.book.learnt(event.decision_id)
            case Moved():
                self.move(self.plan_move(event.matrix, event.epoch), event)
            case Retracted():
                if event.epoch != self.epoch:
                    raise JournalError(f"masks must be of epoch {self.epoch}, got {event.epoch}")
                self.bandit.retract(Observation(event.x, event.model), event.value)
                self.book.retracted()
            case ArmsDropped():
                self.drop_arms(event)
            case Forgotten():
                self.bandit.forget(event.decision_id)
                self.book.close(event.decision_id)
            case SetAside() if event.covered_by is not None:
                raise JournalError(
                    f"it was set aside because the snapshot of position {event.covered_by} stands "
                    "for it: wanted that snapshot or a later one to begin with"
                )
            case _:
                self.book.apply(event)


@dataclass(frozen=True, slots=True)
class Recovery:
    """How a model came back: from a snapshot of ``start``, by ``replayed`` events.

    ``start`` is None when there was no whole snapshot and the fold began anew.
    """

    start: int | None
    replayed: int
    damage: Damage


def fold(events: Iterable[tuple[int, Event]], model: Model) -> Model:
    """Apply numbered events to a model, which is changed and returned."""
    for position, event in events:
        model.apply(position, event)
    return model


def recover(journal: Journal, model: Model) -> tuple[Model, Recovery]:
    """The model at the end of the log; ``model`` is what a new log begins with.

    Its policy and ``floor`` are those from now on.  All that shapes what is learnt (layout,
    ridge, discount, how many decisions are kept) stays as the log was begun, and a difference is
    refused.  A new log gets its first snapshot here, which pins them.

    Random draws: a new log begins with the bandit's own generator.  Afterwards each opening takes
    a fresh stream derived from the first seed and the last position, so that no draw behind a
    decision in the log is used again.
    """
    latest = journal.latest_snapshot()
    start, recovered = None, model
    if latest is not None:
        start = latest[0]
        recovered = Model.restore(start, latest[1], make_move=model.make_move)
        _refuse_other_settings(recovered.bandit, model.bandit)
        recovered.bandit.policy, recovered.bandit.floor = model.bandit.policy, model.bandit.floor
    fold(journal.read(after=recovered.position), recovered)
    if recovered.position != journal.last_position:
        raise JournalError(
            f"the log must be readable up to {journal.last_position}, got {recovered.position}"
        )
    if recovered.position:
        key = (_RECOVERED, recovered.position)
        seed = np.random.SeedSequence(recovered.bandit.seed, spawn_key=key)
        recovered.bandit.draw_from(np.random.default_rng(seed))
    elif start is None:
        journal.save_snapshot(0, recovered.snapshot())
    replayed = recovered.position - (start or 0)
    return recovered, Recovery(start, replayed, journal.damage)


def _refuse_other_settings(logged: Bandit, wanted: Bandit) -> None:
    before, now = logged.options, wanted.options
    for name, value in before.items():
        if name not in _MAY_CHANGE and now.get(name) != value:
            raise SettingError(
                f"the log was begun with {name} {value!r}, which shapes what is learnt, "
                f"got {now.get(name)!r}; start a new log for it"
            )
