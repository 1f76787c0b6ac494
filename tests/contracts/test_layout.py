"""What every layout's learner must do."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import vfbandits as vfb
from vfbandits.core.layout import LAYOUTS, LayoutSettings, build_learner
from vfbandits.core.settings import LearnerSettings
from vfbandits.core.snapshot import Record, Snapshot

ARMS = ["a", "b", "c", "d"]


def learner(layout):
    settings = LayoutSettings(3, layout, 2 if layout == "outer" else None)
    return build_learner(settings, LearnerSettings(ridge=0.5))


def given(layout, rng, n_arms=4):
    contexts = rng.standard_normal((n_arms, 3) if layout == "per_arm" else 3)
    features = rng.standard_normal((n_arms, 2)) if layout == "outer" else None
    return contexts, {"arms": ARMS[:n_arms], "arm_features": features}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_statistics_have_one_number_per_arm_and_start_at_the_prior(layout):
    contexts, more = given(layout, np.random.default_rng(0))
    opened = learner(layout).open_round(contexts, **more)
    assert opened.arms == tuple(ARMS)
    assert opened.statistics.n_arms == 4
    assert_allclose(opened.statistics.means, 0.0)
    assert opened.statistics.widths.shape == (4,)
    x = opened.observation(1).x
    assert_allclose(opened.statistics.widths[1], np.linalg.norm(x) / np.sqrt(0.5))
    assert opened.statistics.magnitude == 0.0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_reward_moves_the_estimate_of_its_arm_towards_it(layout):
    rng = np.random.default_rng(1)
    taught = learner(layout)
    contexts, more = given(layout, rng)
    opened = taught.open_round(contexts, **more)
    taught.learn(opened.observation(2), 5.0)
    again = taught.open_round(contexts, **more)
    assert 0.0 < again.statistics.means[2] < 5.0
    assert again.statistics.widths[2] < opened.statistics.widths[2] + 1e-12
    assert again.statistics.n_updates == 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_samplers_have_the_covariance_of_the_widths(layout):
    rng = np.random.default_rng(2)
    taught = learner(layout)
    contexts, more = given(layout, rng)
    taught.learn(taught.open_round(contexts, **more).observation(0), 1.0)
    statistics = taught.open_round(contexts, **more).statistics
    draws = statistics.sampler("auto").draw_many(np.random.default_rng(3), 40_000)
    assert draws.shape == (40_000, 4)
    assert_allclose(draws.std(axis=0), statistics.widths, rtol=0.03)
    single = statistics.sampler("auto").draw(np.random.default_rng(3))
    assert single.shape == (4,)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_arms_may_come_and_go(layout):
    rng = np.random.default_rng(4)
    bandit = vfb.Bandit(
        vfb.LinUCB(), dim=3, layout=layout, arm_dim=2 if layout == "outer" else None
    )
    for n_arms in (4, 1, 3, 2, 4):
        contexts, more = given(layout, rng, n_arms)
        decision = bandit.decide(contexts, **more)
        assert decision.arm in ARMS[:n_arms]
        bandit.reward(decision, 1.0)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_pack_and_unpack_are_inverse(layout):
    rng = np.random.default_rng(5)
    taught, empty = learner(layout), learner(layout)
    for _ in range(3):
        contexts, more = given(layout, rng)
        taught.learn(taught.open_round(contexts, **more).observation(1), 1.0)
    header, arrays = taught.pack()
    empty.unpack(Record(header), Snapshot({}, arrays).arrays)
    contexts, more = given(layout, rng)
    left, right = (one.open_round(contexts, **more).statistics for one in (taught, empty))
    assert left.means.tobytes() == right.means.tobytes()
    assert left.widths.tobytes() == right.widths.tobytes()


def test_arms_that_share_nothing_learn_nothing_from_each_other():
    rng = np.random.default_rng(6)
    taught = learner("disjoint")
    user = rng.standard_normal(3)
    taught.learn(taught.open_round(user, arms=["a", "b"], arm_features=None).observation(0), 9.0)
    means = taught.open_round(user, arms=["b", "a"], arm_features=None).statistics.means
    assert means[0] == 0.0
    assert means[1] > 0.0
