"""Whether a journal in PostgreSQL has a writer now, and its term: for replicas and standbys."""

from typing import cast

from vfbandits.journal.postgres.link import PostgresLink

TIMEOUT_S = 5.0
_IS_LED = """
    SELECT EXISTS (
        SELECT FROM pg_locks, vfb_journal
        WHERE vfb_journal.name = %s AND locktype = 'advisory' AND granted AND objsubid = 2
            AND classid = 'vfb_journal'::regclass::oid AND objid = vfb_journal.id::int8::oid
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    )
"""


class LeaderWatch:
    """Watches the lock of the journal ``name``, which need not exist yet; takes no lock itself."""

    def __init__(self, url: str, *, name: str = "default", timeout_s: float = TIMEOUT_S) -> None:
        self._name = name
        self._link = PostgresLink.open(url, name=name, timeout_s=timeout_s, reconnects=True)

    def is_led(self) -> bool:
        """Whether a process holds the lock."""
        return self._has_tables() and self._link.rows(_IS_LED, self._name) == [(True,)]

    def term(self) -> int:
        """A number that grows whenever a writer takes the lock; 0 if none ever did."""
        sql = "SELECT term FROM vfb_journal WHERE name = %s"
        found = self._link.rows(sql, self._name) if self._has_tables() else []
        return cast("int", found[0][0]) if found else 0

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def _has_tables(self) -> bool:
        return self._link.rows("SELECT to_regclass('vfb_journal') IS NOT NULL") == [(True,)]
