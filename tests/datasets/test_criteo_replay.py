"""Replay judges only rounds in which bandit and log agree, and outer addition has no user in it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import vfbandits as vfb
from vfbandits.datasets.criteo.features import Recipe, featurise
from vfbandits.datasets.criteo.file import CriteoFile
from vfbandits.datasets.criteo.player import outer_addition, part_of_features
from vfbandits.datasets.criteo.replay import (
    ReplayCell,
    ReplayRound,
    replay,
    replay_cell,
    replay_random,
    rounds,
)
from vfbandits.datasets.criteo.world import CriteoWorld
from vfbandits.datasets.logged import LoggedRounds
from vfbandits.errors import DatasetError

ARMS = np.eye(3)


@pytest.fixture(scope="module")
def world():
    return CriteoWorld(np.random.default_rng(0))


@pytest.mark.parametrize("context", ["addition", "product"])
def test_only_matched_rounds_count(context):
    """An untaught greedy bandit takes arm 0; after a click there it goes on taking it."""
    user = np.array([1.0, 0.5])
    logged = [ReplayRound(user, arm, click) for arm, click in [(1, 1), (0, 1), (2, 1), (0, 0)]]
    tally = replay(logged, ARMS, vfb.LinGreedy(epsilon=0.0), context=context, seed=0)
    assert (tally.n_rounds, tally.n_matched, tally.n_clicks) == (4, 2, 1)
    assert tally.click_rate == 0.5


def test_nothing_matched_has_no_click_rate():
    logged = [ReplayRound(np.ones(2), 1, 1.0)]
    tally = replay(logged, ARMS, vfb.LinGreedy(epsilon=0.0), context="addition", seed=0)
    assert np.isnan(tally.click_rate)


def test_replay_on_a_uniform_log_is_unbiased(world):
    """In distribution: the log's estimate of LinUCB's click rate is what it gets online."""
    log = world.log(16_000, np.random.default_rng(1))
    tally = replay(
        rounds([log]), world.arm_features, vfb.LinUCB(beta=0.3), context="product", seed=0
    )
    bandit = vfb.Bandit(
        vfb.LinUCB(beta=0.3), dim=13, layout="outer", arm_dim=3, intercept=True, seed=0
    )
    online = 0.0
    for given in world.rounds(tally.n_matched, np.random.default_rng(2)):
        decision = bandit.decide(given.contexts, arm_features=given.arm_features)
        bandit.reward(decision, given.rewards[decision.index])
        online += given.expected[decision.index] / tally.n_matched
    assert tally.click_rate == pytest.approx(online, abs=0.07)
    assert tally.click_rate > 1.2 * log.clicks.mean()


def test_the_random_policy_gets_the_click_rate_of_the_log(world):
    log = world.log(40_000, np.random.default_rng(1))
    tallies = [replay_random(rounds([log]), world.n_arms, seed=seed) for seed in range(5)]
    mean = np.mean([tally.click_rate for tally in tallies])
    assert mean == pytest.approx(log.clicks.mean(), abs=0.02)


def test_rounds_hold_the_columns_asked_for():
    batch = LoggedRounds(np.arange(6.0).reshape(2, 3), np.array([1, 0]), np.array([0.0, 1.0]))
    first, second = rounds([batch], np.array([0, 2]))
    assert_array_equal(first.user, [0.0, 2.0])
    assert_array_equal(second.user, [3.0, 5.0])
    assert (first.arm, first.click, second.arm, second.click) == (1, 0.0, 0, 1.0)


def test_parts_of_the_features_are_random_and_repeatable():
    picks = {tuple(part_of_features(10, 0.2, seed=seed)) for seed in range(20)}
    assert len(picks) > 5
    assert all(len(pick) == 2 for pick in picks)
    assert_array_equal(part_of_features(10, 0.8, seed=3), part_of_features(10, 0.8, seed=3))
    assert_array_equal(part_of_features(10, 1.0, seed=3), np.arange(10))


@pytest.mark.parametrize("ratio", [0.0, 1.1])
def test_a_ratio_that_is_no_share_is_refused(ratio):
    with pytest.raises(DatasetError, match="ratio must be above 0 and at most 1"):
        part_of_features(10, ratio, seed=0)


def test_an_unknown_context_is_refused():
    with pytest.raises(DatasetError, match="context must be 'addition' or 'product', got 'sum'"):
        replay([ReplayRound(np.ones(2), 0, 1.0)], ARMS, vfb.LinUCB(), context="sum", seed=0)


def outer_product(user, arms):
    """The entries u_i·w_j of each arm: what layout "outer" makes without ever building it."""
    return (user[:, None] * arms[:, None, :]).reshape(len(arms), -1)


def test_under_outer_addition_the_greedy_arm_is_the_same_for_every_user():
    rng = np.random.default_rng(0)
    arms, theta = rng.random((40, 3)), rng.standard_normal(30)
    best = {int((outer_addition(rng.random(10), arms) @ theta).argmax()) for _ in range(50)}
    assert len(best) == 1
    best = {int((outer_product(rng.random(10), arms) @ theta).argmax()) for _ in range(50)}
    assert len(best) > 1


def test_outer_contexts_hold_every_pair():
    rng = np.random.default_rng(1)
    user, arms = rng.random(4), rng.random((5, 3))
    added, product = outer_addition(user, arms), outer_product(user, arms)
    for a in range(5):
        assert_allclose(added[a], [u + w for u in user for w in arms[a]])
        assert_allclose(product[a], np.kron(user, arms[a]))


def test_a_cell_replays_a_folder_and_gives_the_same_tally_again(tmp_path, random_lines):
    path = tmp_path / "train.txt"
    path.write_text("\n".join(random_lines(300, seed=0)))
    featurise(CriteoFile(path), tmp_path / "out", recipe=Recipe(n_arms=5))
    for context in ("addition", "product"):
        cell = ReplayCell(tmp_path / "out", ratio=0.5, context=context, log=True)
        tally = replay_cell(cell)
        assert tally == replay_cell(cell)
        assert 0 < tally.n_matched < tally.n_rounds
    assert replay_cell(ReplayCell(tmp_path / "out", n_rounds=7)).n_rounds == 7


def test_a_simulated_log_can_be_evaluated_off_policy(world):
    log = world.log(100, np.random.default_rng(0))
    logged = log.as_uniform_log(world.n_arms, arm_features=world.arm_features)
    assert (logged.layout, len(logged.arms)) == ("outer", 40)
    assert_array_equal(logged.probabilities, 1 / 40)
    assert_array_equal(logged.chosen, log.arms)
    assert log.as_uniform_log(world.n_arms).layout == "disjoint"
