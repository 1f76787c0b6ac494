"""Structured logs: one JSON object a line, with ids, counts and durations, and never an array."""

import contextlib
import logging
import sys
from typing import TextIO

import structlog

from vfbandits.protocol.instructions import Facts
from vfbandits.telemetry.log_throttle import EVERY_S, SparseEvents

Logger = structlog.stdlib.BoundLogger
WARNINGS = frozenset(
    {
        "access_declined",
        "access_record_failed",
        "answer_declined",
        "answer_missing",
        "answer_refused",
        "circuit_opened",
        "features_failed",
        "handshake_refused",
        "help_refused",
        "identity_refused",
        "link_lost",
        "link_refused",
        "mask_change_failed",
        "message_refused",
        "participant_left",
        "round_save_failed",
        "rows_refused",
        "secure_sum_incomplete",
        "secure_sum_refused",
        "shares_away",
        "shares_busy",
    }
)
# Events that may occur with every round or attempt: one line per interval, with a count.
# Lines with the same values of these facts share an interval; ``federation status`` counts all.
SPARSE = {
    "access_declined": ("participant", "limit"),
    "access_record_failed": ("participant",),
    "answer_declined": ("participant", "peer", "code"),
    "answer_discarded": ("participant", "peer"),
    "answer_missing": ("participant", "peer"),
    "answer_refused": ("participant", "peer"),
    "features_failed": ("participant",),
    "features_missing": ("participant", "peer"),
    "handshake_refused": ("participant", "peer"),
    "http_request_failed": ("kind", "caller"),
    "http_request_refused": ("address", "status", "caller"),
    "identity_refused": ("participant", "peer"),
    "link_lost": ("participant",),
    "link_refused": ("participant",),
    "message_refused": ("participant", "peer"),
    "peer_refused": ("reason",),
    "round_retried": ("participant",),
    "rows_refused": ("participant",),
    "secure_sum_incomplete": ("participant", "missing"),
    "secure_sum_refused": ("participant",),
    "shares_busy": ("participant",),
}


def start_logging(
    *, stream: TextIO | None = None, level: int = logging.INFO, sparse_s: float = EVERY_S
) -> SparseEvents:
    """Send logs to ``stream``, by default the standard error.

    Run the process within the returned context: its end logs the number of ``SPARSE`` events that
    were suppressed in the last ``sparse_s``.
    """
    sparse = SparseEvents(SPARSE, every_s=sparse_s)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            sparse,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,  # lines of code, no values
            refuse_arrays,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=_Lines(stream or sys.stderr),
        cache_logger_on_first_use=False,
    )
    return sparse


class _Lines:
    """A factory of loggers; if the disk is full, a line is lost and the process goes on."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, *names: object) -> "_Lines":
        """Return the same logger for every name."""
        del names
        return self

    def msg(self, line: str) -> None:
        """Write a line."""
        with contextlib.suppress(OSError):
            self._stream.write(line + "\n")
            self._stream.flush()

    log = debug = info = warn = warning = error = critical = exception = fatal = failure = err = msg


def logger_for(name: str, role: str) -> Logger:
    """A logger whose every line names the participant."""
    bound: Logger = structlog.get_logger().bind(participant=name, role=role)
    return bound


def log_line(log: Logger, event: str, facts: Facts) -> None:
    """Log an event and its facts: as a warning if it is in ``WARNINGS``, else as info.

    The fact ``participant`` is logged as ``peer``: ``participant`` is the process itself.
    """
    named = {("peer" if key == "participant" else key): value for key, value in facts.items()}
    if event in WARNINGS:
        log.warning(event, **named)
    else:
        log.info(event, **named)


def refuse_arrays(
    _: object, __: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Let only plain values through: an array in a log would be a leak."""
    for key, value in event.items():
        if not isinstance(value, str | int | float | bool | None):
            event[key] = f"<{type(value).__name__}>"
    return event
