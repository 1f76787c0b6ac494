"""Regret is what a player lost, counted as the textbook counts it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from textbook import Textbook, first_of_the_best

import vfbandits as vfb
from vfbandits.simulate.regret import (
    CentralPlayer,
    FederatedPlayer,
    cumulative_regret,
    kept_rounds,
)
from vfbandits.simulate.world import World, WorldSettings

WIDTHS = {"shop": 2, "bank": 3}
HORIZON = 80


def make(layout="per_arm"):
    settings = WorldSettings(WIDTHS, n_arms=4, layout=layout, arm_dim=2)
    return World(settings, np.random.SeedSequence(1))


def central(policy, columns, **options):
    return CentralPlayer(vfb.Bandit(policy, dim=len(columns), seed=3, **options), columns)


@pytest.mark.parametrize("columns", [np.arange(5), np.arange(2), np.array([0, 3])])
def test_regret_is_that_of_the_textbook_bandit_on_the_same_columns(columns):
    textbook, regret, curve = Textbook(len(columns)), 0.0, []
    for one in make().rounds(HORIZON):
        X = one.contexts[:, columns]
        scale = np.linalg.norm(X) * np.linalg.norm(textbook.theta)
        arm = first_of_the_best(textbook.ucb(X, 0.5), scale)
        textbook.learn(X[arm], one.rewards[arm])
        regret += max(one.expected) - one.expected[arm]
        curve.append(regret)
    ours = cumulative_regret(central(vfb.LinUCB(beta=0.5), columns), make().rounds(HORIZON))
    assert_allclose(ours, curve, rtol=1e-12)


@pytest.mark.parametrize("layout", ["per_arm", "outer", "disjoint"])
@pytest.mark.parametrize("policy", [vfb.LinUCB(beta=0.5), vfb.LinTS(posterior_scale=0.1)])
def test_a_federation_of_all_loses_exactly_what_a_central_bandit_loses(layout, policy):
    options = {"layout": layout, "arm_dim": 2 if layout == "outer" else None}
    plain = central(policy, np.arange(5), **options)
    federation = vfb.Federation(policy, widths=WIDTHS, mask="dense", seed=3, **options)
    assert_array_equal(
        cumulative_regret(FederatedPlayer(federation), make(layout).rounds(HORIZON)),
        cumulative_regret(plain, make(layout).rounds(HORIZON)),
    )


class Oracle:
    """Shows a greedy bandit, taught that ones are good, a one for the best arm."""

    def __init__(self):
        self.bandit = vfb.Bandit(vfb.LinGreedy(), dim=1)
        self.bandit.reward(self.bandit.decide([[1.0]]), 1.0)

    def decide(self, given_round):
        is_best = given_round.expected == given_round.expected.max()
        return self.bandit.decide(is_best[:, None].astype(float))

    def reward(self, decision, value):
        return True


def test_a_player_who_knows_theta_star_has_no_regret_since_noise_does_not_enter():
    assert_array_equal(cumulative_regret(Oracle(), make().rounds(HORIZON)), np.zeros(HORIZON))


def test_regret_never_falls_and_a_bandit_learns():
    regret = cumulative_regret(central(vfb.LinUCB(beta=0.5), np.arange(5)), make().rounds(1000))
    assert (np.diff(regret) >= 0.0).all()
    assert regret[-1] - regret[-201] < regret[199] / 2


@given(horizon=st.integers(1, 100_000))
def test_at_most_500_rounds_are_kept_plus_the_last(horizon):
    rounds = kept_rounds(horizon)
    assert len(rounds) <= 501
    assert rounds[-1] == horizon
    assert rounds[0] >= 1
    assert len(rounds) == horizon or len(rounds) > 250
    steps = np.diff(rounds)
    assert (steps[:-1] == rounds[0]).all()
    assert (steps[-1:] <= rounds[0]).all()
    assert (steps >= 1).all()
