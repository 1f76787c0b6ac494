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

from vfbandits.campaign.events import (
    ArmsDropped,
    Decided,
    Event,
    Forgotten,
    Moved,
    Recalled,
    Resized,
    Retracted,
    Rewarded,
    SetAside,
)
from vfbandits.campaign.pending import Book
from vfbandits.core.arrays import Matrix
from vfbandits.core.bandit import Bandit
from vfbandits.core.decision import DecisionId
from vfbandits.core.move import Move, Remask
from vfbandits.core.reward import Observation
from vfbandits.core.snapshot import Snapshot
from vfbandits.errors import JournalError, SettingError, SnapshotError, VFBanditsError
from vfbandits.journal.base import Damage, Journal

MakeMove: TypeAlias = Callable[[Matrix], Move]
_RECOVERED = 0x7265636F  # keeps these random streams apart from all others of the same seed
_MAY_CHANGE = ("seed", "floor", "max_open")


def remask(matrix: Matrix) -> Remask:
    """The move that a remasking matrix R stands for; its rank is ‖R‖², since R is isometric."""
    return Remask(matrix, round(float(np.vdot(matrix, matrix))))


class Model:
    """A bandit, the mask epoch it is in, and its book, at one position of its log.

    ``moves`` are the changes of masks at positions behind ``moves_after``, each with its position:
    all that a decision which waits may have to be carried by, should it have left memory.
    """

    __slots__ = (
        *("bandit", "book", "epoch", "make_move", "moves", "moves_after", "note", "position"),
    )

    def __init__(
        self, bandit: Bandit, *, epoch: int = 0, note: bytes = b"", make_move: MakeMove = remask
    ) -> None:
        self.bandit = bandit
        self.book = Book(most=bandit.options["max_open"], max_arms=bandit.options["max_arms"])
        self.epoch = epoch
        self.note = note
        self.position = 0
        self.make_move = make_move
        self.moves: list[tuple[int, Moved]] = []
        self.moves_after = 0

    def apply(self, position: int, event: Event) -> None:
        """Repeat what happened; an event that does not fit names its position."""
        try:
            self._apply(position, event)
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

    def move(self, move: Move, event: Moved, position: int) -> None:
        """Carry everything over to the masks of the event, which stands at ``position``."""
        self.bandit.move(move)
        self.epoch, self.note = event.epoch, event.note
        first = self.book.first
        self.moves.append((position, Moved(event.epoch, event.matrix)))
        while self.moves and (first is None or self.moves[0][0] < first):
            self.moves_after, _ = self.moves.pop(0)

    def resize(self, max_pending: int) -> None:
        """Keep so many decisions that wait in memory."""
        self.bandit.resize(max_pending)
        self.book.resize(max_pending)

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
            "moves": [(position, moved.epoch) for position, moved in self.moves],
            "moves_after": self.moves_after,
        }
        held = {  # arrays are those of the learner, and change with the next reward
            name: part if isinstance(part, list) else part.copy(order="K")
            for name, part in inner.held.items()
        }
        for position, moved in self.moves:
            held[f"moves/{position}"] = moved.matrix
        held["cold"] = self.book.cold.pack()
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
        model.moves_after = position
        if kept.has("moves_after"):  # snapshots of version 0.1.0 have none
            model.book.cold.unpack(_stored(snapshot, "cold"))
            model.moves = [_moved(packed, snapshot) for packed in kept.items("moves")]
            model.moves_after = kept.integer("moves_after")
        if tuple(model.book.entries) != bandit.open_decisions:
            raise SnapshotError("the book of a snapshot needs its open decisions, got others")
        model.position = position
        return model

    def _apply(self, position: int, event: Event) -> None:  # noqa: PLR0912  (a case for each kind)
        match event:
            case Decided():
                seen = Observation(event.x, event.model)
                self.bandit.recall(event.decision_id, seen, root=event.root)
                self.book.apply(event, position)
            case Rewarded(recalled=Recalled() as recalled):
                self.learn_recalled(event.decision_id, recalled, event.value)
            case Rewarded():
                if not self.bandit.reward(event.decision_id, event.value):
                    raise JournalError(f"decision {event.decision_id!r} has its reward already")
                self.book.learnt(event.decision_id)
            case Moved():
                self.move(self.plan_move(event.matrix, event.epoch), event, position)
            case Retracted():
                if event.epoch != self.epoch:
                    raise JournalError(f"masks must be of epoch {self.epoch}, got {event.epoch}")
                self.bandit.retract(Observation(event.x, event.model), event.value)
                self.book.retracted()
            case ArmsDropped():
                self.drop_arms(event)
            case Forgotten():
                if not event.opened:
                    self.bandit.forget(event.decision_id)
                self.book.close(event.decision_id, opened=event.opened)
            case Resized():
                self.resize(event.max_pending)
            case SetAside() if event.covered_by is not None:
                raise JournalError(
                    f"it was set aside because the snapshot of position {event.covered_by} stands "
                    "for it: wanted that snapshot or a later one to begin with"
                )
            case _:
                self.book.apply(event, position)

    def learn_recalled(self, decision_id: DecisionId, seen: Recalled, value: float) -> None:
        """Learn the reward of a decision that is no longer in memory."""
        self.bandit.reward_recalled(decision_id, Observation(seen.x, seen.model), value)
        self.book.learnt(decision_id, opened=seen.opened)


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

    Its policy and ``floor`` are those from now on, and so is how many decisions are kept in
    memory: the log says where that changed.  All that shapes what is learnt (layout, ridge,
    discount) stays as the log was begun, and a difference is refused.  A new log gets its first
    snapshot here, which pins them.

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
    max_pending = model.bandit.options["max_open"]
    if latest is not None and recovered.bandit.options["max_open"] != max_pending:
        resized = Resized(max_pending)
        recovered.apply(journal.append([resized]), resized)
    if recovered.position:
        key = (_RECOVERED, recovered.position)
        seed = np.random.SeedSequence(recovered.bandit.seed, spawn_key=key)
        recovered.bandit.draw_from(np.random.default_rng(seed))
    elif start is None:
        journal.save_snapshot(0, recovered.snapshot())
    replayed = recovered.position - (start or 0)
    return recovered, Recovery(start, replayed, journal.damage)


def _stored(snapshot: Snapshot, name: str) -> Matrix:
    if name not in snapshot.arrays:
        raise SnapshotError(f"the snapshot needs an array at {name!r}, got none")
    return snapshot.arrays[name]


def _moved(packed: object, snapshot: Snapshot) -> tuple[int, Moved]:
    match packed:
        case [int(position), int(epoch)]:
            return position, Moved(epoch, _stored(snapshot, f"moves/{position}"))
    raise SnapshotError("a change of masks in a snapshot needs its position and epoch")


def _refuse_other_settings(logged: Bandit, wanted: Bandit) -> None:
    before, now = logged.options, wanted.options
    for name, value in before.items():
        if name not in _MAY_CHANGE and now.get(name) != value:
            raise SettingError(
                f"the log was begun with {name} {value!r}, which shapes what is learnt, "
                f"got {now.get(name)!r}; start a new log for it"
            )
