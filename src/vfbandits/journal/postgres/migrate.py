"""Brings the tables of a PostgreSQL journal to the newest version, in one transaction.

The tables are shared by all journals of a database, so none of them may have a writer.
"""

from contextlib import closing
from typing import cast

from vfbandits.errors import JournalError
from vfbandits.journal.inbox import postgres as inbox
from vfbandits.journal.migration import Migrated, Migration, Steps, plan
from vfbandits.journal.postgres import rows
from vfbandits.journal.postgres.address import PostgresAddress
from vfbandits.journal.postgres.link import PostgresLink, TimedConnection
from vfbandits.journal.postgres.reader import TIMEOUT_S
from vfbandits.journal.postgres.tables import MAKING

_MIGRATED = """
    CREATE TABLE IF NOT EXISTS vfb_migrated (
        tables text NOT NULL, found integer NOT NULL, newest integer NOT NULL, by text NOT NULL,
        at float8 NOT NULL
    )
"""
PATIENCE = 1_000.0  # a table of many rows may have to be written again
_WRITER = "SELECT pg_try_advisory_xact_lock('vfb_journal'::regclass::oid::int, %s)"


def plan_postgres(url: str) -> list[Migration]:
    """What ``migrate_postgres`` would do; writers may be at work."""
    with closing(_link(url)) as link, link.used("opened") as connection:
        return _plans(connection, link.log)


def migrations_of_postgres(url: str) -> list[Migrated]:
    """What ``migrate_postgres`` has done so far; writers may be at work."""
    with closing(_link(url)) as link:
        if link.rows("SELECT to_regclass('vfb_migrated') IS NOT NULL") != [(True,)]:
            return []
        found = link.rows("SELECT tables, found, newest, by, at FROM vfb_migrated ORDER BY at")
    return [Migrated(*row) for row in cast("list[tuple[str, int, int, str, float]]", found)]


def migrate_postgres(url: str, *, by: str, now: float) -> list[Migration]:
    """Migrate, if no journal has a writer; nothing is changed unless all steps succeed."""
    with (
        closing(_link(url)) as link,
        link.used("migrated", patience=PATIENCE) as connection,
        connection.transaction(),
    ):
        connection.execute("SET LOCAL statement_timeout = 0")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (MAKING,))
        _plans(connection, link.log)
        # Processes that open a journal wait for this lock, and then see the new version.
        connection.execute("LOCK TABLE vfb_version IN ACCESS EXCLUSIVE MODE")
        _refuse_writers(connection, link.log)
        migrations = _plans(connection, link.log)
        for migration in migrations:
            steps = _known()[migration.tables]
            for version in range(migration.found, migration.newest):
                for statement in steps[version].statements:
                    connection.execute(statement)
            connection.execute(
                "UPDATE vfb_version SET version = %s WHERE tables = %s",
                (migration.newest, migration.tables),
            )
            if migration.steps:
                connection.execute(_MIGRATED)
                connection.execute(
                    "INSERT INTO vfb_migrated VALUES (%s, %s, %s, %s, %s)",
                    (migration.tables, migration.found, migration.newest, by, now),
                )
        return migrations


def _link(url: str) -> PostgresLink:
    address = PostgresAddress.of(url)
    return PostgresLink(address, log=f"at {address.place}", timeout_s=TIMEOUT_S)


def _known() -> dict[str, Steps]:
    return {rows.TABLES: rows.STEPS, inbox.TABLES: inbox.STEPS}


def _plans(connection: TimedConnection, log: str) -> list[Migration]:
    """A migration for the journals, and one for their inbox if there is one."""
    found = {tables: rows.version_of(connection, tables) for tables in _known()}
    if not found[rows.TABLES]:
        raise JournalError(f"wanted the journal {log}, got a database without tables of vfbandits")
    return [
        plan(version, _known()[tables], tables=tables, journal=log)
        for tables, version in found.items()
        if version
    ]


def _refuse_writers(connection: TimedConnection, log: str) -> None:
    journals = connection.execute("SELECT id, name FROM vfb_journal ORDER BY id").fetchall()
    for number, name in cast("list[tuple[int, str]]", journals):
        if connection.execute(_WRITER, (number,)).fetchall() != [(True,)]:
            raise JournalError(
                f"tables are migrated while no journal has a writer, got one: {name!r} {log} is "
                "locked by another process"
            )
