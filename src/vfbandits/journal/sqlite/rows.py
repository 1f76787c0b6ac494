"""The tables of a journal in an SQLite file, and the queries of readers and writers.

::

    event(position, name, record)   one row for each record, with the lookup hash of its decision
    named(name, position)           an index of the hashes (``names.py``)
    damaged(position, record)       records that were set aside
    log                             one row: identity, check of the key, how far it was compacted,
                                    and how far ``named`` is complete
"""

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from vfbandits.campaign.events import Found
from vfbandits.core.decision import EventId
from vfbandits.errors import JournalError
from vfbandits.journal.codec import IDENTITY_BYTES, Codec, refuse_other_key
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.migration import Step, newest, refuse_other_version
from vfbandits.journal.rows import ROWS_PER_BATCH, EventRows, NamedRow, Row
from vfbandits.journal.sqlite.names import FIND, FIND_UNAIDED, WaitingNames, as_json

APPLICATION = 0x76666231  # "vfb1", as `file` shows it
UNFINISHED = 0x76666263  # "vfbc": a copy that is being made, or was interrupted
STEPS: dict[int, Step] = {}
BUSY_TIMEOUT_S = 5.0
PRAGMAS = ("application_id", "user_version", "schema_version")

_SCHEMA = """
    CREATE TABLE event (
        position INTEGER PRIMARY KEY, name INTEGER, record BLOB NOT NULL
    ) STRICT;
    CREATE TABLE named (
        name INTEGER NOT NULL, position INTEGER NOT NULL, PRIMARY KEY (name, position)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE damaged (position INTEGER NOT NULL, record BLOB) STRICT;
    CREATE TABLE log (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        identity BLOB NOT NULL,
        key_check BLOB,
        compacted_to INTEGER NOT NULL DEFAULT 0,
        indexed_to INTEGER NOT NULL DEFAULT 0
    ) STRICT
"""
# A name that is missing from the index counts as none, so that the reader notices it.
_FORWARDS = """
    SELECT position, record, CASE WHEN position > indexed_to OR EXISTS (
        SELECT 1 FROM named WHERE named.name = event.name AND named.position = event.position
    ) THEN name END
    FROM event, log WHERE position > ? ORDER BY position LIMIT ?
"""
_BACKWARDS = """
    SELECT position, record FROM event
    WHERE position < ? AND position > (SELECT compacted_to FROM log)
    ORDER BY position DESC LIMIT ?
"""
_LAST = "SELECT max(compacted_to, coalesce((SELECT max(position) FROM event), 0)) FROM log"


class SqliteRows(EventRows):
    """Reads the tables; ``guard`` is held whenever the connection is used."""

    def __init__(self, db: sqlite3.Connection, path: Path, key: JournalKey | None) -> None:
        self._db = db
        self.path = path
        self.guard = threading.Lock()
        found = db.execute("SELECT identity, key_check FROM log").fetchone()
        identity, check = found or (None, None)
        if not isinstance(identity, bytes) or len(identity) != IDENTITY_BYTES:
            raise JournalError(f"the journal {path} is damaged: its identity is missing")
        refuse_other_key(key, identity=identity, check=check, log=str(path))
        self.codec = Codec(identity, key)

    def last(self) -> int:
        """Position of the last record."""
        return self._number(_LAST)

    def compacted_to(self) -> int:
        """Position up to which only some records are kept."""
        return self._number("SELECT compacted_to FROM log")

    def record_at(self, position: int) -> object:
        """The undecoded record at a position; None if there is none."""
        rows = self._rows("SELECT record FROM event WHERE position = ?", position)
        return rows[0][0] if rows else None

    def find_many(
        self, ids: Sequence[EventId], waiting: WaitingNames | None = None
    ) -> dict[EventId, Found]:
        """All events of several decisions; the journal's writer passes its ``waiting`` names."""
        names = [self.codec.names.of(event_id) for event_id in ids]
        if waiting is None:
            rows = self._rows(FIND_UNAIDED, as_json(names))
        else:
            rows = self._rows(FIND, as_json(names), as_json(waiting.positions(names)))
        return self.found(cast("list[Row]", rows), ids)

    @contextmanager
    def translated(self, done: str) -> Iterator[None]:
        """Raise errors of SQLite and of the disk as ``JournalError``."""
        with translated(self.path, done):
            yield

    def page_after(self, position: int) -> list[NamedRow]:
        """Rows after a position, in order."""
        return cast("list[NamedRow]", self._rows(_FORWARDS, position, ROWS_PER_BATCH))

    def page_before(self, position: int) -> list[Row]:
        """Rows before a position, newest first."""
        return cast("list[Row]", self._rows(_BACKWARDS, position, ROWS_PER_BATCH))

    def _rows(self, sql: str, *values: int | str) -> list[tuple[object, ...]]:
        with self.guard, self.translated("read"):
            return self._db.execute(sql, values).fetchall()

    def _number(self, sql: str) -> int:
        with self.guard, self.translated("read"):
            return int(self._db.execute(sql).fetchone()[0])


@contextmanager
def translated(path: Path, done: str) -> Iterator[None]:
    """Raise errors of SQLite and of the disk as ``JournalError``."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise JournalError(f"the journal {path} cannot be {done}: {error}") from error


def connect_reader(path: Path, *, is_idle: bool = False) -> sqlite3.Connection:
    """A read-only connection, which sees what other processes commit.

    ``is_idle`` promises that no process writes: then SQLite creates no files, unless there is a
    write-ahead log.
    """
    real = path.resolve(strict=True)
    if is_idle and not real.with_name(f"{real.name}-wal").exists():
        return _open(f"{real.as_uri()}?immutable=1")
    db = _open(f"{real.as_uri()}?mode=ro")
    try:
        db.execute("PRAGMA schema_version").fetchall()
    except sqlite3.OperationalError:
        # On a read-only disk SQLite cannot create the files that it shares with a writer; without
        # a write-ahead log there is no writer.
        db.close()
        if real.with_name(f"{real.name}-wal").exists() or os.access(real.parent, os.W_OK):
            raise
        db = _open(f"{real.as_uri()}?immutable=1")
    return db


def _open(uri: str) -> sqlite3.Connection:
    return sqlite3.connect(
        uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )


def is_empty(db: sqlite3.Connection, path: Path) -> bool:
    """Whether the file has no tables yet; refuses one that is not a journal of this version."""
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("PRAGMA cell_size_check = ON")
    application, version, schema = (
        int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in PRAGMAS
    )
    if schema:
        refuse_other_database(path, application, version)
    return not schema


def refuse_other_database(path: Path, application: int, version: int) -> None:
    """Raise unless a file with these marks is a journal of the newest version."""
    refuse_unless_journal(path, application)
    refuse_other_version(version, STEPS, journal=str(path))


def refuse_unless_journal(path: Path, application: int) -> None:
    """Raise unless the file is marked as a journal, of any version."""
    if application == UNFINISHED:
        raise JournalError(
            f"{path} must be a journal, got an unfinished copy of one: run `vfb journal copy` again"
        )
    if application != APPLICATION:
        raise JournalError(
            f"{path} must be a journal, with the application_id {APPLICATION:#x}, "
            f"got a database with {application:#x}"
        )


def make_tables(
    db: sqlite3.Connection, key: JournalKey | None, *, application: int = APPLICATION
) -> None:
    """Create the tables of a new journal, marked as ``application``."""
    identity = os.urandom(IDENTITY_BYTES)
    check = None if key is None else key.check(identity)
    db.execute("BEGIN IMMEDIATE")
    for statement in _SCHEMA.split(";\n"):
        db.execute(statement)
    db.execute(f"PRAGMA application_id = {application}")
    db.execute(f"PRAGMA user_version = {newest(STEPS)}")
    db.execute("INSERT INTO log (id, identity, key_check) VALUES (1, ?, ?)", (identity, check))
    db.execute("COMMIT")
