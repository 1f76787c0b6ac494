"""One connection to PostgreSQL: every call has a deadline, every error is a ``JournalError``."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import LiteralString, TypeAlias

import psycopg
from psycopg.abc import RV, PQGen

from vfbandits.errors import JournalError
from vfbandits.journal.postgres.address import PostgresAddress

Parameter: TypeAlias = int | str | bytes | bool | list[bytes] | list[int] | None
Values: TypeAlias = tuple[object, ...]
_LOOK_S = 0.1


class TimedConnection(psycopg.Connection[Values]):
    """A connection that gives up at ``deadline``, since an unreachable server sends no error."""

    deadline = float("inf")

    def wait(self, gen: PQGen[RV], interval: float = _LOOK_S, timeout: float | None = None) -> RV:
        """Let the driver work, and check the deadline whenever it has to wait."""
        del timeout
        return super().wait(self._timed(gen), interval)

    def _timed(self, gen: PQGen[RV]) -> PQGen[RV]:
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > self.deadline:
                    raise psycopg.OperationalError("the server did not answer in time")
                wanted = gen.send(ready)
        except StopIteration as end:
            result: RV = end.value
            return result


class PostgresLink:
    """A connection for one thread at a time.

    A link that ``reconnects`` may be used again after a failure.  The link of a writer never
    reconnects: with its connection the writer lost its lock.
    """

    def __init__(
        self, address: PostgresAddress, *, log: str, timeout_s: float, reconnects: bool = False
    ) -> None:
        self.log = log
        self._guard = threading.RLock()
        self._address = address
        self._timeout_s = timeout_s
        self._reconnects = reconnects
        self._is_closed = False
        with self._translated("opened"):
            self._connection = self._connect()

    @classmethod
    def open(
        cls, url: str, *, name: str, timeout_s: float, reconnects: bool = False
    ) -> "PostgresLink":
        """A connection for the journal ``name`` in the database at ``url``."""
        address = PostgresAddress.of(url)
        log = f"{name!r} at {address.place}"
        return cls(address, log=log, timeout_s=timeout_s, reconnects=reconnects)

    def rows(self, sql: LiteralString, *values: Parameter) -> list[Values]:
        """The rows of a query."""
        with self.used("read") as connection:
            return connection.execute(sql, values, binary=True).fetchall()

    @contextmanager
    def used(self, done: str, *, patience: float = 1.0) -> Iterator[TimedConnection]:
        """The connection, for this thread; calls fail after ``patience`` times the timeout."""
        with self._guard, self._translated(done):
            self._refuse_if_closed()
            if self._connection.closed and self._reconnects:
                self._connection = self._connect()
            self._connection.deadline = time.monotonic() + self._timeout_s * patience
            try:
                yield self._connection
            except psycopg.OperationalError:
                self._connection.close()  # its state is not known
                raise

    def twin(self) -> "PostgresLink":
        """Another connection to the same database, which reconnects and never waits for this."""
        self._refuse_if_closed()
        return PostgresLink(self._address, log=self.log, timeout_s=self._timeout_s, reconnects=True)

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        with self._guard, self._translated("closed"):
            self._is_closed = True
            self._connection.close()

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise JournalError(f"the journal {self.log} is closed")

    def _connect(self) -> TimedConnection:
        connection = TimedConnection.connect(self._address.conninfo, autocommit=True)
        connection.deadline = time.monotonic() + self._timeout_s
        # A link that reconnects carries large snapshots; ``deadline`` limits its calls anyway.
        limit = "0" if self._reconnects else str(max(1, round(self._timeout_s * 1_000)))
        try:
            connection.execute("SELECT set_config('statement_timeout', %s, false)", (limit,))
        except psycopg.Error:
            connection.close()
            raise
        return connection

    @contextmanager
    def _translated(self, done: str) -> Iterator[None]:
        try:
            yield
        except (psycopg.Error, OSError) as error:
            reason = self._address.describe(error)
            raise JournalError(f"the journal {self.log} cannot be {done}: {reason}") from error
