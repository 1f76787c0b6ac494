"""Features in a table of a database, through SQLAlchemy.

Tested on PostgreSQL and SQLite.  Every wait has an end: for an answer after ``timeout_s``, and for
a connection too, though PostgreSQL's drivers never wait less than two seconds for one.  With
``options`` in a PostgreSQL url, even empty ones, the server is not asked for a statement timeout,
which some connection poolers do not let through.

There is no ping before a lookup: that would double its time and has no deadline.  A connection
that broke while it was idle is replaced, and the lookup asked once more.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, NoSuchTableError, SQLAlchemyError

from vfbandits.core.arrays import PlainBlock
from vfbandits.errors import FeatureError
from vfbandits.features.base import Key, Lookup
from vfbandits.features.cells import CellReader
from vfbandits.features.deadline import Watchdog
from vfbandits.features.scaling import Scaling
from vfbandits.features.sql_engine import build_engine
from vfbandits.features.sql_keys import KeyColumns, StoredKey, StoredPart

CHUNK = 500  # keys in one statement: databases limit parameters, and SQLite the depth of an OR
PAGE = 10_000  # users in one statement
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class _Question:
    """A table that was inspected: its keys, and the statement for its rows."""

    keys: KeyColumns
    select: sa.Select[tuple[object, ...]]


class SqlStore:
    """Rows of one table or view, ``name`` or ``schema.name``; the database is asked at each lookup.

    The table is inspected when it is first needed, so that a database that is down now can be up
    later.
    """

    def __init__(
        self,
        url: str,
        *,
        table: str,
        key: Sequence[str],
        scaling: Scaling,
        timeout_s: float = 1.0,
        consent: str | None = None,
    ) -> None:
        self._engine = build_engine(url, timeout_s=timeout_s)
        self._table = table
        self._key = tuple(key)
        self._timeout_s = timeout_s
        self._watchdog = Watchdog(timeout_s)
        self._reader = CellReader(
            f"table {table!r}", scaling, _number, _text, has_consent=consent is not None
        )
        self._consent = () if consent is None else (consent,)
        self._question: _Question | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the raw columns: numbers first, then categories."""
        return self._reader.scaling.columns

    @property
    def width(self) -> int:
        """How many numbers a scaled row has."""
        return self._reader.scaling.width

    def rows(self, keys: Sequence[Key]) -> Lookup:
        """The rows of these keys, in one statement for each 500; a key may come twice."""
        question = self._looked_at()
        wanted = [question.keys.stored(key) for key in keys]
        asked = list(dict.fromkeys(key for key in wanted if key is not None))
        rows = self._ask(lambda connection: _fetch(connection, question, asked)) if asked else []
        n, known = len(self._key), set(asked)
        # A database that compares more loosely than we do may send rows of other keys.
        rows = [row for row in rows if row[:n] in known]
        found = {row[:n]: row[n:] for row in rows}
        if len(found) < len(rows):
            raise FeatureError(
                f"{self._reader.where} must have each key once, "
                f"got {len(rows) - len(found)} rows too many for this lookup"
            )
        return self._reader.lookup(wanted, found)

    def users(self) -> Iterator[str]:
        """Every user, a page at a time and in their order: each page has its own deadline.

        Without an index on the key column the database sorts the table for every page.
        """
        column = self._looked_at().keys.columns[0]
        pages = sa.select(column).distinct().order_by(column).limit(PAGE)
        page = self._page(pages)
        while page:
            yield from map(str, page)
            page = self._page(pages.where(column > page[-1])) if len(page) == PAGE else []

    def _page(self, question: sa.Select[StoredPart]) -> list[StoredPart]:
        return self._ask(lambda connection: [row[0] for row in connection.execute(question)])

    def sample(self, count: int) -> PlainBlock:
        """The rows that the database gives first."""
        question, n = self._looked_at(), len(self._key)
        rows = self._ask(
            lambda connection: [
                tuple(row) for row in connection.execute(question.select.limit(count))
            ]
        )
        return self._reader.sample([row[n:] for row in rows])

    def check(self) -> None:
        """Refuse unless the database answers now and the table has the columns."""
        self._looked_at()
        self._ask(lambda connection: connection.scalar(sa.select(sa.literal(1))))

    def describe(self) -> dict[str, object]:
        """Kind, database, table, columns."""
        return {
            "kind": "sql",
            "database": self._engine.dialect.name,
            "table": self._table,
            "columns": list(self.columns),
        }

    def close(self) -> None:
        """Close all connections that are not in use."""
        self._watchdog.close()
        self._engine.dispose()

    def _looked_at(self) -> _Question:
        if self._question is None:
            self._question = self._ask(self._look)  # twice in two threads is no harm
        return self._question

    def _look(self, connection: sa.Connection) -> _Question:
        schema, _, name = self._table.rpartition(".")
        names = (*self._key, *self.columns, *self._consent)
        try:
            table = sa.Table(
                name,
                sa.MetaData(schema=schema or None),
                autoload_with=connection,
                resolve_fks=False,
            )
        except NoSuchTableError:
            raise FeatureError(
                f"the database must have the {self._reader.where}, got none"
            ) from None
        missing = [name for name in names if name not in table.columns]
        if missing:
            raise FeatureError(
                f"{self._reader.where} must have the columns {', '.join(names)}, "
                f"got none called {', '.join(missing)}"
            )
        keys = KeyColumns.of([table.columns[name] for name in self._key])
        return _Question(keys, sa.select(*(table.columns[name] for name in names)))

    def _ask(self, work: Callable[[sa.Connection], Answer]) -> Answer:
        end = time.monotonic() + self._timeout_s
        try:
            return self._once(work)
        except SQLAlchemyError as error:
            is_stale = isinstance(error, DBAPIError) and error.connection_invalidated
            if not is_stale or time.monotonic() > end:
                raise self._failure(error) from error
        try:
            return self._once(work)
        except SQLAlchemyError as error:
            raise self._failure(error) from error

    def _once(self, work: Callable[[sa.Connection], Answer]) -> Answer:
        with self._engine.connect() as connection:
            line = connection.connection.driver_connection
            with self._watchdog.watch(line):
                return work(connection)

    def _failure(self, error: SQLAlchemyError) -> FeatureError:
        cause = error.orig if isinstance(error, DBAPIError) else error
        return FeatureError(
            f"{self._reader.where} must be readable within {self._timeout_s:g} s, "
            f"got {type(cause).__name__}"
        )


def _fetch(
    connection: sa.Connection, question: _Question, keys: Sequence[StoredKey]
) -> list[tuple[object, ...]]:
    chunks = (keys[start : start + CHUNK] for start in range(0, len(keys), CHUNK))
    return [
        tuple(row)
        for chunk in chunks
        for row in connection.execute(question.select.where(question.keys.among(chunk)))
    ]


def _number(cell: object) -> float:
    return float(cell) if isinstance(cell, int | float | Decimal) else math.nan


def _text(cell: object) -> str | None:
    if isinstance(cell, str):
        return cell
    return str(cell) if isinstance(cell, int) and not isinstance(cell, bool) else None
