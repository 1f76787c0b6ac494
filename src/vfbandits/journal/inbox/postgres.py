"""The inbox in a PostgreSQL database, beside its journal: one table for all journals.

::

    vfb_inbox   one row for each event: its journal, its key, when it was taken

Rows of one statement get their numbers in the order of the caller, and are inserted in the order of
their keys: two processes with the same keys cannot deadlock.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from threading import Lock
from typing import LiteralString, cast

from vfbandits.campaign.events import Decided
from vfbandits.core.decision import EventId
from vfbandits.errors import JournalError
from vfbandits.journal.codec import refuse_other_key
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.inbox.base import Arrival, Copied, Waiting, older_than
from vfbandits.journal.inbox.codec import InboxCodec
from vfbandits.journal.lookup import event_id_of
from vfbandits.journal.migration import Step, refuse_other_version
from vfbandits.journal.postgres.link import PostgresLink, TimedConnection
from vfbandits.journal.postgres.rows import find_log, version_of
from vfbandits.journal.postgres.tables import make_tables
from vfbandits.journal.rows import ROWS_PER_BATCH

STEPS: dict[int, Step] = {}
TABLES = "inbox"
TIMEOUT_S = 10.0
_MAKING = 0x76666232  # the lock under which one process creates the table
_TABLES: tuple[LiteralString, ...] = (
    "CREATE SEQUENCE vfb_inbox_id",
    """CREATE TABLE vfb_inbox (
        id bigint PRIMARY KEY,
        journal integer NOT NULL,
        key bytea NOT NULL,
        record bytea NOT NULL,
        taken timestamptz,
        UNIQUE (journal, key)
    )""",
    "CREATE INDEX vfb_inbox_waiting ON vfb_inbox (journal, id) WHERE taken IS NULL",
    "CREATE INDEX vfb_inbox_aside ON vfb_inbox (journal, id) WHERE taken = 'infinity'",
    "ALTER TABLE vfb_inbox ALTER COLUMN record SET STORAGE EXTERNAL",
)
# Switches synchronous commit on for this statement, where the server has it off.
_PUT = """
    WITH durable AS MATERIALIZED (
        SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit')
            WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)
    ), numbered AS MATERIALIZED (
        SELECT nextval('vfb_inbox_id') AS id, added.key, added.record FROM (
            SELECT key, record
            FROM unnest(%s::bytea[], %s::bytea[]) WITH ORDINALITY AS given (key, record, place)
            ORDER BY place
        ) AS added
    )
    INSERT INTO vfb_inbox (id, journal, key, record)
    SELECT numbered.id, %s, numbered.key, numbered.record FROM numbered, durable
    ORDER BY numbered.key
    ON CONFLICT (journal, key) DO NOTHING RETURNING key
"""
_EARLIER = "SELECT key, record FROM vfb_inbox WHERE journal = %s AND key = ANY(%s)"
# OFFSET 0 makes the planner search the index once for each decision.
_FIND = """
    SELECT found.key, found.record
    FROM unnest(%s::bytea[]) AS wanted (place), LATERAL (
        SELECT id, key, record FROM vfb_inbox
        WHERE journal = %s AND key >= wanted.place
            AND key <= wanted.place || decode(repeat('ff', 16), 'hex') AND taken IS NULL
        OFFSET 0
    ) AS found
    ORDER BY found.id
"""
_WAITING = """
    SELECT id, key, record FROM vfb_inbox
    WHERE journal = %s AND taken IS NULL ORDER BY id LIMIT %s
"""
_ALL = """
    SELECT id, key, record FROM vfb_inbox WHERE journal = %s AND id > %s ORDER BY id LIMIT %s
"""
_ERASE = """
    DELETE FROM vfb_inbox USING unnest(%s::bytea[]) AS erased (place)
    WHERE journal = %s AND key >= erased.place
        AND key <= erased.place || decode(repeat('ff', 16), 'hex')
"""
# Rows are in the order of their age, so only the first ones need be read.
_PRUNE = """
    DELETE FROM vfb_inbox WHERE taken < now() - %s * interval '1 second' AND id IN (
        SELECT id FROM vfb_inbox WHERE journal = %s AND taken < 'infinity' ORDER BY id LIMIT %s
    )
"""


# The oldest rows that were set aside, and the first row after them, which bounds their age.
_ASIDE = """
    WITH aside AS MATERIALIZED (
        SELECT id, key, record FROM vfb_inbox WHERE journal = %s AND taken = 'infinity'
        ORDER BY id LIMIT %s
    )
    SELECT id, key, record, true FROM aside
    UNION ALL (
        SELECT id, key, record, false FROM vfb_inbox
        WHERE journal = %s AND id > (SELECT max(id) FROM aside) ORDER BY id LIMIT 1
    )
    ORDER BY id
"""
_COPIED = """
    SELECT id, key, record, extract(epoch FROM taken)::float8 FROM vfb_inbox
    WHERE journal = %s AND id > %s ORDER BY id LIMIT %s
"""
_COPY_IN = """
    INSERT INTO vfb_inbox (id, journal, key, record, taken)
    VALUES (nextval('vfb_inbox_id'), %s, %s, %s, to_timestamp(%s))
"""


class PostgresInbox:
    """The inbox of the journal ``name``, which must exist; it reconnects after an error."""

    def __init__(
        self,
        url: str,
        *,
        name: str = "default",
        key: JournalKey | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        with ExitStack() as stack:
            link = PostgresLink.open(url, name=name, timeout_s=timeout_s, reconnects=True)
            stack.callback(link.close)
            self._journal, identity, check = find_log(link, name)
            refuse_other_key(key, identity=identity, check=check, log=link.log)
            with link.used("opened") as connection:
                make_inbox_tables(connection, link.log)
            self._closing = stack.pop_all()
        self._link = link
        self._codec = InboxCodec(identity + name.encode(), key)
        self._finder: PostgresLink | None = None
        self._guard = Lock()

    def put(self, events: Sequence[Arrival]) -> list[Arrival]:
        """Insert events in one statement, then read those whose keys were taken before."""
        if not events:
            return []
        keys = [self._codec.key_of(event) for event in events]
        first = {key: place for place, key in reversed(list(enumerate(keys)))}
        places = sorted(first.values())
        records = [self._codec.seal(events[place], keys[place]) for place in places]
        with self._link.used("written") as connection:
            values = ([keys[place] for place in places], records, self._journal)
            rows = connection.execute(_PUT, values, binary=True).fetchall()
        entered = {cast("bytes", row[0]) for row in rows}
        mine = {place for key, place in first.items() if key in entered}
        others = self._earlier([key for place, key in enumerate(keys) if place not in mine])
        return [
            event if place in mine else others[key]
            for place, (key, event) in enumerate(zip(keys, events, strict=True))
        ]

    def find_many(self, ids: Sequence[EventId]) -> dict[EventId, list[Arrival]]:
        """Waiting events of several decisions."""
        places = list({self._codec.place_of(event_id) for event_id in ids})
        with self._other_link().used("read") as connection:
            cursor = connection.execute(_FIND, (places, self._journal), binary=True, prepare=False)
            rows = cast("list[tuple[bytes, bytes]]", cursor.fetchall())
        found: dict[EventId, list[Arrival]] = {event_id: [] for event_id in ids}
        for key, record in rows:
            event = self._codec.open(record, key)
            event_id = event_id_of(event)
            if event_id is not None and event_id in found:
                found[event_id].append(event)
        return found

    def waiting(self, most: int) -> list[Waiting]:
        """The first events that wait."""
        rows = cast(
            "list[tuple[int, bytes, bytes]]", self._link.rows(_WAITING, self._journal, most)
        )
        return [self._open(*row) for row in rows]

    def take(self, ids: Sequence[int]) -> None:
        """Mark rows in one statement."""
        self._mark("UPDATE vfb_inbox SET taken = now() WHERE id = ANY(%s)", ids)

    def set_aside(self, ids: Sequence[int]) -> None:
        """Mark rows so that they are never pruned."""
        self._mark("UPDATE vfb_inbox SET taken = 'infinity' WHERE id = ANY(%s)", ids)

    def is_used(self) -> bool:
        """Whether the journal has any row."""
        sql = "SELECT EXISTS (SELECT FROM vfb_inbox WHERE journal = %s)"
        return self._link.rows(sql, self._journal) == [(True,)]

    def prune(self, *, older_s: float, most: int) -> int:
        """Drop the oldest rows."""
        with self._link.used("pruned") as connection:
            return connection.execute(_PRUNE, (older_s, self._journal, most)).rowcount

    def retire(self, *, before: float, most: int) -> int:
        """Delete the oldest rows that were set aside."""
        rows = cast(
            "list[tuple[int, bytes, bytes, bool]]",
            self._link.rows(_ASIDE, self._journal, most, self._journal),
        )
        found = [(number, self._open(number, key, record).event) for number, key, record, _ in rows]
        aside = {number for number, _, _, is_aside in rows if is_aside}
        old = [number for number in older_than(before, found) if number in aside]
        if old:
            with self._link.used("pruned") as connection:
                connection.execute("DELETE FROM vfb_inbox WHERE id = ANY(%s)", (old,))
        return len(old)

    def decisions_of(self, user: str) -> list[EventId]:
        """Ids of all decisions for a user."""
        events = (one.event for one in self._all())
        return [one.event_id for one in events if isinstance(one, Decided) and one.user == user]

    def erase(self, ids: Sequence[EventId]) -> None:
        """Delete rows in one transaction."""
        places = list({self._codec.place_of(event_id) for event_id in ids})
        unreadable = [one.id for one in self._all() if one.event is None]
        with self._link.used("erased from") as connection, connection.transaction():
            connection.execute(_ERASE, (places, self._journal))
            connection.execute("DELETE FROM vfb_inbox WHERE id = ANY(%s)", (unreadable,))

    def copied(self) -> Iterator[Copied]:
        """All events in it, for a copy."""
        after = 0
        while rows := self._link.rows(_COPIED, self._journal, after, ROWS_PER_BATCH):
            for number, key, record, taken in cast("list[tuple[int, bytes, bytes, float]]", rows):
                yield Copied(self._open(number, key, record).event, taken)
                after = number

    def close(self) -> None:
        """Close all connections."""
        with self._guard:
            self._closing.close()

    def _all(self) -> Iterator[Waiting]:
        after = 0
        while True:
            rows = cast(
                "list[tuple[int, bytes, bytes]]",
                self._link.rows(_ALL, self._journal, after, ROWS_PER_BATCH),
            )
            if not rows:
                return
            yield from (self._open(*row) for row in rows)
            after = rows[-1][0]

    def _earlier(self, keys: list[bytes]) -> dict[bytes, Arrival]:
        if not keys:
            return {}
        rows = cast("list[tuple[bytes, bytes]]", self._link.rows(_EARLIER, self._journal, keys))
        found = {key: self._codec.open(record, key) for key, record in rows}
        if len(found) < len(set(keys)):
            raise JournalError(f"the inbox of {self._link.log} was pruned meanwhile; try again")
        return found

    def _open(self, number: int, key: bytes, record: bytes) -> Waiting:
        try:
            return Waiting(number, self._codec.open(record, key))
        except JournalError as error:
            return Waiting(number, None, str(error))

    def _mark(self, sql: LiteralString, ids: Sequence[int]) -> None:
        if ids:
            with self._link.used("written") as connection:
                connection.execute(sql, (list(ids),))

    def _other_link(self) -> PostgresLink:
        """A connection for lookups, opened when it is first needed."""
        with self._guard:
            if self._finder is None:
                self._finder = self._link.twin()
                self._closing.callback(self._finder.close)
            return self._finder


def make_inbox_tables(connection: TimedConnection, log: str) -> None:
    """Create the table of all inboxes, unless it exists; refuses one of another version."""
    version = (TABLES, STEPS)
    make_tables(connection, _TABLES, table="vfb_inbox", lock=_MAKING, version=version)
    found = version_of(connection, TABLES)
    refuse_other_version(found, STEPS, journal=f"{log} (its inbox)")


def put_copied(
    connection: TimedConnection, journal: int, codec: InboxCodec, arrivals: Iterable[Copied]
) -> None:
    """Insert the events of another inbox, in their order, into an empty inbox."""

    def rows() -> Iterator[tuple[object, ...]]:
        for event, taken in arrivals:
            if event is not None:
                key = codec.key_of(event)
                yield journal, key, codec.seal(event, key), taken

    with connection.cursor() as cursor:
        cursor.executemany(_COPY_IN, rows())
