"""The index of an SQLite journal, from lookup hashes ("names") to positions, written in batches.

Names are random numbers, so each new one belongs on another page of the table ``named``: inserting
it immediately would write a page for every record.  New names wait in memory until there are many,
and are then inserted in their order, some with every few commits, so that neighbours share a page.
``indexed_to`` in ``log`` is the position up to which the table is complete; later names are read
from ``event`` when the journal is opened.
"""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from typing import TypeAlias

NAMES_PER_BATCH = 32_768
MIN_BATCH_SIZE = 128  # new records between two inserts into the table
_Named: TypeAlias = tuple[int, int]

FIND = """
    SELECT position, record FROM event WHERE position IN (
        SELECT position FROM named WHERE name IN (SELECT value FROM json_each(?1))
        UNION
        SELECT value FROM json_each(?2)
    ) ORDER BY position
"""
# Of a reader, which does not know what waits in the writer's memory.
FIND_UNAIDED = """
    SELECT position, record FROM event WHERE position IN (
        SELECT position FROM named WHERE name IN (SELECT value FROM json_each(?1))
        UNION
        SELECT position FROM event WHERE position > (SELECT indexed_to FROM log)
            AND name IN (SELECT value FROM json_each(?1))
    ) ORDER BY position
"""


class WaitingNames:
    """The names that are not in the table yet; one thread writes, others may read.

    Read ``positions`` before the table: a name is in the table before it leaves this object.
    """

    def __init__(self, waiting: Iterable[_Named] = (), *, in_memory: int) -> None:
        self._in_memory = in_memory
        self._min_batch_size = min(MIN_BATCH_SIZE, in_memory // 8)
        self._going: dict[int, list[int]] = {}
        self._sorted: list[_Named] = []
        self._n_gone = self._n_going = self._n_since = 0
        self._new: dict[int, list[int]] = {}
        self._n_new = 0
        for name, position in waiting:
            self._add(name, position)

    def positions(self, names: Iterable[int]) -> list[int]:
        """Positions of records with these names, if they are not in the table yet."""
        # The newer first: meanwhile they may become the older ones, never the other way round.
        held = (self._new, self._going)
        return [position for some in held for name in names for position in some.get(name, ())]

    def expect(self, count: int) -> None:
        """A commit of ``count`` events is about to be written."""
        self._n_since += count

    @property
    def is_due(self) -> bool:
        """Whether that commit should insert some names into the table."""
        has_many = self._n_new >= self._in_memory or bool(self._sorted)
        return has_many and self._n_since >= self._min_batch_size

    def write(self, db: sqlite3.Connection) -> None:
        """Insert names into the table, a quarter more than there are new ones."""
        if not self._sorted and self._n_new >= self._in_memory:
            self._going, self._new = self._new, {}
            self._n_new = self._n_gone = 0
            self._sorted = sorted((n, p) for n, places in self._going.items() for p in places)
        some = self._sorted[self._n_gone : self._n_gone + self._n_since + self._n_since // 4 + 1]
        self._n_going = len(some)
        self._n_since = 0
        if some:
            db.executemany("INSERT OR IGNORE INTO named VALUES (?, ?)", some)
            if self._n_gone + self._n_going == len(self._sorted):
                upto = max(position for _, position in self._sorted)
                db.execute("UPDATE log SET indexed_to = ?", (upto,))

    def committed(self, names: Sequence[int | None], *, after: int) -> None:
        """The last write is durable, and so are the records after ``after`` with these names."""
        self._n_gone += self._n_going
        self._n_going = 0
        if self._sorted and self._n_gone == len(self._sorted):
            self._going, self._sorted = {}, []
        for position, name in enumerate(names, start=after + 1):
            if name is not None:
                self._add(name, position)

    def _add(self, name: int, position: int) -> None:
        self._new.setdefault(name, []).append(position)
        self._n_new += 1


def waiting_in(db: sqlite3.Connection, *, in_memory: int) -> WaitingNames:
    """The waiting names of a journal that was just opened."""
    sql = (
        "SELECT name, position FROM event "
        "WHERE position > (SELECT indexed_to FROM log) AND name IS NOT NULL"
    )
    return WaitingNames(db.execute(sql), in_memory=in_memory)


def as_json(numbers: Iterable[int]) -> str:
    """Numbers as one parameter of a query."""
    return json.dumps(list(numbers))
