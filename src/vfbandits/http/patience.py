"""Requests that are never finished: a connection knows whether it waits for the rest of one.

uvicorn closes connections that are idle after an answer, and waits for ever for a request to come
to its end.  Enough of those would use up the descriptors of a process.
"""

from collections.abc import Callable, Iterable
from typing import Final

import structlog

from vfbandits.http.access.caller import CALLER
from vfbandits.http.head_limit import BoundedProtocol

_log: Final = structlog.get_logger(__name__)


class PatientProtocol(BoundedProtocol):
    """A connection that counts its requests, and remembers whether a caller was known."""

    on_lost: Callable[[], None] | None = None
    _has_been_known = False
    _n_begun = 0
    _is_reading = True  # a new connection owes us a request
    _n_begun_before: int | None = None

    def on_message_begin(self) -> None:
        """A request begins."""
        self._has_been_known = self.is_known
        super().on_message_begin()
        self._n_begun += 1
        self._is_reading = True

    def on_message_complete(self) -> None:
        """A request has come as a whole."""
        super().on_message_complete()
        self._is_reading = False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed."""
        super().connection_lost(exc)
        if self.on_lost is not None:
            self.on_lost()

    @property
    def is_known(self) -> bool:
        """Whether a valid key or certificate was shown on this connection."""
        return self._has_been_known or (self.scope is not None and CALLER in self.scope)

    @property
    def is_answering(self) -> bool:
        """Whether a request came as a whole and is not answered yet."""
        return not self._is_reading and not self.cycle.response_complete

    def is_stuck(self) -> bool:
        """Whether it waits for the request that it waited for when this was asked before."""
        before = self._n_begun_before
        self._n_begun_before = self._n_begun if self._is_reading else None
        return self._is_reading and before == self._n_begun


def close_stuck(connections: Iterable[object]) -> None:
    """Hang up on those who have sent no whole request since the last call."""
    stuck = [one for one in connections if isinstance(one, PatientProtocol) and one.is_stuck()]
    for connection in stuck:
        connection.count_closed("unfinished")
        connection.transport.abort()
    if stuck:
        _log.warning("http_hung_up", count=len(stuck), reason="their requests were not finished")
