"""Who changed what, and when: the records of a journal that name somebody.

Compaction keeps them, except retractions, which belong to an event.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from vfbandits.campaign.events import Administered, Event, LossAccepted, Retracted, SetAside
from vfbandits.journal.base import JournalReader

KEPT = (Administered, LossAccepted, SetAside)


@dataclass(frozen=True, slots=True)
class Change:
    """What somebody changed; ``at`` is in seconds since 1970.

    ``position`` is that of its record, 0 for a change that is not recorded in the journal.

    ``by`` is the name of a certificate or of an API key, or user and machine of a command.
    """

    position: int
    at: float
    by: str
    what: str
    detail: str


def changes_in(reader: JournalReader) -> Iterator[Change]:
    """All changes that a journal has on record, in their order; a writer may be running.

    >>> from vfbandits.journal.memory import MemoryJournal
    >>> journal = MemoryJournal()
    >>> journal.append([Administered("settings", '{"mode": "frozen"}', "ops", 3.5)])
    1
    >>> list(changes_in(journal))
    [Change(position=1, at=3.5, by='ops', what='settings', detail='{"mode": "frozen"}')]
    """
    for position, event in chain(reader.remains(), reader.read(reader.compacted_to)):
        change = _change_of(event)
        if change is not None:
            yield Change(position, *change)


def _change_of(event: Event) -> tuple[float, str, str, str] | None:
    match event:
        case Administered():
            return event.at, event.by, event.what, event.detail
        case Retracted():
            return event.at, event.by, "retraction", f"the reward of event {event.event_id}"
        case LossAccepted():
            detail = f"{event.why} (acknowledged up to {event.expected}, found {event.found})"
            return event.at, event.by, "loss accepted", detail
        case SetAside():
            return event.at, event.by, "repair", f"set aside: {event.why}"
    return None
