"""The embedded journal: one SQLite file, its write-ahead log, and snapshot files beside it.

::

    <journal>                       the tables of ``rows.py``
    <journal>-wal, <journal>-shm    SQLite's own, part of the journal while it is open
    <journal>.lock                  locked by the one writer; the witness (``witness.py``)
    <journal>.snapshot-<position>   the newest two, and the first

A commit ends with an fsync of the write-ahead log (``synchronous=FULL``).  All files are for
their owner only: they hold masked contexts.
"""

import logging
import os
import sqlite3
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from itertools import chain
from pathlib import Path

from vfbandits.campaign.events import Erased, Event, Found, LossAccepted, SetAside
from vfbandits.core.decision import EventId
from vfbandits.core.settings import whole
from vfbandits.core.snapshot import Snapshot
from vfbandits.errors import JournalError
from vfbandits.files import sync_folder
from vfbandits.journal.base import (
    Damage,
    damaged_end,
    refuse_bare_compaction,
    refuse_future,
    refuse_uncovered,
    refuse_unknown,
)
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.record import encode
from vfbandits.journal.rows import RowsReader
from vfbandits.journal.snapshot_files import SnapshotFiles
from vfbandits.journal.sqlite.names import NAMES_PER_BATCH, as_json, waiting_in
from vfbandits.journal.sqlite.rows import (
    BUSY_TIMEOUT_S,
    SqliteRows,
    connect_reader,
    is_empty,
    make_tables,
    translated,
)
from vfbandits.journal.witness import Head, Loss, Witness, check_of, lock_path, loss_after, lost

CHECKPOINT_PAGES = 4_000
ROWS_PER_BATCH = 250
_FILES = "the file, its -wal and its .lock, from the disk or a backup,"
_log = logging.getLogger(__name__)


class SqliteJournal(RowsReader[SqliteRows]):
    """A journal in one file.

    ``key`` encrypts a new journal, and opens one that was created with it.  ``checkpoint_pages`` is
    the length of the write-ahead log, in pages of 4 KB, at which it is checkpointed into the file,
    with two more fsyncs.  ``names_in_memory`` is how many lookup hashes wait in memory
    (``names.py``).  A journal that has lost acknowledged records is refused and not changed, unless
    ``accept_loss`` says who accepts that: then a ``LossAccepted`` is its next record.

    >>> import tempfile
    >>> from vfbandits.campaign.events import Forgotten
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     journal = SqliteJournal(folder + "/log.db")
    ...     print(journal.append([Forgotten("a"), Forgotten("b")]), list(journal.read(after=1)))
    ...     journal.close()
    2 [(2, Forgotten(event_id='b'))]
    """

    is_quick = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        key: JournalKey | None = None,
        checkpoint_pages: int = CHECKPOINT_PAGES,
        names_in_memory: int = NAMES_PER_BATCH,
        accept_loss: str | None = None,
    ) -> None:
        self._path = Path(path)
        self._has_failed = self._is_closed = False
        with ExitStack() as stack, translated(self._path, "opened"):
            self._witness = Witness(lock_path(self._path))
            stack.callback(self._witness.close)
            self._witness.lock()
            # Through a reader: closing a writer would checkpoint the write-ahead log.
            loss = _find_loss(self._path, key, self._head())
            if loss is not None and accept_loss is None:
                raise lost(loss, log=str(self._path), advice=f"Restore {_FILES} together")
            self._n_dropped = 0 if loss is None else max(1, loss.expected - loss.found)
            self._db = connect_writer(self._path)
            stack.callback(self._db.close)
            is_new = is_empty(self._db, self._path)
            prepare(self._db, self._path, whole(checkpoint_pages, "checkpoint_pages"))
            if is_new:
                make_tables(self._db, key)
                sync_folder(self._path.parent)
            self._rows = SqliteRows(self._db, self._path, key)
            # A connection of its own, so that appends do not wait for lookups.
            side = connect_reader(self._path)
            stack.callback(side.close)
            self._side = SqliteRows(side, self._path, key)
            self._snapshots = SnapshotFiles(self._path, self._rows.codec)
            self._snapshots.clear_parts()
            self._last = self._recover()
            in_memory = whole(names_in_memory, "names_in_memory")
            self._waiting = waiting_in(self._db, in_memory=in_memory)
            if loss is not None and accept_loss is not None:
                self._accept(loss, accept_loss)
            self._closing = stack.pop_all()

    @property
    def last_position(self) -> int:
        """Position of the last durable record."""
        return self._last

    @property
    def damage(self) -> Damage:
        """Damage that was found since the journal was opened."""
        return Damage(self._n_dropped, self._snapshots.n_damaged)

    def append(self, events: Sequence[Event]) -> int:
        """Write events in one transaction."""
        records = [encode(event) for event in events]
        with self._rows.guard:
            if self._has_failed:
                raise JournalError(
                    f"a write to the journal {self._path} has failed before; "
                    "close it and open it again"
                )
            if not records:
                return self._last
            with self._rows.translated("written"):
                self._has_failed = True  # until the write is known to have succeeded
                names = self._rows.codec.names.of_events(events)
                sealed = self._rows.codec.seal(records, after=self._last)
                self._insert(names, sealed)
                self._witness.ack(Head(self._last, check_of(sealed[-1])))
                self._has_failed = False
            return self._last

    def find_many(self, ids: Sequence[EventId]) -> dict[EventId, Found]:
        """All events of several decisions."""
        return self._side.find_many(ids, self._waiting)

    def save_snapshot(self, position: int, snapshot: Snapshot) -> None:
        """Write a snapshot file; appends go on meanwhile."""
        refuse_future(position, self._last)
        with self._rows.translated("given a snapshot"):
            self._snapshots.save(position, snapshot)
            self._witness.sync()

    def snapshot_positions(self) -> list[int]:
        """Positions of all snapshots, newest first."""
        return self._snapshots.positions()

    def load_snapshot(self, position: int) -> Snapshot:
        """The snapshot of a position."""
        with self._rows.translated("read"):
            return self._snapshots.load(position)

    def latest_snapshot(self) -> tuple[int, Snapshot] | None:
        """The newest undamaged snapshot."""
        with self._rows.translated("read"):
            return self._snapshots.latest()

    def set_aside(self, records: Mapping[int, SetAside]) -> None:
        """Move rows to the table ``damaged`` and insert replacements, in one transaction."""
        refuse_unknown(records, self._last)
        rows = [
            (position, self._rows.codec.seal([encode(event)], after=position - 1)[0])
            for position, event in sorted(records.items())
        ]
        with self._rows.guard, self._rows.translated("repaired"), self._transaction():
            self._db.execute("CREATE TEMP TABLE gone (position INTEGER PRIMARY KEY)")
            self._db.executemany("INSERT INTO gone VALUES (?)", ((at,) for at, _ in rows))
            self._db.execute(
                "INSERT INTO damaged SELECT position, record FROM event "
                "WHERE position IN (SELECT position FROM gone)"
            )
            for table in ("event", "named"):
                self._db.execute(
                    f"DELETE FROM {table} WHERE position IN (SELECT position FROM gone)"  # noqa: S608
                )
            self._db.executemany("INSERT INTO event VALUES (?, NULL, ?)", rows)
            self._db.execute("DROP TABLE gone")
        self._ack_end()

    def erase(self, records: Mapping[int, Erased | SetAside]) -> None:
        """Overwrite rows in one transaction, then rewrite the whole file.

        Earlier bytes of a page remain in its free space and in the write-ahead log; a rewritten
        file and an empty write-ahead log have none of them.
        """
        refuse_unknown(records, self._last)
        rows = [
            (self._rows.codec.seal([encode(event)], after=position - 1)[0], position)
            for position, event in sorted(records.items())
        ]
        with self._rows.guard, self._rows.translated("erased from"):
            with self._transaction():
                self._db.executemany("UPDATE event SET record = ? WHERE position = ?", rows)
                self._db.execute("DELETE FROM damaged")
            self._snapshots.drop_set_aside()
            self._vacuum()
            self._empty_write_ahead_log()
        self._ack_end()

    def compact(self, position: int, *, keep: Collection[int]) -> int:
        """Drop records in one transaction, then return their space to the file system."""
        refuse_bare_compaction(position, self.snapshot_positions(), self.compacted_to)
        with self._rows.guard, self._rows.translated("compacted"):
            with self._transaction():
                self._db.execute("CREATE TEMP TABLE kept (position INTEGER PRIMARY KEY)")
                self._db.executemany("INSERT INTO kept VALUES (?)", ((k,) for k in keep))
                dropped = self._db.execute(
                    "DELETE FROM event WHERE position <= ? AND position NOT IN kept", (position,)
                ).rowcount
                self._db.execute("UPDATE log SET compacted_to = ?", (position,))
                self._db.execute(
                    "DELETE FROM named WHERE position NOT IN (SELECT position FROM event)"
                )
                self._db.execute("DROP TABLE kept")
            self._snapshots.drop_before(position)
            self._shrink()
        return int(dropped)

    def retire(self, positions: Sequence[int], *, covered_by: int) -> None:
        """Overwrite rows with zeros and delete them, in one transaction."""
        refuse_uncovered(positions, covered_by, self.snapshot_positions(), self.compacted_to)
        old = (as_json(positions),)
        with self._rows.guard, self._rows.translated("compacted"):
            with self._transaction():
                self._db.execute("UPDATE log SET compacted_to = ?", (covered_by,))
                self._db.execute(
                    "DELETE FROM named WHERE (name, position) IN (SELECT name, position FROM event "
                    "WHERE position IN (SELECT value FROM json_each(?)))",
                    old,
                )
                # ``secure_delete`` clears a row where it is deleted, but not where it was before
                # two pages were merged.
                self._db.execute(
                    "UPDATE event SET record = zeroblob(length(record)) "
                    "WHERE position IN (SELECT value FROM json_each(?))",
                    old,
                )
                self._db.execute(
                    "DELETE FROM event WHERE position IN (SELECT value FROM json_each(?))", old
                )
            self._snapshots.drop_before(covered_by)
            # Their pages stay in the write-ahead log until it is emptied.  A process that is
            # reading now prevents that until the next call; it is not waited for.
            self._db.execute("PRAGMA busy_timeout = 0")
            try:
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                self._db.execute(f"PRAGMA busy_timeout = {round(1_000 * BUSY_TIMEOUT_S)}")

    def close(self) -> None:
        """Checkpoint the write-ahead log into the file, and release the lock."""
        with self._rows.guard, self._side.guard, self._rows.translated("closed"):
            if not self._is_closed:
                self._is_closed = True
                self._witness.sync()
            self._closing.close()

    def _insert(self, names: list[int | None], records: list[bytes]) -> None:
        positions = range(self._last + 1, self._last + 1 + len(records))
        rows = list(zip(positions, names, records, strict=True))
        # As few statements as possible: after each the thread waits for the interpreter lock.
        inserts = [
            rows[start : start + ROWS_PER_BATCH] for start in range(0, len(rows), ROWS_PER_BATCH)
        ]
        self._waiting.expect(len(records))
        if self._waiting.is_due or len(inserts) > 1:
            with self._transaction():
                for some in inserts:
                    self._insert_rows(some)
                if self._waiting.is_due:
                    self._waiting.write(self._db)
        else:  # a statement alone is a transaction
            self._insert_rows(rows)
        self._waiting.committed(names, after=self._last)
        self._last += len(records)

    def _insert_rows(self, rows: Sequence[tuple[int, int | None, bytes]]) -> None:
        self._db.execute(_insert_of(len(rows)), [*chain.from_iterable(rows)])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    def _shrink(self) -> None:
        try:
            self._vacuum()
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error as error:  # it needs the space twice; new records reuse the old space
            _log.warning("%s is compacted, but its file did not shrink: %s", self._path, error)

    def _vacuum(self) -> None:
        """Rewrite the file without earlier bytes; its temporary copy is on disk, not in memory."""
        self._db.execute("PRAGMA temp_store = FILE")
        try:
            self._db.execute("VACUUM")
        finally:
            self._db.execute("PRAGMA temp_store = MEMORY")

    def _empty_write_ahead_log(self) -> None:
        ((is_busy, *_),) = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if is_busy:
            raise JournalError(
                f"{self._path}-wal must be emptied to complete the erasure, got a process that is "
                "reading the journal: end it, and run the same command again"
            )

    def _recover(self) -> int:
        """Set a damaged end aside; returns the last good position."""
        torn = damaged_end(self._rows.backwards())
        if torn:
            with self._transaction():
                first = (torn[-1],)
                self._db.execute(
                    "INSERT INTO damaged SELECT position, record FROM event WHERE position >= ?",
                    first,
                )
                self._db.execute("DELETE FROM event WHERE position >= ?", first)
        last = self._rows.last()
        # Later positions of the table are discarded, since other records will have them.
        self._db.execute("UPDATE log SET indexed_to = ?1 WHERE indexed_to > ?1", (last,))
        self._snapshots.set_aside(after=last)
        self._last = last
        if not self._n_dropped:  # else the witness stays until the loss is recorded
            self._ack_end()
        return last

    def _ack_end(self) -> None:
        with self._rows.guard, self._rows.translated("read"):
            found = self._db.execute("SELECT record FROM event WHERE position = ?", (self._last,))
            record = next(iter(found.fetchall()), (None,))[0]
            check = check_of(record) if isinstance(record, bytes) else b""
            self._witness.ack(Head(self._last, check))

    def _accept(self, loss: Loss, who: str) -> None:
        """Record that the journal continues without the lost records; then the witness follows."""
        _log.warning("%d records lost at the end, journal ends at %d", self._n_dropped, loss.found)
        accepted = LossAccepted(loss.expected, loss.found, loss.why, who, time.time())
        self.append([accepted])

    def _head(self) -> Head:
        head = self._witness.head
        if head is None:
            _log.warning("the acknowledgement in %s.lock is damaged", self._path)
        return head or Head(0)


def _find_loss(path: Path, key: JournalKey | None, head: Head) -> Loss | None:
    """The loss of acknowledged records, if any; a journal that lost all of them is refused.

    The witness and every snapshot show how far the journal was acknowledged.
    """
    rows = None
    with ExitStack() as stack:
        if path.exists() and path.stat().st_size:
            db = connect_reader(path)
            stack.callback(db.close)
            rows = None if is_empty(db, path) else SqliteRows(db, path, key)
        torn = [] if rows is None else damaged_end(rows.backwards())
        last = 0 if rows is None else rows.last()
        if torn and rows is not None:
            last = max(torn[-1] - 1, rows.compacted_to())
        if last == 0 and (head.position or torn):
            raise JournalError(
                f"the journal {path} held {max([head.position, *torn])} records, got an empty one; "
                "restore it, or remove its .lock and .snapshot files to start a new journal"
            )
        if rows is None:
            return None
        seen = [head.position, *torn, *SnapshotFiles(path, rows.codec).positions()]
        if max(seen) > last:
            head = Head(max(seen))
        at = {"last": last, "compacted_to": rows.compacted_to()}
        return loss_after(head, **at, record_at=rows.record_at)


@lru_cache(maxsize=ROWS_PER_BATCH)
def _insert_of(n_rows: int) -> str:
    places = ", ".join(["(?, ?, ?)"] * n_rows)
    return f"INSERT INTO event VALUES {places}"  # noqa: S608  (places only)


def connect_writer(path: Path) -> sqlite3.Connection:
    """A connection for writing; the file is created if there is none."""
    # Created here, since SQLite would make it readable by others.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    return sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )


def prepare(db: sqlite3.Connection, path: Path, checkpoint_pages: int = CHECKPOINT_PAGES) -> None:
    """Set the options of a connection."""
    mode = db.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise JournalError(
            f"{path} must be on a file system on which SQLite can use a write-ahead log, "
            f"got journal mode {mode}"
        )
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA secure_delete = ON")
    db.execute("PRAGMA temp_store = MEMORY")
    db.execute(f"PRAGMA wal_autocheckpoint = {checkpoint_pages}")
