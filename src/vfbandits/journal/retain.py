"""Which records of a journal are older than they may get, and can go.

They go as in a compaction, while the journal is in use: a snapshot stands for what they taught.
Kept are pending decisions with what happened to them, the changes of masks behind the first of
them, and who changed what.
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
    """The decisions of a model that are waited for: those in memory, and where the others are."""

    names: Collection[EventId]
    cold: Collection[int]
    first: int | None

    @classmethod
    def of(cls, model: Model) -> "Waited":
        """As a model has them now."""
        return cls(frozenset(model.pending), frozenset(model.cold.positions), model.first_pending)


def old_records(
    reader: JournalReader, *, before: float, waited: Waited, most: int
) -> tuple[int, ...]:
    """Positions of records from before a time that nothing needs any more, ``most`` at most.

    Records stand in the order of their times: the first that is younger ends the search.  One that
    has no time is as old as the next that has.

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
