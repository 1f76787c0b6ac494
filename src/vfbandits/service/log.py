"""Structured logs: one JSON object a line, with ids, counts and durations, and never an array."""

import contextlib
import logging
import sys
from typing import TextIO

import structlog

from vfbandits.protocol.instructions import Facts
from vfbandits.protocol.roster import ACTIVE
from vfbandits.transport.rpc.core_log import CoreLog

Logger = structlog.stdlib.BoundLogger
WARNINGS = frozenset(
    {
        "answer_declined",
        "answer_missing",
        "answer_refused",
        "change_failed",
        "circuit_opened",
        "features_failed",
        "handshake_refused",
        "identity_refused",
        "link_lost",
        "message_refused",
        "secure_round_incomplete",
        "secure_sum_refused",
        "tls_refused",
        "refused",
    }
)


def start_logging(*, stream: TextIO | None = None, level: int = logging.INFO) -> None:
    """Send logs to ``stream``, the standard error unless told otherwise."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,  # lines of code, no values
            refuse_arrays,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=_Lines(stream or sys.stderr),
        cache_logger_on_first_use=False,
    )


class _Lines:
    """Makes loggers; a line for which the disk has no room is lost, and nothing else."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, *names: object) -> "_Lines":
        """The same one, whatever the name."""
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


def log_refused_peers(name: str) -> CoreLog:
    """Log each peer that TLS turned away, with the reason, while this context is open."""
    log = logger_for(name, ACTIVE)
    return CoreLog(lambda reason, address: log.warning("tls_refused", peer=address, reason=reason))


def note(log: Logger, event: str, facts: Facts) -> None:
    """Log what a role noted, at the level that its name deserves."""
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
