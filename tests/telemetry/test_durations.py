"""Our histogram tells Prometheus what its own would."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Histogram

from vfbandits.telemetry.durations import Durations

BOUNDS = (0.001, 0.01, 0.5, 2.0)
TIMES = st.one_of(st.sampled_from(BOUNDS), st.floats(0.0, 10.0))


def samples(registry):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if not sample.name.endswith("_created")
    }


@given(st.lists(st.tuples(st.sampled_from("ab"), TIMES, st.integers(1, 20)), max_size=20))
def test_it_is_the_histogram_that_took_them_one_by_one(observed):
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    durations = Durations("seconds", "Says.", "campaign", BOUNDS, ours)
    histogram = Histogram("seconds", "Says.", ["campaign"], buckets=BOUNDS, registry=theirs)
    for campaign, seconds, times in observed:
        durations.labels(campaign).observe(seconds, times=times)
        for _ in range(times):
            histogram.labels(campaign).observe(seconds)
    assert samples(ours) == pytest.approx(samples(theirs))
