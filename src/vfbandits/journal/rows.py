"""Events from a table with one row per record: the common part of SQLite and PostgreSQL."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeAlias, TypeVar

from vfbandits.campaign.events import Event, Found
from vfbandits.core.decision import EventId
from vfbandits.errors import RecordError
from vfbandits.journal.base import refuse_compacted
from vfbandits.journal.codec import Codec
from vfbandits.journal.lookup import sorted_out

ROWS_PER_BATCH = 1_000

Row: TypeAlias = tuple[int, object]
NamedRow: TypeAlias = tuple[int, object, object]


class EventRows(ABC):
    """The table of records; a subclass has the queries of its database."""

    codec: Codec

    @abstractmethod
    def last(self) -> int:
        """Position of the last record."""

    @abstractmethod
    def compacted_to(self) -> int:
        """Position up to which only some records are kept."""

    @abstractmethod
    def page_after(self, position: int) -> Sequence[NamedRow]:
        """Rows after a position, in order; empty at the end."""

    @abstractmethod
    def page_before(self, position: int) -> Sequence[Row]:
        """Rows before a position and after ``compacted_to``, newest first; empty at the end."""

    def read(self, after: int) -> Iterator[tuple[int, Event]]:
        """All events after ``after``, a page at a time."""
        refuse_compacted(after, self.compacted_to())
        while rows := self.page_after(after):
            for position, record, name in rows:
                after += 1
                if position != after:
                    refuse_compacted(after, self.compacted_to())  # by its writer, since the start
                    why = f"record {after} of the journal is missing, the next is {position}"
                    raise RecordError(why, after)
                yield position, _open(self.codec, position, record, name)

    def remains(self, after: int) -> Iterator[tuple[int, Event]]:
        """Events after ``after`` that compaction has kept."""
        upto = self.compacted_to()
        while rows := self.page_after(after):
            for position, record, name in rows:
                if position > upto:
                    return
                yield position, _open(self.codec, position, record, name)
                after = position

    def backwards(self) -> Iterator[Row]:
        """Rows with undecoded records, from the last one back to ``compacted_to``."""
        before = self.last() + 1
        while rows := self.page_before(before):
            yield from rows
            before = rows[-1][0]

    def found(self, rows: Iterable[Row], ids: Sequence[EventId]) -> dict[EventId, Found]:
        """Events by decision, from rows that were found by lookup hash, in order."""
        opened = [(position, self.codec.open(record, position)) for position, record in rows]
        return sorted_out(opened, ids)


Rows = TypeVar("Rows", bound=EventRows)


class RowsReader(ABC, Generic[Rows]):
    """The queries that readers and writers of a journal in a database have in common."""

    _rows: Rows

    @property
    def compacted_to(self) -> int:
        """Position up to which only some records are kept."""
        return self._rows.compacted_to()

    def read(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """All events after ``after``, a page at a time."""
        return self._rows.read(after)

    def remains(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Events that compaction has kept."""
        return self._rows.remains(after)

    def find(self, event_id: EventId) -> Found:
        """All events of one decision."""
        return self.find_many([event_id])[event_id]

    @abstractmethod
    def find_many(self, ids: Sequence[EventId]) -> dict[EventId, Found]:
        """All events of several decisions."""


def _open(codec: Codec, position: int, record: object, name: object) -> Event:
    event = codec.open(record, position)
    if codec.names.of_event(event) != name:
        raise RecordError(
            f"record {position} of the journal must have the lookup hash of its decision, got "
            f"{name}: it would not be found",
            position,
        )
    return event
