"""Events from a table with a row for each: what SQLite and PostgreSQL have in common."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from vfbandits.campaign.events import Event, Found
from vfbandits.core.decision import DecisionId
from vfbandits.errors import RecordError
from vfbandits.journal.base import refuse_compacted
from vfbandits.journal.codec import Codec
from vfbandits.journal.lookup import sorted_out

ROWS_PER_BATCH = 1_000

Row: TypeAlias = tuple[int, object]
NamedRow: TypeAlias = tuple[int, object, object]
Page: TypeAlias = Callable[[int], Sequence[NamedRow]]


def unbroken(
    page: Page, codec: Codec, *, after: int, compacted_to: Callable[[], int]
) -> Iterator[tuple[int, Event]]:
    """Events behind ``after``, none left out; ``page`` gives rows behind a position, in order."""
    refuse_compacted(after, compacted_to())
    while rows := page(after):
        for position, record, name in rows:
            after += 1
            if position != after:
                refuse_compacted(after, compacted_to())  # by its writer, a moment ago
                why = f"record {after} of the log is missing, the next is {position}"
                raise RecordError(why, after)
            yield position, _open(codec, position, record, name)


def sparse(page: Page, codec: Codec, *, after: int, upto: int) -> Iterator[tuple[int, Event]]:
    """The events that are there behind ``after`` and up to ``upto``."""
    while rows := page(after):
        for position, record, name in rows:
            if position > upto:
                return
            yield position, _open(codec, position, record, name)
            after = position


def found(rows: Iterable[Row], codec: Codec, ids: Sequence[DecisionId]) -> dict[DecisionId, Found]:
    """Events by their decision, from rows that were found by number, in order."""
    return sorted_out([(position, codec.open(record, position)) for position, record in rows], ids)


def backwards(page: Callable[[int], Sequence[Row]], *, last: int) -> Iterator[Row]:
    """Rows from ``last`` down; ``page`` gives rows before a position, newest first."""
    before = last + 1
    while rows := page(before):
        yield from rows
        before = rows[-1][0]


def _open(codec: Codec, position: int, record: object, name: object) -> Event:
    event = codec.open(record, position)
    if codec.names.of_event(event) != name:
        raise RecordError(
            f"record {position} of the log must have the number of its decision, got another: "
            "it would not be found",
            position,
        )
    return event
