"""The same rows into PostgreSQL with nothing around: COPY and executemany, a commit for each batch.

They get finished rows for a table like ours, with the same columns and index.  Ours gets events,
which it has to encode and name, and checks in every commit that it is still the one writer and
where the log ends.
"""

import time
from collections.abc import Callable
from statistics import median
from typing import TypeAlias

import psycopg
from psycopg import sql

from benchmarks.long_log import events
from vfbandits.campaign.events import Event
from vfbandits.journal.lookup import LookupHash
from vfbandits.journal.postgres.journal import PostgresJournal
from vfbandits.journal.record import encode

OURS = "ours"
DIM = 100
_TABLE = """
    CREATE TABLE {} (
        journal integer NOT NULL, position bigint NOT NULL, name bigint, record bytea NOT NULL,
        PRIMARY KEY (journal, position)
    )
"""
Finished: TypeAlias = tuple[int | None, bytes]


class Bare:
    """One way to write rows, into a table of its own."""

    def __init__(
        self, url: str, name: str, *, is_binary: bool = True, is_copy: bool = True
    ) -> None:
        self._db = psycopg.connect(url, autocommit=True)
        self._db.execute(sql.SQL(_TABLE).format(sql.Identifier(name)))
        storage = sql.SQL("ALTER TABLE {} ALTER COLUMN record SET STORAGE EXTERNAL")
        self._db.execute(storage.format(sql.Identifier(name)))
        self._db.execute(sql.SQL("CREATE INDEX ON {} (name)").format(sql.Identifier(name)))
        form = sql.SQL("(FORMAT binary)") if is_binary else sql.SQL("")
        table = sql.Identifier(name)
        self._copy = sql.SQL("COPY {} FROM STDIN {}").format(table, form)
        self._insert = sql.SQL("INSERT INTO {} VALUES (%b, %b, %b, %b)").format(table)
        self._is_binary, self._is_copy = is_binary, is_copy
        self._last = 0

    def write(self, finished: list[Finished]) -> None:
        """One transaction."""
        rows = [(1, self._last + n, *row) for n, row in enumerate(finished, start=1)]
        with self._db.transaction(), self._db.cursor() as cursor:
            if not self._is_copy:
                cursor.executemany(self._insert, rows)
            else:
                with cursor.copy(self._copy) as copy:
                    if self._is_binary:
                        copy.set_types(["int4", "int8", "int8", "bytea"])
                    for row in rows:
                        copy.write_row(row)
        self._last += len(finished)

    def close(self) -> None:
        """Hang up."""
        self._db.close()


def compare(url: str, *, batch: int, n_batches: int, repetitions: int) -> dict[str, float]:
    """Rows per second of every contestant, medians of interleaved repetitions."""
    given = _batches(batch * n_batches, batch)
    names = LookupHash(b"bare")
    finished = [[(names.of_event(event), encode(event)) for event in some] for some in given]
    ways = {
        "COPY, text": (False, True),
        "COPY, binary": (True, True),
        "executemany": (True, False),
    }
    bare = {
        name: Bare(url, f"{name} {batch}", is_binary=is_binary, is_copy=is_copy)
        for name, (is_binary, is_copy) in ways.items()
    }
    journal = PostgresJournal(url, name=f"of {batch}")
    rates: dict[str, list[float]] = {name: [] for name in (*bare, OURS)}
    for repetition in range(repetitions + 1):
        timed = {
            **{name: _time(one.write, finished) for name, one in bare.items()},
            OURS: _time(journal.append, given),
        }
        if repetition:  # the first one warms up
            for name, seconds in timed.items():
                rates[name].append(batch * n_batches / seconds)
    journal.close()
    for one in bare.values():
        one.close()
    return {name: median(values) for name, values in rates.items()}


def _batches(n_events: int, size: int) -> list[list[Event]]:
    flat = [event for batch in events(n_events, dim=DIM) for event in batch]
    return [flat[start : start + size] for start in range(0, n_events, size)]


def _time(write: Callable[[list[Finished]], object] | Callable[[list[Event]], object],
          batches: list[list[Finished]] | list[list[Event]]) -> float:  # fmt: skip
    start = time.perf_counter()
    for batch in batches:
        write(batch)  # type: ignore[arg-type]
    return time.perf_counter() - start
