"""A decision is proposed and applied: ``decide`` is both, and a proposal changes nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vfbandits as vfb
from vfbandits.errors import SettingError

POLICIES = [
    vfb.LinUCB(beta=0.5),
    vfb.LinTS(posterior_scale=0.3),
    vfb.LinTS(posterior_scale=0.3, space="parameter"),
    vfb.LinGreedy(epsilon=0.3),
    vfb.InverseGap(),
]
LAYOUTS = ["per_arm", "outer", "disjoint"]
ARMS = ["w", "x", "y", "z"]


def build(policy, layout, *, floor=0.0):
    return vfb.Bandit(
        policy,
        dim=3,
        layout=layout,
        arm_dim=2 if layout == "outer" else None,
        floor=floor,
        seed=7,
    )


def round_of(rng, layout):
    shape = (4, 3) if layout == "per_arm" else 3
    features = rng.standard_normal((4, 2)) if layout == "outer" else None
    return {"contexts": rng.standard_normal(shape), "arms": ARMS, "arm_features": features}


def state_of(bandit):
    snapshot = bandit.snapshot()
    return snapshot.header, {name: array.tobytes() for name, array in snapshot.arrays.items()}


def is_sampled_so(policy, layout):
    return getattr(policy, "space", "arm") == "arm" or layout == "per_arm"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32), named=st.booleans(), floor=st.sampled_from([0.0, 0.3]))
def test_decide_is_propose_and_apply_to_the_last_bit(policy, layout, seed, named, floor):
    if not is_sampled_so(policy, layout):
        return
    rng = np.random.default_rng(seed)
    whole, halves = build(policy, layout, floor=floor), build(policy, layout, floor=floor)
    draws = np.random.default_rng(7)  # as the bandit's own
    for step in range(6):
        asked = round_of(rng, layout)
        asked["event_id"] = f"event {step}" if named else None
        asked["shown"] = int(rng.integers(4)) if rng.random() < 0.3 else None
        decision = whole.decide(**asked)
        proposal = halves.propose(**asked, draws=draws)
        halves.apply(proposal)
        assert proposal.decision.scores.tobytes() == decision.scores.tobytes()
        assert proposal.decision.index == decision.index
        np.testing.assert_array_equal(proposal.decision.probabilities, decision.probabilities)
        if rng.random() < 0.7:
            value = float(rng.standard_normal())
            assert whole.reward(decision, value)
            assert halves.reward(proposal.decision, value)
    halves.draw_from(whole.draws)
    assert state_of(halves) == state_of(whole)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_a_proposal_that_is_not_applied_changes_nothing(policy, layout):
    if not is_sampled_so(policy, layout):
        pytest.skip("parameter space is for layout per_arm")
    rng = np.random.default_rng(3)
    bandit = build(policy, layout)
    for _ in range(5):
        before = state_of(bandit)
        draws = np.random.default_rng(11)
        first = bandit.propose(**round_of(np.random.default_rng(4), layout), draws=draws)
        again = bandit.propose(
            **round_of(np.random.default_rng(4), layout), draws=np.random.default_rng(11)
        )
        assert state_of(bandit) == before
        assert first.decision.scores.tobytes() == again.decision.scores.tobytes()
        decision = bandit.decide(**round_of(rng, layout))
        bandit.reward(decision, float(rng.standard_normal()))


def test_the_same_id_gives_the_same_monte_carlo_in_every_process():
    """Whatever number the decision has: a leader and a replica write the same probability."""
    one, other = (build(vfb.LinTS(posterior_scale=0.3), "per_arm") for _ in range(2))
    other.decide(np.eye(3))
    asked = {"contexts": np.eye(3), "event_id": "a"}
    first, second = (
        bandit.propose(**asked, draws=np.random.default_rng(1)).decision for bandit in (one, other)
    )
    np.testing.assert_array_equal(first.probabilities, second.probabilities)


def test_a_proposal_that_another_has_overtaken_is_refused():
    bandit = build(vfb.LinUCB(), "per_arm")
    draws = np.random.default_rng(0)
    numbered = bandit.propose(np.eye(3), draws=draws)
    named = bandit.propose(np.eye(3), event_id="a", draws=draws)
    bandit.decide(np.eye(3), event_id="a")
    with pytest.raises(SettingError, match="the next decision is number 1, got 0"):
        bandit.apply(numbered)
    with pytest.raises(SettingError, match="must be new, got 'a'"):
        bandit.apply(named)
    assert bandit.n_decisions == 1
