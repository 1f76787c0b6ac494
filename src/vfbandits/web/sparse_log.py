"""Lines of the log that a stranger can cause: the first is written, and then they are counted."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

import structlog

EVERY_S: Final = 60.0
MAX_KINDS: Final = 1_000

_log: Final = structlog.get_logger(__name__)


class Sparse:
    """Says which of many lines of a kind are written: the first, then one in ``every_s``.

    >>> sparse = Sparse(clock=iter([0.0, 1.0, 2.0, 60.0]).__next__)
    >>> [sparse.due("garbage") for _ in range(4)]
    [0, None, None, 2]
    """

    def __init__(
        self, *, every_s: float = EVERY_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._every_s = every_s
        self._clock = clock
        # When a line was written last, and how many were not since; the kind met last is last.
        self._kinds: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def due(self, kind: str) -> int | None:
        """How many lines were left out since the last one; None if this one is to be left out."""
        moment = self._clock()
        written_at, unlogged = self._kinds.get(kind, (None, 0))
        is_due = written_at is None or moment - written_at >= self._every_s
        if is_due or written_at is None:
            self._kinds[kind] = (moment, 0)
        else:
            self._kinds[kind] = (written_at, unlogged + 1)
        self._kinds.move_to_end(kind)
        if len(self._kinds) > MAX_KINDS:
            self._kinds.popitem(last=False)
        return unlogged if is_due else None


class SparseWarnings(logging.Filter):
    """Takes a logger's warnings over, such as uvicorn's about requests that are no HTTP.

    Anybody can cause those, with each request.
    """

    def __init__(self) -> None:
        super().__init__()
        self._sparse = Sparse()

    def filter(self, record: logging.LogRecord) -> bool:
        """Let all but warnings pass."""
        if record.levelno != logging.WARNING:
            return True
        unlogged = self._sparse.due(str(record.msg))
        if unlogged is not None:
            _log.warning("http_garbage", reason=record.getMessage(), unlogged=unlogged)
        return False
