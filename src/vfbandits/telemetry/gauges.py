"""Metrics that are read at the scrape, instead of counted as events happen."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final, TypeAlias

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from vfbandits.telemetry.connection_counts import ConnectionCounts
from vfbandits.telemetry.readings import (
    CampaignGauges,
    ParticipantGauges,
    Readings,
    SharesGauges,
)

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


def family(name: str, says: str, values: Mapping[str, float | None], *, label: str = "") -> Metric:
    """A metric with a value for each value of its label; "_total" makes it a counter."""
    make = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    metric = make(name, says, labels=[label] if label else [])
    for of, value in values.items():
        if value is not None:
            metric.add_metric([of] if label else [], float(value))
    return metric
