"""A PostgreSQL log for reading: many processes at once, whether its writer is at work or not."""

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
    """Reads a log without its lock.  After an error it may be used again: it connects anew.

    ``damage.records`` is how many acknowledged events were missing from the end when it was opened.
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
        """Position of the last event by now."""
        return self._rows.last()

    @property
    def damage(self) -> Damage:
        """What was found damaged since the log was opened."""
        return Damage(self._n_missing, self._rows.n_damaged)

    def find_many(self, ids: Sequence[EventId]) -> dict[EventId, Found]:
        """All events of several decisions."""
        return self._rows.find_many(ids)

    def snapshot_positions(self) -> list[int]:
        """Where there are snapshots."""
        return self._rows.snapshot_positions()

    def load_snapshot(self, position: int) -> Snapshot:
        """The snapshot of a position."""
        return self._rows.load_snapshot(position)

    def latest_snapshot(self) -> tuple[int, Snapshot] | None:
        """The newest whole snapshot."""
        return self._rows.latest_snapshot()

    def close(self) -> None:
        """Hang up."""
        self._closing.close()
