"""What metrics are read from at a scrape: plain values, without a library of metrics."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

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


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
