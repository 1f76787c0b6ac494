"""Metrics that are counted as events happen, each with its labels bound in advance.

Finding a child by its labels takes longer than counting, and every answer waits for its counters.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram

from vfbandits.telemetry.durations import Durations

Child = TypeVar("Child")

GROUPS: Final = ("policy", "holdback", "shadow", "guardrail")
STATUSES: Final = (
    *("learnt", "counted", "repeated", "late", "ignored", "logged"),
    *("default", "summed", "forgotten", "failed", "retracted"),
)
ANSWER_BUCKETS: Final = (
    *(0.0002, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025),
    *(0.05, 0.1, 0.25, 0.5, 1.0, 2.5),
)
WAIT_BUCKETS: Final = (
    *(0.1, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0),
    *(3_600.0, 14_400.0, 86_400.0, 604_800.0),
)


class Bound(dict[str, Child]):
    """Values by name, created on first use.

    >>> twice = Bound(lambda name: name * 2)
    >>> twice["ab"], list(twice)
    ('abab', ['ab'])
    """

    def __init__(self, make: Callable[[str], Child]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, name: str) -> Child:
        """Create the value; those of two concurrent threads share one child of the metric."""
        child = self[name] = self._make(name)
        return child

    def meet(self, names: Iterable[str]) -> None:
        """Create the values of new names."""
        for name in names:
            if name not in self:
                self.__missing__(name)


class Counters:
    """Every metric that is counted, in ``registry``."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, says: str, *labels: str) -> Counter:
            return Counter(name, says, labels, registry=registry)

        def histogram(
            name: str, says: str, label: str, buckets: tuple[float, ...] = ANSWER_BUCKETS
        ) -> Histogram:
            return Histogram(name, says, [label], buckets=buckets, registry=registry)

        by_group = ("campaign", "group")
        self.decisions = counter("vfb_decisions_total", "Decisions made.", *by_group)
        self.seconds = Durations(
            "vfb_decision_seconds",
            "Time from the request to a durable decision.",
            "campaign",
            ANSWER_BUCKETS,
            registry,
        )
        self.degraded = counter(
            "vfb_degraded_decisions_total",
            "Decisions without the features of some participant.",
            "campaign",
        )
        self.contributions = counter(
            "vfb_participant_contributions_total",
            "Decisions with the participant's features (came), or without them (missing).",
            *("participant", "outcome"),
        )
        self.rewards = counter(
            "vfb_rewards_total",
            "Rewards, and events whose wait ended, by status.",
            *("campaign", "status"),
        )
        self.rewarded = (
            counter("vfb_reward_gained_total", "Sum of the positive rewards.", *by_group),
            counter(
                "vfb_reward_lost_total",
                "Sum of the absolute values of the negative rewards.",
                *by_group,
            ),
            counter("vfb_reward_values_total", "Number of rewards in these sums.", *by_group),
        )
        self.retracted = (
            counter(
                "vfb_retracted_gained_total",
                "Sum of the positive rewards that were retracted.",
                *by_group,
            ),
            counter(
                "vfb_retracted_lost_total",
                "Sum of the absolute values of the negative rewards that were retracted.",
                *by_group,
            ),
            counter("vfb_retracted_values_total", "Number of rewards in these sums.", *by_group),
        )
        self.waits = histogram(
            "vfb_reward_wait_seconds",
            "Time from a decision to its reward.",
            "campaign",
            WAIT_BUCKETS,
        )
        self.changes = counter(
            "vfb_settings_changes_total", "Changes of the campaign's settings.", "campaign"
        )
        self.trips = counter(
            "vfb_guardrail_trips_total",
            "How often the guardrail switched the campaign to its baseline.",
            "campaign",
        )
        self.http_requests = counter(
            "vfb_http_requests_total", "HTTP responses.", "route", "method", "status"
        )
        self.http_seconds = histogram(
            "vfb_http_seconds", "Time from a request to its response.", "route"
        )


class Value:
    """The rewards of one group, or its retracted ones.

    Their sum may decrease, which Prometheus would take for a restart; so gains and losses are two
    counters that only grow.
    """

    def __init__(self, counters: tuple[Counter, Counter, Counter], *labels: str) -> None:
        self._gained, self._lost, self._count = (each.labels(*labels) for each in counters)

    def add(self, value: float) -> None:
        """Count a reward."""
        self._count.inc()
        if value > 0.0:
            self._gained.inc(value)
        elif value < 0.0:
            self._lost.inc(-value)


class CampaignCounters:
    """The counters of one campaign; all of them start at 0."""

    def __init__(self, counters: Counters, campaign: str) -> None:
        self.seconds = counters.seconds.labels(campaign)
        self.degraded = counters.degraded.labels(campaign)
        self.waits = counters.waits.labels(campaign)
        self.changes = counters.changes.labels(campaign)
        self.trips = counters.trips.labels(campaign)
        self.decisions = Bound(lambda group: counters.decisions.labels(campaign, group))
        self.decisions.meet(GROUPS)
        self.values = Bound(lambda group: Value(counters.rewarded, campaign, group))
        self.values.meet(GROUPS)
        self.retracted = Bound(lambda group: Value(counters.retracted, campaign, group))
        self.retracted.meet(GROUPS)
        self.rewards = Bound(lambda status: counters.rewards.labels(campaign, status))
        self.rewards.meet(STATUSES)
