"""Rows that were answered, so that a changed row of the same user is answered only after a delay.

A user's masked rows before and after a change of one feature reveal a column of the mask.  So a
change is held back for ``after_s`` from when it was first seen: until then the earlier row is
answered, and later changes are released together with it.

The rows are in a database in the state folder, since a feature file may change between two starts.
They survive a restart and a killed process.  A power cut may lose the last of them, and rows beyond
``max_rows`` are dropped, the least recently asked first; users without an earlier row get their
present one.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import time
from typing import Final, TypeAlias

import numpy as np

from vfbandits.core.arrays import PlainBlock
from vfbandits.errors import AccessRecordError
from vfbandits.features.base import Lookup
from vfbandits.versions import refuse_unknown_version

FILE: Final = "held_rows.db"
VERSION: Final = 1
MAX_ROWS: Final = 1_000_000
DAY_S: Final = 86_400.0
CHUNK: Final = 500  # users in one statement

RowKey: TypeAlias = tuple[str, str]
"""The keyed hash of a user, and the arm; an empty text where rows are of users."""

_TABLES: Final = """
CREATE TABLE scaling (id INTEGER PRIMARY KEY CHECK (id = 1), digest TEXT NOT NULL) STRICT;
CREATE TABLE held (
    user TEXT NOT NULL, arm TEXT NOT NULL, row BLOB NOT NULL, changed_at REAL, day INTEGER NOT NULL,
    PRIMARY KEY (user, arm)
) STRICT, WITHOUT ROWID;
CREATE INDEX held_by_day ON held (day);
"""


@dataclass(frozen=True, slots=True)
class _Held:
    """The row that is answered, the time its change was first seen, and the day of the last ask."""

    row: bytes
    changed_at: float | None
    day: int


class HeldRows:
    """The rows of one participant; ``digest`` is that of the scaling that made them.

    >>> import tempfile
    >>> now = 0.0
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     held = HeldRows(Path(folder) / FILE, after_s=60.0, digest="", clock=lambda: now)
    ...     first = held.settle([("ann", "")], Lookup(PlainBlock(np.array([[1.0]]))))
    ...     changed = Lookup(PlainBlock(np.array([[2.0]])))
    ...     second = held.settle([("ann", "")], changed)
    ...     now = 60.0
    ...     third = held.settle([("ann", "")], changed)
    ...     held.close()
    >>> [float(one.values[0, 0]) for one in (first, second, third)]
    [1.0, 1.0, 2.0]
    """

    def __init__(
        self,
        path: Path,
        *,
        after_s: float,
        digest: str,
        max_rows: int = MAX_ROWS,
        clock: Callable[[], float] = time,
    ) -> None:
        self._path = path
        self._after_s = after_s
        self._max_rows = max_rows
        self._clock = clock
        self.n_held = 0
        try:
            self._db = _open(path)
            self._begin(digest)
            (self._count,) = self._db.execute("SELECT count(*) FROM held").fetchone()
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def settle(self, keys: Sequence[RowKey], lookup: Lookup) -> Lookup:
        """``lookup`` with earlier rows in place of those that changed recently.

        ``n_held`` counts these.  Earlier rows are erased if the store no longer has the key, or the
        user gave no consent.
        """
        try:
            return self._settle(keys, lookup)
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def _settle(self, keys: Sequence[RowKey], lookup: Lookup) -> Lookup:
        known = self._find(user for user, _ in keys)
        gone = {*lookup.absent, *lookup.refused}
        values: PlainBlock | None = None
        changes: dict[RowKey, _Held | None] = {}
        for place, key in enumerate(keys):
            before = known.get(key)
            now = None if place in gone else self._next(before, lookup.values[place].tobytes())
            if now != before:
                changes[key] = now
            if now is None:
                known.pop(key, None)
                continue
            known[key] = now
            if now.changed_at is not None:
                values = PlainBlock(lookup.values.copy()) if values is None else values
                values[place] = np.frombuffer(now.row)
                self.n_held += 1
        if changes:
            self._store(changes)
        return lookup if values is None else lookup._replace(values=values)

    def _next(self, before: _Held | None, row: bytes) -> _Held:
        """The entry after this row was looked up."""
        now = self._clock()
        day = int(now // DAY_S)
        if before is None or before.row == row:
            return _Held(row, None, day)
        if before.changed_at is None:
            return _Held(before.row, now, day)
        if now - before.changed_at >= self._after_s:
            return _Held(row, None, day)
        return _Held(before.row, before.changed_at, day)

    def _find(self, users: Iterable[str]) -> dict[RowKey, _Held]:
        names = [*dict.fromkeys(users)]
        found = {}
        for start in range(0, len(names), CHUNK):
            some = names[start : start + CHUNK]
            marks = ",".join("?" * len(some))
            for user, arm, row, changed_at, day in self._db.execute(
                f"SELECT user, arm, row, changed_at, day FROM held WHERE user IN ({marks})",  # noqa: S608  (marks)
                some,
            ):
                found[user, arm] = _Held(row, changed_at, day)
        return found

    def _store(self, changes: dict[RowKey, _Held | None]) -> None:
        with _transaction(self._db):
            kept = [
                (*key, held.row, held.changed_at, held.day)
                for key, held in changes.items()
                if held is not None
            ]
            self._db.executemany("INSERT OR REPLACE INTO held VALUES (?, ?, ?, ?, ?)", kept)
            gone = [key for key, held in changes.items() if held is None]
            self._db.executemany("DELETE FROM held WHERE user = ? AND arm = ?", gone)
            self._count += len(kept)  # at most: those that were replaced are counted again
            if self._count > self._max_rows:
                self._drop_old()

    def _drop_old(self) -> None:
        """Make room for a tenth more than is needed now, so that it is seldom done."""
        (count,) = self._db.execute("SELECT count(*) FROM held").fetchone()
        if count > self._max_rows:
            self._db.execute(
                "DELETE FROM held WHERE (user, arm) IN "
                "(SELECT user, arm FROM held ORDER BY day LIMIT ?)",
                (count - self._max_rows + self._max_rows // 10,),
            )
            (count,) = self._db.execute("SELECT count(*) FROM held").fetchone()
        self._count = count

    def _begin(self, digest: str) -> None:
        """Erase rows of another scaling: they are not rows of the same features."""
        (noted,) = self._db.execute("SELECT max(digest) FROM scaling").fetchone()
        if noted != digest:
            with _transaction(self._db):
                self._db.execute("DELETE FROM held")
                self._db.execute("INSERT OR REPLACE INTO scaling VALUES (1, ?)", (digest,))

    def _failure(self, error: sqlite3.Error) -> AccessRecordError:
        return AccessRecordError(f"{self._path.name} cannot be read or written: {error}")


def forget_rows(path: Path, users: Iterable[str]) -> int:
    """Erase the rows of these users; returns how many there were."""
    if not path.is_file():
        return 0
    try:
        db = _open(path)
        try:
            done = db.executemany("DELETE FROM held WHERE user = ?", [(user,) for user in users])
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # the log of the database has them too
            return done.rowcount
        finally:
            db.close()
    except sqlite3.Error as error:
        raise AccessRecordError(f"{path.name} cannot be read or written: {error}") from error


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _open(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, timeout=5.0)
    try:
        path.chmod(0o600)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA secure_delete = ON")  # what is erased is overwritten
        (version,) = db.execute("PRAGMA user_version").fetchone()
        if not version:
            db.executescript(f"BEGIN IMMEDIATE;{_TABLES}PRAGMA user_version = {VERSION};COMMIT;")
        else:
            refuse_unknown_version(
                version, newest=VERSION, upcasters={}, what=str(path), error=AccessRecordError
            )
    except BaseException:
        db.close()
        raise
    return db
