"""Messages that a passive participant has sent under pads, byte for byte, to send them again.

A pad covers one message, and never another.  Two mechanisms ensure that.  Rounds are *reserved* a
thousand at a time, on the disk before the first of them is used: after a crash, every round up to
the reservation counts as used.  And stamps only grow: the database refuses a message whose stamp is
not after that of the last one, even if that message was deleted long ago, and it refuses to reduce
a reservation, whichever process tries.

The newest messages are kept, so that a retry finds the bytes: ``MAX_KEPT`` of them, or as many as
fit into ``MAX_KEPT_BYTES``, which is four of the largest.  The active participant has two rounds
open at a time.  Messages survive a killed process; if a power cut loses one, the retry is declined
and nothing is sent twice.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from vfbandits.core.pads import Stamp
from vfbandits.errors import ConfigError, JournalError
from vfbandits.versions import refuse_unknown_version

OUTBOX = "outbox.db"
RESERVE = 1_000
MAX_KEPT = 256
MAX_KEPT_BYTES = 256 << 20
MAX_ROUND = (1 << 63) - 1
VERSION = 1
# Statements that turn the tables of an earlier version into those of the next one.
UPCASTERS: dict[int, str] = {}

# A reservation and the last stamp never decrease, whichever program writes to the file.
_TABLES = """
CREATE TABLE reservation (
    id INTEGER PRIMARY KEY CHECK (id = 1), round INTEGER NOT NULL
) STRICT;
CREATE TABLE last (
    id INTEGER PRIMARY KEY CHECK (id = 1), round INTEGER NOT NULL, attempt INTEGER NOT NULL
) STRICT;
CREATE TABLE sent (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    epoch INTEGER NOT NULL, round INTEGER NOT NULL, attempt INTEGER NOT NULL,
    senders TEXT NOT NULL, asked BLOB NOT NULL, message BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX sent_by_stamp ON sent (round, attempt);
INSERT INTO reservation VALUES (1, 0);
INSERT INTO last VALUES (1, 0, 0);
CREATE TRIGGER reservation_never_decreases BEFORE UPDATE ON reservation
WHEN NEW.round < OLD.round OR NEW.id <> OLD.id
BEGIN SELECT raise(ABORT, 'a reservation never decreases'); END;
CREATE TRIGGER reservation_stays BEFORE DELETE ON reservation
BEGIN SELECT raise(ABORT, 'a reservation is never taken back'); END;
CREATE TRIGGER reservation_is_one BEFORE INSERT ON reservation
BEGIN SELECT raise(ABORT, 'a reservation is never replaced'); END;
CREATE TRIGGER last_is_one BEFORE INSERT ON last
BEGIN SELECT raise(ABORT, 'the last stamp is never replaced'); END;
CREATE TRIGGER last_never_decreases BEFORE UPDATE ON last
WHEN (NEW.round, NEW.attempt) < (OLD.round, OLD.attempt) OR NEW.id <> OLD.id
BEGIN SELECT raise(ABORT, 'the last stamp never decreases'); END;
CREATE TRIGGER last_stays BEFORE DELETE ON last
BEGIN SELECT raise(ABORT, 'the last stamp is never taken back'); END;
CREATE TRIGGER sent_is_reserved BEFORE INSERT ON sent
WHEN NEW.round > (SELECT round FROM reservation)
BEGIN SELECT raise(ABORT, 'its round was not reserved'); END;
CREATE TRIGGER sent_once BEFORE INSERT ON sent
WHEN (NEW.round, NEW.attempt) <= (SELECT round, attempt FROM last)
BEGIN SELECT raise(ABORT, 'a message under this stamp or a later one was sent already'); END;
CREATE TRIGGER sent_is_last AFTER INSERT ON sent
BEGIN UPDATE last SET round = NEW.round, attempt = NEW.attempt; END;
CREATE TRIGGER sent_stays BEFORE UPDATE ON sent
BEGIN SELECT raise(ABORT, 'what was sent never changes'); END;
"""


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that was sent, with the senders it is summed with and the digest of the ask."""

    senders: tuple[str, ...]
    asked: bytes = field(repr=False)
    message: bytes = field(repr=False)


class Outbox:
    """Sent messages by their stamp.

    ``noted`` is the last reserved round by another file; ``on_reserve`` is called with each
    reservation, once it is on the disk.  ``reserve`` is the number of rounds to reserve ahead.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     outbox = Outbox(Path(folder) / "outbox.db")
    ...     outbox.keep(Stamp(1, 1), ("bank", "news"), b"bytes", asked=b"digest")
    ...     found = outbox.find(Stamp(1, 1))
    ...     outbox.close()
    >>> found.senders, found.message
    (('bank', 'news'), b'bytes')
    """

    def __init__(
        self,
        path: Path,
        *,
        noted: int = 0,
        on_reserve: Callable[[int], None] | None = None,
        reserve: int = RESERVE,
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._on_reserve = on_reserve
        self._ahead = reserve
        try:
            self._db = sqlite3.connect(path, isolation_level=None, timeout=5.0)
            path.chmod(0o600)
            # NORMAL does not wait for the disk at each message; a reservation does, by itself.
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._make_tables()
            self._count, self._size = self._db.execute(
                "SELECT count(*), coalesce(sum(length(message)), 0) FROM sent"
            ).fetchone()
            self._reserved = self._reservation()
        except (sqlite3.Error, JournalError) as error:
            raise JournalError(f"the outbox {path} cannot be opened: {error}") from error
        if self._reserved < noted:
            self._db.close()
            raise ConfigError(old_copy(path, f"got rounds up to {self._reserved}", noted))
        self.next_round = self._reserved + 1

    def _make_tables(self) -> None:
        """Make the tables, or bring older ones to the newest version: all of it or nothing."""
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version == VERSION:
            return
        if version:
            refuse_unknown_version(
                version, newest=VERSION, upcasters=UPCASTERS, what="it", error=JournalError
            )
        made = [UPCASTERS[number] for number in range(version, VERSION)] if version else [_TABLES]
        self._db.execute("PRAGMA synchronous = FULL")
        script = "\n".join(("BEGIN IMMEDIATE;", *made, f"PRAGMA user_version = {VERSION};"))
        try:
            self._db.executescript(f"{script}\nCOMMIT;")
        except sqlite3.Error:
            self._db.close()  # which rolls all of it back
            raise
        self._db.execute("PRAGMA synchronous = NORMAL")

    def keep(self, stamp: Stamp, senders: tuple[str, ...], message: bytes, *, asked: bytes) -> None:
        """Store a message before it is sent; refuses a stamp that may have been used."""
        if stamp.round < self.next_round:
            raise JournalError(
                f"rounds up to {self.next_round - 1} count as used, got a message under {stamp}; "
                "nothing sent"
            )
        try:
            if stamp.round > self._reserved:
                self._reserve(min(stamp.round + self._ahead, MAX_ROUND))
            self._db.execute(
                "INSERT INTO sent (epoch, round, attempt, senders, asked, message) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (stamp.epoch, stamp.round, stamp.attempt, "\n".join(senders), asked, message),
            )
            self._count += 1
            self._size += len(message)
            if self._count > 2 * MAX_KEPT or self._size > MAX_KEPT_BYTES:
                self._forget_old()
        except sqlite3.IntegrityError as error:
            raise JournalError(f"{stamp}: {error}; nothing sent") from error
        except sqlite3.Error as error:
            raise JournalError(f"the outbox cannot be written: {error}; nothing sent") from error

    def find(self, stamp: Stamp) -> Sent | None:
        """The message that was sent under this stamp."""
        row = self._db.execute(
            "SELECT senders, asked, message FROM sent WHERE round = ? AND attempt = ? "
            "AND epoch = ?",
            (stamp.round, stamp.attempt, stamp.epoch),
        ).fetchone()
        if row is None:
            return None
        return Sent(tuple(row[0].split("\n")) if row[0] else (), row[1], row[2])

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def _reservation(self) -> int:
        (number,) = self._db.execute("SELECT round FROM reservation").fetchone()
        return int(number)

    def _reserve(self, round_number: int) -> None:
        # With FULL a commit returns when the write-ahead log is on the disk.
        self._db.execute("PRAGMA synchronous = FULL")
        try:
            self._db.execute("UPDATE reservation SET round = max(round, ?)", (round_number,))
        finally:
            self._db.execute("PRAGMA synchronous = NORMAL")
        self._reserved = self._reservation()
        if self._on_reserve is not None:
            self._on_reserve(self._reserved)

    def _forget_old(self) -> None:
        """Delete the oldest messages beyond ``MAX_KEPT`` and ``MAX_KEPT_BYTES``."""
        rows = self._db.execute("SELECT place, length(message) FROM sent ORDER BY place").fetchall()
        count, size, last = len(rows), sum(length for _, length in rows), 0
        for place, length in rows:
            if count <= MAX_KEPT and size <= MAX_KEPT_BYTES:
                break
            count, size, last = count - 1, size - length, place
        self._db.execute("DELETE FROM sent WHERE place <= ?", (last,))
        self._count, self._size = count, size


def old_copy(path: Path, got: str, wanted: int) -> str:
    """The error text for an outbox that lacks pads which were used."""
    return (
        f"{path} must have all rounds up to {wanted}, {got}: it is an old copy, or was lost.  The "
        "used pads are no longer known, and a pad must not cover two messages.  Restore no old "
        "copy: remove this participant and add it again with new keys (vfb pki request "
        "in an empty folder)"
    )
