"""A decision made before is entered again, and teaches what it would have taught then."""

import numpy as np
import pytest
from hypothesis import given, settings
from worlds import MORE, cases

import vfbandits as vfb
from vfbandits.core.reward import Observation
from vfbandits.errors import ArmError, ContextError, SettingError, UnknownDecisionError


def parts(bandit):
    """All that a snapshot holds, but for the policy's randomness."""
    snapshot = bandit.snapshot()
    header = {key: value for key, value in snapshot.header.items() if key != "rng"}
    return header, {name: array.tobytes() for name, array in snapshot.arrays.items()}


@given(case=cases(max_rounds=9))
@settings(deadline=None, max_examples=60 * MORE)
def test_recalled_decisions_and_their_rewards_give_the_same_state_bit_for_bit(case):
    """Exact, for every policy, layout and discount; masked contexts, since those are logged."""
    federation = case.federation()
    made, again = federation.bandit, federation.twin()
    for number, item in enumerate(case.rounds):
        decision = federation.decide(item.blocks, arms=item.arms, arm_features=item.arm_features)
        again.recall(decision.id, made.observation(decision), root=made.has_root)
        if number % 3 != 2:
            reward = float(item.rewards[decision.index])
            assert made.reward(decision, reward)
            assert again.reward(decision.id, reward)
    assert parts(again) == parts(made)


def test_the_root_that_parameter_sampling_keeps_is_made_at_the_same_moment():
    rng = np.random.default_rng(0)
    policy = vfb.LinTS(space="parameter")
    made, again, late = (vfb.Bandit(policy, dim=3, seed=1) for _ in range(3))
    assert not made.has_root
    for _ in range(20):
        decision = made.decide(rng.standard_normal((4, 3)))
        assert made.has_root
        seen = made.observation(decision)
        again.recall(decision.id, seen, root=True)
        late.recall(decision.id, seen)
        for bandit in (made, again, late):
            bandit.reward(decision.id, 1.0)
    assert parts(again) == parts(made)
    assert not late.has_root
    assert (late.states[None].Lambda == made.states[None].Lambda).all()


@pytest.mark.parametrize("layout", ["outer", "disjoint"])
def test_layouts_that_are_never_sampled_in_parameter_space_have_no_root(layout):
    options = {"layout": layout, "arm_dim": 2 if layout == "outer" else None}
    bandit = vfb.Bandit(vfb.LinTS(space="parameter"), dim=1, **options)
    features = np.ones((3, 2)) if layout == "outer" else None
    bandit.reward(bandit.decide([1.0], arms=["a", "b", "c"], arm_features=features), 1.0)
    assert not bandit.has_root


def test_a_decision_after_a_recalled_one_gets_the_next_number():
    bandit = vfb.Bandit(vfb.LinUCB(), dim=1)
    bandit.recall(0, Observation(np.ones(1)))
    bandit.recall("named", Observation(np.ones(1)))
    assert bandit.open_decisions == (0, "named")
    assert bandit.decide([[1.0]]).id == 2


@pytest.mark.parametrize("event_id", [1, -1, True, 0.0, None])
def test_a_numbered_decision_is_recalled_in_its_turn_only(event_id):
    bandit = vfb.Bandit(vfb.LinUCB(), dim=1)
    with pytest.raises(SettingError, match="the next decision is number"):
        bandit.recall(event_id, Observation(np.ones(1)))


def test_a_name_is_recalled_once():
    bandit = vfb.Bandit(vfb.LinUCB(), dim=1)
    bandit.recall("a", Observation(np.ones(1)))
    with pytest.raises(SettingError, match="must be new"):
        bandit.recall("a", Observation(np.ones(1)))
    assert bandit.decide([[1.0]]).id == 1


@pytest.mark.parametrize(
    ("options", "width", "model"),
    [
        ({}, 3, None),
        ({"layout": "outer", "arm_dim": 2}, 6, None),
        ({"layout": "outer", "arm_dim": 2, "intercept": True}, 12, None),
        ({"layout": "disjoint"}, 3, "tea"),
        ({"layout": "disjoint", "intercept": True}, 4, "tea"),
    ],
)
def test_what_no_round_of_this_bandit_left_behind_is_refused(options, width, model):
    bandit = vfb.Bandit(vfb.LinUCB(), dim=3, **options)
    other = "tea" if model is None else None
    for bad in (np.ones(width + 1), np.ones(width - 1), np.full(width, np.nan), np.ones((1, 3))):
        with pytest.raises(ContextError, match="a recalled context must"):
            bandit.recall(0, Observation(bad, model))
    with pytest.raises(ArmError, match=r"teaches .* model, got Observation\(model="):
        bandit.recall(0, Observation(np.ones(width), other))
    assert bandit.open_decisions == ()
    bandit.recall(0, Observation(np.ones(width), model))
    assert bandit.reward(0, 1.0)


def test_only_an_open_decision_has_an_observation():
    bandit = vfb.Bandit(vfb.LinUCB(), dim=2)
    decision = bandit.decide([[1.0, 2.0]])
    assert bandit.observation(decision).x.tolist() == [1.0, 2.0]
    assert bandit.observation(0).model is None
    bandit.reward(decision, 1.0)
    with pytest.raises(UnknownDecisionError, match="an observation needs an open decision, got id"):
        bandit.observation(decision)
