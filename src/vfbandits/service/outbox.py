"""What a passive participant has sent under pads: the very bytes, so that it can send them again.

A pad covers one message, for ever.  Two things make sure of it.  Rounds are *reserved* a thousand
at a time, on the disk before the first of them is used: after a crash, every round up to the
reservation counts as used.  And messages are kept, so that a retry finds the bytes; they survive
a killed process, and if a power cut takes one, the retry is declined and nothing is sent twice.
"""

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from vfbandits.core.pads import Stamp
from vfbandits.errors import JournalError

RESERVE = 1_000
MOST_KEPT = 256
MOST_KEPT_BYTES = 256 << 20

VERSION = 2

_TABLES = """
CREATE TABLE IF NOT EXISTS reserved (round INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS sent (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    epoch INTEGER NOT NULL, round INTEGER NOT NULL, attempt INTEGER NOT NULL,
    senders TEXT NOT NULL, asked BLOB NOT NULL, message BLOB NOT NULL,
    UNIQUE (epoch, round, attempt)
);
"""


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was sent, with the senders it is summed with and the digest of the ask."""

    senders: tuple[str, ...]
    asked: bytes = field(repr=False)
    message: bytes = field(repr=False)


class Outbox:
    """Sent messages by their stamp.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     outbox = Outbox(Path(folder) / "outbox.db")
    ...     outbox.keep(Stamp(1, 1), ("bank", "news"), b"bytes", asked=b"digest")
    ...     found = outbox.find(Stamp(1, 1))
    ...     outbox.close()
    >>> found.senders, found.message
    (('bank', 'news'), b'bytes')
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            self._db = sqlite3.connect(path, isolation_level=None, timeout=5.0)
            path.chmod(0o600)
            # NORMAL does not wait for the disk at each message; a reservation does, by itself.
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._make_tables()
            row = self._db.execute("SELECT max(round) FROM reserved").fetchone()
        except sqlite3.Error as error:
            raise JournalError(f"the outbox {path} cannot be opened: {error}") from error
        self._reserved = int(row[0] or 0)
        self.next_round = self._reserved + 1

    def _make_tables(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version < VERSION:
            # Messages of an older protocol are of no use to anybody; its reservation holds.
            self._db.execute("DROP TABLE IF EXISTS sent")
        self._db.executescript(_TABLES)
        self._db.execute(f"PRAGMA user_version = {VERSION}")

    def keep(self, stamp: Stamp, senders: tuple[str, ...], message: bytes, *, asked: bytes) -> None:
        """Write down a message before it is sent."""
        try:
            if stamp.round > self._reserved:
                self._reserve(stamp.round + RESERVE)
            self._db.execute(
                "INSERT INTO sent (epoch, round, attempt, senders, asked, message) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (stamp.epoch, stamp.round, stamp.attempt, "\n".join(senders), asked, message),
            )
            self._forget_old()
        except sqlite3.IntegrityError as error:
            raise JournalError(f"a message under {stamp} was sent already") from error
        except sqlite3.Error as error:
            raise JournalError(f"the outbox cannot be written: {error}; nothing sent") from error

    def find(self, stamp: Stamp) -> Sent | None:
        """The message that was sent under this stamp."""
        row = self._db.execute(
            "SELECT senders, asked, message FROM sent "
            "WHERE epoch = ? AND round = ? AND attempt = ?",
            (stamp.epoch, stamp.round, stamp.attempt),
        ).fetchone()
        return None if row is None else Sent(tuple(row[0].split("\n")), row[1], row[2])

    def close(self) -> None:
        """Give the file back."""
        self._db.close()

    def _reserve(self, round_number: int) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        self._db.execute("DELETE FROM reserved")
        self._db.execute("INSERT INTO reserved VALUES (?)", (round_number,))
        self._db.execute("COMMIT")
        # A full checkpoint waits until log and database are on the disk.
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA wal_checkpoint(FULL)")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._reserved = round_number

    def _forget_old(self) -> None:
        count, size, newest = self._db.execute(
            "SELECT count(*), total(length(message)), max(place) FROM sent"
        ).fetchone()
        if count > 2 * MOST_KEPT or size > MOST_KEPT_BYTES:
            keep = MOST_KEPT if size <= MOST_KEPT_BYTES else 4
            self._db.execute("DELETE FROM sent WHERE place <= ?", (newest - keep,))
