"""Events of a journal by their positions."""

from collections.abc import Iterator, Sequence

from vfbandits.campaign.events import Event
from vfbandits.journal.base import JournalReader

MAX_GAP = 1_000  # records with a larger gap between them are read separately


def events_at(journal: JournalReader, positions: Sequence[int]) -> dict[int, Event]:
    """The events at ``positions``, which ascend; those that compaction has dropped are missing.

    >>> from vfbandits.campaign.events import Forgotten
    >>> from vfbandits.journal.memory import MemoryJournal
    >>> journal = MemoryJournal()
    >>> journal.append([Forgotten(name) for name in "abc"])
    3
    >>> events_at(journal, [1, 3])
    {1: Forgotten(event_id='a'), 3: Forgotten(event_id='c')}
    """
    found: dict[int, Event] = {}
    for run in _runs(positions):
        wanted, last, compacted_to = set(run), run[-1], journal.compacted_to
        whole = run[0] > compacted_to
        # Records after the compaction have no gaps; a run may begin before it and end after it.
        events = journal.read(run[0] - 1) if whole else journal.remains(run[0] - 1)
        for position, event in events:
            if position in wanted:
                found[position] = event
            if position >= last:  # later records may be damaged
                break
        if not whole and last > compacted_to:
            rest = [position for position in run if position > compacted_to]
            found.update(events_at(journal, rest))
    return found


def _runs(positions: Sequence[int]) -> Iterator[list[int]]:
    """The positions, divided where a gap exceeds ``MAX_GAP``."""
    run: list[int] = []
    for position in positions:
        if run and position - run[-1] > MAX_GAP:
            yield run
            run = []
        run.append(position)
    if run:
        yield run
