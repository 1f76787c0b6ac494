"""Rewards late, repeated, out of order, contradictory or never."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import vfbandits as vfb
from vfbandits.core.reward import Observation
from vfbandits.errors import RewardError, SettingError, UnknownDecisionError


def decisions(bandit, n, rng):
    return [bandit.decide(rng.standard_normal((3, 2))) for _ in range(n)]


@given(order=st.permutations(range(6)), repeats=st.lists(st.integers(0, 5), max_size=6))
@settings(deadline=None)
def test_rewards_in_any_order_and_repeated_teach_the_same(order, repeats):
    """Exactly-once, whatever the order: equal up to rounding, since sums are reordered."""
    straight, shuffled = (vfb.Bandit(vfb.LinUCB(), dim=2) for _ in range(2))
    rng = np.random.default_rng(3)
    values = rng.standard_normal(6)
    for number, decision in enumerate(decisions(straight, 6, np.random.default_rng(4))):
        assert straight.reward(decision, values[number])
    made = decisions(shuffled, 6, np.random.default_rng(4))
    for number in [*order, *repeats]:
        first_time = made[number].id in shuffled.open_decisions
        assert shuffled.reward(made[number], values[number]) is first_time
    assert shuffled.open_decisions == ()
    assert_allclose(shuffled.states[None].Lambda, straight.states[None].Lambda, atol=1e-12)
    assert_allclose(shuffled.states[None].theta, straight.states[None].theta, atol=1e-12)
    assert shuffled.states[None].n_updates == 6


def test_a_late_reward_is_learnt_with_the_context_of_its_own_decision():
    bandit = vfb.Bandit(vfb.LinUCB(), dim=2)
    buffer = np.array([[1.0, 0.0]])
    first = bandit.decide(buffer)
    buffer[:] = [[0.0, 1.0]]
    bandit.reward(bandit.decide(buffer), 0.0)
    bandit.reward(first, 2.0)
    assert_allclose(bandit.states[None].theta, [1.0, 0.0])


def test_a_reward_may_name_its_decision_by_id():
    bandit = vfb.Bandit(vfb.LinUCB(), dim=1)
    bandit.decide([[1.0]], event_id="order-17")
    assert bandit.reward("order-17", 1.0)
    assert not bandit.reward("order-17", 1.0)


def test_a_contradicting_reward_is_refused_and_changes_nothing():
    bandit = vfb.Bandit(vfb.LinUCB(), dim=1)
    decision = bandit.decide([[1.0]])
    bandit.reward(decision, 1.0)
    before = bandit.states[None].u
    with pytest.raises(RewardError, match=r"already has the reward 1.0, got 0.0; nothing"):
        bandit.reward(decision, 0.0)
    assert (bandit.states[None].u == before).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e200, None, "1", [1.0], 1j])
def test_a_reward_that_is_no_finite_number_is_refused_and_the_decision_stays_open(value):
    bandit = vfb.Bandit(vfb.LinUCB(), dim=1)
    decision = bandit.decide([[1.0]])
    with pytest.raises(RewardError, match="finite number"):
        bandit.reward(decision, value)
    assert bandit.open_decisions == (decision.id,)
    assert bandit.states[None].n_updates == 0


@pytest.mark.parametrize("value", [1, True, np.float32(1.0), np.int64(1)])
def test_any_real_number_is_a_reward(value):
    bandit = vfb.Bandit(vfb.LinUCB(), dim=1)
    assert bandit.reward(bandit.decide([[1.0]]), value)
    assert bandit.states[None].u[0] == 1.0


def test_an_unknown_decision_is_refused():
    bandit = vfb.Bandit(vfb.LinUCB(), dim=1)
    with pytest.raises(UnknownDecisionError, match="open decision, got id 'never'"):
        bandit.reward("never", 1.0)


def test_a_decision_can_be_forgotten():
    bandit = vfb.Bandit(vfb.LinUCB(), dim=1)
    decision = bandit.decide([[1.0]])
    bandit.forget(decision)
    with pytest.raises(UnknownDecisionError):
        bandit.reward(decision, 1.0)
    with pytest.raises(UnknownDecisionError, match="to forget"):
        bandit.forget(decision)


def test_memory_is_bounded_and_the_oldest_go_first():
    bandit = vfb.Bandit(vfb.LinUCB(), dim=1, max_open=3, max_settled=2)
    made = [bandit.decide([[1.0]]) for _ in range(5)]
    assert bandit.open_decisions == (2, 3, 4)
    with pytest.raises(UnknownDecisionError, match="older than the 3 open and 2 settled"):
        bandit.reward(made[0], 1.0)
    for decision in made[2:]:
        bandit.reward(decision, 1.0)
    assert not bandit.reward(made[3], 1.0)
    with pytest.raises(UnknownDecisionError, match="2 settled"):
        bandit.reward(made[2], 1.0)


@pytest.mark.parametrize("event_id", ["", 7, b"x"])
def test_event_ids_are_text(event_id):
    bandit = vfb.Bandit(vfb.LinUCB(), dim=1)
    with pytest.raises(SettingError, match="must be text"):
        bandit.decide([[1.0]], event_id=event_id)


def test_a_event_id_is_used_once_whether_open_or_settled():
    bandit = vfb.Bandit(vfb.LinUCB(), dim=1)
    bandit.decide([[1.0]], event_id="x")
    with pytest.raises(SettingError, match="must be new"):
        bandit.decide([[1.0]], event_id="x")
    bandit.reward("x", 0.0)
    with pytest.raises(SettingError, match="must be new"):
        bandit.decide([[1.0]], event_id="x")
    assert bandit.open_decisions == ()


def test_a_decision_that_fails_leaves_nothing_open():
    bandit = vfb.Bandit(vfb.LinTS(), dim=1, seed=1)
    twin = vfb.Bandit(vfb.LinTS(), dim=1, seed=1)
    with pytest.raises(vfb.VFBanditsError):
        bandit.decide([[np.nan]])
    assert bandit.open_decisions == ()
    assert (
        bandit.decide([[1.0], [2.0]]).scores.tolist() == twin.decide([[1.0], [2.0]]).scores.tolist()
    )


def test_what_waits_for_its_reward_shows_no_context():
    assert repr(Observation(np.array([0.25]), "tea")) == "Observation(model='tea')"
