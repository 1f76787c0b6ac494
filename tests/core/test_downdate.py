"""A reward that is taken back leaves the state that never learnt it, up to rounding."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import vfbandits as vfb
from vfbandits.core.move import Rotation
from vfbandits.core.reward import Observation
from vfbandits.core.settings import LearnerSettings
from vfbandits.core.state import State
from vfbandits.errors import ArmError, ContextError, SettingError

seeds = st.integers(0, 2**32 - 1)


def taught(X, rewards, *, ridge, root):
    state = State(X.shape[1], LearnerSettings(ridge=ridge))
    if root:
        state.root()
    for x, reward in zip(X, rewards, strict=True):
        state.update(x, reward)
    return state


def assert_same(state, wanted, *, scale=1.0):
    probe = np.random.default_rng(0).standard_normal((3, state.dim))
    assert_allclose(state.Lambda, wanted.Lambda, rtol=1e-9, atol=1e-9 * scale)
    assert_allclose(state.u, wanted.u, rtol=1e-9, atol=1e-9 * scale)
    assert_allclose(state.theta, wanted.theta, rtol=1e-6, atol=1e-7 * scale)
    assert_allclose(
        state.form.covariance(probe), wanted.form.covariance(probe), rtol=1e-6, atol=1e-7
    )
    assert state.log_det_ratio == pytest.approx(wanted.log_det_ratio, abs=1e-7)
    assert (state.n_updates, state.form.name) == (wanted.n_updates, wanted.form.name)


@given(
    dim=st.integers(1, 8),
    n=st.integers(1, 30),
    ridge=st.sampled_from([0.05, 1.0, 20.0]),
    seed=seeds,
    root=st.booleans(),
)
@settings(deadline=None)
def test_a_state_is_as_if_it_had_never_learnt_the_reward(dim, n, ridge, seed, root):
    rng = np.random.default_rng(seed)
    X, rewards = rng.standard_normal((n, dim)), rng.standard_normal(n)
    out = int(rng.integers(n))
    state = taught(X, rewards, ridge=ridge, root=root)
    state.downdate(X[out], rewards[out])
    wanted = taught(np.delete(X, out, 0), np.delete(rewards, out), ridge=ridge, root=root)
    assert_same(state, wanted)
    assert state.largest_reward >= wanted.largest_reward
    assert state.residual() < 1e-8
    x, reward = rng.standard_normal(dim), float(rng.standard_normal())
    for one in (state, wanted):  # and it goes on like it
        one.update(x, reward)
    assert_same(state, wanted)


@given(n=st.integers(1, 12), seed=seeds, root=st.booleans())
@settings(deadline=None)
def test_all_rewards_taken_back_in_any_order_leave_the_prior(n, seed, root):
    rng = np.random.default_rng(seed)
    X, rewards = rng.standard_normal((n, 4)), rng.standard_normal(n)
    state = taught(X, rewards, ridge=0.5, root=root)
    for position in rng.permutation(n):
        state.downdate(X[position], rewards[position])
    fresh = taught(X[:0], rewards[:0], ridge=0.5, root=root)
    assert_same(state, fresh)
    assert not state.theta.any()  # exact: the last one leaves nothing
    assert state.magnitude == 0.0


@given(seed=seeds, root=st.booleans())
@settings(deadline=None)
def test_a_context_that_was_not_learnt_is_refused_and_changes_nothing(seed, root):
    rng = np.random.default_rng(seed)
    X, rewards = rng.standard_normal((6, 4)), rng.standard_normal(6)
    state = taught(X, rewards, ridge=1.0, root=root)
    before = state.pack()
    arrays = {name: array.copy() for name, array in before[1].items()}
    with pytest.raises(SettingError, match="must have been learnt for this context"):
        state.downdate(100.0 * rng.standard_normal(4), 1.0)
    with pytest.raises(SettingError, match="must have been learnt for this context"):
        # Still positive definite, but below the prior: it was never learnt either.
        state.downdate(np.linalg.eigh(state.Lambda)[1][:, 0] * 1.5 * state.Lambda.max() ** 0.5, 0.0)
    assert state.pack()[0] == before[0]
    for name, array in state.pack()[1].items():
        np.testing.assert_array_equal(array, arrays[name])


def test_below_the_prior_is_refused_though_positive_definite():
    state = taught(np.eye(2), np.ones(2), ridge=1.0, root=False)
    with pytest.raises(SettingError, match="less than its prior"):
        state.downdate(np.array([1.2, 0.0]), 1.0)  # 2 − 1.44: positive, but below the ridge


def test_an_untaught_state_has_nothing_to_take_back():
    state = State(2, LearnerSettings())
    with pytest.raises(SettingError, match="got an untaught state"):
        state.downdate(np.ones(2), 1.0)


def test_forgetting_and_taking_back_do_not_go_together():
    bandit = vfb.Bandit(vfb.LinUCB(), dim=1, discount=0.99)
    decision = bandit.decide([[1.0]])
    observation = bandit.observation(decision)
    bandit.reward(decision, 1.0)
    with pytest.raises(SettingError, match=r"without forgetting, got discount 0\.99"):
        bandit.retract(observation, 1.0)
    assert bandit.estimate_norm() > 0.0


LAYOUTS = [
    {},
    {"layout": "outer", "arm_dim": 2},
    {"layout": "outer", "arm_dim": 2, "intercept": True},
    {"layout": "disjoint"},
    {"layout": "disjoint", "intercept": True},
]
POLICIES = [vfb.LinUCB(beta=0.5), vfb.LinTS(space="parameter"), vfb.LinTS(space="arm")]


def world(rng, layout, n):
    arms = list(range(5))
    for _ in range(n):
        shape = (5, 3) if layout is None else (3,)
        features = rng.standard_normal((5, 2)) if layout == "outer" else None
        yield rng.standard_normal(shape), {"arms": arms, "arm_features": features}


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@pytest.mark.parametrize("options", LAYOUTS, ids=str)
@given(seed=seeds)
@settings(deadline=None, max_examples=15)
def test_masked_and_plain_bandits_take_a_reward_back_alike_in_every_layout(policy, options, seed):
    rng = np.random.default_rng(seed)
    masked = vfb.Federation(policy, widths={"shop": 1, "bank": 2}, seed=7, **options)
    plain, never = masked.twin(), masked.twin()
    steps = list(world(rng, options.get("layout"), 12))
    out = int(rng.integers(len(steps)))
    kept = {}
    for position, (contexts, more) in enumerate(steps):
        blocks = {"shop": contexts[..., :1], "bank": contexts[..., 1:]}
        decision = masked.decide(blocks, **more)
        same = plain.decide(contexts, shown=decision.index, **more)
        never.decide(contexts, shown=decision.index, **more)
        if position == out:
            kept = {b: b.observation(position) for b in (masked.bandit, plain)}
        reward = float(rng.standard_normal())
        masked.reward(decision, reward)
        plain.reward(same, reward)
        if position == out:
            taken = reward
        else:
            never.reward(position, reward)
    for bandit, observation in kept.items():
        bandit.retract(observation, taken)
        assert bandit.reward(out, taken) is False  # it stays settled
    assert masked.bandit.estimate_norm() == pytest.approx(plain.estimate_norm(), abs=1e-8)
    assert plain.states.keys() == never.states.keys() == masked.bandit.states.keys()
    for arm, state in never.states.items():
        assert_same(plain.states[arm], state)
        assert masked.bandit.states[arm].log_det_ratio == pytest.approx(state.log_det_ratio)


def test_an_observation_from_before_a_change_of_masks_is_carried_over():
    options = {"layout": "outer", "arm_dim": 1, "intercept": True}
    bandit = vfb.Bandit(vfb.LinUCB(), dim=2, **options)
    decision = bandit.decide([1.0, 2.0], arm_features=[[1.0], [3.0]])
    observation = bandit.observation(decision)
    bandit.reward(decision, 1.0)
    other = bandit.decide([3.0, 1.0], arm_features=[[2.0]])
    bandit.reward(other, 0.5)
    turn = Rotation(np.array([[0.0, -1.0], [1.0, 0.0]]))
    bandit.move(turn)
    with pytest.raises(SettingError, match="must have been learnt"):
        bandit.retract(observation, 1.0)
    bandit.retract(bandit.carry(observation, turn), 1.0)
    assert bandit.states[None].n_updates == 1


def test_a_context_of_another_shape_or_arm_is_refused():
    bandit = vfb.Bandit(vfb.LinUCB(), dim=2, layout="disjoint")
    with pytest.raises(ContextError, match="must have shape"):
        bandit.retract(Observation(np.ones(3), "tea"), 1.0)
    with pytest.raises(ArmError, match="an arm's own model"):
        bandit.retract(Observation(np.ones(2)), 1.0)
    with pytest.raises(SettingError, match="must have been learnt, got arm 'tea'"):
        bandit.retract(Observation(np.ones(2), "tea"), 1.0)
