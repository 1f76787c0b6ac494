"""A server's metrics after a little of everything, and how to read them."""

from prometheus_client.parser import text_string_to_metric_families

from vfbandits.campaign.observer import Ranked, RewardSeen
from vfbandits.telemetry.connection_counts import ConnectionCounts
from vfbandits.telemetry.counters import STATUSES
from vfbandits.telemetry.metrics import Metrics
from vfbandits.telemetry.passive_metrics import (
    HelperReading,
    PassiveReading,
    StatusMetrics,
    of_helper,
    of_passive,
)
from vfbandits.telemetry.readings import (
    CampaignGauges,
    ParticipantGauges,
    Readings,
    SharesGauges,
)

NEWS = CampaignGauges(
    "news",
    waiting=7,
    log_position=900,
    waiting_in_memory=5,
    max_pending=100,
    recalled=2,
    unsnapshotted_events=40,
    commits=30,
    committed_events=120,
    model_version=55,
    model_norm=1.5,
    model_repairs=2,
    model_arms=12,
    model_arms_dropped=3,
    guardrail_difference=-0.05,
    guardrail_low=-0.08,
    guardrail_high=-0.02,
    guardrail_tripped=True,
)
BANK = ParticipantGauges(
    "bank",
    is_connected=True,
    circuit_is_open=False,
    latency_s=0.002,
    bytes_received=4_096,
    missing_ratio=0.01,
    norm_ratio=1.2,
    mean_shift=0.1,
    variance_shift=0.3,
)


SHARES = SharesGauges(
    helper="bank",
    learns="the arm of a decision",
    away="",
    is_helper_away=False,
    is_out_of_words=False,
    released=90,
    alone=10,
    queued=3,
    windows=64,
    decisions=1024,
    lasts_s=7200.0,
    is_low=False,
)


def ranked(**changes):
    given = {
        "campaign": "news",
        "event_id": "e1",
        "user": "u1",
        "at": 1_000.0,
        "arm": "tea",
        "choice": "tea",
        "baseline": "coffee",
        "group": "policy",
        "estimate": 0.5,
        "bonus": 0.1,
        "parts": None,
        "probability": 0.9,
        "contributors": ("shop", "bank"),
        "missing": (),
        "n_arms": 2,
        "model_version": 3,
        "seconds": 0.004,
        "bytes_received": 80,
    }
    return Ranked(**{**given, **changes})


def heard(**changes):
    given = {
        "campaign": "news",
        "event_id": "e1",
        "arm": "tea",
        "group": "policy",
        "status": "learnt",
        "value": 1.0,
        "at": 1_030.0,
        "waited_s": 30.0,
    }
    return RewardSeen(**{**given, **changes})


def make_metrics(campaigns=(NEWS,), participants=(BANK,)):
    counts = ConnectionCounts(open=3, limit=768)
    readings = Readings(
        lambda: campaigns,
        lambda: participants,
        lambda: 2,
        lambda: True,
        lambda: {"http": 1},
        counts,
        lambda: SHARES,
    )
    return Metrics(readings, release="1.2.3")


def fed_metrics():
    """Every metric has a value that came from somewhere."""
    metrics = make_metrics()
    metrics.on_ranked([ranked()])
    metrics.on_ranked([ranked(group="holdback", contributors=("shop",), missing=("bank",))])
    for status in STATUSES:
        metrics.on_reward(heard(status=status))
    metrics.http("/v1/rank", "POST", 200, 0.004)
    return metrics


def passive_metrics(**changes):
    """The metrics of a passive participant, for which every metric has a value."""
    given = {
        "is_ready": True,
        "is_connected": True,
        "epoch": 2,
        "asks": {"answered": 5, "declined": 1},
        "users": {"answered": 6, "unknown": 2, "users per day": 1},
        "rows": 12,
        "held_rows": 3,
        "record_entries": 9,
        "record_bytes": 2_000,
        "record_unsynced": 1,
        "record_synced_at": 1_000.0,
        "task_failures": {"link": 0},
    }
    reading = PassiveReading(**{**given, **changes})
    users = ["answered", "not allowed"]
    return StatusMetrics(lambda: of_passive(reading, users=users, release="1.2.3"))


def helper_metrics():
    """The metrics of a helper without features."""
    reading = HelperReading(
        is_ready=True,
        is_connected=True,
        epoch=1,
        window=3,
        messages={"answered": 5, "refused": 1},
        task_failures={"link": 0},
    )
    return StatusMetrics(lambda: of_helper(reading, release="1.2.3"))


def families(metrics):
    """What a scrape gives: families by the name that Prometheus knows them by."""
    text = metrics.render().decode()
    found = {}
    for family in text_string_to_metric_families(text):
        found[family.name + "_total" if family.type == "counter" else family.name] = family
    return found


def samples(metrics):
    """What a scrape gives: value by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families(metrics).values()
        for sample in family.samples
    }


def value(metrics, name, **labels):
    return samples(metrics)[name, frozenset(labels.items())]
