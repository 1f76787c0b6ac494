"""Throttling of log lines that repeat: the first is logged, the others are counted.

A disconnected peer, an unknown user or a caller without a certificate would otherwise write a line
for each attempt.  ``unlogged`` in a line is the number of similar lines that were suppressed since
the line before, so that the sum over lines of ``1 + unlogged`` is the number of attempts.
"""

import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import structlog

Line = structlog.typing.EventDict

EVERY_S: Final = 60.0
MAX_KEYS: Final = 1_000
_OTHERS: Final = "…"  # one key for all beyond ``MAX_KEYS``


@dataclass(slots=True)
class _Interval:
    """The interval since the last line of a key."""

    begun: float
    unlogged: int = 0
    last: Line = field(default_factory=dict)


class LogThrottle:
    """Admits one line of each key per ``every_s``; may be called from any thread.

    >>> throttle = LogThrottle(every_s=60.0, clock=iter([0.0, 1.0, 2.0, 61.0]).__next__)
    >>> [throttle.admit("link_lost") for _ in range(4)]
    [0, None, None, 2]
    """

    def __init__(
        self, *, every_s: float = EVERY_S, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._every_s = every_s
        self._clock = clock
        self._lock = threading.Lock()
        self._intervals: dict[Hashable, _Interval] = {}

    def admit(self, key: Hashable, line: Line | None = None) -> int | None:
        """The number of lines suppressed since the last one; None if this one is suppressed too.

        At most ``MAX_KEYS`` keys are tracked at a time: a remote peer may choose the text of a key.
        """
        with self._lock:
            now = self._clock()
            if key not in self._intervals and len(self._intervals) >= MAX_KEYS:
                self._forget(now)
                key = key if len(self._intervals) < MAX_KEYS else _OTHERS
            interval = self._intervals.get(key)
            if interval is not None and now < interval.begun + self._every_s:
                interval.unlogged += 1
                interval.last = line or {}
                return None
            self._intervals[key] = _Interval(now)
            return 0 if interval is None else interval.unlogged

    def take_due(self, *, everything: bool = False) -> list[tuple[Line, int]]:
        """The last suppressed line of each interval that is over, and the number of the others.

        The caller writes them, which begins another interval.  ``everything`` includes intervals
        that are not over.
        """
        with self._lock:
            now = self._clock()
            due = [
                (key, interval)
                for key, interval in self._intervals.items()
                if interval.unlogged and (everything or interval.begun + self._every_s <= now)
            ]
            for key, _ in due:
                self._intervals[key] = _Interval(now)
            self._forget(now)
        return [(interval.last, interval.unlogged - 1) for _, interval in due]

    def next_due_s(self) -> float | None:
        """Seconds until ``take_due`` has a line; None if none was suppressed."""
        with self._lock:
            ends = [one.begun + self._every_s for one in self._intervals.values() if one.unlogged]
            return max(min(ends) - self._clock(), 0.0) if ends else None

    def _forget(self, now: float) -> None:
        for key, interval in list(self._intervals.items()):
            if not interval.unlogged and interval.begun + self._every_s <= now:
                del self._intervals[key]


class SparseEvents:
    """A structlog processor that throttles some events; ``events`` has the facts in their keys.

    Suppressed lines are counted in a line when their interval is over, even if no line follows.
    """

    def __init__(self, events: Mapping[str, tuple[str, ...]], *, every_s: float = EVERY_S) -> None:
        self._events = events
        self._throttle = LogThrottle(every_s=every_s)
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def __call__(self, _: object, __: str, event: Line) -> Line:
        """Pass a line on, with ``unlogged`` if lines were suppressed, or drop it."""
        name = str(event.get("event"))
        if name not in self._events or "unlogged" in event:
            return event
        key = (name, *(str(event.get(fact, "")) for fact in self._events[name]))
        unlogged = self._throttle.admit(key, dict(event))
        if unlogged is None:
            self._start_timer()
            raise structlog.DropEvent
        return {**event, "unlogged": unlogged} if unlogged else event

    def __enter__(self) -> Self:
        """Count suppressed lines at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Count all suppressed lines, without waiting for the end of their intervals."""
        self._write(everything=True)

    def _start_timer(self) -> None:
        with self._lock:
            wait_s = self._throttle.next_due_s()
            if self._timer is None and wait_s is not None:
                self._timer = threading.Timer(wait_s, self._ring)
                self._timer.daemon = True
                self._timer.start()

    def _ring(self) -> None:
        with self._lock:
            self._timer = None
        self._write(everything=False)
        self._start_timer()

    def _write(self, *, everything: bool) -> None:
        for line, unlogged in self._throttle.take_due(everything=everything):
            facts = {fact: line[fact] for fact in line if fact not in ("event", "level")}
            write = getattr(structlog.get_logger(), str(line["level"]))
            write(line["event"], **facts, unlogged=unlogged)
