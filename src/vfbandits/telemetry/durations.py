"""A histogram that takes many equal times in one call, as the decisions of a batch have them.

The histogram of prometheus_client takes them one by one.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from threading import Lock

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString


class Durations(Collector):
    """Times by one label, in buckets with these upper bounds.

    >>> registry = CollectorRegistry()
    >>> durations = Durations("seconds", "Until an answer.", "campaign", (0.1, 1.0), registry)
    >>> durations.labels("ads").observe(0.5, times=3)
    >>> registry.get_sample_value("seconds_bucket", {"campaign": "ads", "le": "1.0"})
    3.0
    """

    def __init__(
        self,
        name: str,
        says: str,
        label: str,
        bounds: Sequence[float],
        registry: CollectorRegistry,
    ) -> None:
        self._name, self._says, self._label = name, says, label
        self._bounds = tuple(bounds)
        self._children: dict[str, Times] = {}
        registry.register(self)

    def labels(self, value: str) -> "Times":
        """The times of one value of the label."""
        return self._children.setdefault(value, Times(self._bounds))

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """As Prometheus reads it."""
        family = HistogramMetricFamily(self._name, self._says, labels=[self._label])
        bounds = [*map(floatToGoString, (*self._bounds, float("inf")))]
        for value, times in list(self._children.items()):
            counts, total = times.read()
            buckets = list(zip(bounds, map(float, accumulate(counts)), strict=True))
            family.add_metric([value], buckets=buckets, sum_value=total)
        yield family


class Times:
    """Counts of times by bucket, and the sum of the times."""

    __slots__ = ("_bounds", "_counts", "_lock", "_sum_s")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum_s = 0.0
        self._lock = Lock()

    def observe(self, seconds: float, *, times: int) -> None:
        """Count ``times`` durations of ``seconds``."""
        with self._lock:
            self._counts[bisect_left(self._bounds, seconds)] += times
            self._sum_s += seconds * times

    def read(self) -> tuple[list[int], float]:
        """Counts by bucket, and the sum."""
        with self._lock:
            return list(self._counts), self._sum_s
