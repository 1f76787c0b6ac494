"""Compact a journal: drop records that a snapshot covers, if the journal verifies.

Kept are the newest two snapshots and all records after the older one.  Before it, kept are the
records of decisions that were pending then, in memory or not, the mask changes after the first of
these decisions, and the records of who changed what (``audit.py``).  Settings are in the snapshots.
A decision without a deadline is pending as long as it is in memory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

from vfbandits.campaign.events import COMPACTION, Administered, Decided, MasksChanged
from vfbandits.campaign.model import Model
from vfbandits.core.decision import EventId
from vfbandits.errors import JournalError
from vfbandits.journal.audit import KEPT
from vfbandits.journal.base import SNAPSHOTS_KEPT, Journal
from vfbandits.journal.lookup import event_id_of
from vfbandits.journal.verify import verify


@dataclass(frozen=True, slots=True)
class Compaction:
    """The position up to which a journal was compacted, and the counts of records before it."""

    position: int
    dropped: int
    kept: int


def compact(
    journal: Journal,
    *,
    by: str = "",
    now: float = 0.0,
    on_step: Callable[[int], None] = lambda done: None,
) -> Compaction | None:
    """Verify a journal and drop records that it no longer needs; None with too few snapshots.

    All or nothing, even if the process is killed.  ``by`` is who asks for it, for a record of the
    journal; without it none is written.
    """
    found = verify(journal, on_step=on_step)
    if found.problems:
        raise JournalError(
            f"a journal must verify to be compacted, got {len(found.problems)} problems, "
            f"the first: {found.problems[0]}"
        )
    usable = [p for p in journal.snapshot_positions() if p > journal.compacted_to]
    if len(usable) < SNAPSHOTS_KEPT:
        return None
    position = usable[SNAPSHOTS_KEPT - 1]
    keep = _still_needed(journal, position)
    if by:
        journal.append([Administered(COMPACTION, f"up to position {position}", by, now)])
    dropped = journal.compact(position, keep=keep)
    return Compaction(position, dropped, len(keep))


def _still_needed(journal: Journal, position: int) -> set[int]:
    model = Model.restore(position, journal.load_snapshot(position))
    wanted, cold = set(model.bandit.open_decisions), set(model.cold.positions)
    events: dict[EventId, list[int]] = {}
    mask_changes: list[int] = []
    changes: list[int] = []
    for at, event in chain(journal.remains(), journal.read(journal.compacted_to)):
        if at > position:
            break
        event_id = event_id_of(event)
        if isinstance(event, Decided) and at in cold:
            wanted.add(event.event_id)
        if isinstance(event, MasksChanged):
            mask_changes.append(at)
        elif isinstance(event, KEPT):
            changes.append(at)
        elif event_id is not None and event_id in wanted:
            if isinstance(event, Decided):  # an earlier one of the same id is not the pending one
                events[event_id] = []
            events.setdefault(event_id, []).append(at)
    first = min((places[0] for places in events.values()), default=position)
    kept = {at for places in events.values() for at in places}
    return {*kept, *changes, *(at for at in mask_changes if at > first)}
