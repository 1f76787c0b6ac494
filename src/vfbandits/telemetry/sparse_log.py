"""uvicorn's warnings as lines of our log: the first is written, and then they are counted."""

import logging
from typing import Final

import structlog

from vfbandits.telemetry.log_throttle import LogThrottle

_log: Final = structlog.get_logger(__name__)


class SparseWarnings(logging.Filter):
    """Takes a logger's warnings over, such as uvicorn's about requests that are no HTTP.

    Anybody can cause those, with each request.
    """

    def __init__(self) -> None:
        super().__init__()
        self._throttle = LogThrottle()

    def filter(self, record: logging.LogRecord) -> bool:
        """Let all but warnings pass."""
        if record.levelno != logging.WARNING:
            return True
        unlogged = self._throttle.admit(str(record.msg))
        if unlogged is not None:
            _log.warning("http_garbage", reason=record.getMessage(), unlogged=unlogged)
        return False
