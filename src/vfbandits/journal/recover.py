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
    """How a model was recovered: from the snapshot of ``start`` and ``replayed`` records.

    ``start`` is None if there was no intact snapshot and the fold started from record 1.
    """

    start: int | None
    replayed: int
    damage: Damage


def recover(journal: Journal, model: Model) -> tuple[Model, Recovery]:
    """The model at the end of the journal; a new journal starts with ``model``.

    The policy and ``floor`` of ``model`` apply from now on, and so does its limit of pending
    decisions in memory, whose changes the journal records.  Settings that shape what is learnt
    (layout, ridge, discount) are those of the first start; a difference is refused.  The first
    snapshot of a new journal, which is taken here, pins them.

    Random draws: a new journal begins with the bandit's own generator.  Afterwards each opening
    derives another stream from the first seed and the last position, so that the draws of recorded
    decisions are not used again.
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
    """The model at the end of a journal, with the journal's own settings; nothing is written."""
    latest = journal.latest_snapshot()
    if latest is None:
        raise JournalError("wanted a journal with a snapshot of its model, got one without")
    model = restore_from(journal, *latest)
    return fold(journal.read(after=model.position), model)


def restore_from(
    reader: JournalReader, position: int, snapshot: Snapshot, *, make_move: MakeMove = remask
) -> Model:
    """The model of a snapshot; counts that an older format lacks are read from the records."""
    model = Model.restore(position, snapshot, make_move=make_move)
    if position and is_older(snapshot):
        found = chain(reader.remains(), reader.read(reader.compacted_to))
        with suppress(JournalError):  # a damaged record must not make a later snapshot unusable
            for _, event in takewhile(lambda one: one[0] <= position, found):
                model.n_retracted += isinstance(event, Retracted)
    return model


def is_older(snapshot: Snapshot) -> bool:
    """Whether a snapshot was written before models counted retractions."""
    return not snapshot.record.child("durable").has("comparison")


def _refuse_other_settings(logged: Bandit, wanted: Bandit) -> None:
    before, now = logged.options, wanted.options
    for name, value in before.items():
        if name not in _MAY_CHANGE and now.get(name) != value:
            raise SettingError(
                f"the journal was created with {name} {value!r}, which shapes what is learnt, "
                f"got {now.get(name)!r}; start a new journal for it"
            )
