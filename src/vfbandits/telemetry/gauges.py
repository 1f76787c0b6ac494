"""What metrics are read when somebody scrapes, instead of counted when something happens."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final, TypeAlias

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from vfbandits.telemetry.connection_counts import ConnectionCounts


@dataclass(frozen=True, slots=True)
class CampaignGauges:
    """A campaign as it stands.

    Attributes
    ----------
    name
        Of the campaign; it becomes a label.
    waiting, waiting_in_memory, max_pending
        Events that wait for a reward, held ones included; how many of them are in memory, and how
        many may be: the others are found in the journal.
    recalled
        Rewards that were learnt, since the process began, for events that had left memory.
    log_position, unsnapshotted_events
        Of the last event in the log, and how many came after the last snapshot.
    commits, committed_events
        Since the process began: how many commits were made, of how many events.
    journal_lag_s
        How far this process is behind what other processes wrote; 0 where there is no other.
    model_version, model_norm
        How many rewards the model has learnt, and the length of theta.
    model_repairs
        How often numbers were too large for float64 and the model was put right.
    model_arms, model_arms_dropped
        Arms with a model of their own (layout "disjoint"), and how many such models were let go.
    """

    name: str
    waiting: int
    waiting_in_memory: int
    max_pending: int
    log_position: int
    model_version: int
    model_norm: float
    model_repairs: int
    model_arms: int
    model_arms_dropped: int
    recalled: int = 0
    unsnapshotted_events: int = 0
    commits: int = 0
    committed_events: int = 0
    journal_lag_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ParticipantGauges:
    """A participant as the active one sees it; ``latency_s`` is None until it has answered once."""

    name: str
    is_connected: bool
    circuit_is_open: bool
    latency_s: float | None
    bytes_received: int

    @classmethod
    def of(cls, name: str, described: Mapping[str, object]) -> "ParticipantGauges":
        """From what ``ActiveService.describe`` says of one participant.

        >>> ParticipantGauges.of("bank", {"connected": True, "circuit": "open", "bytes": 80})
        ParticipantGauges(name='bank', is_connected=True, circuit_is_open=True, latency_s=None, bytes_received=80)
        """  # noqa: E501  (a doctest's output has no line breaks)
        latency_ms, received = described.get("latency_ms"), described.get("bytes")
        return cls(
            name,
            is_connected=described.get("connected") is True,
            circuit_is_open=described.get("circuit") == "open",
            latency_s=latency_ms / 1e3 if isinstance(latency_ms, int | float) else None,
            bytes_received=received if isinstance(received, int) else 0,
        )


@dataclass(frozen=True, slots=True)
class Readings:
    """Where to read; each is called once for a scrape, in the thread that scrapes.

    ``connections`` are those of the HTTP server, if there is one.
    """

    campaigns: Callable[[], Iterable[CampaignGauges]]
    participants: Callable[[], Iterable[ParticipantGauges]]
    epoch: Callable[[], int]
    is_ready: Callable[[], bool]
    task_failures: Callable[[], Mapping[str, int]] = dict
    connections: ConnectionCounts | None = None


# Name, what it says, and the attribute that it is read from; "_total" makes it a counter.
_Table: TypeAlias = tuple[tuple[str, str, str], ...]

OF_CAMPAIGNS: Final[_Table] = (
    ("vfb_events_waiting", "Events that wait for a reward, in memory or not.", "waiting"),
    ("vfb_events_waiting_in_memory", "Those of them in memory.", "waiting_in_memory"),
    ("vfb_events_max_pending", "How many of them may be in memory.", "max_pending"),
    (
        "vfb_events_recalled_total",
        "Rewards learnt for events that were found in the journal.",
        "recalled",
    ),
    ("vfb_log_position", "Position of the last event in the log.", "log_position"),
    (
        "vfb_log_unsnapshotted_events",
        "Events in the log after the last snapshot: what a restart replays.",
        "unsnapshotted_events",
    ),
    ("vfb_commits_total", "Commits to the log.", "commits"),
    ("vfb_committed_events_total", "Events in those commits.", "committed_events"),
    (
        "vfb_journal_lag_seconds",
        "How far this process is behind what other processes wrote.",
        "journal_lag_s",
    ),
    ("vfb_model_version", "Rewards that the model has learnt.", "model_version"),
    ("vfb_model_norm", "Length of theta.", "model_norm"),
    (
        "vfb_model_repairs_total",
        "Repairs of the model after numbers that were too large for float64.",
        "model_repairs",
    ),
    ("vfb_model_arms", "Arms with a model of their own, in layout disjoint.", "model_arms"),
    (
        "vfb_model_arms_dropped_total",
        "Models of arms that were let go, by max_arms or arm_expiry_days.",
        "model_arms_dropped",
    ),
)
OF_PARTICIPANTS: Final[_Table] = (
    ("vfb_participant_connected", "1 if the participant is connected, else 0.", "is_connected"),
    (
        "vfb_participant_circuit_open",
        "1 while the participant is not asked because it failed too often, else 0.",
        "circuit_is_open",
    ),
    ("vfb_participant_latency_seconds", "How long the participant takes to answer.", "latency_s"),
    ("vfb_participant_bytes_total", "Bytes that the participant sent.", "bytes_received"),
)


class Gauges(Collector):
    """Reads ``readings`` at each scrape; ``meet`` is told of all names before that.

    So a counter can stand at 0 before its first event, and a rate misses no step.
    """

    def __init__(
        self,
        readings: Readings,
        *,
        version: str,
        meet: Callable[[Sequence[str], Sequence[str]], None],
    ) -> None:
        self._readings = readings
        self._version = version
        self._meet = meet

    def collect(self) -> Iterator[Metric]:
        """All gauges as they stand."""
        campaigns = tuple(self._readings.campaigns())
        participants = tuple(self._readings.participants())
        self._meet([each.name for each in campaigns], [each.name for each in participants])
        is_ready, epoch = self._readings.is_ready(), self._readings.epoch()
        yield _family("vfb_ready", "1 if the server may be sent traffic, else 0.", {"": is_ready})
        yield _family("vfb_mask_epoch", "Epoch of the masks.", {"": epoch})
        yield _family(
            "vfb_task_failures_total",
            "How often a background task has died; it is started again.",
            self._readings.task_failures(),
            label="task",
        )
        yield _family("vfb_build_info", "Always 1.", {self._version: 1}, label="version")
        for name, says, attribute in OF_CAMPAIGNS:
            yield _family(name, says, _read(campaigns, attribute), label="campaign")
        for name, says, attribute in OF_PARTICIPANTS:
            yield _family(name, says, _read(participants, attribute), label="participant")
        if self._readings.connections is not None:
            yield from _connections(self._readings.connections)


def _connections(counts: ConnectionCounts) -> Iterator[Metric]:
    yield _family("vfb_http_connections", "Connections that are open.", {"": counts.open})
    yield _family("vfb_http_connections_limit", "Connections that may be open.", {"": counts.limit})
    yield _family(
        "vfb_http_connections_refused_total",
        "Connections that there was no room for, by the limit that was reached.",
        dict(counts.refused),
        label="reason",
    )
    yield _family(
        "vfb_http_connections_closed_total",
        "Connections that the server closed, by the reason.",
        dict(counts.closed),
        label="reason",
    )


def _read(
    many: Sequence[CampaignGauges] | Sequence[ParticipantGauges], attribute: str
) -> dict[str, float | None]:
    read = attrgetter(attribute)
    return {each.name: read(each) for each in many}


def _family(name: str, says: str, values: Mapping[str, float | None], *, label: str = "") -> Metric:
    make = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    family = make(name, says, labels=[label] if label else [])
    for of, value in values.items():
        if value is not None:
            family.add_metric([of] if label else [], float(value))
    return family
