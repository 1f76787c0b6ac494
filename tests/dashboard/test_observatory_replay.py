"""After a restart the log's end fills the charts, as far as the log knows."""

import json

import msgspec
import numpy as np
import pytest
from invented_decisions import LINKS, ranked, tell, traffic

from vfbandits.campaign.events import (
    Activated,
    Configured,
    Decided,
    Forgotten,
    Reported,
    Retracted,
    Rewarded,
)
from vfbandits.campaign.observer import Ranked, RewardSeen
from vfbandits.client.schemas import RankedArm, RankResponse
from vfbandits.dashboard.observatory import Observatory
from vfbandits.dashboard.replay import Replay

NOW = 1_000_000.0


def sky_of(events):
    sky = Observatory("retail", ["ads"], clock=lambda: NOW, participants=lambda: LINKS)
    sky.replay("ads", list(enumerate(events)))
    return sky.view("ads", minutes=60)


def note(seen):
    shown = RankedArm(seen.arm, seen.estimate + seen.bonus, seen.estimate, seen.probability)
    ranking = [shown]
    if seen.choice != seen.arm:
        ranking = [RankedArm(seen.choice, 9.0, 9.0, 0.1), shown]
    answer = RankResponse(
        seen.event_id, seen.arm, ranking, list(seen.contributors), bool(seen.missing),
        seen.group, seen.model_version, 0, 0,
    )  # fmt: skip
    return msgspec.json.encode(answer)


def decided(seen):
    return Decided(
        seen.event_id, seen.arm, 0, np.zeros(2), probability=seen.probability, at=seen.at,
        contributors=seen.contributors, user=seen.user, group=seen.group, answer=note(seen),
        seconds=seen.seconds,
    )  # fmt: skip


def logged(seen):
    if isinstance(seen, Ranked):
        return decided(seen)
    name = "" if seen.status == "learnt" else None
    return Rewarded(seen.event_id, seen.value, seen.at, reward_id=name)


def test_what_is_replayed_is_what_was_seen_as_far_as_the_log_holds_it():
    seen = list(traffic("ads", until=NOW, seconds=900, hides_parts=True))
    sky = Observatory("retail", ["ads"], clock=lambda: NOW, participants=lambda: LINKS)
    for one in seen:
        tell(sky, one)
    live, again = sky.view("ads", minutes=60), sky_of([logged(one) for one in seen])
    assert again.rewards == live.rewards
    assert again.arms == live.arms
    assert again.drift == live.drift
    assert again.participants == live.participants
    assert again.per_second == live.per_second
    for name in ("decisions", "degraded", "groups", "statuses"):
        assert getattr(again.totals, name) == getattr(live.totals, name)
    for old, new in zip(live.last, again.last, strict=True):
        assert (new.event_id, new.user, new.at, new.arm) == (
            old.event_id, old.user, old.at, old.arm,
        )  # fmt: skip
        assert (new.estimate, new.reward, new.status) == (old.estimate, old.reward, old.status)
        assert new.bonus == pytest.approx(old.bonus)
    assert again.totals.p99_ms == live.totals.p99_ms
    assert again.p50_ms == live.p50_ms


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_records_that_come_in_batches_give_what_all_of_them_give(size):
    events = [*enumerate(map(logged, traffic("ads", until=NOW, seconds=600, hides_parts=True)))]
    sky = Observatory("retail", ["ads"], clock=lambda: NOW, participants=lambda: LINKS)
    for start in range(0, len(events), size):
        sky.replay("ads", events[start : start + size])
    assert sky.view("ads", minutes=60) == sky_of([event for _, event in events])


def test_decisions_that_wait_for_a_reward_are_kept_in_bounded_memory():
    replay = Replay(max_pending=3)
    decided = [(i, plain(f"e{i}")) for i in range(5)]
    rewards = [(i, Rewarded(f"e{i}", 1.0, NOW)) for i in range(5)]
    seen = [*replay.seen("ads", decided + rewards, ())]
    assert [one.event_id for one in seen if isinstance(one, RewardSeen)] == ["e2", "e3", "e4"]


def test_changes_of_settings_in_the_journal_are_marks():
    packed = [json.dumps({"mode": mode}).encode() for mode in ("learn", "frozen")]
    view = sky_of([Configured(packed[0], NOW - 20), Configured(packed[1], NOW - 10)])
    assert [(one.at, one.text) for one in view.marks] == [
        (NOW - 20, "settings changed"),
        (NOW - 10, "mode: learn → frozen"),
    ]


def plain(event_id, **more):
    return Decided(event_id, "tea", 0, np.zeros(2), at=NOW - 60, user="ann", **more)


def test_defaults_sums_reports_and_forgotten_events_keep_their_names():
    view = sky_of(
        [
            plain("default"),
            plain("sum"),
            plain("late"),
            plain("gone"),
            Configured(b"{}"),
            Activated("late", NOW),
            Reported("sum", 1.0, "x", "counted", NOW - 50),
            Reported("late", 1.0, "x", "late", NOW - 40),
            Rewarded("default", 0.0, NOW - 30, reward_id=None),
            Rewarded("sum", 3.0, NOW - 20, reward_id=None),
            Rewarded("before the first", 1.0, NOW - 20),
            Forgotten("gone"),
        ]
    )
    assert {one.event_id: one.status for one in view.last} == {
        "default": "default",
        "sum": "summed",
        "late": "late",
        "gone": "forgotten",
    }
    assert view.rewards.policy.n == 2
    assert [one.waited_s for one in view.last if one.event_id == "gone"] == [40.0]


@pytest.mark.parametrize("kept", [b"", b"not JSON", b'{"arm": 3}', b'{"arm": "\xff"}'])
def test_a_decision_whose_answer_was_not_kept_is_shown_without_a_score(kept):
    (one,) = sky_of([plain(7, answer=kept)]).last
    assert (one.event_id, one.arm, one.user) == ("7", "tea", "ann")
    assert (one.estimate, one.bonus, one.probability) == (None, None, None)


def test_a_retraction_in_the_log_takes_its_reward_out_of_the_charts():
    seen = list(traffic("ads", until=NOW, seconds=900, hides_parts=True))
    events = [logged(one) for one in seen]
    rewarded = [event for event in events if isinstance(event, Rewarded)]
    wrong = rewarded[len(rewarded) // 2]
    taken_back = Retracted(wrong.event_id, wrong.value, np.zeros(2), at=NOW - 1.0, by="ops")
    before, after = sky_of(events), sky_of([*events, taken_back])
    without = sky_of([event for event in events if event is not wrong])
    for part in ("policy", "baseline"):
        ours, wanted = getattr(after.rewards, part), getattr(without.rewards, part)
        assert ours.n == wanted.n
        assert ours.mean == pytest.approx(wanted.mean)
    n_rewards = before.rewards.policy.n + before.rewards.baseline.n
    assert after.rewards.policy.n + after.rewards.baseline.n == n_rewards - 1
    assert after.totals.statuses["retracted"] == 1


def test_a_helper_without_features_is_missing_from_no_decision():
    links = {"shop": {"width": 2}, "bank": {"width": 3}, "notary": {"width": 0}}
    sky = Observatory("retail", ["ads"], clock=lambda: NOW, participants=lambda: links)
    seen = ranked("a", at=NOW - 5.0, contributors=("shop",), missing=("bank",))
    sky.replay("ads", [(1, decided(seen))])
    view = sky.view("ads", minutes=60)
    assert view.last[0].missing == ["bank"]
    facts = {one.name: (one.missing, one.width) for one in view.participants}
    assert facts == {"shop": (0, 2), "bank": (1, 3), "notary": (0, 0)}
