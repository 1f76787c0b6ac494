"""An SQLite journal for reading, with or without its writer; nothing is changed or locked."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from vfbandits.campaign.events import Found
from vfbandits.core.decision import EventId
from vfbandits.core.snapshot import Snapshot
from vfbandits.errors import JournalError
from vfbandits.journal.base import Damage
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.rows import RowsReader
from vfbandits.journal.snapshot_files import SnapshotFiles
from vfbandits.journal.sqlite.rows import SqliteRows, connect_reader, is_empty, translated
from vfbandits.journal.witness import Head, lock_path, read_ack


class SqliteReader(RowsReader[SqliteRows]):
    """Reads the committed records of a journal, also those that are committed later.

    ``damage.records`` counts the acknowledged records that were missing from the end at opening.
    ``is_idle`` promises that no process writes meanwhile; then reading creates no files.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        key: JournalKey | None = None,
        is_idle: bool = False,
    ) -> None:
        self._path = Path(path)
        with ExitStack() as stack, translated(self._path, "opened"):
            db = connect_reader(self._path, is_idle=is_idle)
            stack.callback(db.close)
            if is_empty(db, self._path):
                raise JournalError(f"{self._path} must be a journal, got an empty file")
            self._rows = SqliteRows(db, self._path, key)
            self._snapshots = SnapshotFiles(self._path, self._rows.codec)
            # Both before the end is read, since a writer may be running.
            head = read_ack(lock_path(self._path)) or Head(0)
            expected = max(head.position, *self._snapshots.positions(), 0)
            self._n_missing = max(0, expected - self._rows.last())
            self._closing = stack.pop_all()

    @property
    def last_position(self) -> int:
        """Position of the last record now."""
        return self._rows.last()

    @property
    def damage(self) -> Damage:
        """Damage that was found since the journal was opened."""
        return Damage(self._n_missing, self._snapshots.n_damaged)

    def find_many(self, ids: Sequence[EventId]) -> dict[EventId, Found]:
        """All events of several decisions."""
        return self._rows.find_many(ids)

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

    def close(self) -> None:
        """Close the file."""
        with self._rows.guard, self._rows.translated("closed"):
            self._closing.close()
