"""The journal in a PostgreSQL database: several journals by name, each with one writer at a time.

The writer holds an advisory lock, which the server releases when the connection ends, for whatever
reason: the next writer then takes over, and reads the end of the journal again.  A writer that has
lost its connection never writes again.  Use a direct connection: a pooler that passes a session
from one client to the next breaks the lock (the term that every write checks refuses the write).
"""

import logging
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import cast

from vfbandits.campaign.events import Erased, Event, Found, LossAccepted, SetAside
from vfbandits.core.decision import EventId
from vfbandits.core.snapshot import Snapshot
from vfbandits.errors import JournalError
from vfbandits.journal.base import (
    Damage,
    damaged_end,
    refuse_bare_compaction,
    refuse_future,
    refuse_uncovered,
    refuse_unknown,
)
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.migration import refuse_other_version
from vfbandits.journal.postgres.link import PostgresLink
from vfbandits.journal.postgres.reader import TIMEOUT_S
from vfbandits.journal.postgres.rows import (
    SNAPSHOT_PATIENCE,
    STEPS,
    TABLES,
    PostgresRows,
    version_of,
)
from vfbandits.journal.postgres.tables import BATCH_SIZE, Batch, Writer, make_log
from vfbandits.journal.record import encode
from vfbandits.journal.rows import RowsReader
from vfbandits.journal.witness import Head, Loss, Witness, check_of, loss_after, lost

WAIT_S = 2.0
_TRY_S = 0.05
_LOCK = "SELECT pg_try_advisory_lock('vfb_journal'::regclass::oid::int, %s)"
_TERM = "UPDATE vfb_journal SET term = term + 1 WHERE id = %s RETURNING term"
_SETTINGS = """
    SELECT set_config('tcp_keepalives_idle', '5', false),
        set_config('tcp_keepalives_interval', '3', false),
        set_config('tcp_keepalives_count', '3', false),
        set_config('synchronous_commit', CASE current_setting('synchronous_commit')
            WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false),
        current_setting('fsync')
"""
_log = logging.getLogger(__name__)


class _UnwritableError(JournalError):
    """An event cannot be encoded; the journal itself is healthy."""


class PostgresJournal(RowsReader[PostgresRows]):
    """A journal in a database.

    Parameters
    ----------
    url
        Like postgresql://user:password@host:port/database; it is never shown.
    name
        Name of the journal: a database holds several.
    key
        Encrypts a new journal, and opens one that was created with it.
    wait_s
        How long to wait for the lock of another writer; infinity makes a standby.
    timeout_s
        Timeout of every call; a snapshot may take twenty times as long.
    witness
        A file outside the database that records how far the journal was acknowledged
        (``witness.py``): it reveals that the database was restored from an older copy.
    accept_loss
        Who accepts that acknowledged records are lost; without it such a journal is refused, and
        with it a ``LossAccepted`` is its next record.
    """

    is_quick = False

    def __init__(
        self,
        url: str,
        *,
        name: str = "default",
        key: JournalKey | None = None,
        wait_s: float = WAIT_S,
        timeout_s: float = TIMEOUT_S,
        witness: Path | None = None,
        accept_loss: str | None = None,
    ) -> None:
        self._guard = threading.Lock()
        self._has_failed = self._is_closed = False
        self._check = b""
        self._n_dropped = self._n_lost_snapshots = 0
        with ExitStack() as stack:
            self._link = PostgresLink.open(url, name=name, timeout_s=timeout_s)
            stack.callback(self._link.close)
            make_log(self._link, name, key)
            # Connections of their own, so that appends do not wait for a large snapshot.
            side, finder = self._link.twin(), self._link.twin()
            stack.callback(side.close)
            stack.callback(finder.close)
            self._rows = PostgresRows(side, finder, name, key)
            self._writer = _lead(self._link, self._rows.id, wait_s)
            with self._link.used("opened") as connection:
                # Again: before the lock was taken, the tables may have been migrated.
                refuse_other_version(version_of(connection, TABLES), STEPS, journal=self._link.log)
            self._witness = None if witness is None else Witness(witness)
            if self._witness is not None:
                stack.callback(self._witness.close)
            self._last, loss = self._recover(may_lose=accept_loss is not None)
            if loss is not None and accept_loss is not None:
                accepted = LossAccepted(
                    loss.expected, loss.found, loss.why, accept_loss, time.time()
                )
                self.append([accepted])
            else:
                self._ack_end()
            self._closing = stack.pop_all()

    @property
    def last_position(self) -> int:
        """Position of the last durable record."""
        return self._last

    @property
    def damage(self) -> Damage:
        """Damage that was found since the journal was opened."""
        return Damage(self._n_dropped, self._n_lost_snapshots + self._rows.n_damaged)

    def append(self, events: Sequence[Event]) -> int:
        """Write events in one transaction, if the journal still ends where this writer left it."""
        with self._guard:
            if self._has_failed:
                raise JournalError(
                    f"a write to the journal {self._link.log} has failed before; "
                    "close it and open it again"
                )
            if events:
                self._write(events)
            return self._last

    def find_many(self, ids: Sequence[EventId]) -> dict[EventId, Found]:
        """All events of several decisions."""
        return self._rows.find_many(ids)

    def save_snapshot(self, position: int, snapshot: Snapshot) -> None:
        """Write a snapshot; appends go on meanwhile."""
        refuse_future(position, self._last)
        data = self._rows.codec.seal_snapshot(position, snapshot)
        with self._rows.link.used("given a snapshot", patience=SNAPSHOT_PATIENCE) as connection:
            self._writer.save_snapshot(connection, position, data)
        if self._witness is not None:
            self._witness.sync()

    def snapshot_positions(self) -> list[int]:
        """Positions of all snapshots, newest first."""
        return self._rows.snapshot_positions()

    def load_snapshot(self, position: int) -> Snapshot:
        """The snapshot of a position."""
        return self._rows.load_snapshot(position)

    def latest_snapshot(self) -> tuple[int, Snapshot] | None:
        """The newest undamaged snapshot."""
        return self._rows.latest_snapshot()

    def set_aside(self, records: Mapping[int, SetAside]) -> None:
        """Move rows to ``vfb_damaged`` and insert their replacements, in one transaction."""
        rows = self._in_place(records)
        with self._guard:
            with self._link.used("repaired", patience=SNAPSHOT_PATIENCE) as connection:
                self._writer.set_aside(connection, rows)
            self._ack_end()

    def erase(self, records: Mapping[int, Erased | SetAside]) -> None:
        """Overwrite rows in one transaction; a vacuum of the server removes their old versions."""
        rows = self._in_place(records)
        with self._guard:
            with self._link.used("erased from", patience=SNAPSHOT_PATIENCE) as connection:
                self._writer.erase(connection, rows)
            self._ack_end()

    def _in_place(self, records: Mapping[int, Event]) -> list[tuple[int, bytes]]:
        """Rows that replace existing ones."""
        refuse_unknown(records, self._last)
        seal = self._rows.codec.seal
        return [
            (position, seal([encode(event)], after=position - 1)[0])
            for position, event in sorted(records.items())
        ]

    def compact(self, position: int, *, keep: Collection[int]) -> int:
        """Drop records in one transaction; the server reuses their space."""
        refuse_bare_compaction(position, self.snapshot_positions(), self.compacted_to)
        with (
            self._guard,
            self._link.used("compacted", patience=SNAPSHOT_PATIENCE) as connection,
        ):
            return self._writer.compact(connection, position, keep=keep, last=self._last)

    def retire(self, positions: Sequence[int], *, covered_by: int) -> None:
        """Delete rows in one transaction."""
        refuse_uncovered(positions, covered_by, self.snapshot_positions(), self.compacted_to)
        with self._guard, self._link.used("compacted") as connection:
            self._writer.retire(connection, positions, covered_by=covered_by)

    def close(self) -> None:
        """Release the lock, and close all connections."""
        with self._guard:
            if self._witness is not None and not self._is_closed:
                self._witness.sync()
            self._is_closed = True
            self._closing.close()

    def _write(self, events: Sequence[Event]) -> None:
        with self._link.used("written") as connection:
            self._has_failed = True  # until the write is known to have succeeded
            try:
                self._writer.append(
                    connection, self._sealed(events), after=self._last, count=len(events)
                )
            except _UnwritableError:
                self._has_failed = False  # the transaction was rolled back
                raise
            self._last += len(events)
            if self._witness is not None:
                self._witness.ack(Head(self._last, self._check))
            self._has_failed = False

    def _sealed(self, events: Sequence[Event]) -> Iterator[Batch]:
        codec = self._rows.codec
        for start in range(0, len(events), BATCH_SIZE):
            some = events[start : start + BATCH_SIZE]
            try:
                records = [encode(event) for event in some]
            except JournalError as error:
                raise _UnwritableError(str(error)) from error
            sealed = codec.seal(records, after=self._last + start)
            self._check = check_of(sealed[-1])
            yield Batch(codec.names.of_events(some), sealed)

    def _recover(self, *, may_lose: bool) -> tuple[int, Loss | None]:
        """Set a damaged end aside if ``may_lose``; returns the last position, and what is lost."""
        torn = damaged_end(self._rows.backwards())
        acknowledged, compacted, last = self._rows.ends()
        if torn:
            last = max(torn[-1] - 1, compacted)
        if last > acknowledged:
            raise JournalError(
                f"the journal {self._link.log} must end at {acknowledged}, got {last}: "
                "another process wrote to it"
            )
        seen = self._seen()
        expected = max(acknowledged, seen.position)
        if last == 0 and expected:
            by_file = "" if self._witness is None else f", and remove {self._witness.path}"
            raise JournalError(
                f"the journal {self._link.log} held {expected} records, got an empty one; "
                f"restore it, or start a new journal under another name{by_file}"
            )
        loss = self._loss(Head(acknowledged), last, compacted)
        if loss is None and not self._is_accepted(seen, last, compacted):
            loss = self._loss(seen, last, compacted)
        if loss is not None and not may_lose:
            advice = "Restore the newest state of the database, or run the leader where that is"
            raise lost(loss, log=self._link.log, advice=advice)
        with self._link.used("opened") as connection:
            self._n_lost_snapshots = self._writer.cut(connection, last=last)
        if loss is not None:
            self._n_dropped = max(1, expected - last)
            _log.warning("%d records lost at the end, journal ends at %d", self._n_dropped, last)
        return last, loss

    def _seen(self) -> Head:
        """The acknowledgement in this machine's witness."""
        head = Head(0) if self._witness is None else self._witness.head
        if head is None and self._witness is not None:
            _log.warning("the acknowledgement in %s is damaged", self._witness.path)
        return head or Head(0)

    def _is_accepted(self, seen: Head, last: int, compacted_to: int) -> bool:
        """Whether the loss that this witness shows was already accepted on another machine."""
        if self._loss(seen, last, compacted_to) is None:
            return False
        return any(loss.expected >= seen.position for loss in self._rows.accepted_losses())

    def _loss(self, head: Head, last: int, compacted_to: int) -> Loss | None:
        record_at = self._rows.record_at
        return loss_after(head, last=last, compacted_to=compacted_to, record_at=record_at)

    def _ack_end(self) -> None:
        if self._witness is not None:
            record = self._rows.record_at(self._last)
            check = check_of(record) if isinstance(record, bytes) else b""
            self._witness.ack(Head(self._last, check))


def _lead(link: PostgresLink, journal: int, wait_s: float) -> Writer:
    """Take the lock, and begin a term in which no other process can write."""
    end = time.monotonic() + wait_s
    while link.rows(_LOCK, journal) != [(True,)]:
        if time.monotonic() >= end:
            raise JournalError(
                f"a journal has one writer, got a second: {link.log} is locked by another process"
            )
        time.sleep(_TRY_S)
    ((*_, fsync),) = link.rows(_SETTINGS)
    if fsync != "on":
        _log.warning(
            "the server of %s runs without fsync: if its machine goes down, acknowledged records "
            "may be lost", link.log
        )  # fmt: skip
    ((term,),) = link.rows(_TERM, journal)
    return Writer(link.log, journal, cast("int", term))
