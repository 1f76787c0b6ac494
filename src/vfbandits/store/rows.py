"""Events from a table with a row for each, in pages: what SQLite and PostgreSQL have in common."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from vfbandits.errors import JournalError
from vfbandits.store.codec import Codec
from vfbandits.store.events import Event
from vfbandits.store.journal import refuse_compacted

ROWS_AT_ONCE = 1_000

Row: TypeAlias = tuple[int, object]
Page: TypeAlias = Callable[[int], Sequence[Row]]


def unbroken(
    page: Page, codec: Codec, *, after: int, compacted_to: Callable[[], int]
) -> Iterator[tuple[int, Event]]:
    """Events behind ``after``, none left out; ``page`` gives rows behind a position, in order."""
    refuse_compacted(after, compacted_to())
    while rows := page(after):
        for position, record in rows:
            after += 1
            if position != after:
                refuse_compacted(after, compacted_to())  # by its writer, a moment ago
                raise JournalError(f"record {after} of the log is missing, the next is {position}")
            yield position, codec.open(record, position)


def sparse(page: Page, codec: Codec, *, after: int, upto: int) -> Iterator[tuple[int, Event]]:
    """The events that are there behind ``after`` and up to ``upto``."""
    while rows := page(after):
        for position, record in rows:
            if position > upto:
                return
            yield position, codec.open(record, position)
            after = position


def backwards(page: Page, *, last: int) -> Iterator[Row]:
    """Rows from ``last`` down; ``page`` gives rows before a position, newest first."""
    before = last + 1
    while rows := page(before):
        yield from rows
        before = rows[-1][0]
