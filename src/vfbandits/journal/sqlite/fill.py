"""Creates an SQLite journal with the contents of another one: all of them, or no journal.

Until the copy is complete the file is marked as unfinished, and no process opens it as a journal.
The transaction that adds all records removes the mark.
"""

import glob
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

from vfbandits.errors import JournalError
from vfbandits.files import sync_folder
from vfbandits.journal.contents import JournalContents
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.snapshot_files import SnapshotFiles
from vfbandits.journal.sqlite.journal import connect_writer, prepare
from vfbandits.journal.sqlite.rows import (
    APPLICATION,
    UNFINISHED,
    SqliteRows,
    connect_reader,
    make_tables,
    translated,
)
from vfbandits.journal.witness import Head, Witness, check_of, lock_path


def fill_sqlite(path: Path, source: JournalContents, *, key: JournalKey | None) -> None:
    """Create the journal; refused if it exists, while an unfinished one is deleted first."""
    with ExitStack() as stack, translated(path, "made"):
        is_there = path.exists() and _is_finished(path)
        witness = Witness(lock_path(path))
        stack.callback(witness.close)
        witness.lock()
        if is_there or (witness.head or Head(0)).position:
            raise JournalError(f"a copy needs a new journal, got {path}, which exists already")
        _clear(path)
        db = connect_writer(path)
        stack.callback(db.close)
        prepare(db, path)
        make_tables(db, key, application=UNFINISHED)
        sync_folder(path.parent)
        source.on_begin()
        check = _copy(db, path, source, key)
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        witness.ack(Head(source.last_position, check))
        witness.sync()


def _copy(
    db: sqlite3.Connection, path: Path, source: JournalContents, key: JournalKey | None
) -> bytes:
    """Write files and rows; returns the checksum of the last record, empty if it was dropped."""
    codec = SqliteRows(db, path, key).codec
    files = SnapshotFiles(path, codec)
    for position, snapshot in source.snapshots():
        files.save(position, snapshot)
    check = b""
    db.execute("BEGIN IMMEDIATE")
    for batch in source.batches():
        rows = []
        for position, event, record in batch:
            (sealed,) = codec.seal([record], after=position - 1)
            rows.append((position, codec.names.of_event(event), sealed))
            check = check_of(sealed) if position == source.last_position else b""
        db.executemany("INSERT INTO event VALUES (?, ?, ?)", rows)
    db.execute(
        "INSERT INTO named SELECT name, position FROM event WHERE name IS NOT NULL ORDER BY 1, 2"
    )
    ends = (source.compacted_to, source.last_position)
    db.execute("UPDATE log SET compacted_to = ?, indexed_to = ?", ends)
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute("COMMIT")
    return check


def _is_finished(path: Path) -> bool:
    """Whether a file is anything but a copy that was interrupted."""
    if not path.stat().st_size:
        return False
    with closing(connect_reader(path)) as db:
        (application,) = db.execute("PRAGMA application_id").fetchone()
        return bool(application != UNFINISHED)


def _clear(path: Path) -> None:
    """Remove the files of an interrupted copy; the journal itself last, since it has the mark."""
    for left in _left_by(path):
        left.unlink(missing_ok=True)


def _left_by(path: Path) -> Iterator[Path]:
    name = glob.escape(path.name)
    snapshots = [*path.parent.glob(f"{name}.snapshot-*")]
    if not path.exists():
        if snapshots:
            raise JournalError(
                f"a copy needs a new journal, got {snapshots[0]}, a snapshot of one that is gone"
            )
        return
    yield from snapshots
    yield from path.parent.glob(f".{name}.snapshot-*")
    yield from (path.with_name(path.name + end) for end in ("-shm", "-wal", ""))
