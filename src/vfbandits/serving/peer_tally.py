"""Counts of a participant's asks and answers, and its latency."""

from collections import Counter
from typing import Final

WEIGHT: Final = 0.05  # of the newest: the last twenty or so count
MAX_OPEN: Final = 256


class PeerTally:
    """Counts of one participant, and a moving average of its time from ask to answer.

    >>> tally = PeerTally()
    >>> tally.asked(1, now=10.0)
    >>> tally.answered(1, size=800, now=10.2)
    >>> tally.describe()
    {'asks': 1, 'answers': 1, 'bytes': 800, 'latency_ms': 200.0}
    """

    __slots__ = ("_answers", "_asked", "_asks", "_bytes", "_mean_s", "events")

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self._asks = self._answers = self._bytes = 0
        self._mean_s: float | None = None
        self._asked: dict[int, float] = {}

    def asked(self, number: int, *, now: float) -> None:
        """Count an ask in this round."""
        self._asks += 1
        self._asked[number] = now
        if len(self._asked) > MAX_OPEN:  # the oldest was never answered
            del self._asked[next(iter(self._asked))]

    def answered(self, number: int, *, size: int, now: float) -> None:
        """Count an answer in this round, of ``size`` bytes."""
        self._answers += 1
        self._bytes += size
        asked = self._asked.pop(number, None)
        if asked is not None:
            mean = self._mean_s
            took = now - asked
            self._mean_s = took if mean is None else mean + WEIGHT * (took - mean)

    def describe(self) -> dict[str, float]:
        """All counts, and the latency in milliseconds."""
        counts = {"asks": self._asks, "answers": self._answers, "bytes": self._bytes}
        mean = self._mean_s
        latency = {} if mean is None else {"latency_ms": round(1e3 * mean, 3)}
        return {**counts, **self.events, **latency}
