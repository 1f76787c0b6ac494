"""Set damaged records aside, so that a journal opens and verifies again.

No restart needs a record that a snapshot covers: a ``SetAside`` replaces it, and the damaged bytes
are kept beside the journal (table ``damaged``).  A record after the newest undamaged snapshot is
part of what was learnt since: it is set aside only if its loss is accepted.  Records that cannot be
applied without it, such as the reward of a lost decision, are then set aside as well.
"""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vfbandits.campaign.events import Decided, Event, MasksChanged, SetAside
from vfbandits.campaign.model import MakeMove, Model, remask
from vfbandits.errors import JournalError, JournalLossError, RecordError
from vfbandits.journal.base import Journal, JournalReader

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Fault:
    """A record that cannot be read; ``covered_by`` is the snapshot that covers it, if any."""

    position: int
    why: str
    covered_by: int | None


def survey(reader: JournalReader) -> list[Fault]:
    """All records that are damaged or missing, in order; a writer may be running.

    No snapshot covers those at the very end: a journal with a damaged end is refused when it is
    opened, whatever snapshots it has.
    """
    latest, last = reader.latest_snapshot(), reader.last_position
    newest = None if latest is None else latest[0]
    broken = dict(_broken(reader.remains, 0, reader.compacted_to))
    broken |= _broken(reader.read, reader.compacted_to, last)
    end = last
    while end in broken:
        end -= 1
    return [
        Fault(at, why, newest if newest is not None and at <= min(newest, end) else None)
        for at, why in sorted(broken.items())
    ]


def repair(
    journal: Journal,
    faults: list[Fault],
    *,
    by: str,
    accept_loss: bool = False,
    make_move: MakeMove = remask,
) -> list[Fault]:
    """Set these records aside, all or none; returns them and those that no longer apply."""
    uncovered = [fault.position for fault in faults if fault.covered_by is None]
    if uncovered and not accept_loss:
        raise JournalLossError(
            f"a record is set aside if a snapshot covers it, got record {uncovered[0]}, which none "
            "does: what was learnt from it would be lost.  Nothing was changed.  Restore the "
            "journal from a backup, or accept the loss with --accept-loss"
        )
    if uncovered:
        faults = [*faults, *_unfit(journal, set(uncovered), make_move)]
    now = time.time()
    journal.set_aside(
        {fault.position: SetAside(fault.why, fault.covered_by, by, now) for fault in faults}
    )
    return sorted(faults, key=lambda fault: fault.position)


def read_whole(
    read: Callable[[int], Iterator[tuple[int, Event]]], after: int
) -> Iterator[tuple[int, Event] | RecordError]:
    """Events after ``after``, and the error of every record that cannot be read."""
    while True:
        try:
            for position, event in read(after):
                after = position
                yield position, event
        except RecordError as error:
            after = error.position
            yield error
        else:
            return


def readable(
    read: Callable[[int], Iterator[tuple[int, Event]]], after: int
) -> list[tuple[int, Event]]:
    """Events after ``after``; records that cannot be read are left out, with one warning."""
    events: list[tuple[int, Event]] = []
    errors: list[JournalError] = []
    try:
        for found in read_whole(read, after):
            if isinstance(found, RecordError):
                errors.append(found)
            else:
                events.append(found)
    except JournalError as error:  # nothing after it can be read
        errors.append(error)
    if errors:
        _log.warning(
            "%d records of the journal cannot be read and are left out, the first because %s; see "
            "vfb journal verify and vfb journal repair", len(errors), errors[0]
        )  # fmt: skip
    return events


def readable_end(reader: JournalReader, *, after: int) -> list[tuple[int, Event]]:
    """All kept events after ``after``, including those of a compacted part."""
    compacted_to = reader.compacted_to
    older = readable(reader.remains, after) if after < compacted_to else []
    return older + readable(reader.read, max(after, compacted_to))


def _broken(
    read: Callable[[int], Iterator[tuple[int, Event]]], after: int, last: int
) -> Iterator[tuple[int, str]]:
    for found in read_whole(read, after):
        position = found.position if isinstance(found, RecordError) else found[0]
        if position > last:
            return
        if isinstance(found, RecordError):
            yield position, str(found)


def _unfit(journal: Journal, lost: set[int], make_move: MakeMove) -> Iterator[Fault]:
    """Records after the newest snapshot that cannot be applied without those that are lost."""
    latest = journal.latest_snapshot()
    if latest is None:
        raise JournalError("a repair needs an undamaged snapshot of the journal, got none")
    model = Model.restore(*latest, make_move=make_move)
    for found in read_whole(journal.read, latest[0]):
        if isinstance(found, RecordError):
            continue
        position, event = found
        _refuse_lost_mask_change(position, event, model, lost)
        try:
            model.apply(position, event)
        except JournalError as error:
            yield Fault(position, str(error), None)


def _refuse_lost_mask_change(position: int, event: Event, model: Model, lost: set[int]) -> None:
    """Refuse if a mask change is lost: every later record depends on it."""
    wanted = model.epoch + 1 if isinstance(event, MasksChanged) else model.epoch
    if isinstance(event, MasksChanged | Decided) and event.epoch != wanted:
        raise JournalError(
            f"record {position} of the journal is of mask epoch {event.epoch}, wanted {wanted}: "
            f"one of the damaged records ({min(lost)} is the first) is a mask change, without "
            "which later records cannot be used.  Restore the journal from a backup"
        )
