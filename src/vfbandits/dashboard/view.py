"""The JSON of ``GET /v1/dashboard``.

Lists over time have one entry for each of ``times``; null where there was nothing to measure.
"""

from typing import Literal

import msgspec

from vfbandits.client.schemas import GuardrailView


class Mean(msgspec.Struct, frozen=True):
    """A mean of n rewards, and its anytime-valid 95 % interval, if the rewards differ at all."""

    n: int
    mean: float | None = None
    low: float | None = None
    high: float | None = None


class Lift(msgspec.Struct, frozen=True):
    """How much better the policy did than the baseline, with anytime-valid 95 % intervals.

    ``relative`` is the difference divided by the baseline's mean; it is null when the baseline
    is too near zero for that: within three times its own interval.
    """

    difference: float
    low: float
    high: float
    relative: float | None = None
    relative_low: float | None = None
    relative_high: float | None = None


class Band(msgspec.Struct, frozen=True):
    """Means over time with the ends of their intervals; a point looks back over twelve steps."""

    mean: list[float | None]
    low: list[float | None]
    high: list[float | None]


class Rewards(msgspec.Struct, frozen=True):
    """Rewards that were settled in the window: the policy's and the baseline's.

    The baseline is the holdback, shadow and guardrail groups together: all show the same arm.  A
    group counts if it had decisions in the window.  Its line ends where other groups take its
    place: what is settled later are mostly defaults of events without a reward.
    """

    policy: Mean
    baseline: Mean
    baseline_groups: list[Literal["holdback", "shadow", "guardrail"]]
    lift: Lift | None
    policy_series: Band
    baseline_series: Band


class ArmSeries(msgspec.Struct, frozen=True):
    """An arm's fraction of the decisions, in all and over time; ``name`` is null for the others."""

    name: str | None
    decisions: int
    share: list[float | None]


class Totals(msgspec.Struct, frozen=True):
    """The window in numbers.

    Attributes
    ----------
    decisions, per_second
        The number in the window, and the rate over the last ten complete seconds.
    p50_ms, p99_ms
        Time that a decision took, accurate within a fifth.
    degraded, agreement, shadow_agreement
        Fractions of decisions: a participant was missing; the policy chose the baseline; the same
        of the shadow group alone.
    received_bytes, waiting
        What participants sent, and the number of pending events.
    groups, statuses
        Decisions by group, rewards by status.
    """

    decisions: int
    per_second: float
    p50_ms: float | None
    p99_ms: float | None
    degraded: float | None
    agreement: float | None
    shadow_agreement: float | None
    received_bytes: int
    waiting: int
    groups: dict[str, int]
    statuses: dict[str, int]


class Participant(msgspec.Struct, frozen=True):
    """A participant in the window, and its link now.

    Attributes
    ----------
    share
        Fraction of the explained prediction: the sum of its |part| over that of all; null where the
        mask hides the parts.
    availability
        Fraction of the decisions in which its features counted.
    width, connected, circuit, asks, answers, bytes, latency_ms
        The state of its link, with counts since it was made; null without a link.
    since
        When it joined, left, stopped answering or answered again, whichever was last; in seconds
        since 1970.
    missing_ratio, norm_ratio, mean_shift, variance_shift
        How its features drift over the last few thousand rows (``serving.drift``).
    """

    name: str
    share: float | None
    availability: float | None
    contributed: int
    missing: int
    width: int | None = None
    connected: bool | None = None
    circuit: str | None = None
    asks: int | None = None
    answers: int | None = None
    bytes: int | None = None
    latency_ms: float | None = None
    since: float | None = None
    missing_ratio: float | None = None
    norm_ratio: float | None = None
    mean_shift: float | None = None
    variance_shift: float | None = None


class Mark(msgspec.Struct, frozen=True):
    """An event that may explain a change in the charts.

    Settings changed, a participant is "here" (it connected, or answers again), or it is "away"; the
    guardrail tripped, or was re-armed.
    """

    at: float
    kind: Literal["settings", "here", "away", "guardrail"]
    text: str


class Facts(msgspec.Struct, frozen=True):
    """The versions that decide in this process.

    Attributes
    ----------
    process
        "active", "trainer" or "ranker".
    mode
        "learn", "shadow" or "frozen".
    mask_epoch, roster, protection
        Epoch of the masks, number of the roster, and the protection level of its terms.
    model_version, settings_version
        Rewards that the model has learnt, and how often the settings were changed.
    journal_position, journal_lag_s
        Position of the last record, and how far this process is behind those of other processes.
    """

    process: Literal["active", "trainer", "ranker"]
    mode: str
    mask_epoch: int
    roster: int
    protection: str
    model_version: int
    settings_version: int
    journal_position: int
    journal_lag_s: float


class SharesView(msgspec.Struct, frozen=True):
    """Decisions and dealt words on secret shares; ``telemetry.readings.SharesGauges`` in JSON.

    Attributes
    ----------
    helper, has_features, learns
        The other server, whether it is a participant too, and what the active participant learns of
        a decision, as a text.
    away
        Why decisions use the active participant's own features alone; empty if they do not.
    is_helper_away
        Whether the helper is the reason.
    released, alone, queued
        Decisions since the start, by both servers and on own features alone, and rewards that
        wait for the servers.
    windows, decisions, lasts_s
        What is left of the dealt words, and for how long at the pace of the last windows.
    is_ending
        Whether more should be dealt: few windows, or less than a day.
    """

    helper: str
    has_features: bool
    learns: str
    away: str
    is_helper_away: bool
    released: int
    alone: int
    queued: int
    windows: int
    decisions: int
    lasts_s: float | None
    is_ending: bool


class Drift(msgspec.Struct, frozen=True):
    """How far rewards were from the estimates (reward - estimate), and the model's norm."""

    residual: list[float | None]
    rmse: list[float | None]
    norm: list[float | None]


class LastDecision(msgspec.Struct, frozen=True):
    """One decision and why: its score is estimate + bonus, the estimate the sum of its parts."""

    event_id: str
    user: str
    at: float
    arm: str
    choice: str
    baseline: str
    group: str
    estimate: float | None
    bonus: float | None
    parts: dict[str, float] | None
    probability: float | None
    contributors: list[str]
    missing: list[str]
    n_arms: int
    model_version: int
    latency_ms: float | None
    received_bytes: int
    reward: float | None
    status: str | None
    waited_s: float | None


class DashboardView(msgspec.Struct, frozen=True):
    """A campaign in a time window.

    ``marks`` are those of the window, oldest first; ``last`` has the newest decision first, and is
    empty for those who may see figures only.
    """

    federation: str
    campaigns: list[str]
    campaign: str
    now: float
    minutes: int
    step_s: int
    times: list[float]
    totals: Totals
    rewards: Rewards
    per_second: list[float | None]
    p50_ms: list[float | None]
    p99_ms: list[float | None]
    arms: list[ArmSeries]
    participants: list[Participant]
    drift: Drift
    marks: list[Mark]
    last: list[LastDecision]
    lists_decisions: bool = True
    facts: Facts | None = None
    guardrail: GuardrailView | None = None
    shares: SharesView | None = None
