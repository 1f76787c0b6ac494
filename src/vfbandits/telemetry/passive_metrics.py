"""Prometheus metrics of a passive participant or a helper, all of them read at the scrape.

Labels have a few fixed values; no user, campaign or arm is ever a label.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Metric,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.registry import Collector

from vfbandits.telemetry.gauges import family, of_process

# They begin at 0, so that a rate misses no step.
ASKS: Final = ("answered", "declined", "failed", "trial")


@dataclass(frozen=True, slots=True)
class PassiveReading:
    """The present state of a passive participant; counts are since the process began.

    Attributes
    ----------
    is_ready, is_connected, epoch
        Whether it can answer, whether it is connected to the active participant, and the mask epoch
        in force.
    asks, users, rows
        By outcome: asks, and users in them; rows with features that were answered.
    held_rows
        Rows that were answered with their values from before a change (``changed_after``).
    record_entries, record_bytes
        Number of entries and size of the access record.
    record_unsynced, record_synced_at
        Entries that are not durable yet, and when entries were made durable last.
    task_failures
        Failures of background tasks, by name.
    """

    is_ready: bool
    is_connected: bool
    epoch: int
    asks: Mapping[str, int]
    users: Mapping[str, int]
    rows: int
    held_rows: int
    record_entries: int
    record_bytes: int
    record_unsynced: int
    record_synced_at: float
    task_failures: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class HelperReading:
    """The present state of a helper of secret shares without features.

    Attributes
    ----------
    is_ready, is_connected, epoch
        As in ``PassiveReading``.
    window
        The window of dealt words that is open.
    messages
        Messages of server A since the process began, by outcome.
    task_failures
        Failures of background tasks, by name.
    """

    is_ready: bool
    is_connected: bool
    epoch: int
    window: int
    messages: Mapping[str, int]
    task_failures: Mapping[str, int]


class StatusMetrics:
    """The metrics of a process that dials out; ``collect`` is called once per scrape.

    >>> reading = PassiveReading(
    ...     is_ready=True, is_connected=True, epoch=3, asks={}, users={"unknown": 2}, rows=5,
    ...     held_rows=0, record_entries=7, record_bytes=900, record_unsynced=0,
    ...     record_synced_at=1e9, task_failures={},
    ... )
    >>> metrics = StatusMetrics(lambda: of_passive(reading, users=["unknown"]))
    >>> lines = metrics.render().decode().splitlines()
    >>> [line for line in lines if line.startswith(("vfb_access_users", "vfb_active"))]
    ['vfb_active_connected 1.0', 'vfb_access_users_total{outcome="unknown"} 2.0']
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Collected(collect))
        ProcessCollector(registry=self._registry)

    def render(self) -> bytes:
        """All metrics, in Prometheus' text format."""
        return generate_latest(self._registry)


class _Collected(Collector):
    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Metric]:
        return self._collect()


def _of_dialling(now: PassiveReading | HelperReading, release: str) -> Iterator[Metric]:
    yield from of_process(
        is_ready=now.is_ready,
        epoch=now.epoch,
        task_failures=now.task_failures,
        release=release or version("vfbandits"),
    )
    connected = "1 if the active participant has accepted the connection, else 0."
    yield family("vfb_active_connected", connected, {"": now.is_connected})


def of_helper(now: HelperReading, *, release: str = "") -> Iterator[Metric]:
    """The metrics of a helper without features.

    >>> reading = HelperReading(
    ...     is_ready=True, is_connected=True, epoch=1, window=7, messages={"answered": 3},
    ...     task_failures={},
    ... )
    >>> [metric.name for metric in of_helper(reading)][-2:]
    ['vfb_helper_messages', 'vfb_helper_window']
    """
    yield from _of_dialling(now, release)
    says = "Messages of the active participant, by outcome."
    yield family("vfb_helper_messages_total", says, now.messages, label="outcome")
    yield family("vfb_helper_window", "Window of dealt words that is open.", {"": now.window})


def of_passive(now: PassiveReading, *, users: Iterable[str], release: str = "") -> Iterator[Metric]:
    """The metrics of a passive participant; ``users`` are outcomes whose counts begin at 0."""
    yield from _of_dialling(now, release)
    asks = {**dict.fromkeys(ASKS, 0), **now.asks}
    yield family("vfb_access_asks_total", "Asks, by outcome.", asks, label="outcome")
    by_outcome = {**dict.fromkeys(users, 0), **now.users}
    yield family(
        "vfb_access_users_total",
        "Users in asks: answered, unknown, or declined by this limit.",
        by_outcome,
        label="outcome",
    )
    yield family("vfb_access_rows_total", "Rows with features answered.", {"": now.rows})
    held = "Rows answered with their values from before a change, because of changed_after."
    yield family("vfb_access_held_rows_total", held, {"": now.held_rows})
    for name, says, value in (
        ("vfb_access_record_entries", "Entries of the access record.", now.record_entries),
        ("vfb_access_record_bytes", "Size of the access record.", now.record_bytes),
        (
            "vfb_access_record_unsynced_entries",
            "Entries of the access record that are not durable yet.",
            now.record_unsynced,
        ),
        (
            "vfb_access_record_synced_timestamp_seconds",
            "Time of the last sync of the access record.",
            now.record_synced_at,
        ),
    ):
        yield family(name, says, {"": value})
