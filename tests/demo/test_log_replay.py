"""A replay learns from rows whose arm the server chose too, and is unbiased on a random log."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from vfbandits.client import schemas
from vfbandits.core.bandit import Bandit
from vfbandits.core.policy import LinUCB
from vfbandits.demo.log_replay import Mean, replay
from vfbandits.demo.tables import LoggedRows, Owners

ARMS = ("cake", "coffee", "tea")


class LocalServer:
    """A bandit behind the calls of the client; events are held until they are activated."""

    def __init__(self, choose=None):
        self.bandit = Bandit(LinUCB(beta=0.5), dim=2, layout="disjoint", intercept=True, seed=0)
        self.choose = choose
        self.events, self.learnt, self.shown = {}, [], []

    def rank(self, user, arms, *, features=None, activate=True):
        event_id = f"e{len(self.events)}"
        if self.choose is None:
            decision = self.bandit.decide(np.array(features), arms=arms)
            arm = decision.arm
        else:
            decision, arm = None, self.choose(arms, features)
        self.events[event_id] = decision, arm, activate
        return schemas.RankResponse(event_id, arm, [], ["shop"], False, "policy", 0, 0, 1)  # noqa: FBT003

    def activate(self, event_id):
        decision, arm, is_active = self.events[event_id]
        assert not is_active
        self.events[event_id] = decision, arm, True
        return schemas.ActivateResponse(event_id, activated=True)

    def reward(self, event_id, value):
        decision, arm, is_active = self.events[event_id]
        assert is_active, "a reward of an arm that was not shown"
        if decision is not None:
            self.bandit.reward(decision, value)
        self.learnt.append((event_id, arm, value))
        return schemas.RewardResponse(event_id, "learnt")


def log_of(n, *, seed, odds=(1, 1, 1)):
    """Clicks that depend on the first feature, of arms that were drawn with these odds."""
    rng = np.random.default_rng(seed)
    own = rng.normal(size=(n, 2))
    arms = rng.choice(3, size=n, p=np.array(odds) / sum(odds))
    chance = np.where(arms == 0, own[:, 0] > 0.0, 0.3)
    rewards = (rng.random(n) < chance).astype(float)
    users = tuple(f"u{i}" for i in range(n))
    return LoggedRows(users, tuple(ARMS[arm] for arm in arms), rewards, own)


def owners_of(log, layout="disjoint"):
    return Owners(layout, (), log)


def test_only_rows_in_which_both_chose_the_same_arm_are_activated_and_learnt():
    log, server = log_of(300, seed=0), LocalServer()
    report = replay(server, owners_of(log), rows=300)
    agreed = [row for row, (_, arm, _) in enumerate(server.events.values()) if arm == log.arms[row]]
    assert [int(event[1:]) for event, _, _ in server.learnt] == agreed
    assert [value for _, _, value in server.learnt] == log.rewards[agreed].tolist()
    held = [is_active for _, _, is_active in server.events.values()]
    assert sum(held) == len(agreed) == report.policy.count
    assert (report.rows, report.log.count) == (300, 300)


def test_the_mean_of_a_fixed_policy_is_its_value_on_a_random_log():
    """In distribution: 40 logs, of which the mean lies within four standard errors."""

    def choose(arms, features):
        return "cake" if features[0] > 0.0 else "tea"

    means = [
        replay(LocalServer(choose), owners_of(log_of(400, seed=seed)), rows=400).policy.value
        for seed in range(40)
    ]
    error = np.std(means, ddof=1) / np.sqrt(len(means))
    assert abs(np.mean(means) - (0.5 * 1.0 + 0.5 * 0.3)) < 4.0 * error


def test_a_policy_that_learns_earns_more_than_the_log():
    report = replay(LocalServer(), owners_of(log_of(2_000, seed=1)), rows=2_000)
    assert report.policy.value - report.policy.margin > report.log.value + report.log.margin
    assert not report.is_biased


def test_a_log_that_prefers_an_arm_is_called_biased():
    report = replay(LocalServer(), owners_of(log_of(300, seed=0, odds=(3, 1, 1))), rows=300)
    assert report.is_biased
    assert sum(report.shown.values()) == 300


def test_a_table_with_the_reward_of_every_arm_rewards_every_decision():
    users = tuple(f"u{n}" for n in range(20) for _ in ARMS)
    rewards = np.tile([0.0, 1.0, 0.5], 20)
    log = LoggedRows(users, ARMS * 20, rewards, np.zeros((60, 1)))
    server = LocalServer(lambda arms, features: "coffee")
    report = replay(server, owners_of(log, "per_arm"), rows=15)
    assert (report.rows, report.policy, report.log.value) == (15, Mean(1.0, 0.0, 15), 0.5)
    assert report.is_every_reward_known
    assert not report.is_biased
    assert [value for _, _, value in server.learnt] == [1.0] * 15


def test_no_row_that_agrees_has_no_mean():
    log = log_of(10, seed=0)
    report = replay(LocalServer(lambda arms, features: "none of them"), owners_of(log), rows=10)
    assert report.policy.count == 0
    assert np.isnan(report.policy.value)


@pytest.mark.parametrize("rows", [1, 7])
def test_no_more_rows_are_replayed_than_asked_for(rows):
    told = []
    report = replay(LocalServer(), owners_of(log_of(50, seed=0)), rows=rows, on_row=told.append)
    assert report.rows == rows
    assert told == [*range(1, rows + 1)]
    assert_allclose(report.log.count, rows)
