"""Creates a journal in PostgreSQL with the contents of another one, in one transaction."""

import os
from contextlib import closing
from typing import cast

from vfbandits.errors import JournalError
from vfbandits.journal.codec import IDENTITY_BYTES, Codec
from vfbandits.journal.contents import JournalContents
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.inbox.codec import InboxCodec
from vfbandits.journal.inbox.postgres import make_inbox_tables, put_copied
from vfbandits.journal.postgres.link import PostgresLink, TimedConnection
from vfbandits.journal.postgres.reader import TIMEOUT_S
from vfbandits.journal.postgres.tables import (
    COPY_END,
    COPY_EVENTS,
    COPY_HEAD,
    Batch,
    event_rows,
    make_log_tables,
    put_snapshot,
)

PATIENCE = 10_000.0  # there may be many records
# Switches synchronous commit on where the server has it off.
_DURABLE = """
    SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit')
        WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)
"""
_MAKE = """
    INSERT INTO vfb_journal (name, identity, key_check) VALUES (%s, %s, %s)
    ON CONFLICT DO NOTHING RETURNING id
"""
_ENDS = "UPDATE vfb_journal SET last_position = %s, compacted_to = %s WHERE id = %s"


def fill_postgres(url: str, source: JournalContents, *, name: str, key: JournalKey | None) -> None:
    """Create the journal ``name``; refused if it exists."""
    identity = os.urandom(IDENTITY_BYTES)
    with (
        closing(PostgresLink.open(url, name=name, timeout_s=TIMEOUT_S)) as link,
        link.used("made", patience=PATIENCE) as connection,
    ):
        make_log_tables(connection, link.log)
        make_inbox_tables(connection, link.log)
        with connection.transaction():
            connection.execute("SET LOCAL statement_timeout = 0")
            connection.execute(_DURABLE)
            check = None if key is None else key.check(identity)
            made = connection.execute(_MAKE, (name, identity, check)).fetchall()
            if not made:
                raise JournalError(
                    f"a copy needs a new journal, got {link.log}, which exists already"
                )
            number = cast("int", made[0][0])
            source.on_begin()
            connection.execute(_ENDS, (source.last_position, source.compacted_to, number))
            codec = Codec(identity + name.encode(), key)
            for position, snapshot in source.snapshots():
                data = codec.seal_snapshot(position, snapshot)
                put_snapshot(connection, number, position, data)
            _put_records(connection, number, codec, source)
            inbox = InboxCodec(identity + name.encode(), key)
            put_copied(connection, number, inbox, source.arrivals)


def _put_records(
    connection: TimedConnection, number: int, codec: Codec, source: JournalContents
) -> None:
    with connection.cursor() as cursor, cursor.copy(COPY_EVENTS) as copy:
        copy.write(COPY_HEAD)
        for batch in source.batches():
            positions = [position for position, _, _ in batch]
            names = codec.names.of_events([event for _, event, _ in batch])
            sealed = [codec.seal([record], after=at - 1)[0] for at, _, record in batch]
            copy.write(event_rows(number, positions, Batch(names, sealed)))
        copy.write(COPY_END)
