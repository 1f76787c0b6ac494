"""A PostgreSQL journal for reading, by any number of processes, with or without its writer."""

from collections.abc import Sequence
from contextlib import ExitStack

from vfbandits.campaign.events import Found
from vfbandits.core.decision import EventId
from vfbandits.core.snapshot import Snapshot
from vfbandits.journal.base import Damage
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.postgres.link import PostgresLink
from vfbandits.journal.postgres.rows import PostgresRows
from vfbandits.journal.rows import RowsReader

TIMEOUT_S = 30.0


class PostgresReader(RowsReader[PostgresRows]):
    """Reads a journal without its lock.  It reconnects after an error.

    ``damage.records`` counts the acknowledged records that were missing from the end at opening.
    """

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
            finder = link.twin()
            stack.callback(finder.close)
            self._rows = PostgresRows(link, finder, name, key)
            acknowledged, _, last = self._rows.ends()
            self._n_missing = max(0, acknowledged - last)
            self._closing = stack.pop_all()

    @property
    def last_position(self) -> int:
        """Position of the last record now."""
        return self._rows.last()

    @property
    def damage(self) -> Damage:
        """Damage that was found since the journal was opened."""
        return Damage(self._n_missing, self._rows.n_damaged)

    def find_many(self, ids: Sequence[EventId]) -> dict[EventId, Found]:
        """All events of several decisions."""
        return self._rows.find_many(ids)

    def snapshot_positions(self) -> list[int]:
        """Positions of all snapshots, newest first."""
        return self._rows.snapshot_positions()

    def load_snapshot(self, position: int) -> Snapshot:
        """The snapshot of a position."""
        return self._rows.load_snapshot(position)

    def latest_snapshot(self) -> tuple[int, Snapshot] | None:
        """The newest undamaged snapshot."""
        return self._rows.latest_snapshot()

    def close(self) -> None:
        """Close all connections."""
        self._closing.close()
