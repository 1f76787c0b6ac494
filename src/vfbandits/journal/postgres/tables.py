"""The writes of a journal's one writer, a transaction each; ``rows.py`` has the queries.

A writer holds the advisory lock of its journal as long as its connection lives.  If two processes
believe that they hold it, the later one has a higher term, and every write of the earlier one is
refused here.
"""

import os
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import LiteralString, NamedTuple, cast

from vfbandits.errors import JournalError
from vfbandits.journal.base import superfluous
from vfbandits.journal.codec import IDENTITY_BYTES
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.migration import Steps, newest, refuse_other_version
from vfbandits.journal.postgres.link import PostgresLink, TimedConnection
from vfbandits.journal.postgres.rows import STEPS, TABLES, version_of

BATCH_SIZE = 50  # a single batch is one statement, and so one round trip; several are a COPY
MAX_STATEMENT_BYTES = 1 << 20
PART_BYTES = 8 << 20
MAKING = 0x76666231  # the lock under which one process creates the tables
_TABLES: tuple[LiteralString, ...] = (
    "CREATE TABLE vfb_version (tables text PRIMARY KEY, version integer NOT NULL)",
    """CREATE TABLE vfb_journal (
        id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text NOT NULL UNIQUE,
        identity bytea NOT NULL,
        key_check bytea,
        last_position bigint NOT NULL DEFAULT 0,
        compacted_to bigint NOT NULL DEFAULT 0,
        term bigint NOT NULL DEFAULT 0
    )""",
    """CREATE TABLE vfb_event (
        journal integer NOT NULL,
        position bigint NOT NULL,
        name bigint,
        record bytea NOT NULL,
        PRIMARY KEY (journal, position)
    )""",
    # Without the journal: two journals have no lookup hashes in common.
    "CREATE INDEX vfb_event_name ON vfb_event (name)",
    """CREATE TABLE vfb_snapshot (
        journal integer NOT NULL,
        position bigint NOT NULL,
        part integer NOT NULL,
        data bytea NOT NULL,
        PRIMARY KEY (journal, position, part)
    )""",
    "CREATE TABLE vfb_damaged (journal integer, position bigint, record bytea)",
    """CREATE TABLE vfb_lost_snapshot (
        journal integer, position bigint, part integer, data bytea
    )""",
    # Neither floats nor encrypted records can be compressed.
    "ALTER TABLE vfb_event ALTER COLUMN record SET STORAGE EXTERNAL",
    "ALTER TABLE vfb_snapshot ALTER COLUMN data SET STORAGE EXTERNAL",
)
_FENCE = """
    UPDATE vfb_journal SET last_position = last_position + %s
    WHERE id = %s AND term = %s AND last_position = %s
"""
_APPEND_BATCH = """
    WITH fence AS (
        UPDATE vfb_journal SET last_position = last_position + %b
        WHERE id = %b AND term = %b AND last_position = %b RETURNING id
    )
    INSERT INTO vfb_event (journal, position, name, record)
    SELECT fence.id, %b + added.place, added.name, added.record
    FROM fence,
        unnest(%b::bigint[], %b::bytea[]) WITH ORDINALITY AS added (name, record, place)
"""
COPY_EVENTS: LiteralString = (
    "COPY vfb_event (journal, position, name, record) FROM STDIN (FORMAT binary)"
)
_COPY_SNAPSHOT: LiteralString = (
    "COPY vfb_snapshot (journal, position, part, data) FROM STDIN (FORMAT binary)"
)
COPY_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_END = struct.pack("!h", -1)
_EVENT_ROW = struct.Struct("!hiiiqiqi")
_NAMELESS_ROW = struct.Struct("!hiiiqii")
_PART_ROW = struct.Struct("!hiiiqiii")


class Batch(NamedTuple):
    """Records as the journal stores them, and their lookup hashes."""

    names: list[int | None]
    records: list[bytes]


@dataclass(frozen=True, slots=True)
class Writer:
    """The writer of journal number ``id``; its ``term`` began when it took the lock."""

    log: str
    id: int
    term: int

    def append(
        self, connection: TimedConnection, batches: Iterable[Batch], *, after: int, count: int
    ) -> None:
        """Append ``count`` records after ``after``, which must be the end of the journal.

        Batches have ``BATCH_SIZE`` records; each is made while the server stores the one before.
        """
        if count <= BATCH_SIZE:
            (batch,) = batches
            if sum(map(len, batch.records)) <= MAX_STATEMENT_BYTES:
                self._append_batch(connection, batch, after)
                return
            batches = [batch]
        self._append_many(connection, batches, after, count)

    def _append_batch(self, connection: TimedConnection, batch: Batch, after: int) -> None:
        count = len(batch.records)
        values = (count, self.id, self.term, after, after, batch.names, batch.records)
        if connection.execute(_APPEND_BATCH, values).rowcount != count:
            raise self._deposed()

    def _append_many(
        self, connection: TimedConnection, batches: Iterable[Batch], after: int, count: int
    ) -> None:
        with connection.transaction():
            if connection.execute(_FENCE, (count, self.id, self.term, after)).rowcount != 1:
                raise self._deposed()
            with connection.cursor() as cursor, cursor.copy(COPY_EVENTS) as copy:
                copy.write(COPY_HEAD)
                for batch in batches:
                    places = range(after + 1, after + 1 + len(batch.records))
                    copy.write(event_rows(self.id, places, batch))
                    after += len(batch.records)
                copy.write(COPY_END)

    def save_snapshot(self, connection: TimedConnection, position: int, data: bytes) -> None:
        """Insert a snapshot, and delete those that need not be kept."""
        with connection.transaction():
            self._refuse_if_deposed(connection)
            self._delete_snapshots(connection, [position])
            put_snapshot(connection, self.id, position, data)
            self._delete_snapshots(connection, superfluous(self._snapshots(connection)))

    def cut(self, connection: TimedConnection, *, last: int) -> int:
        """Set records and snapshots after ``last`` aside; returns the number of the snapshots."""
        values = (self.id, last)
        with connection.transaction():
            lost = [position for position in self._snapshots(connection) if position > last]
            for statement in (
                "INSERT INTO vfb_damaged SELECT journal, position, record FROM vfb_event "
                "WHERE journal = %s AND position > %s",
                "DELETE FROM vfb_event WHERE journal = %s AND position > %s",
                "INSERT INTO vfb_lost_snapshot SELECT * FROM vfb_snapshot "
                "WHERE journal = %s AND position > %s",
                "DELETE FROM vfb_snapshot WHERE journal = %s AND position > %s",
            ):
                connection.execute(statement, values)
            sql = "UPDATE vfb_journal SET last_position = %s WHERE id = %s AND term = %s"
            if connection.execute(sql, (last, self.id, self.term)).rowcount != 1:
                raise self._deposed()
        return len(lost)

    def set_aside(self, connection: TimedConnection, rows: Sequence[tuple[int, bytes]]) -> None:
        """Move the records at these positions to ``vfb_damaged``, and insert replacements."""
        at = (self.id, [position for position, _ in rows])
        with connection.transaction():
            self._refuse_if_deposed(connection)
            for statement in (
                "INSERT INTO vfb_damaged SELECT journal, position, record FROM vfb_event "
                "WHERE journal = %s AND position = ANY(%s)",
                "DELETE FROM vfb_event WHERE journal = %s AND position = ANY(%s)",
            ):
                connection.execute(statement, at)
            connection.execute(
                "INSERT INTO vfb_event (journal, position, record) "
                "SELECT %s, * FROM unnest(%s::bigint[], %s::bytea[])",
                (*at, [record for _, record in rows]),
            )

    def erase(self, connection: TimedConnection, rows: Sequence[tuple[int, bytes]]) -> None:
        """Overwrite records, and delete those that were kept as damaged."""
        with connection.transaction():
            connection.execute("SET LOCAL statement_timeout = 0")
            self._refuse_if_deposed(connection)
            connection.execute(
                "UPDATE vfb_event SET record = erased.record "
                "FROM unnest(%s::bigint[], %s::bytea[]) AS erased (at, record) "
                "WHERE journal = %s AND position = erased.at",
                ([position for position, _ in rows], [record for _, record in rows], self.id),
            )
            for statement in (
                "DELETE FROM vfb_damaged WHERE journal = %s",
                "DELETE FROM vfb_lost_snapshot WHERE journal = %s",
            ):
                connection.execute(statement, (self.id,))

    def compact(
        self, connection: TimedConnection, position: int, *, keep: Collection[int], last: int
    ) -> int:
        """Drop records up to ``position`` except those at ``keep``, and older snapshots."""
        with connection.transaction():
            connection.execute("SET LOCAL statement_timeout = 0")
            sql = (
                "UPDATE vfb_journal SET compacted_to = %s "
                "WHERE id = %s AND term = %s AND last_position = %s"
            )
            if connection.execute(sql, (position, self.id, self.term, last)).rowcount != 1:
                raise self._deposed()
            dropped = connection.execute(
                "DELETE FROM vfb_event WHERE journal = %s AND position <= %s AND NOT EXISTS "
                "(SELECT FROM unnest(%s::bigint[]) AS kept (at) WHERE kept.at = position)",
                (self.id, position, sorted(keep)),
            ).rowcount
            old = [older for older in self._snapshots(connection) if older < position]
            self._delete_snapshots(connection, old)
        return dropped

    def retire(
        self, connection: TimedConnection, positions: Sequence[int], *, covered_by: int
    ) -> None:
        """Drop records, and snapshots before the one that covers them."""
        with connection.transaction():
            self._refuse_if_deposed(connection)
            sql = "UPDATE vfb_journal SET compacted_to = %s WHERE id = %s"
            connection.execute(sql, (covered_by, self.id))
            connection.execute(
                "DELETE FROM vfb_event WHERE journal = %s AND position = ANY(%s)",
                (self.id, list(positions)),
            )
            old = [older for older in self._snapshots(connection) if older < covered_by]
            self._delete_snapshots(connection, old)

    def _snapshots(self, connection: TimedConnection) -> list[int]:
        sql = "SELECT DISTINCT position FROM vfb_snapshot WHERE journal = %s"
        return [cast("int", row[0]) for row in connection.execute(sql, (self.id,)).fetchall()]

    def _delete_snapshots(self, connection: TimedConnection, positions: list[int]) -> None:
        sql = "DELETE FROM vfb_snapshot WHERE journal = %s AND position = ANY(%s)"
        connection.execute(sql, (self.id, positions))

    def _refuse_if_deposed(self, connection: TimedConnection) -> None:
        sql = "SELECT FROM vfb_journal WHERE id = %s AND term = %s"
        if connection.execute(sql, (self.id, self.term)).rowcount != 1:
            raise self._deposed()

    def _deposed(self) -> JournalError:
        return JournalError(
            f"the journal {self.log} has one writer, which is no longer this process: another one "
            "took over, or changed the journal; nothing was written, open it again"
        )


def make_log(link: PostgresLink, name: str, key: JournalKey | None) -> None:
    """Create the tables and the journal, unless they exist."""
    identity = os.urandom(IDENTITY_BYTES)
    with link.used("opened") as connection:
        make_log_tables(connection, link.log)
        connection.execute(
            "INSERT INTO vfb_journal (name, identity, key_check) VALUES (%s, %s, %s) "
            "ON CONFLICT DO NOTHING",
            (name, identity, None if key is None else key.check(identity)),
        )


def make_log_tables(connection: TimedConnection, log: str) -> None:
    """Create the tables of all journals, unless they exist; refuses tables of another version."""
    version = (TABLES, STEPS)
    make_tables(connection, _TABLES, table="vfb_lost_snapshot", lock=MAKING, version=version)
    refuse_other_version(version_of(connection, TABLES), STEPS, journal=log)


def make_tables(
    connection: TimedConnection,
    statements: Iterable[LiteralString],
    *,
    table: str,
    lock: int,
    version: tuple[str, Steps],
) -> None:
    """Run ``statements`` unless ``table``, which is one of those they create, exists.

    One process does so, under the advisory ``lock``; the name and the newest version of the tables
    are written in the same transaction.
    """
    if _has_table(connection, table):
        return
    name, steps = version
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock,))
        if not _has_table(connection, table):  # another process may have created it meanwhile
            for statement in statements:
                connection.execute(statement)
            sql = "INSERT INTO vfb_version VALUES (%s, %s)"
            connection.execute(sql, (name, newest(steps)))


def _has_table(connection: TimedConnection, table: str) -> bool:
    # Not to_regclass: its cache may be older than the lock that was just acquired.
    sql = "SELECT FROM pg_catalog.pg_class WHERE relname = %s AND pg_table_is_visible(oid)"
    return connection.execute(sql, (table,)).rowcount > 0


def put_snapshot(connection: TimedConnection, journal: int, position: int, data: bytes) -> None:
    """Insert a snapshot in parts; there must be none of this position."""
    with connection.cursor() as cursor, cursor.copy(_COPY_SNAPSHOT) as copy:
        for piece in _part_rows(journal, position, data):
            copy.write(piece)


def event_rows(journal: int, positions: Iterable[int], batch: Batch) -> bytes:
    """Rows in the binary form of COPY."""
    pieces: list[bytes] = []
    for position, name, record in zip(positions, batch.names, batch.records, strict=True):
        if name is None:
            head = _NAMELESS_ROW.pack(4, 4, journal, 8, position, -1, len(record))
        else:
            head = _EVENT_ROW.pack(4, 4, journal, 8, position, 8, name, len(record))
        pieces += (head, record)
    return b"".join(pieces)


def _part_rows(journal: int, position: int, data: bytes) -> Iterator[bytes]:
    yield COPY_HEAD
    for part, start in enumerate(range(0, len(data), PART_BYTES)):
        piece = data[start : start + PART_BYTES]
        yield _PART_ROW.pack(4, 4, journal, 8, position, 4, part, len(piece)) + piece
    yield COPY_END
