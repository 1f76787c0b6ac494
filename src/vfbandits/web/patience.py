"""Requests that are never finished: a connection knows whether it waits for the rest of one.

uvicorn closes connections that are idle after an answer, and waits for ever for a request to come
to its end.  Enough of those would use up the descriptors of a process.
"""

from collections.abc import Iterable
from typing import Final

import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

_log: Final = structlog.get_logger(__name__)


class PatientProtocol(HttpToolsProtocol):
    """A connection that counts its requests."""

    _n_begun = 0
    _is_reading = True  # a new connection owes us a request
    _n_begun_before: int | None = None

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._n_begun += 1
        self._is_reading = True

    def on_message_complete(self) -> None:
        """A request has come as a whole."""
        super().on_message_complete()
        self._is_reading = False

    def is_stuck(self) -> bool:
        """Whether it waits for the request that it waited for when this was asked before."""
        before = self._n_begun_before
        self._n_begun_before = self._n_begun if self._is_reading else None
        return self._is_reading and before == self._n_begun


def close_stuck(connections: Iterable[object]) -> None:
    """Hang up on those who have sent no whole request since the last call."""
    stuck = [one for one in connections if isinstance(one, PatientProtocol) and one.is_stuck()]
    for connection in stuck:
        connection.transport.abort()
    if stuck:
        _log.warning("http_hung_up", count=len(stuck), reason="their requests were not finished")
