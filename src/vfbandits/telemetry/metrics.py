"""Prometheus metrics of a server: counters of what has happened, and gauges read at the scrape.

A label is a campaign, a participant, a route or one of a few fixed values.  No user, arm or event
id is ever a label, so the number of series does not grow with traffic.
"""

from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Final

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Metric,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.registry import Collector

from vfbandits.campaign.history import RETRACTED
from vfbandits.campaign.observer import Guarded, Ranked, Reconfigured, RewardSeen
from vfbandits.telemetry.counters import Bound, CampaignCounters, Counters
from vfbandits.telemetry.gauges import Gauges
from vfbandits.telemetry.readings import Readings

# An event has at most one of these, so its value counts once; while the model is frozen, every
# reward has one.
VALUED: Final = frozenset({"learnt", "default", "summed", "logged"})
# The others are repetitions, or do not come from the application.
BROUGHT: Final = frozenset({"learnt", "counted", "late", "logged"})
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
MAX_ROUTES: Final = 200
OTHER: Final = "other"


class Metrics:
    """An ``Observer`` that counts for Prometheus; may be called from any thread.

    Examples
    --------
    >>> from vfbandits.telemetry.readings import ParticipantGauges
    >>> bank = ParticipantGauges(
    ...     "bank", is_connected=True, circuit_is_open=False, latency_s=0.002, bytes_received=80
    ... )
    >>> metrics = Metrics(Readings(lambda: [], lambda: [bank], lambda: 3, lambda: True))
    >>> metrics.http("/v1/rank", "POST", 200, 0.004)
    >>> lines = metrics.render().decode().splitlines()
    >>> [line for line in lines if line.startswith(("vfb_mask_epoch", "vfb_participant_latency"))]
    ['vfb_mask_epoch 3.0', 'vfb_participant_latency_seconds{participant="bank"} 0.002']
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, readings: Readings, *, release: str | None = None) -> None:
        self._registry = registry = CollectorRegistry()
        release = version("vfbandits") if release is None else release
        registry.register(Gauges(readings, version=release, meet=self._meet))
        ProcessCollector(registry=registry)
        counters = Counters(registry)
        self._campaigns = Bound(lambda name: CampaignCounters(counters, name))
        self._came = Bound(lambda name: counters.contributions.labels(name, "came"))
        self._missing = Bound(lambda name: counters.contributions.labels(name, "missing"))
        self._routes = Bound(counters.http_seconds.labels)
        self._requests: dict[tuple[str, str, int], Counter] = {}
        self._counters = counters

    def on_ranked(self, seen: Sequence[Ranked]) -> None:
        """Count decisions of one batch, which differ only in their groups."""
        first, count = seen[0], len(seen)
        campaign = self._campaigns[first.campaign]
        for group, n in Tally([one.group for one in seen]).items():
            campaign.decisions[group].inc(n)
        for contributor in first.contributors:
            self._came[contributor].inc(count)
        if first.missing:
            campaign.degraded.inc(count)
            for other in first.missing:
                self._missing[other].inc(count)
        campaign.seconds.observe(first.seconds, times=count)

    def on_reward(self, seen: RewardSeen) -> None:
        """Count a reward, the end of a wait without one, or a retraction."""
        campaign = self._campaigns[seen.campaign]
        campaign.rewards[seen.status].inc()
        if seen.status in VALUED:
            campaign.values[seen.group].add(seen.value)
        elif seen.status == RETRACTED:
            campaign.retracted[seen.group].add(seen.value)
        if seen.status in BROUGHT:
            # A clock that was set back would make it negative.
            campaign.waits.observe(max(seen.waited_s, 0.0))

    def on_configured(self, seen: Reconfigured) -> None:
        """Count a change of settings."""
        self._campaigns[seen.campaign].changes.inc()

    def on_guardrail(self, seen: Guarded) -> None:
        """Count a trip of the guardrail."""
        if seen.is_tripped:
            self._campaigns[seen.campaign].trips.inc()

    def http(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count an answered request; ``route`` is the pattern, as ``/v1/events/{event_id}``."""
        if route not in self._routes and len(self._routes) >= MAX_ROUTES:
            route = OTHER
        if method not in METHODS:
            method = OTHER
        self._routes[route].observe(seconds)
        key = (route, method, status)
        requests = self._requests.get(key)
        if requests is None:
            requests = self._counters.http_requests.labels(route, method, str(status))
            self._requests[key] = requests
        requests.inc()

    def render(self) -> bytes:
        """All metrics, in Prometheus' text format."""
        return generate_latest(_DropCreatedSamples(self._registry))

    def _meet(self, campaigns: Sequence[str], participants: Sequence[str]) -> None:
        """Create the counters of new names, at 0."""
        self._campaigns.meet(campaigns)
        self._came.meet(participants)
        self._missing.meet(participants)


class _DropCreatedSamples(Collector):
    """Drops the ``_created`` samples: one more series for each counter, which nothing reads."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [each for each in metric.samples if not each.name.endswith("_created")]
            yield metric
