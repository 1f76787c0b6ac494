"""The log of the helper: its state at the last fold, and every message that it answered since.

::

    message(position, request, reply)   since the last fold; the fold's own answer is kept with it,
                                        and those of a hand-over without their messages
    receipt(position, digest)           of this window and the one before
    context(window, slot, share)        contexts that waited for a reward at the last fold

A row of ``message`` burns its slot: it is on the disk before its answer leaves.
"""

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from vfbandits.core.ring import Words
from vfbandits.journal.shares.store import BlobSealer, Dealt, ShareStore, set_deal

Event = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Answered:
    """A message was answered; its receipt has this ``digest``."""

    request: bytes = field(repr=False)
    digest: bytes = field(repr=False)

    def write(self, db: sqlite3.Connection, blobs: BlobSealer, position: int) -> bytes:
        """Burn the slot."""
        request = blobs.seal(self.request, bound=f"message {position}")
        db.execute("INSERT INTO message VALUES (?, ?, NULL)", (position, request))
        db.execute("INSERT INTO receipt VALUES (?, ?)", (position, self.digest))
        return self.digest


@dataclass(frozen=True, slots=True)
class WindowFolded:
    """A window was folded: its state replaces the messages that led to it.

    ``opened`` and ``dropped`` are how the open contexts differ from those of the last fold.
    """

    request: bytes = field(repr=False)
    reply: bytes = field(repr=False)
    digest: bytes = field(repr=False)
    state: bytes = field(repr=False)
    opened: list[tuple[Event, Words]] = field(repr=False)
    dropped: list[Event] = field(repr=False)

    def write(self, db: sqlite3.Connection, blobs: BlobSealer, position: int) -> bytes:
        """Replace all older rows."""
        row = db.execute("SELECT coalesce(min(position), ?) FROM message", (position,)).fetchone()
        db.execute("DELETE FROM receipt WHERE position < ?", row)
        db.execute("DELETE FROM message")
        request = blobs.seal(self.request, bound=f"message {position}")
        reply = blobs.seal(self.reply, bound=f"reply {position}")
        db.execute("INSERT INTO message VALUES (?, ?, ?)", (position, request, reply))
        db.execute("INSERT INTO receipt VALUES (?, ?)", (position, self.digest))
        db.execute("UPDATE about SET state = ?", (blobs.seal(self.state, bound="state"),))
        db.executemany("DELETE FROM context WHERE window = ? AND slot = ?", self.dropped)
        db.executemany(
            "INSERT INTO context (window, slot, share) VALUES (?, ?, ?)",
            (
                (*event, blobs.seal(words.tobytes(), bound=f"context {event}"))
                for event, words in self.opened
            ),
        )
        return self.digest


@dataclass(frozen=True, slots=True)
class StateHandedOver:
    """The state was handed over to the next epoch: it replaces the messages that led to it.

    ``answered`` has the digest and the answer of each message of the hand-over; the last one is
    that of ``digest``.  The messages themselves are not kept: one has the seed by which the shares
    of waiting contexts were changed.
    """

    dealt: Dealt
    answered: list[tuple[bytes, bytes]] = field(repr=False)
    digest: bytes = field(repr=False)
    state: bytes = field(repr=False)
    contexts: list[tuple[Event, Words]] = field(repr=False)

    def write(self, db: sqlite3.Connection, blobs: BlobSealer, position: int) -> bytes:
        """Replace all older rows, of this epoch and the one before."""
        first = position - len(self.answered) + 1
        row = db.execute("SELECT coalesce(min(position), ?) FROM message", (first,)).fetchone()
        db.execute("DELETE FROM receipt WHERE position < ?", row)
        db.execute("DELETE FROM message")
        for at, (name, reply) in enumerate(self.answered, start=first):
            kept = blobs.seal(name, bound=f"message {at}"), blobs.seal(reply, bound=f"reply {at}")
            db.execute("INSERT INTO message VALUES (?, ?, ?)", (at, *kept))
        db.execute("INSERT INTO receipt VALUES (?, ?)", (position, self.digest))
        db.execute("UPDATE about SET state = ?", (blobs.seal(self.state, bound="state"),))
        set_deal(db, self.dealt)
        db.execute("DELETE FROM context")
        db.executemany(
            "INSERT INTO context (window, slot, share) VALUES (?, ?, ?)",
            (
                (*event, blobs.seal(words.tobytes(), bound=f"context {event}"))
                for event, words in self.contexts
            ),
        )
        return self.digest


@dataclass(frozen=True, slots=True)
class Started:
    """A helper was made; ``state`` is what it starts with."""

    state: bytes = field(repr=False)

    def write(self, db: sqlite3.Connection, blobs: BlobSealer, position: int) -> None:
        """Keep the state, with the secret of its noise, before anything is answered."""
        del position
        db.execute("UPDATE about SET state = ?", (blobs.seal(self.state, bound="state"),))


class HelperLog(ShareStore[Answered | WindowFolded | StateHandedOver | Started]):
    """The helper's file."""

    APPLICATION = 0x76666268  # "vfbh"
    WHAT = "the log of a helper"
    TABLES = """
CREATE TABLE message (position INTEGER PRIMARY KEY, request BLOB NOT NULL, reply BLOB) STRICT;
CREATE TABLE receipt (position INTEGER PRIMARY KEY, digest BLOB NOT NULL) STRICT;
CREATE TABLE context (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    window INTEGER NOT NULL, slot INTEGER NOT NULL, share BLOB NOT NULL, UNIQUE (window, slot)
) STRICT"""

    def messages(self) -> Iterator[tuple[int, bytes, bytes | None]]:
        """Position, request and, for a fold, the reply of all messages since the last fold.

        A message of a completed hand-over has its reply, and a digest instead of the request.
        """
        for position, request, reply in self._db.execute(
            "SELECT position, request, reply FROM message ORDER BY position"
        ).fetchall():
            opened = self.blobs.open(request, bound=f"message {position}")
            kept = None if reply is None else self.blobs.open(reply, bound=f"reply {position}")
            yield position, opened, kept

    def receipts(self) -> dict[int, bytes]:
        """Digests by position, of this window and the one before."""
        return dict(self._db.execute("SELECT position, digest FROM receipt").fetchall())

    def contexts(self) -> list[tuple[Event, Words]]:
        """Contexts that waited at the last fold, the oldest first."""
        rows = self._db.execute("SELECT window, slot, share FROM context ORDER BY seq").fetchall()
        return [
            ((window, slot), as_words(self.blobs.open(share, bound=f"context {(window, slot)}")))
            for window, slot, share in rows
        ]


def as_words(data: bytes) -> Words:
    """One row of words from its bytes."""
    return np.frombuffer(data, "<u8").reshape(2, -1).astype(np.uint64)
