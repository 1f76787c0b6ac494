"""Metrics: what is counted, what is read, and what never becomes a label."""

import time
from collections import Counter
from dataclasses import replace

import pytest
from fed_metrics import (
    BANK,
    NEWS,
    families,
    fed_metrics,
    heard,
    make_metrics,
    ranked,
    samples,
    value,
)
from hypothesis import given
from hypothesis import strategies as st

from vfbandits.telemetry.counters import ANSWER_BUCKETS, GROUPS, STATUSES
from vfbandits.telemetry.metrics import BROUGHT, MAX_ROUTES, METHODS, VALUED

NAMES = st.sampled_from(["shop", "bank", "news"])
DECISIONS = st.builds(
    ranked,
    campaign=st.sampled_from(["a", "b"]),
    group=st.sampled_from(GROUPS),
    contributors=st.lists(NAMES, unique=True).map(tuple),
    missing=st.lists(NAMES, unique=True).map(tuple),
    seconds=st.floats(0.0, 10.0),
)
REWARDS = st.builds(
    heard,
    campaign=st.sampled_from(["a", "b"]),
    group=st.sampled_from(GROUPS),
    status=st.sampled_from(STATUSES),
    value=st.integers(-5, 5).map(float),
    waited_s=st.floats(-1.0, 1e6),
)


@given(st.lists(DECISIONS, max_size=20))
def test_decisions_are_counted_as_one_would_by_hand(seen):
    metrics = make_metrics()
    for each in seen:
        metrics.on_ranked([each])
    got = samples(metrics)
    for (campaign, group), n in Counter((s.campaign, s.group) for s in seen).items():
        labels = frozenset({"campaign": campaign, "group": group}.items())
        assert got["vfb_decisions_total", labels] == n
    for campaign in {s.campaign for s in seen}:
        of = [s for s in seen if s.campaign == campaign]
        label = ("campaign", campaign)
        assert got["vfb_degraded_decisions_total", frozenset([label])] == sum(
            bool(s.missing) for s in of
        )
        assert got["vfb_decision_seconds_count", frozenset([label])] == len(of)
        for bucket in ANSWER_BUCKETS:
            key = "vfb_decision_seconds_bucket", frozenset([label, ("le", str(bucket))])
            assert got[key] == sum(s.seconds <= bucket for s in of)
    for outcome, named in (("came", "contributors"), ("missing", "missing")):
        for name, n in Counter(p for s in seen for p in getattr(s, named)).items():
            labels = frozenset({"participant": name, "outcome": outcome}.items())
            assert got["vfb_participant_contributions_total", labels] == n


@given(st.lists(REWARDS, max_size=20))
def test_gains_less_losses_are_the_sum_of_the_rewards_that_count(seen):
    metrics = make_metrics()
    for each in seen:
        metrics.on_reward(each)
    got = samples(metrics)
    for campaign in {s.campaign for s in seen}:
        of = [s for s in seen if s.campaign == campaign]
        for status, n in Counter(s.status for s in of).items():
            labels = frozenset({"campaign": campaign, "status": status}.items())
            assert got["vfb_rewards_total", labels] == n
        for group in GROUPS:
            labels = frozenset({"campaign": campaign, "group": group}.items())
            values = [s.value for s in of if s.group == group and s.status in VALUED]
            gained, lost = (
                got[name, labels] for name in ("vfb_reward_gained_total", "vfb_reward_lost_total")
            )
            assert gained - lost == sum(values)
            assert gained + lost == sum(map(abs, values))
            assert got["vfb_reward_values_total", labels] == len(values)
            taken = [s.value for s in of if s.group == group and s.status == "retracted"]
            names = ("vfb_retracted_gained_total", "vfb_retracted_lost_total")
            gained, lost = (got[name, labels] for name in names)
            assert (gained - lost, gained + lost) == (sum(taken), sum(map(abs, taken)))
            assert got["vfb_retracted_values_total", labels] == len(taken)
        label = frozenset({"campaign": campaign}.items())
        brought = [max(s.waited_s, 0.0) for s in of if s.status in BROUGHT]
        assert got["vfb_reward_wait_seconds_count", label] == len(brought)
        assert got["vfb_reward_wait_seconds_sum", label] == pytest.approx(sum(brought))


def test_a_wait_that_ended_without_a_reward_has_no_value():
    metrics = make_metrics()
    metrics.on_reward(heard(status="forgotten", value=float("nan")))
    assert value(metrics, "vfb_rewards_total", campaign="news", status="forgotten") == 1
    assert value(metrics, "vfb_reward_values_total", campaign="news", group="policy") == 0
    assert value(metrics, "vfb_reward_gained_total", campaign="news", group="policy") == 0


def test_a_clock_that_was_set_back_makes_no_wait_below_0():
    metrics = make_metrics()
    metrics.on_reward(heard(waited_s=-5.0))
    assert value(metrics, "vfb_reward_wait_seconds_count", campaign="news") == 1
    assert value(metrics, "vfb_reward_wait_seconds_sum", campaign="news") == 0


def test_the_parts_of_a_sum_do_not_count_beside_the_sum():
    metrics = make_metrics()
    for part in (1.0, 2.0):
        metrics.on_reward(heard(status="counted", value=part))
    metrics.on_reward(heard(status="summed", value=3.0))
    assert value(metrics, "vfb_reward_gained_total", campaign="news", group="policy") == 3
    assert value(metrics, "vfb_reward_values_total", campaign="news", group="policy") == 1


def test_the_number_of_series_does_not_grow_with_users_arms_and_events():
    metrics = fed_metrics()
    before = samples(metrics).keys()
    for n in range(500):
        ids = {"event_id": f"event-{n}", "arm": f"arm-{n}"}
        metrics.on_ranked([ranked(**ids, user=f"user-{n}", choice=f"arm-{n}", baseline=f"arm-{n}")])
        metrics.on_reward(heard(**ids))
    assert samples(metrics).keys() == before
    text = metrics.render().decode()
    assert not any(word in text for word in ("event-", "arm-", "user-"))


def test_every_label_is_one_of_a_few():
    labels = {name for _, pairs in samples(fed_metrics()) for name, _ in pairs}
    bounded = {"campaign", "participant", "group", "outcome", "status", "route", "method", "task"}
    bounded.add("reason")
    assert labels == bounded | {"version", "le"}


def test_methods_and_routes_that_a_stranger_makes_up_become_other():
    metrics = make_metrics()
    for n in range(MAX_ROUTES + 50):
        metrics.http(f"/{n}", f"BREW{n}", 405, 0.001)
    got = [dict(labels) for name, labels in samples(metrics) if name == "vfb_http_requests_total"]
    assert len(got) == MAX_ROUTES + 1
    assert {labels["method"] for labels in got} == {"other"}
    counted = value(metrics, "vfb_http_requests_total", route="other", method="other", status="405")
    assert counted == 50


def test_a_request_is_counted_by_route_method_and_status_and_timed_by_route():
    metrics = make_metrics()
    for method in sorted(METHODS):
        metrics.http("/v1/rank", method, 200, 0.25)
    metrics.http("/v1/rank", "POST", 503, 0.25)
    posted = {"route": "/v1/rank", "method": "POST"}
    assert value(metrics, "vfb_http_requests_total", **posted, status="200") == 1
    assert value(metrics, "vfb_http_requests_total", **posted, status="503") == 1
    assert value(metrics, "vfb_http_seconds_count", route="/v1/rank") == len(METHODS) + 1
    assert value(metrics, "vfb_http_seconds_sum", route="/v1/rank") == 0.25 * (len(METHODS) + 1)


def test_counters_stand_at_0_before_anything_has_happened():
    metrics = make_metrics()
    for group in GROUPS:
        assert value(metrics, "vfb_decisions_total", campaign="news", group=group) == 0
    for status in STATUSES:
        assert value(metrics, "vfb_rewards_total", campaign="news", status=status) == 0
    for outcome in ("came", "missing"):
        labels = {"participant": "bank", "outcome": outcome}
        assert value(metrics, "vfb_participant_contributions_total", **labels) == 0
    assert value(metrics, "vfb_degraded_decisions_total", campaign="news") == 0


def test_what_stands_is_read_at_each_scrape():
    campaigns, participants = [NEWS], [BANK]
    metrics = make_metrics(campaigns, participants)
    expected = {
        "vfb_events_waiting": 7,
        "vfb_log_position": 900,
        "vfb_log_unsnapshotted_events": 40,
        "vfb_commits_total": 30,
        "vfb_committed_events_total": 120,
        "vfb_model_version": 55,
        "vfb_model_norm": 1.5,
        "vfb_model_repairs_total": 2,
        "vfb_model_arms": 12,
        "vfb_model_arms_dropped_total": 3,
    }
    assert {name: value(metrics, name, campaign="news") for name in expected} == expected
    expected = {
        "vfb_participant_connected": 1,
        "vfb_participant_circuit_open": 0,
        "vfb_participant_latency_seconds": 0.002,
        "vfb_participant_bytes_total": 4_096,
    }
    assert {name: value(metrics, name, participant="bank") for name in expected} == expected
    assert (value(metrics, "vfb_ready"), value(metrics, "vfb_mask_epoch")) == (1, 2)
    assert value(metrics, "vfb_build_info", version="1.2.3") == 1
    campaigns[0] = replace(NEWS, waiting=8)
    participants[0] = replace(BANK, is_connected=False)
    assert value(metrics, "vfb_events_waiting", campaign="news") == 8
    assert value(metrics, "vfb_participant_connected", participant="bank") == 0


def test_a_participant_that_never_answered_has_no_latency():
    got = families(make_metrics(participants=[replace(BANK, latency_s=None)]))
    assert got["vfb_participant_latency_seconds"].samples == []
    assert len(got["vfb_participant_connected"].samples) == 1


def test_a_scrape_does_not_tell_when_series_began_and_tells_of_the_process():
    text = fed_metrics().render().decode()
    assert "_created" not in text
    assert "process_resident_memory_bytes" in text


def test_two_servers_in_one_process_count_apart():
    fed_metrics()
    assert value(make_metrics(), "vfb_decisions_total", campaign="news", group="policy") == 0


def test_metrics_are_told_as_text_that_prometheus_reads():
    assert make_metrics().content_type.startswith("text/plain; version=")


def test_names_with_quotes_and_line_breaks_do_not_break_the_text():
    name = 'a"b\\c\nd'
    metrics = make_metrics(participants=[replace(BANK, name=name)])
    assert value(metrics, "vfb_participant_connected", participant=name) == 1


def test_to_count_a_decision_takes_microseconds():
    metrics, seen = make_metrics(), ranked()

    def seconds():
        started = time.perf_counter()
        for _ in range(1_000):
            metrics.on_ranked([seen])
        return time.perf_counter() - started

    assert min(seconds() for _ in range(5)) / 1_000 < 50e-6
