"""Brings the tables of an SQLite journal to the newest version, in one transaction."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from vfbandits.errors import JournalError
from vfbandits.journal.migration import Migrated, Migration, plan
from vfbandits.journal.sqlite.rows import (
    BUSY_TIMEOUT_S,
    PRAGMAS,
    STEPS,
    connect_reader,
    refuse_unless_journal,
    translated,
)
from vfbandits.journal.witness import Witness, lock_path

TABLES = "journal"
_MIGRATED = """
    CREATE TABLE IF NOT EXISTS migrated (
        found INTEGER NOT NULL, newest INTEGER NOT NULL, by TEXT NOT NULL, at REAL NOT NULL
    ) STRICT
"""


def plan_sqlite(path: str | os.PathLike[str]) -> list[Migration]:
    """What ``migrate_sqlite`` would do; a writer may be running."""
    file = Path(path)
    with translated(file, "opened"), closing(connect_reader(file)) as db:
        return [_plan(db, file)]


def migrations_of_sqlite(path: str | os.PathLike[str]) -> list[Migrated]:
    """What ``migrate_sqlite`` has done so far; a writer may be running."""
    file = Path(path)
    with translated(file, "opened"), closing(connect_reader(file)) as db:
        if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'migrated'").fetchall():
            return []
        found = db.execute("SELECT found, newest, by, at FROM migrated ORDER BY at").fetchall()
    return [Migrated(TABLES, *row) for row in found]


def migrate_sqlite(path: str | os.PathLike[str], *, by: str, now: float) -> list[Migration]:
    """Migrate, if the journal has no writer; nothing is changed unless all steps succeed."""
    file = Path(path)
    plan_sqlite(file)  # refuses a missing journal, which must not be created
    with translated(file, "migrated"), closing(Witness(lock_path(file))) as witness:
        witness.lock()
        with closing(_connect(file)) as db:
            db.execute("PRAGMA synchronous = FULL")
            db.execute("BEGIN IMMEDIATE")
            try:
                migration = _plan(db, file)
                for version in range(migration.found, migration.newest):
                    for statement in STEPS[version].statements:
                        db.execute(statement)
                db.execute(f"PRAGMA user_version = {migration.newest}")
                if migration.steps:
                    db.execute(_MIGRATED)
                    note = (migration.found, migration.newest, by, now)
                    db.execute("INSERT INTO migrated VALUES (?, ?, ?, ?)", note)
                db.execute("COMMIT")
            finally:
                if db.in_transaction:
                    db.execute("ROLLBACK")
    return [migration]


def _plan(db: sqlite3.Connection, path: Path) -> Migration:
    application, version, schema = (
        int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in PRAGMAS
    )
    if not schema:
        raise JournalError(f"{path} must be a journal, got an empty file")
    refuse_unless_journal(path, application)
    return plan(version, STEPS, tables=TABLES, journal=str(path))


def _connect(path: Path) -> sqlite3.Connection:
    real = path.resolve(strict=True)
    return sqlite3.connect(
        f"{real.as_uri()}?mode=rw", uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None
    )
