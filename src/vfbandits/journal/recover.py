"""The model at the end of its journal."""

from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, takewhile

import numpy as np

from vfbandits.campaign.events import Resized, Retracted
from vfbandits.campaign.model import MakeMove, Model, fold, remask
from vfbandits.core.bandit import Bandit
from vfbandits.core.snapshot import Snapshot
from vfbandits.errors import JournalError, SettingError
from vfbandits.journal.base import Damage, Journal, JournalReader

_RECOVERED = 0x7265636F  # keeps these random streams apart from all others of the same seed
_MAY_CHANGE = ("seed", "floor", "max_open")


@dataclass(frozen=True, slots=True)
class Recovery:
    """How a model came back: from a snapshot of ``start``, by ``replayed`` events.

    ``start`` is None if there was no intact snapshot and the fold started from record 1.
    """

    start: int | None
    replayed: int
    damage: Damage


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
        recovered = restore_from(journal, *latest, make_move=model.make_move)
        _refuse_other_settings(recovered.bandit, model.bandit)
        recovered.bandit.policy, recovered.bandit.floor = model.bandit.policy, model.bandit.floor
    fold(journal.read(after=recovered.position), recovered)
    if recovered.position != journal.last_position:
        raise JournalError(
            f"the journal must be readable up to {journal.last_position}, got {recovered.position}"
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


def own_model(journal: JournalReader) -> Model:
    """The model at the end of a log, by the settings that the log has; nothing is written."""
    latest = journal.latest_snapshot()
    if latest is None:
        raise JournalError("wanted a journal with a snapshot of its model, got one without")
    model = restore_from(journal, *latest)
    return fold(journal.read(after=model.position), model)


def restore_from(
    reader: JournalReader, position: int, snapshot: Snapshot, *, make_move: MakeMove = remask
) -> Model:
    """The model of a snapshot; what an older one does not say is read from the records."""
    model = Model.restore(position, snapshot, make_move=make_move)
    if position and is_older(snapshot):
        found = chain(reader.remains(), reader.read(reader.compacted_to))
        with suppress(JournalError):  # a damaged record does not keep a later snapshot from use
            for _, event in takewhile(lambda one: one[0] <= position, found):
                model.n_retracted += isinstance(event, Retracted)
    return model


def is_older(snapshot: Snapshot) -> bool:
    """Whether a snapshot is from before models counted what was retracted."""
    return not snapshot.record.child("durable").has("comparison")


def _refuse_other_settings(logged: Bandit, wanted: Bandit) -> None:
    before, now = logged.options, wanted.options
    for name, value in before.items():
        if name not in _MAY_CHANGE and now.get(name) != value:
            raise SettingError(
                f"the journal was created with {name} {value!r}, which shapes what is learnt, "
                f"got {now.get(name)!r}; start a new journal for it"
            )
