"""What every Policy must do; a new one is added to the list and to nothing else."""

import copy

import numpy as np
import pytest

import vfbandits as vfb
from vfbandits.core.estimate import SharedStatistics
from vfbandits.core.policy.registry import POLICIES, describe, make_policy, revive
from vfbandits.core.settings import LearnerSettings
from vfbandits.core.snapshot import Record
from vfbandits.core.state import State
from vfbandits.errors import SettingError

SHIPPED = [
    vfb.LinUCB(beta=0.5),
    vfb.LinUCB(beta=vfb.OFUL(noise=0.1)),
    vfb.LinTS(posterior_scale=0.5),
    vfb.LinTS(posterior_scale=0.5, space="parameter"),
    vfb.LinGreedy(epsilon=0.1),
    vfb.InverseGap(scale=3.0),
]


class Blind:
    """Statistics with nothing but the numbers that the interface names: no contexts to peek at."""

    n_arms, ridge, n_updates, magnitude, log_det_ratio = 3, 1.0, 5, 1.0, 0.7
    means = np.array([0.1, 0.3, 0.2])
    widths = np.array([1.0, 0.5, 2.0])

    def sampler(self, space):
        assert space in ("auto", "arm", "parameter")
        return vfb.core.sampler.IndependentSampler(self.widths)


@pytest.mark.parametrize("policy", SHIPPED, ids=repr)
def test_a_policy_needs_arm_statistics_and_nothing_else(policy):
    scored = policy.score(Blind(), np.random.default_rng(0))
    assert scored.values.shape == (3,)
    assert np.isfinite(scored.values).all()


@pytest.mark.parametrize("policy", SHIPPED, ids=repr)
def test_the_same_draws_give_the_same_scores_and_the_policy_keeps_no_memory(policy):
    before = copy.deepcopy(policy)
    first = policy.score(Blind(), np.random.default_rng(1)).values
    second = policy.score(Blind(), np.random.default_rng(1)).values
    assert first.tolist() == second.tolist()
    assert policy == before


@pytest.mark.parametrize("policy", SHIPPED, ids=repr)
def test_one_arm_is_chosen_for_certain(policy):
    decision = vfb.Bandit(policy, dim=2, seed=0).decide([[1.0, 2.0]])
    assert (decision.arm, decision.probability) == (0, 1.0)


@pytest.mark.parametrize("policy", SHIPPED, ids=repr)
def test_scoring_changes_no_context_and_no_state(policy):
    state = State(3, LearnerSettings())
    state.update(np.array([1.0, 2.0, 3.0]), 1.0)
    X = np.random.default_rng(2).standard_normal((5, 3))
    given = X.copy()
    theta, Lambda = state.theta.copy(), state.Lambda
    policy.score(SharedStatistics(state, X), np.random.default_rng(3))
    assert (given == X).all()
    assert (theta == state.theta).all()
    assert (Lambda == state.Lambda).all()


@pytest.mark.parametrize("policy", SHIPPED, ids=repr)
def test_a_policy_can_be_named_and_made_again(policy):
    assert revive(Record(describe(policy))) == policy


@pytest.mark.parametrize("name", POLICIES)
def test_unknown_parameters_are_refused(name):
    with pytest.raises(SettingError, match=f"policy '{name}' does not take"):
        make_policy(name, {"temperature": 1.0})


def test_unknown_parameters_of_a_schedule_are_refused():
    with pytest.raises(SettingError, match="does not take"):
        make_policy("linucb", {"beta": {"noise": 0.1, "sigma": 1.0}})


def test_an_unknown_policy_is_refused():
    with pytest.raises(SettingError, match="one of linucb, lints, lingreedy, inverse_gap, got 'x'"):
        make_policy("x", {})
