"""Tests of what the dashboard is told: counted once, in bounded memory, and measured honestly."""

import gc
import json
import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from invented_decisions import LINKS, heard, ranked, tell, traffic
from numpy.testing import assert_allclose

from vfbandits.campaign.observer import Reconfigured
from vfbandits.core.anytime import standard_errors
from vfbandits.dashboard.bucket import MAX_ARMS, Bucket, Moments, latency_step, quantile
from vfbandits.dashboard.campaign import MAX_LAST, MAX_SETTLED, Campaign
from vfbandits.dashboard.measure import interval, lift
from vfbandits.dashboard.observatory import Observatory
from vfbandits.dashboard.view import DashboardView
from vfbandits.errors import SettingError

NOW = 1_000_000.0


def watched(*seen, now=NOW, **parts):
    sky = Observatory("retail", ["ads"], clock=lambda: now, **parts)
    for one in seen:
        tell(sky, one)
    return sky


def moments(values):
    taken = Moments()
    for value in values:
        taken.add(value)
    return taken


@settings(max_examples=60, deadline=None)
@given(ages=st.lists(st.one_of(st.floats(0, 400), st.floats(0, 5_000), st.floats(0, 90_000))))
def test_every_event_of_a_window_is_counted_once_in_whatever_order_they_come(ages):
    ats = [NOW - age for age in ages]
    sky = watched(*(ranked(str(i), at=at) for i, at in enumerate(ats)))
    for minutes in (1, 5, 60, 300, 1440):
        view = sky.view("ads", minutes=minutes)
        assert view.totals.decisions == sum(at >= view.times[0] for at in ats)


AGES = st.one_of(st.floats(0, 400), st.floats(0, 5_000), st.floats(0, 90_000))


@settings(max_examples=60, deadline=None)
@given(
    rewards=st.lists(st.tuples(AGES, st.integers(-5, 5), st.booleans(), st.booleans())),
    later=st.integers(0, 80_000),
)
def test_a_retracted_reward_is_as_if_it_had_never_come(rewards, later):
    """Whole numbers: exact.  Also where the steps of its time were added up since."""

    def told(*, retracts):
        sky = watched()
        for k, (age, value, is_policy, is_wrong) in enumerate(rewards):
            group, at = "policy" if is_policy else "holdback", NOW - age
            tell(sky, ranked(str(k), at=at, group=group, estimate=1.0))
            if retracts or not is_wrong:
                tell(sky, heard(str(k), at=at, group=group, value=float(value), status="learnt"))
        for age in range(0, later, 50):  # buckets leave their ring
            tell(sky, ranked(f"later {age}", at=NOW - later + age, group="policy"))
        for k, (*_, is_wrong) in enumerate(rewards):
            if is_wrong and retracts:
                tell(sky, heard(str(k), at=NOW, group="", value=9.0, status="retracted"))
        return sky

    skies = told(retracts=True), told(retracts=False)
    for minutes in (5, 60, 1440):
        with_it, without = (sky.view("ads", minutes=minutes) for sky in skies)
        assert with_it.rewards == without.rewards
        assert with_it.drift == without.drift
        counts = with_it.totals.statuses
        assert counts.get("learnt", 0) == without.totals.statuses.get("learnt", 0)
    assert counts.get("retracted", 0) == sum(is_wrong for *_, is_wrong in rewards)
    shown = {one.event_id: one for one in with_it.last}
    for k, (*_, is_wrong) in enumerate(rewards):
        if is_wrong and str(k) in shown:
            assert (shown[str(k)].status, shown[str(k)].reward) == ("retracted", None)


def test_a_retraction_of_a_reward_that_was_not_seen_is_counted_only():
    sky = watched(heard("long ago", at=NOW, group="", value=3.0, status="retracted"))
    view = sky.view("ads", minutes=5)
    assert (view.totals.statuses, view.rewards.policy.n) == ({"retracted": 1}, 0)


def test_of_so_many_rewards_it_is_known_where_they_were_counted():
    campaign = Campaign()
    for k in range(MAX_SETTLED + 5):
        campaign.on_reward(heard(str(k), at=NOW, status="learnt"))
    assert len(campaign.settled) == MAX_SETTLED


def test_a_window_is_cut_into_steps_that_end_now():
    view = watched().view("ads", minutes=60)
    assert (view.step_s, len(view.times)) == (60, 60)
    assert view.times[-1] <= NOW < view.times[-1] + 60
    assert np.diff(view.times).tolist() == [60.0] * 59


def test_three_days_of_traffic_keep_a_few_hundred_buckets():
    gc.collect()
    before = sum(isinstance(one, Bucket) for one in gc.get_objects())
    sky = watched(
        *(ranked(str(i), at=NOW + 20.0 * i, arm=str(i)) for i in range(3 * 24 * 180)),
        now=NOW + 3 * 24 * 3600,
    )
    gc.collect()
    kept = [one for one in gc.get_objects() if isinstance(one, Bucket)]
    assert len(kept) - before < 300
    assert max(len(bucket.arms) for bucket in kept) <= MAX_ARMS
    assert sky.view("ads", minutes=1440).totals.decisions > 95 * 45


def test_decisions_of_one_round_are_counted_together_as_one_by_one():
    shared = {"at": NOW, "seconds": 0.003, "contributors": ("shop",), "missing": ("bank",)}
    groups = ["policy", "holdback", "policy"]
    some = [
        ranked(f"{k}", arm=f"arm-{k % 2}", group=group, parts={"shop": -1.0}, **shared)
        for k, group in enumerate(groups)
    ]
    sky = watched()
    sky.on_ranked(some)
    assert sky.view("ads", minutes=5) == watched(*some).view("ads", minutes=5)


def test_only_the_last_decisions_and_estimates_are_kept():
    campaign = Campaign(most_estimates=1000)
    for i in range(1050):
        campaign.on_ranked([ranked(str(i), at=NOW)])
    assert (len(campaign.last), len(campaign.estimates)) == (MAX_LAST, 1000)
    assert [one.event_id for one in campaign.decisions()[:2]] == ["1049", "1048"]
    assert "49" not in campaign.estimates
    campaign.on_reward(heard("1000", 1.0, at=NOW))
    campaign.on_reward(heard("1001", 0.0, at=NOW, status="forgotten"))
    assert len(campaign.estimates) == 998


def test_the_rate_is_that_of_the_last_ten_whole_seconds():
    sky = watched(*(ranked(str(i), at=NOW - 12.0 + i / 10) for i in range(120)), now=NOW + 2.0)
    assert sky.view("ads", minutes=5).totals.per_second == 10.0
    assert sky.view("ads", minutes=5).per_second[-2] == 10.0


def test_twelve_arms_are_named_and_the_shares_of_each_step_sum_to_one():
    picks = np.random.default_rng(1).integers(20, size=(900, 2)).min(axis=1)
    arms = [f"arm-{pick:02d}" for pick in picks]
    sky = watched(*(ranked(str(i), at=NOW - i / 10, arm=arm) for i, arm in enumerate(arms)))
    told = sky.view("ads", minutes=5).arms
    assert [arm.name for arm in told][-1] is None
    assert len(told) == 13
    assert told[0].decisions == max(arms.count(arm) for arm in set(arms))
    assert sum(arm.decisions for arm in told) == 900
    shares = [[arm.share[i] for arm in told] for i in range(60)]
    sums = [sum(step) for step in shares if None not in step]
    assert_allclose(sums, 1.0, atol=1e-12)
    assert len(sums) >= 18


def test_arms_beyond_those_that_a_bucket_names_count_as_others():
    sky = watched(*(ranked(str(i), at=NOW, arm=str(i)) for i in range(MAX_ARMS + 40)))
    told = sky.view("ads", minutes=5).arms
    assert told[-1].name is None
    assert sum(arm.decisions for arm in told) == MAX_ARMS + 40


@given(
    values=st.lists(st.floats(-50, 50), min_size=2, max_size=40),
    split=st.integers(0, 40),
)
def test_an_interval_is_the_anytime_valid_one_however_the_rewards_are_bucketed(values, split):
    together = moments(values[:split])
    together.merge(moments(values[split:]))
    found = interval(together)
    assert found.mean == pytest.approx(np.mean(values), abs=1e-5)
    if together.variance > 0.0:
        half = (
            standard_errors(len(values), best_at=500.0)
            * np.std(values, ddof=1)
            / math.sqrt(len(values))
        )
        assert_allclose([found.low, found.high], [found.mean - half, found.mean + half], atol=1e-5)


def test_rewards_that_are_all_the_same_have_no_interval():
    assert interval(moments([1.0] * 50)).low is None
    assert lift(moments([1.0] * 50), moments([0.0] * 50)) is None


def test_nineteen_lifts_of_twenty_hold_the_truth_however_often_one_looks():
    rng = np.random.default_rng(3)
    holds = 0
    for _ in range(200):
        policy, baseline, is_held = moments([]), moments([]), True
        for value, other in zip(rng.random(1_000) < 0.4, rng.random(1_000) < 0.3, strict=True):
            policy.add(float(value))
            baseline.add(float(other))
            found = lift(policy, baseline)
            is_held &= found is None or found.low <= 0.1 <= found.high
        holds += is_held
    assert holds / 200 >= 0.95


def test_relative_lift_is_left_out_when_the_baseline_may_be_zero():
    found = lift(moments([1.0, 2.0, 3.0]), moments([-1.0, 1.0, 0.2]))
    assert found.relative is None
    assert found.difference == pytest.approx(2.0 - 0.2 / 3)
    assert lift(moments([1.0]), moments([1.0, 2.0])) is None


def test_relative_lift_is_left_out_when_a_share_of_the_baseline_would_say_nothing():
    near_zero = moments([0.013 + 0.1 * sign for sign in (-1, 1) for _ in range(200)])
    found = lift(moments([0.2, 0.3] * 200), near_zero)
    assert found.low > 0.0
    assert found.relative is None


def test_relative_lift_points_up_when_a_negative_reward_gets_better():
    found = lift(moments([-1.0, -1.1, -0.9] * 100), moments([-2.0, -2.1, -1.9] * 100))
    assert found.relative == pytest.approx(0.5)
    assert found.relative_low < 0.5 < found.relative_high


def rewarded(group, values, *, at=NOW):
    """A decision of a group, and rewards of it."""
    yield ranked(f"{group}{at}", at=at, group=group)
    for i, value in enumerate(values):
        yield heard(f"{group}{at}-{i}", value, at=at, group=group)


def test_the_policy_is_compared_with_all_that_showed_the_baseline():
    policy = [*rewarded("policy", [0.0, 1.0] * 5)]
    shadow = [*rewarded("shadow", [0.5] * 4)]
    held = [*rewarded("holdback", [0.25] * 4)]
    assert watched(*policy).view("ads", minutes=5).rewards.baseline_groups == []
    assert watched(*policy, *shadow).view("ads", minutes=5).rewards.baseline.mean == 0.5
    rewards = watched(*policy, *shadow, *held).view("ads", minutes=5).rewards
    assert rewards.baseline_groups == ["holdback", "shadow"]
    assert (rewards.baseline.n, rewards.baseline.mean) == (8, 0.375)
    assert rewards.policy.mean == 0.5
    assert rewards.lift.difference == 0.125


def test_lines_of_groups_that_shadow_mode_replaced_end_and_do_not_fall_to_zero():
    """Learning with a holdback, then shadow mode; the default of 0 comes a minute later."""
    seen = []
    for second in range(240):
        at = NOW - 240 + second
        group = "shadow" if second >= 120 else "policy" if second % 4 else "holdback"
        seen.append(ranked(str(second), at=at, group=group))
        if second % 2 == 0 and second < 236:
            seen.append(heard(str(second), 1.0, at=at + 2.0, group=group))
        late = second - 60
        if late >= 0 and late % 2:
            waited = "shadow" if late >= 120 else "policy" if late % 4 else "holdback"
            seen.append(heard(str(late), 0.0, at=at, group=waited, status="default"))
    view = watched(*seen).view("ads", minutes=5)
    policy, baseline = view.rewards.policy_series.mean, view.rewards.baseline_series.mean
    switch = next(i for i, at in enumerate(view.times) if at + 5 > NOW - 120)
    assert policy[switch - 1] is not None
    assert policy[switch + 1 :] == [None] * (len(policy) - switch - 1)
    assert min(mean for mean in policy if mean is not None) >= 0.3  # a third is rewarded
    assert None not in baseline[switch:-1]
    assert min(baseline[switch:-1]) >= 0.4
    assert view.rewards.baseline_groups == ["holdback", "shadow"]


def test_a_group_without_a_decision_in_the_window_has_no_mean_and_gives_no_lift():
    old = rewarded("policy", [1.0] * 9, at=NOW - 400)
    defaults = [heard(str(i), 0.0, at=NOW, status="default") for i in range(9)]
    rewards = (
        watched(*old, *defaults, *rewarded("shadow", [0.5, 1.0])).view("ads", minutes=5).rewards
    )
    assert (rewards.policy.n, rewards.lift) == (0, None)
    assert rewards.policy_series.mean == [None] * 60
    assert rewards.baseline.n == 2


def test_only_settled_rewards_count_and_all_statuses_are_told():
    statuses = ["learnt", "default", "summed", "logged"]
    others = ["counted", "repeated", "late", "ignored", "forgotten"]
    told = [heard(status, 1.0, at=NOW, status=status) for status in statuses + others]
    view = watched(ranked(at=NOW), *told).view("ads", minutes=5)
    assert view.rewards.policy.n == 4
    assert view.totals.statuses == dict.fromkeys(sorted(statuses + others), 1)


def test_a_point_of_the_band_looks_back_over_a_minute_in_the_shortest_window():
    sky = watched(*rewarded("policy", [1.0, 0.0], at=NOW - 30))
    band = sky.view("ads", minutes=5).rewards.policy_series
    known = [mean for mean in band.mean if mean is not None]
    assert known == [0.5] * 7
    assert band.mean[-1] == 0.5
    later = watched(*rewarded("policy", [1.0]), now=NOW + 320.0).view("ads", minutes=5)
    assert later.rewards.policy_series.mean[0] == 1.0
    assert later.rewards.policy.n == 0


def test_the_reward_of_a_lone_decision_is_drawn_when_it_comes():
    sky = watched(ranked(at=NOW - 50), heard(at=NOW))
    assert sky.view("ads", minutes=5).rewards.policy_series.mean[-1] == 1.0


def test_changes_of_settings_and_links_are_marks_of_the_window():
    links = [(NOW - 1_000, "bank", "participant_joined"), (NOW - 7, "bank", "participant_left")]
    sky = watched(link_changes=lambda: links)
    before = {"mode": "learn", "holdback": 0.0, "policy": {"name": "linucb", "beta": 1.0}}
    after = {"mode": "shadow", "holdback": 0.1, "policy": {"name": "linucb", "beta": 0.5}}
    packed = [json.dumps(one).encode() for one in (before, after)]
    sky.on_configured(Reconfigured("ads", *packed, at=NOW - 5))
    sky.on_configured(Reconfigured("ads", b"", packed[0], at=NOW - 9))
    sky.on_configured(Reconfigured("ads", *packed, at=NOW - 900))
    marks = sky.view("ads", minutes=5).marks
    assert [(one.kind, one.text) for one in marks] == [
        ("settings", "settings changed"),
        ("away", "bank disconnected"),
        ("settings", "mode: learn → shadow, holdback: 0.0 → 0.1, policy.beta: 1.0 → 0.5"),
    ]
    assert len(sky.view("ads", minutes=60).marks) == 5


def test_residuals_are_reward_minus_the_estimate_that_was_shown():
    sky = watched(
        ranked("a", at=NOW - 3, estimate=0.2),
        ranked("b", at=NOW - 3, estimate=0.6),
        heard("a", 1.0, at=NOW),
        heard("a", 1.0, at=NOW, status="repeated"),
        heard("b", 0.0, at=NOW, status="default"),
        heard("of no known decision", 9.0, at=NOW),
    )
    drift = sky.view("ads", minutes=5).drift
    assert drift.residual[-1] == pytest.approx(0.1)
    assert drift.rmse[-1] == pytest.approx(math.sqrt((0.8**2 + 0.6**2) / 2))
    assert drift.residual[0] is None


def test_the_norm_is_asked_for_once_a_bucket():
    asks = []
    sky = watched(norm=lambda campaign: asks.append(campaign) or 2.5)
    for i in range(50):
        sky.on_ranked([ranked(str(i), at=NOW - 10 + i / 5)])
    assert asks == ["ads", "ads"]
    assert sky.view("ads", minutes=5).drift.norm[-3:-1] == [2.5, 2.5]


@given(st.lists(st.floats(1e-5, 60.0), min_size=1, max_size=200), st.sampled_from([0.5, 0.99]))
def test_a_quantile_of_latencies_is_within_a_fifth(seconds, share):
    counts = {}
    for one in seconds:
        counts[latency_step(one)] = counts.get(latency_step(one), 0) + 1
    true = sorted(seconds)[max(0, math.ceil(share * len(seconds)) - 1)]
    assert quantile(counts, share) == pytest.approx(true, rel=0.2)


def test_degraded_agreement_and_groups_are_shares_of_the_decisions():
    sky = watched(
        ranked("a", at=NOW, choice="milk", contributors=("shop",), missing=("bank",)),
        ranked("b", at=NOW, group="shadow", choice="milk"),
        ranked("c", at=NOW, group="shadow", choice="tea"),
        ranked("d", at=NOW, group="holdback", choice="tea"),
        waiting={"ads": 12}.__getitem__,
    )
    totals = sky.view("ads", minutes=5).totals
    assert (totals.degraded, totals.agreement, totals.shadow_agreement) == (0.25, 0.5, 0.5)
    assert totals.groups == {"holdback": 1, "policy": 1, "shadow": 2}
    assert (totals.waiting, totals.received_bytes) == (12, 400)


def test_participants_have_their_share_of_the_explained_prediction():
    sky = watched(
        ranked("a", at=NOW, parts={"shop": 0.3, "bank": -0.1}),
        ranked("b", at=NOW, parts={"shop": 0.6}, contributors=("shop",), missing=("bank",)),
        participants=lambda: LINKS,
    )
    told = {one.name: one for one in sky.view("ads", minutes=5).participants}
    assert list(told) == ["shop", "bank", "news", "telco"]
    assert told["shop"].share == pytest.approx(0.9)
    assert told["bank"].share == pytest.approx(0.1)
    assert (told["bank"].availability, told["bank"].missing) == (0.5, 1)
    assert (told["news"].share, told["news"].availability) == (0.0, None)
    assert (told["telco"].connected, told["telco"].latency_ms) == (False, 31.0)


def test_a_mask_that_hides_the_parts_leaves_shares_out_and_odd_facts_of_a_link_too():
    link = {"width": True, "connected": "yes", "latency_ms": math.nan, "bytes": "9"}
    sky = watched(ranked("a", at=NOW), participants=lambda: {"bank": link})
    bank, shop = sky.view("ads", minutes=5).participants
    assert (bank.share, shop.share, shop.name) == (None, None, "shop")
    assert (bank.width, bank.connected, bank.latency_ms, bank.bytes) == (None,) * 4


def test_a_decision_gets_its_reward_and_a_later_status_does_not_hide_it():
    sky = watched(
        ranked("a", at=NOW, parts={"shop": 0.5}),
        ranked("b", at=NOW),
        heard("a", 1.0, at=NOW),
        heard("a", 7.0, at=NOW, status="late"),
        heard("b", 1.0, at=NOW, status="counted"),
    )
    b, a = sky.view("ads", minutes=5).last
    assert (a.reward, a.status, a.waited_s, a.parts) == (1.0, "learnt", 2.0, {"shop": 0.5})
    assert (b.reward, b.status) == (None, "counted")
    sky.on_reward(heard("b", 3.0, at=NOW, status="summed"))
    assert sky.view("ads", minutes=5).last[0].reward == 3.0


def test_campaigns_are_told_apart_and_the_first_is_the_one_without_a_name():
    sky = watched(ranked("a", at=NOW), ranked("b", at=NOW, campaign="mail"))
    assert sky.campaigns == ["ads", "mail"]
    assert sky.view(minutes=5).campaign == "ads"
    assert [one.event_id for one in sky.view("mail", minutes=5).last] == ["b"]


def test_an_unknown_campaign_or_a_strange_window_is_refused():
    with pytest.raises(SettingError, match=r"one of \['ads'\], got 'mail'"):
        watched().view("mail", minutes=5)
    for minutes in (0, -5, 1441):
        with pytest.raises(SettingError, match=f"1 to 1440, got {minutes}"):
            watched().view("ads", minutes=minutes)


def test_a_server_without_campaigns_has_an_empty_view():
    view = Observatory("retail").view(minutes=60)
    assert (view.campaign, view.totals.decisions, view.last) == ("", 0, [])


def test_a_view_survives_the_journey_as_json_and_has_a_schema():
    sky = watched(*traffic("ads", until=NOW, seconds=60), participants=lambda: LINKS)
    view = sky.view("ads", minutes=5)
    assert msgspec.json.decode(msgspec.json.encode(view), type=DashboardView) == view
    assert "DashboardView" in msgspec.json.schema(DashboardView)["$defs"]
