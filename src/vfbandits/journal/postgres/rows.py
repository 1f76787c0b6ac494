"""The tables of journals in a PostgreSQL database, and the queries of readers and writers.

::

    vfb_version         the version of the tables: one row for those of the journal, and one for
                        those of the inbox
    vfb_journal         one row for each journal: name, identity, check of the key, where it ends,
                        how far it was compacted, and the term of its writer
    vfb_event           one row for each record, with the lookup hash of its decision
    vfb_snapshot        snapshots in parts
    vfb_damaged         records that were set aside
    vfb_lost_snapshot   snapshots of positions that were lost

They are created in the first schema of the search path, which the URL may set.
"""

from collections.abc import Sequence
from typing import cast

from vfbandits.campaign.events import Found, LossAccepted
from vfbandits.core.decision import EventId
from vfbandits.core.snapshot import Snapshot
from vfbandits.errors import JournalError, SnapshotError
from vfbandits.journal.base import newest_whole
from vfbandits.journal.codec import Codec, refuse_other_key
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.migration import Step, refuse_other_version
from vfbandits.journal.postgres.link import PostgresLink, TimedConnection
from vfbandits.journal.record import LOSS_ACCEPTED
from vfbandits.journal.rows import ROWS_PER_BATCH, EventRows, NamedRow, Row

STEPS: dict[int, Step] = {}
TABLES = "journal"
SNAPSHOT_PATIENCE = 20.0

# OFFSET 0 makes the planner search the index once for each hash, even without statistics.
FIND = """
    SELECT found.position, found.record
    FROM unnest(%s::bigint[]) AS wanted (name), LATERAL (
        SELECT journal, position, record FROM vfb_event WHERE name = wanted.name OFFSET 0
    ) AS found
    WHERE found.journal = %s ORDER BY found.position
"""
_FORWARDS = """
    SELECT position, record, name FROM vfb_event
    WHERE journal = %s AND position > %s ORDER BY position LIMIT %s
"""
_BACKWARDS = """
    SELECT position, record FROM vfb_event
    WHERE journal = %s AND position < %s
        AND position > (SELECT compacted_to FROM vfb_journal WHERE id = %s)
    ORDER BY position DESC LIMIT %s
"""
_ENDS = """
    SELECT last_position, compacted_to, greatest(compacted_to,
        (SELECT max(position) FROM vfb_event WHERE journal = %s))
    FROM vfb_journal WHERE id = %s
"""


class PostgresRows(EventRows):
    """Reads one journal of a database, through two links that nothing else uses.

    ``finder`` is for ``find_many`` only, which therefore never waits for a large snapshot.
    """

    def __init__(
        self, link: PostgresLink, finder: PostgresLink, name: str, key: JournalKey | None
    ) -> None:
        self.link = link
        self._finder = finder
        self.n_damaged = 0
        self.id, identity, check = find_log(link, name)
        refuse_other_key(key, identity=identity, check=check, log=link.log)
        self.codec = Codec(identity + name.encode(), key)

    def ends(self) -> tuple[int, int, int]:
        """Three positions: the acknowledged end, the compaction, and the end of the records."""
        rows = cast("list[tuple[int, int, int]]", self.link.rows(_ENDS, self.id, self.id))
        if not rows:
            raise JournalError(f"the journal {self.link.log} is gone")
        return rows[0]

    def last(self) -> int:
        """Position of the last record."""
        return self.ends()[2]

    def compacted_to(self) -> int:
        """Position up to which only some records are kept."""
        return self.ends()[1]

    def record_at(self, position: int) -> object:
        """The undecoded record at a position; None if there is none."""
        sql = "SELECT record FROM vfb_event WHERE journal = %s AND position = %s"
        rows = self.link.rows(sql, self.id, position)
        return rows[0][0] if rows else None

    def accepted_losses(self) -> list[LossAccepted]:
        """Every ``LossAccepted`` of the journal; even an encrypted record shows its kind."""
        sql = (
            "SELECT position, record FROM vfb_event WHERE journal = %s "
            "AND length(record) > 1 AND get_byte(record, 1) = %s ORDER BY position"
        )
        found = self.link.rows(sql, self.id, LOSS_ACCEPTED)
        events = (self.codec.open(record, cast("int", place)) for place, record in found)
        return [event for event in events if isinstance(event, LossAccepted)]

    def find_many(self, ids: Sequence[EventId]) -> dict[EventId, Found]:
        """All events of several decisions."""
        names = list({self.codec.names.of(event_id) for event_id in ids})
        with self._finder.used("read") as connection:
            # Not prepared: the plan for a short journal would be kept when it is long.
            cursor = connection.execute(FIND, (names, self.id), binary=True, prepare=False)
            rows = cast("list[Row]", cursor.fetchall())
        return self.found(rows, ids)

    def snapshot_positions(self) -> list[int]:
        """Positions of all snapshots, newest first."""
        sql = "SELECT DISTINCT position FROM vfb_snapshot WHERE journal = %s ORDER BY 1 DESC"
        return [position for (position,) in cast("list[tuple[int]]", self.link.rows(sql, self.id))]

    def load_snapshot(self, position: int) -> Snapshot:
        """The snapshot of a position."""
        sql = "SELECT data FROM vfb_snapshot WHERE journal = %s AND position = %s ORDER BY part"
        with self.link.used("read", patience=SNAPSHOT_PATIENCE) as connection:
            parts = connection.execute(sql, (self.id, position), binary=True).fetchall()
        if not parts:
            raise SnapshotError(f"the snapshot of position {position} is gone")
        data = b"".join(cast("bytes", part) for (part,) in parts)
        return self.codec.open_snapshot(data, position)

    def latest_snapshot(self) -> tuple[int, Snapshot] | None:
        """The newest undamaged snapshot."""
        while True:
            positions = self.snapshot_positions()
            found, passed_over = newest_whole(positions, self.load_snapshot)
            if found is not None or positions == self.snapshot_positions():
                self.n_damaged += passed_over
                return found

    def page_after(self, position: int) -> list[NamedRow]:
        """Rows after a position, in order."""
        return cast("list[NamedRow]", self.link.rows(_FORWARDS, self.id, position, ROWS_PER_BATCH))

    def page_before(self, position: int) -> list[Row]:
        """Rows before a position, newest first."""
        found = self.link.rows(_BACKWARDS, self.id, position, self.id, ROWS_PER_BATCH)
        return cast("list[Row]", found)


def find_log(link: PostgresLink, name: str) -> tuple[int, bytes, bytes | None]:
    """Number, identity and key check of a journal, whose tables must have the newest version."""
    has_tables = link.rows("SELECT to_regclass('vfb_journal') IS NOT NULL") == [(True,)]
    if has_tables:
        with link.used("opened") as connection:
            refuse_other_version(version_of(connection, TABLES), STEPS, journal=link.log)
    sql = "SELECT id, identity, key_check FROM vfb_journal WHERE name = %s"
    found = link.rows(sql, name) if has_tables else []
    if not found:
        raise JournalError(
            f"wanted the journal {link.log}, got a database that has none of this name"
        )
    return cast("tuple[int, bytes, bytes | None]", found[0])


def version_of(connection: TimedConnection, tables: str) -> int:
    """The version of the tables that are called ``tables``; 0 if none is known."""
    if connection.execute("SELECT to_regclass('vfb_version') IS NULL").fetchall() == [(True,)]:
        return 0
    sql = "SELECT version FROM vfb_version WHERE tables = %s"
    found = connection.execute(sql, (tables,)).fetchall()
    return cast("int", found[0][0]) if found else 0
