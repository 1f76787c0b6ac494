"""Records of a journal that are past their retention time and no longer needed.

They are dropped as in a compaction, but while the journal is in use: a snapshot covers them.  Kept
are the records of pending decisions, the mask changes after the first of these decisions, and the
records of who changed what.
"""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain

from vfbandits.campaign.events import Decided, MasksChanged
from vfbandits.campaign.model import Model
from vfbandits.core.decision import EventId
from vfbandits.journal.audit import KEPT
from vfbandits.journal.base import JournalReader
from vfbandits.journal.lookup import event_id_of
from vfbandits.journal.verify import time_of


@dataclass(frozen=True, slots=True)
class Waited:
    """Pending decisions of a model: ids of those in memory, and positions of the others.

    ``first`` is the position of the first of all; None if there is none.
    """

    names: Collection[EventId]
    cold: Collection[int]
    first: int | None

    @classmethod
    def of(cls, model: Model) -> "Waited":
        """The decisions that are pending now."""
        return cls(frozenset(model.pending), frozenset(model.cold.positions), model.first_pending)


def old_records(
    reader: JournalReader, *, before: float, waited: Waited, most: int
) -> tuple[int, ...]:
    """Positions of records from before a time that are no longer needed, ``most`` at most.

    Records are in the order of their times, so the first younger one ends the search.  A record
    without a time counts as old as the next one that has a time.

    >>> import numpy as np
    >>> from vfbandits.journal.memory import MemoryJournal
    >>> journal = MemoryJournal()
    >>> events = [Decided(name, 0, 0, np.ones(1), at=at) for name, at in (("a", 1.0), ("b", 2.0))]
    >>> journal.append(events)
    2
    >>> old_records(journal, before=1.5, waited=Waited((), (), None), most=9)
    (1,)
    """
    old: list[int] = []
    n_old = 0
    wanted = set(waited.names)
    for position, event in chain(reader.remains(), reader.read(reader.compacted_to)):
        at = time_of(event)
        if (at is not None and at >= before) or len(old) == most:
            break
        if isinstance(event, Decided) and position in waited.cold:
            wanted.add(event.event_id)
        if isinstance(event, MasksChanged):
            is_needed = waited.first is not None and position > waited.first
        else:
            is_needed = isinstance(event, KEPT) or event_id_of(event) in wanted
        if not is_needed:
            old.append(position)
        if at is not None:
            n_old = len(old)
    return tuple(old[:n_old])
