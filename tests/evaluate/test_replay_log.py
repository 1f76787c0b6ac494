"""Replay: what counts, what is learnt, and that on uniform logs it is a live run in disguise."""

import numpy as np
import pytest

import vfbandits as vfb
from vfbandits.evaluate import LoggedBandit, replay
from vfbandits.simulate.steps import counting_into

KINDS = np.eye(3)


def bandit(policy=None, seed=0):
    return vfb.Bandit(policy or vfb.LinUCB(beta=0.5), dim=3, layout="disjoint", seed=seed)


def test_rounds_count_exactly_where_the_policy_plays_the_logged_arm(uniform_world):
    """Against the obvious loop over the public API."""
    log, _ = uniform_world.sample(200, np.random.default_rng(0))
    done = replay(bandit(), log)
    other, matched = bandit(), []
    for number in range(200):
        decision = other.decide(log.contexts[number], arms=log.arms)
        if decision.arm == log.chosen[number]:
            other.reward(decision, log.rewards[number])
            matched.append(number)
    assert done.rounds.tolist() == matched
    assert done.value == pytest.approx(log.rewards[matched].mean())
    assert (len(done.seen), done.is_uniform) == (200, True)


@pytest.mark.parametrize(
    "policy", [vfb.LinUCB(beta=0.5), vfb.LinGreedy(epsilon=0.3)], ids=["linucb", "lingreedy"]
)
def test_on_a_uniform_log_replay_is_a_live_run_in_distribution(uniform_world, policy):
    """Mean reward of the first 30 rounds, learning included, 150 runs of each kind."""
    rng = np.random.default_rng(1)
    live, replayed = [], []
    for seed in range(150):
        agent = bandit(policy, seed)
        rewards = []
        for _ in range(30):
            kind = rng.integers(3)
            decision = agent.decide(KINDS[kind], arms=range(3))
            mean = uniform_world.means[kind, decision.arm]
            rewards.append(mean + uniform_world.noise * rng.standard_normal())
            agent.reward(decision, rewards[-1])
        live.append(np.mean(rewards))
        log, _ = uniform_world.sample(160, rng)
        done = replay(bandit(policy, seed), log, horizon=30)
        assert done.n_matched == 30
        replayed.append(done.value)
    error = np.hypot(np.std(live), np.std(replayed)) / np.sqrt(150)
    assert abs(np.mean(live) - np.mean(replayed)) < 3.0 * error


def test_a_log_that_is_not_uniform_is_told(world):
    log, _ = world.sample(50, np.random.default_rng(0))
    assert not replay(bandit(), log).is_uniform


def test_decisions_that_do_not_count_leave_nothing_behind(uniform_world):
    log, _ = uniform_world.sample(100, np.random.default_rng(0))
    agent = bandit()
    replay(agent, log)
    assert agent.open_decisions == ()


def test_a_log_that_never_agrees_has_no_value():
    log = LoggedBandit.of(
        np.ones((5, 3)), [1] * 5, rewards=np.ones(5), probabilities=np.ones(5), arms=["a", "b"]
    )
    done = replay(bandit(vfb.LinGreedy()), log)
    assert done.n_matched == 0
    assert np.isnan(done.value)


def test_its_rounds_are_counted(uniform_world):
    log, _ = uniform_world.sample(7, np.random.default_rng(0))
    told = []
    with counting_into(told.append):
        replay(bandit(), log)
    assert sum(told) == 7
