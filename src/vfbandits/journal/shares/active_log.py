"""The log of server A: its state at the last fold, and what it has done since.

::

    progress                        one row: the window, its reserved slots, the helper's receipt
    context(name, event, share)     contexts that wait for a reward, by the campaign's reference;
                                    those of rewards that were learnt go with the next fold
    reward(row, name, body)         of this window: what is learnt, and the helper's answers
    learnt(name, body)              the last rewards that were learnt
    arm(block, body)                which arm has which block of the state, in layout "disjoint"

A slot is reserved, and a reward is written down, before the first message that depends on it.
"""

import json
import sqlite3
import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from vfbandits.core.decision import ArmId
from vfbandits.core.ring import Words
from vfbandits.journal.shares.helper_log import Event, as_words
from vfbandits.journal.shares.store import BlobSealer, Dealt, ShareStore, set_deal
from vfbandits.protocol.receipts import Receipt

MAX_LEARNT = 100_000
_REWARD = struct.Struct("<qqd")
_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Begun:
    """The first state was made, or a window was folded: ``state`` replaces what led to it."""

    window: int
    state: bytes = field(repr=False)

    def write(self, db: sqlite3.Connection, blobs: BlobSealer, position: int) -> None:
        """Replace all older rows; no slot of the new window is reserved yet."""
        del position
        db.execute("DELETE FROM context WHERE name IN (SELECT name FROM reward)")
        db.execute("DELETE FROM reward")
        db.execute("UPDATE progress SET window = ?, reserved = 0", (self.window,))
        db.execute("UPDATE about SET state = ?", (blobs.seal(self.state, bound="state"),))
        db.execute(
            "DELETE FROM learnt WHERE seq <= (SELECT max(seq) FROM learnt) - ?", (MAX_LEARNT,)
        )


@dataclass(frozen=True, slots=True)
class MovedOn:
    """The state was handed over to the next epoch, with the shares of waiting contexts."""

    window: int
    dealt: Dealt
    state: bytes = field(repr=False)
    contexts: list[tuple[Event, Words]] = field(repr=False)

    def write(self, db: sqlite3.Connection, blobs: BlobSealer, position: int) -> None:
        """Replace the state and the shares of the epoch before."""
        Begun(self.window, self.state).write(db, blobs, position)
        set_deal(db, self.dealt)
        db.executemany(
            "UPDATE context SET share = ? WHERE window = ? AND slot = ?",
            (
                (blobs.seal(share.tobytes(), bound=f"context {event}"), *event)
                for event, share in self.contexts
            ),
        )


@dataclass(frozen=True, slots=True)
class Reserved:
    """Slots below ``slot`` of the window are reserved for this process; a later one skips them."""

    slot: int

    def write(self, db: sqlite3.Connection, blobs: BlobSealer, position: int) -> None:
        """Reserve them."""
        del blobs, position
        db.execute("UPDATE progress SET reserved = max(reserved, ?)", (self.slot,))


@dataclass(frozen=True, slots=True)
class Numbered:
    """An arm has this block of the state from now on, in layout "disjoint"."""

    block: int
    arm: ArmId

    def write(self, db: sqlite3.Connection, blobs: BlobSealer, position: int) -> None:
        """Keep its id."""
        del position
        body = blobs.seal(json.dumps(self.arm).encode(), bound=f"arm {self.block}")
        db.execute("INSERT INTO arm VALUES (?, ?)", (self.block, body))


@dataclass(frozen=True, slots=True)
class Waits:
    """The context of an event waits for its reward; the helper has its share already.

    ``number`` counts all contexts that ever waited.
    """

    ref: str
    event: Event
    number: int
    share: Words = field(repr=False)

    def write(self, db: sqlite3.Connection, blobs: BlobSealer, position: int) -> None:
        """Keep A's share."""
        del position
        share = blobs.seal(self.share.tobytes(), bound=f"context {self.event}")
        db.execute(
            "INSERT OR REPLACE INTO context VALUES (?, ?, ?, ?, ?)",
            (self.number, blobs.name(self.ref), *self.event, share),
        )


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Events, by name, that wait no longer."""

    names: tuple[str, ...]

    def write(self, db: sqlite3.Connection, blobs: BlobSealer, position: int) -> None:
        """Delete their contexts."""
        del blobs, position
        db.executemany("DELETE FROM context WHERE name = ?", ((name,) for name in self.names))


@dataclass(frozen=True, slots=True)
class Reward:
    """A row of the window: which reward it is for, and the helper's answers once it is learnt.

    ``name`` is that of the event, empty for a blank.
    """

    row: int
    name: str
    event: Event
    value: float = field(repr=False)
    replies: tuple[bytes, ...] | None = field(default=None, repr=False)

    def write(self, db: sqlite3.Connection, blobs: BlobSealer, position: int) -> None:
        """Write the reward before it is sent, and again with the answers."""
        del position
        body = _REWARD.pack(*self.event, self.value)
        if self.replies is not None:
            body += b"".join(_LENGTH.pack(len(reply)) + reply for reply in self.replies)
            if self.name:
                kept = blobs.seal(struct.pack("<d", self.value), bound=f"learnt {self.name}")
                db.execute(
                    "INSERT OR REPLACE INTO learnt (name, body) VALUES (?, ?)", (self.name, kept)
                )
        sealed = blobs.seal(body, bound=f"reward {self.row}")
        is_done = self.replies is not None
        db.execute(
            "INSERT OR REPLACE INTO reward VALUES (?, ?, ?, ?)",
            (self.row, self.name, is_done, sealed),
        )


@dataclass(frozen=True, slots=True)
class Step:
    """A change, with the last receipt of the helper that server A had seen by then."""

    change: Begun | MovedOn | Reserved | Numbered | Waits | Forgotten | Reward
    seen: Receipt

    def write(self, db: sqlite3.Connection, blobs: BlobSealer, position: int) -> None:
        """Write both."""
        self.change.write(db, blobs, position)
        seen = self.seen
        db.execute(
            "UPDATE progress SET seen = ?1, seen_digest = ?2 WHERE seen < ?1",
            (seen.position, seen.digest),
        )


class Waiting(NamedTuple):
    """A context that waits for its reward."""

    name: str
    number: int
    event: Event
    share: Words


@dataclass(frozen=True, slots=True)
class Progress:
    """Where server A was when it was stopped."""

    window: int
    reserved: int
    seen: Receipt


class ActiveLog(ShareStore[Step]):
    """Server A's file."""

    APPLICATION = 0x76666261  # "vfba"
    WHAT = "the log of server A"
    TABLES = """
CREATE TABLE progress (
    id INTEGER PRIMARY KEY CHECK (id = 1), window INTEGER NOT NULL, reserved INTEGER NOT NULL,
    seen INTEGER NOT NULL, seen_digest BLOB NOT NULL
) STRICT;
CREATE TABLE context (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
    window INTEGER NOT NULL, slot INTEGER NOT NULL, share BLOB NOT NULL
) STRICT;
CREATE TABLE reward (
    row INTEGER PRIMARY KEY, name TEXT NOT NULL, is_done INTEGER NOT NULL, body BLOB NOT NULL
) STRICT;
CREATE TABLE learnt (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, body BLOB NOT NULL
) STRICT;
CREATE TABLE arm (block INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT;
INSERT INTO progress VALUES (1, 0, 0, 0, zeroblob(32))"""

    def progress(self) -> Progress:
        """Where server A was."""
        row = self._db.execute("SELECT window, reserved, seen, seen_digest FROM progress")
        window, reserved, seen, digest = row.fetchone()
        return Progress(window, reserved, Receipt(seen, digest))

    def rewards(self) -> list[Reward]:
        """The rewards of this window in order; the last may not be learnt yet."""
        rows = self._db.execute("SELECT row, name, is_done, body FROM reward ORDER BY row")
        return [
            self._reward(row, name, bool(is_done), self.blobs.open(body, bound=f"reward {row}"))
            for row, name, is_done, body in rows.fetchall()
        ]

    def contexts(self) -> list[Waiting]:
        """All contexts that wait, the oldest first."""
        rows = self._db.execute(
            "SELECT name, number, window, slot, share FROM context ORDER BY number"
        )
        return [
            Waiting(
                name,
                number,
                (window, slot),
                as_words(self.blobs.open(share, bound=f"context {(window, slot)}")),
            )
            for name, number, window, slot, share in rows.fetchall()
        ]

    def n_contexts(self) -> int:
        """How many contexts ever waited."""
        found = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'context'")
        row = found.fetchone()
        return 0 if row is None else int(row[0])

    def learnt(self) -> dict[str, float]:
        """The last rewards that were learnt, by name."""
        rows = self._db.execute("SELECT name, body FROM learnt ORDER BY seq").fetchall()
        return {
            name: struct.unpack("<d", self.blobs.open(body, bound=f"learnt {name}"))[0]
            for name, body in rows
        }

    def arms(self) -> list[ArmId]:
        """Arms in the order of their blocks."""
        found = self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'arm'").fetchone()
        if found is None:  # an older file, from before layouts with blocks
            return []
        rows = self._db.execute("SELECT block, body FROM arm ORDER BY block").fetchall()
        return [json.loads(self.blobs.open(body, bound=f"arm {block}")) for block, body in rows]

    @staticmethod
    def _reward(row: int, name: str, is_done: bool, body: bytes) -> Reward:  # noqa: FBT001
        window, slot, value = _REWARD.unpack_from(body)
        if not is_done:
            return Reward(row, name, (window, slot), value)
        replies, start = [], _REWARD.size
        while start < len(body):
            (length,) = _LENGTH.unpack_from(body, start)
            start += _LENGTH.size
            replies.append(body[start : start + length])
            start += length
        return Reward(row, name, (window, slot), value, tuple(replies))
