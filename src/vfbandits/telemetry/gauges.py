"""Metrics that are read at the scrape, instead of counted as events happen."""

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
    """The present state of a campaign.

    Attributes
    ----------
    name
        Name of the campaign, which becomes a label.
    waiting, waiting_in_memory, max_pending
        Pending events, held ones included; how many of them are in memory, and how many may be: the
        others are read from the journal.
    recalled
        Rewards that were learnt, since the process began, for events that had left memory.
    log_position, unsnapshotted_events
        Position of the last record, and the number of records after the last snapshot.
    retired
        Records that were deleted, since the process began, because they were too old.
    commits, committed_events
        Since the process began: commits, and the number of records in them.
    journal_lag_s
        How far this process is behind the records of other processes; 0 if there is no other.
    model_version, model_norm
        How many rewards the model has learnt, and the norm of theta; None if no process knows it.
    model_repairs
        How often numbers were too large for float64 and the model was repaired.
    model_arms, model_arms_dropped
        Arms with a model of their own (layout "disjoint"), and how many such models were dropped.
    guardrail_tripped
        Whether the guardrail shows the baseline.
    guardrail_difference, guardrail_low, guardrail_high
        How much more the policy's events bring than the holdback's, with the ends of the interval;
        None before there are enough events.
    """

    name: str
    waiting: int
    waiting_in_memory: int
    max_pending: int
    log_position: int
    model_version: int
    model_norm: float | None
    model_repairs: int
    model_arms: int
    model_arms_dropped: int
    recalled: int = 0
    retired: int = 0
    unsnapshotted_events: int = 0
    commits: int = 0
    committed_events: int = 0
    journal_lag_s: float = 0.0
    guardrail_tripped: bool = False
    guardrail_difference: float | None = None
    guardrail_low: float | None = None
    guardrail_high: float | None = None


@dataclass(frozen=True, slots=True)
class ParticipantGauges:
    """A participant as the active one sees it; ``latency_s`` is None until it has answered once.

    The last four say how its features drift (``serving.drift``); None before there are enough rows.
    """

    name: str
    is_connected: bool
    circuit_is_open: bool
    latency_s: float | None
    bytes_received: int
    missing_ratio: float | None = None
    norm_ratio: float | None = None
    mean_shift: float | None = None
    variance_shift: float | None = None

    @classmethod
    def of(cls, name: str, described: Mapping[str, object]) -> "ParticipantGauges":
        """From what ``ActiveService.describe`` says of one participant.

        >>> bank = ParticipantGauges.of("bank", {"circuit": "open", "norm_ratio": 1.5})
        >>> bank.circuit_is_open, bank.norm_ratio, bank.latency_s
        (True, 1.5, None)
        """
        latency_ms, received = described.get("latency_ms"), described.get("bytes")
        return cls(
            name,
            is_connected=described.get("connected") is True,
            circuit_is_open=described.get("circuit") == "open",
            latency_s=latency_ms / 1e3 if isinstance(latency_ms, int | float) else None,
            bytes_received=received if isinstance(received, int) else 0,
            missing_ratio=_number(described.get("missing_ratio")),
            norm_ratio=_number(described.get("norm_ratio")),
            mean_shift=_number(described.get("mean_shift")),
            variance_shift=_number(described.get("variance_shift")),
        )


@dataclass(frozen=True, slots=True)
class SharesGauges:
    """Decisions and dealt words of an active participant on secret shares.

    Attributes
    ----------
    helper, learns
        The other server, and what the active participant learns, as a text.
    away
        Why decisions are made on the active participant's own features alone; empty if they are
        not.
    is_helper_away, is_out_of_words
        Whether the helper is the reason, and whether the end of the dealt words is.
    released, alone
        Decisions since the process began: by both servers, and on own features alone.
    queued
        Rewards in the journal that the servers have not learnt yet.
    windows, decisions, lasts_s
        What is left of the dealt words, and for how long at the pace of the last windows; None
        before there is a pace.
    is_low
        Whether more should be dealt.
    """

    helper: str
    learns: str
    away: str
    is_helper_away: bool
    is_out_of_words: bool
    released: int
    alone: int
    queued: int
    windows: int
    decisions: int
    lasts_s: float | None
    is_low: bool

    def problems(self) -> list[str]:
        """What an operator should look at; decisions go on."""
        found = []
        if self.away:
            found.append(f"decisions use the active participant's own features alone: {self.away}")
        if self.is_low:
            found.append(f"dealt words are left for {self.decisions} decisions")
        return found


@dataclass(frozen=True, slots=True)
class Readings:
    """The sources of the gauges; each is called once per scrape, in the thread that scrapes.

    ``connections`` are those of the HTTP server, if there is one.
    """

    campaigns: Callable[[], Iterable[CampaignGauges]]
    participants: Callable[[], Iterable[ParticipantGauges]]
    epoch: Callable[[], int]
    is_ready: Callable[[], bool]
    task_failures: Callable[[], Mapping[str, int]] = dict
    connections: ConnectionCounts | None = None
    shares: Callable[[], SharesGauges | None] = lambda: None


# Name, what it says, and the attribute that it is read from; "_total" makes it a counter.
_Table: TypeAlias = tuple[tuple[str, str, str], ...]

OF_CAMPAIGNS: Final[_Table] = (
    ("vfb_events_waiting", "Pending events, in memory or not.", "waiting"),
    ("vfb_events_waiting_in_memory", "Pending events in memory.", "waiting_in_memory"),
    ("vfb_events_max_pending", "Maximum number of pending events in memory.", "max_pending"),
    (
        "vfb_events_recalled_total",
        "Rewards learnt for events that were read from the journal.",
        "recalled",
    ),
    ("vfb_log_position", "Position of the last record in the journal.", "log_position"),
    (
        "vfb_log_unsnapshotted_events",
        "Records after the last snapshot, which a restart replays.",
        "unsnapshotted_events",
    ),
    (
        "vfb_records_retired_total",
        "Records deleted from the journal because of retain_days.",
        "retired",
    ),
    ("vfb_commits_total", "Commits to the journal.", "commits"),
    ("vfb_committed_events_total", "Records in those commits.", "committed_events"),
    (
        "vfb_journal_lag_seconds",
        "Lag of this process behind the records of other processes.",
        "journal_lag_s",
    ),
    (
        "vfb_model_version",
        "Changes of the model: rewards learnt, and retractions.",
        "model_version",
    ),
    ("vfb_model_norm", "Norm of theta.", "model_norm"),
    (
        "vfb_model_repairs_total",
        "Repairs of the model because numbers were too large for float64.",
        "model_repairs",
    ),
    ("vfb_model_arms", "Arms with a model, in layout disjoint.", "model_arms"),
    (
        "vfb_model_arms_dropped_total",
        "Arms that were dropped because of max_arms or arm_expiry_days.",
        "model_arms_dropped",
    ),
    (
        "vfb_guardrail_tripped",
        "1 while the guardrail shows the baseline, else 0.",
        "guardrail_tripped",
    ),
    (
        "vfb_guardrail_difference",
        "Mean reward per event, policy minus holdback, since the guardrail was armed.",
        "guardrail_difference",
    ),
    ("vfb_guardrail_low", "Lower end of its anytime-valid interval.", "guardrail_low"),
    ("vfb_guardrail_high", "Upper end of its anytime-valid interval.", "guardrail_high"),
)
OF_PARTICIPANTS: Final[_Table] = (
    ("vfb_participant_connected", "1 if the participant is connected, else 0.", "is_connected"),
    (
        "vfb_participant_circuit_open",
        "1 while the participant is not asked because of repeated failures, else 0.",
        "circuit_is_open",
    ),
    ("vfb_participant_latency_seconds", "Moving average of the time to answer.", "latency_s"),
    ("vfb_participant_bytes_total", "Bytes received from the participant.", "bytes_received"),
    (
        "vfb_feature_missing_ratio",
        "Fraction of the last rows without features of the participant.",
        "missing_ratio",
    ),
    (
        "vfb_feature_norm_ratio",
        "Mean squared length of the last rows, relative to the first ones of the process.",
        "norm_ratio",
    ),
    (
        "vfb_feature_mean_shift",
        "Largest shift of the mean of an own column, in standard deviations.",
        "mean_shift",
    ),
    (
        "vfb_feature_variance_shift",
        "Largest change of the variance of an own column, in doublings or halvings.",
        "variance_shift",
    ),
)


class Gauges(Collector):
    """Reads ``readings`` at each scrape; ``meet`` is called first, with all names.

    So a counter is at 0 before its first event, and a rate misses no step.
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
        """All gauges with their present values."""
        campaigns = tuple(self._readings.campaigns())
        participants = tuple(self._readings.participants())
        self._meet([each.name for each in campaigns], [each.name for each in participants])
        yield from of_process(
            is_ready=self._readings.is_ready(),
            epoch=self._readings.epoch(),
            task_failures=self._readings.task_failures(),
            release=self._version,
        )
        for name, says, attribute in OF_CAMPAIGNS:
            yield family(name, says, _read(campaigns, attribute), label="campaign")
        for name, says, attribute in OF_PARTICIPANTS:
            yield family(name, says, _read(participants, attribute), label="participant")
        shares = self._readings.shares()
        if shares is not None:
            yield from _shares(shares)
        if self._readings.connections is not None:
            yield from _connections(self._readings.connections)


def of_process(
    *, is_ready: bool, epoch: int, task_failures: Mapping[str, int], release: str
) -> Iterator[Metric]:
    """The metrics that processes of all roles have."""
    yield family("vfb_ready", "1 if the process is ready for traffic, else 0.", {"": is_ready})
    yield family("vfb_mask_epoch", "Mask epoch in force.", {"": epoch})
    yield family(
        "vfb_task_failures_total",
        "Failures of background tasks, which are restarted.",
        task_failures,
        label="task",
    )
    yield family("vfb_build_info", "Always 1.", {release: 1}, label="version")


def _shares(shares: SharesGauges) -> Iterator[Metric]:
    yield family(
        "vfb_shares_decisions_total",
        "Decisions under protection shares, by both servers or on own features alone.",
        {"released": shares.released, "alone": shares.alone},
        label="outcome",
    )
    for name, says, value in (
        (
            "vfb_shares_helper_away",
            "1 while decisions go on without the helper because of the helper, else 0.",
            shares.is_helper_away,
        ),
        (
            "vfb_shares_out_of_words",
            "1 while no dealt words are left, else 0.",
            shares.is_out_of_words,
        ),
        ("vfb_shares_rewards_queued", "Rewards that wait for the helper.", shares.queued),
        ("vfb_shares_windows_left", "Dealt windows that are left.", shares.windows),
        ("vfb_shares_decisions_left", "Decisions in these windows.", shares.decisions),
        (
            "vfb_shares_lasts_seconds",
            "Time until these windows are used up, at the pace of the last windows.",
            shares.lasts_s,
        ),
    ):
        yield family(name, says, {"": value})


def _connections(counts: ConnectionCounts) -> Iterator[Metric]:
    yield family("vfb_http_connections", "Open connections.", {"": counts.open})
    limit = "Maximum number of open connections."
    yield family("vfb_http_connections_limit", limit, {"": counts.limit})
    yield family(
        "vfb_http_connections_refused_total",
        "Connections refused, by the limit that was reached.",
        dict(counts.refused),
        label="reason",
    )
    yield family(
        "vfb_http_connections_closed_total",
        "Connections closed by the server, by reason.",
        dict(counts.closed),
        label="reason",
    )


def _read(
    many: Sequence[CampaignGauges] | Sequence[ParticipantGauges], attribute: str
) -> dict[str, float | None]:
    read = attrgetter(attribute)
    return {each.name: read(each) for each in many}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def family(name: str, says: str, values: Mapping[str, float | None], *, label: str = "") -> Metric:
    """A metric with a value for each value of its label; "_total" makes it a counter."""
    make = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    metric = make(name, says, labels=[label] if label else [])
    for of, value in values.items():
        if value is not None:
            metric.add_metric([of] if label else [], float(value))
    return metric
