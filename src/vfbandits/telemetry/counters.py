"""What metrics are counted as it happens, each with its labels bound beforehand.

To find a child by its labels takes longer than to count, and counting is on the way of every
answer.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Histogram

from vfbandits.telemetry.durations import Durations

Child = TypeVar("Child")

GROUPS: Final = ("policy", "holdback", "shadow")
STATUSES: Final = (
    *("learnt", "counted", "repeated", "late", "ignored", "logged"),
    *("default", "summed", "forgotten", "failed"),
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
    """What belongs to a name, made when it is first asked for.

    >>> twice = Bound(lambda name: name * 2)
    >>> twice["ab"], list(twice)
    ('abab', ['ab'])
    """

    def __init__(self, make: Callable[[str], Child]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, name: str) -> Child:
        """Make it; if two threads do so at once, theirs share one child of the metric."""
        child = self[name] = self._make(name)
        return child

    def meet(self, names: Iterable[str]) -> None:
        """Make those that are new."""
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
            "From the question to a durable decision.",
            "campaign",
            ANSWER_BUCKETS,
            registry,
        )
        self.degraded = counter(
            "vfb_degraded_decisions_total", "Decisions without some participant.", "campaign"
        )
        self.contributions = counter(
            "vfb_participant_contributions_total",
            "Decisions to which the participant's features came, or for which they were missing.",
            *("participant", "outcome"),
        )
        self.rewards = counter(
            "vfb_rewards_total", "Rewards and ends of waiting.", "campaign", "status"
        )
        self.gained = counter("vfb_reward_gained_total", "Sum of the rewards above 0.", *by_group)
        self.lost = counter(
            "vfb_reward_lost_total", "Sum of the rewards below 0, without their sign.", *by_group
        )
        self.valued = counter(
            "vfb_reward_values_total", "How many rewards these sums are of.", *by_group
        )
        self.waits = histogram(
            "vfb_reward_wait_seconds",
            "From a decision to a reward that came.",
            "campaign",
            WAIT_BUCKETS,
        )
        self.changes = counter(
            "vfb_settings_changes_total", "Changes of the campaign's settings.", "campaign"
        )
        self.http_requests = counter(
            "vfb_http_requests_total", "Requests answered.", "route", "method", "status"
        )
        self.http_seconds = histogram("vfb_http_seconds", "From a request to its answer.", "route")


class Value:
    """The rewards of one group.

    Their sum may go down, which Prometheus would take for a restart; so gains and losses are two
    counters, which both only grow.
    """

    def __init__(self, counters: Counters, campaign: str, group: str) -> None:
        self._gained = counters.gained.labels(campaign, group)
        self._lost = counters.lost.labels(campaign, group)
        self._count = counters.valued.labels(campaign, group)

    def add(self, value: float) -> None:
        """One reward more."""
        self._count.inc()
        if value > 0.0:
            self._gained.inc(value)
        elif value < 0.0:
            self._lost.inc(-value)


class CampaignCounters:
    """The counters of one campaign; all of them stand at 0 from the beginning."""

    def __init__(self, counters: Counters, campaign: str) -> None:
        self.seconds = counters.seconds.labels(campaign)
        self.degraded = counters.degraded.labels(campaign)
        self.waits = counters.waits.labels(campaign)
        self.changes = counters.changes.labels(campaign)
        self.decisions = Bound(lambda group: counters.decisions.labels(campaign, group))
        self.decisions.meet(GROUPS)
        self.values = Bound(lambda group: Value(counters, campaign, group))
        self.values.meet(GROUPS)
        self.rewards = Bound(lambda status: counters.rewards.labels(campaign, status))
        self.rewards.meet(STATUSES)
