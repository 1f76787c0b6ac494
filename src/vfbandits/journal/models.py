"""Models of a campaign at a position of its journal: exported to a file, and restored.

A restore is a record of the journal like any other, so a restart and the replicas come to the same
model.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from pathlib import Path

from vfbandits.campaign.events import (
    MODEL,
    Administered,
    Erased,
    Event,
    MasksChanged,
    Restored,
    Retracted,
    SetAside,
)
from vfbandits.campaign.exported import (
    MAX_MODEL_BYTES,
    ExportedModel,
    learnt_by,
    put_back,
    put_in,
    reward_of,
)
from vfbandits.campaign.model import Model, fold
from vfbandits.errors import ConflictError, JournalError, SettingError, SnapshotError
from vfbandits.files import write_whole
from vfbandits.journal.base import Journal, JournalReader
from vfbandits.journal.places import events_at
from vfbandits.journal.record import encode
from vfbandits.journal.recover import own_model, restore_from
from vfbandits.journal.snapshot import open_sealed, seal_snapshot
from vfbandits.journal.verify import difference, time_of

CHECK_BYTES = 16


@dataclass(frozen=True, slots=True)
class Restoration:
    """A model was restored by the record at ``position``; it has learnt the rewards up to ``of``.

    ``of`` is a position, and None for a model of another journal.
    """

    position: int
    of: int | None


def model_at(
    reader: JournalReader,
    position: int,
    *,
    on_step: Callable[[int], None] = lambda done: None,
) -> Model:
    """The model after the record at ``position``; a writer may be at work."""
    last = reader.last_position
    if not 0 <= position <= last:
        raise SettingError(f"wanted a position of the journal, from 0 to {last}, got {position}")
    found = [one for one in reader.snapshot_positions() if reader.compacted_to <= one]
    for start in sorted((one for one in found if one <= position), reverse=True):
        try:
            model = restore_from(reader, start, reader.load_snapshot(start))
        except SnapshotError:  # an older one will do
            continue
        return fold(_with_steps(_up_to(position, reader.read(after=start)), on_step), model)
    first = min(found, default=None)
    raise JournalError(
        f"the model of position {position} needs a snapshot at or before it, got "
        + ("none" if first is None else f"the first at {first}: records before it may be gone")
    )


def position_at(reader: JournalReader, time: float) -> int:
    """Position of the last record from before or at a time, in seconds since 1970.

    Refused if compaction may have dropped that record.
    """
    compacted_to = reader.compacted_to
    found = None if compacted_to else 0
    for position, event in reader.read(after=compacted_to):
        at = time_of(event)
        if at is not None and at > time:
            break
        if at is not None or found is not None:
            found = position
    if found is None:
        raise JournalError(
            f"the journal was compacted up to position {compacted_to}: wanted the time of a later "
            "record, got one before all of them"
        )
    return found


def export_model(
    reader: JournalReader,
    position: int | None = None,
    *,
    on_step: Callable[[int], None] = lambda done: None,
) -> ExportedModel:
    """What was learnt up to a position, by default the end of the journal.

    >>> import vfbandits as vfb
    >>> from vfbandits.journal.memory import MemoryJournal
    >>> journal = MemoryJournal()
    >>> journal.save_snapshot(0, Model(vfb.Bandit(vfb.LinUCB(), dim=1)).snapshot())
    >>> export_model(journal).position
    0
    """
    at = reader.last_position if position is None else position
    model = model_at(reader, at, on_step=on_step)
    return ExportedModel.of(model, check=_check(events_at(reader, [at]).get(at)))


def write_model(path: Path, exported: ExportedModel) -> None:
    """Write a model to a file that is for its owner only; an older one is replaced in one step."""
    data = seal_snapshot(exported.pack())
    try:
        write_whole(path, lambda file: file.write(data), mode=0o600)
    except OSError as error:
        raise SnapshotError(f"the model cannot be written to {path}: {error.strerror}") from error


def read_model(path: Path) -> ExportedModel:
    """The model in a file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SnapshotError(f"wanted a model in {path}: {error.strerror}") from error
    return ExportedModel.unpack(open_sealed(data, name=str(path)))


def restore_model(
    journal: Journal,
    exported: ExportedModel,
    *,
    by: str,
    reason: str,
    now: float,
    same_masks: bool = False,
) -> Restoration | None:
    """Restore a model, as a record of the journal; None if it is the model in force already.

    Pending decisions stay, and the restored model learns from their rewards.  A model of an earlier
    mask epoch is transformed to the masks in force, by the journal's own mask changes.  Rewards
    that were retracted since stay retracted.  A model of another journal is accepted only if the
    caller guarantees, with ``same_masks``, that it was learnt behind the same masks.

    Refused, with nothing changed, if layout, width or a setting that shapes what is learnt differs,
    or if a mask change or a retraction since then is no longer in the journal.
    """
    if not reason.strip():
        raise SettingError("wanted the reason for a restore, got none")
    model = own_model(journal)
    event = _proposed(journal, exported, model, same_masks=same_masks, now=now)
    size = sum(array.nbytes for array in event.model.arrays.values())
    if size > MAX_MODEL_BYTES:
        raise JournalError(
            f"a restored model must have at most {MAX_MODEL_BYTES} bytes, got {size}"
        )
    before, position = learnt_by(model.bandit), journal.last_position + 1
    model.enter(position, event)  # before anything is written: one that does not fit is refused
    if difference(before, learnt_by(model.bandit)) is None:
        return None
    source = "another journal" if event.of is None else f"position {event.of}"
    note = Administered(MODEL, f"restored to that of {source}: {reason}", by, now)
    last = journal.append([event, note])
    model.enter(last, note)
    journal.save_snapshot(last, model.snapshot())
    return Restoration(position, event.of)


def _proposed(
    journal: Journal, exported: ExportedModel, model: Model, *, same_masks: bool, now: float
) -> Restored:
    at = exported.position
    if _is_own(journal, exported, model):
        later = [*_behind(journal, at)]
        taken = {place: one for place, one in later if isinstance(one, Retracted)}
        known = journal.find_many([one.event_id for one in taken.values()])
        rewards = {
            place: learnt_at
            for place, one in taken.items()
            if (learnt_at := reward_of(place, known[one.event_id])) is not None
        }
        return put_back(exported, model, later, rewards=rewards, at=now)
    if model.signed_roster and not same_masks:
        raise ConflictError(
            "the model was exported from another journal, whose masks may be different: "
            "wanted --same-masks if they are the same; nothing was changed"
        )
    return put_in(exported, model, at=now)


def _is_own(journal: Journal, exported: ExportedModel, model: Model) -> bool:
    """Whether a model is of this journal, or of one that this is a copy of."""
    at = exported.position
    if exported.snapshot.record.child("options").integer("seed") != model.bandit.seed:
        return False
    if at > journal.last_position:
        return False
    found = events_at(journal, [at]).get(at)
    return found is None or _check(found) == exported.check or not _is_original(found)


def _behind(journal: JournalReader, position: int) -> Iterator[tuple[int, Event]]:
    after = max(position, journal.compacted_to)
    for at, event in chain(journal.remains(position), journal.read(after)):
        if isinstance(event, MasksChanged | Retracted):
            yield at, event


def _is_original(event: Event) -> bool:
    """Whether a record is the one that was written there first."""
    return not isinstance(event, Erased | SetAside)


def _check(event: Event | None) -> str:
    if event is None:
        return ""
    return blake2b(encode(event), digest_size=CHECK_BYTES).hexdigest()


def _up_to(position: int, events: Iterator[tuple[int, Event]]) -> Iterator[tuple[int, Event]]:
    for at, event in events:
        if at > position:
            return
        yield at, event


def _with_steps(
    events: Iterator[tuple[int, Event]], on_step: Callable[[int], None]
) -> Iterator[tuple[int, Event]]:
    for at, event in events:
        yield at, event
        on_step(at)
