"""Make a log shorter: what a snapshot stands for may go, if the log is whole.

Kept are the newest two snapshots, all events behind the older one, and before it the decisions
that were still waited for then, in memory or not, with what had happened to them, and the changes
of masks behind the first of them.  Settings are in the snapshots.  Who changed what stays on
record (``audit.py``).  A decision whose wait has no end is waited for as long as it is in memory.
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
    """Up to where a log was compacted, and how many events before that went and stayed."""

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
    """Verify a log and drop what it no longer needs; None if there are too few snapshots.

    All or nothing, whenever the process is killed.  ``by`` is who asks for it, if that is to be on
    record.
    """
    found = verify(journal, on_step=on_step)
    if found.problems:
        raise JournalError(
            f"a journal must be whole to be compacted, got {len(found.problems)} problems, "
            f"of which the first is: {found.problems[0]}"
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
    moved: list[int] = []
    changes: list[int] = []
    for at, event in chain(journal.remains(), journal.read(journal.compacted_to)):
        if at > position:
            break
        event_id = event_id_of(event)
        if isinstance(event, Decided) and at in cold:
            wanted.add(event.event_id)
        if isinstance(event, MasksChanged):
            moved.append(at)
        elif isinstance(event, KEPT):
            changes.append(at)
        elif event_id is not None and event_id in wanted:
            if isinstance(event, Decided):  # an earlier one of the same name is not the open one
                events[event_id] = []
            events.setdefault(event_id, []).append(at)
    first = min((places[0] for places in events.values()), default=position)
    kept = {at for places in events.values() for at in places}
    return {*kept, *changes, *(at for at in moved if at > first)}
