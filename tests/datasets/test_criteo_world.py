"""The simulator has the data's aggregates, and its optimum is the optimum."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import spearmanr

import vfbandits as vfb
from vfbandits.datasets.copula import Copula, Marginal
from vfbandits.datasets.criteo.marginals import load_marginals
from vfbandits.datasets.criteo.world import CriteoWorld, sample_users
from vfbandits.errors import DatasetError


@pytest.fixture(scope="module")
def users():
    return sample_users(60_000, np.random.default_rng(0))


@pytest.fixture(scope="module")
def world():
    return CriteoWorld(np.random.default_rng(0))


def test_gaps_are_as_frequent_as_in_the_data(users):
    wanted = [column.missing for column in load_marginals().numbers.values()]
    assert_allclose(np.isnan(users.numbers).mean(axis=0), wanted, atol=0.01)


def test_gaps_come_together_as_in_the_data(users):
    marginals = load_marginals()
    places = np.isnan(users.numbers) @ (1 << np.arange(13))
    shares = np.array([(places == p @ (1 << np.arange(13))).mean() for p in marginals.patterns])
    assert_allclose(shares, marginals.pattern_shares, atol=0.01)
    assert_allclose(shares.sum(), 1.0)


def test_quantiles_are_those_of_the_data(users):
    for column, facts in zip(users.numbers.T, load_marginals().numbers.values(), strict=True):
        present = column[~np.isnan(column)]
        for level, value in zip(facts.levels, np.round(facts.quantiles), strict=True):
            # With ties a quantile is an interval of levels.
            assert (present < value).mean() - 0.01 <= level <= (present <= value).mean() + 0.01
        assert present.min() >= facts.quantiles[0]
        assert present.max() <= facts.quantiles[-1]


def test_rank_correlations_are_those_of_the_data(users):
    facts = load_marginals().spearman
    numbers = users.numbers
    for i in range(13):
        for j in range(i):
            both = ~np.isnan(numbers[:, i]) & ~np.isnan(numbers[:, j])
            found = spearmanr(numbers[both, i], numbers[both, j]).statistic
            assert found == pytest.approx(facts[i, j], abs=0.04)


def test_the_fit_to_clicks_has_the_mean_and_spread_it_had_in_the_data(users):
    assert users.effects.mean() == pytest.approx(load_marginals().click_rate, abs=0.01)
    assert users.effects.std() == pytest.approx(0.1425, abs=0.01)


@pytest.mark.parametrize("interaction", [0.0, 0.7, 1.5])
def test_each_arm_has_its_click_rate_whatever_the_interaction(users, interaction):
    world = CriteoWorld(np.random.default_rng(1), interaction=interaction)
    rates = world.probabilities(users).mean(axis=0)
    assert_allclose(rates, load_marginals().arm_click_rates, atol=0.01)


def test_clicks_come_at_the_rate_of_the_data(world):
    log = world.log(40_000, np.random.default_rng(2))
    assert log.clicks.mean() == pytest.approx(load_marginals().click_rate, abs=0.01)


def test_the_log_is_uniform_over_the_arms(world):
    log = world.log(40_000, np.random.default_rng(2))
    counts = np.bincount(log.arms, minlength=world.n_arms)
    assert ((counts - 1_000.0) ** 2 / 1_000.0).sum() < 73.0  # χ² with 39 degrees: p = 0.001


def test_rewards_are_drawn_with_the_probabilities_given(world):
    played = list(world.rounds(3_000, np.random.default_rng(3)))
    rewards = np.array([given.rewards for given in played])
    expected = np.array([given.expected for given in played])
    assert set(np.unique(rewards)) == {0.0, 1.0}
    for low in (0.0, 0.2, 0.4, 0.6):
        near = (expected >= low) & (expected < low + 0.2)
        assert rewards[near].mean() == pytest.approx(expected[near].mean(), abs=0.01)


def test_without_interaction_one_arm_is_best_for_every_user(users):
    world = CriteoWorld(np.random.default_rng(1), interaction=0.0)
    assert len(np.unique(world.probabilities(users).argmax(axis=1))) == 1
    rates = world.click_rates(1_000, np.random.default_rng(0))
    assert rates.optimum == pytest.approx(rates.best_arm)


def test_with_interaction_no_single_arm_is_optimal(world):
    rates = world.click_rates(5_000, np.random.default_rng(0))
    assert rates.random < rates.best_arm < 0.8 * rates.optimum


def test_a_seed_makes_the_same_world_and_the_same_rounds(world):
    twin = CriteoWorld(np.random.default_rng(0))
    for one, other in zip(
        world.rounds(1_500, np.random.default_rng(5)),
        twin.rounds(1_500, np.random.default_rng(5)),
        strict=True,
    ):
        assert_array_equal(one.expected, other.expected)
        assert_array_equal(one.rewards, other.rewards)


def test_blocks_are_the_participants_parts_of_the_user(world):
    given = next(world.rounds(1, np.random.default_rng(6)))
    assert_array_equal(np.concatenate(list(given.blocks.values())), given.contexts)
    assert {name: len(block) for name, block in given.blocks.items()} == dict(world.split.items())


def test_a_bandit_gains_by_more_participants(world):
    gains = []
    for columns in (slice(0, 3), slice(0, 13)):
        bandit = vfb.Bandit(
            vfb.LinUCB(beta=0.3),
            dim=columns.stop,
            layout="outer",
            arm_dim=3,
            intercept=True,
            seed=0,
        )
        total = random = 0.0
        for given in world.rounds(4_000, np.random.default_rng(7)):
            decision = bandit.decide(given.contexts[columns], arm_features=given.arm_features)
            bandit.reward(decision, given.rewards[decision.index])
            total += given.expected[decision.index]
            random += given.expected.mean()
        gains.append(total / random)
    assert 1.1 < gains[0] < gains[1] - 0.1


def test_worlds_that_cannot_be_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(DatasetError, match="interaction must be at least 0, got -1"):
        CriteoWorld(rng, interaction=-1.0)
    with pytest.raises(DatasetError, match="widths must add up to 13, got 3"):
        CriteoWorld(rng, widths={"a": 1, "b": 2})


def test_ties_do_not_weaken_the_rank_correlation():
    mostly_zero = Marginal(np.array([0.0, 0.9, 1.0]), np.array([0.0, 4.0, 9.0]), zeros=0.6)
    spearman = np.array([[1.0, 0.5], [0.5, 1.0]])
    rows = Copula((mostly_zero, mostly_zero), spearman).sample(50_000, np.random.default_rng(0))
    assert (rows == 0).mean() == pytest.approx(0.6, abs=0.01)
    assert spearmanr(rows[:, 0], rows[:, 1]).statistic == pytest.approx(0.5, abs=0.015)
