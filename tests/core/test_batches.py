"""decide_many and reward_many against one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from worlds import MORE, policies

import vfbandits as vfb
from vfbandits.errors import ArmError, ContextError, RewardError, UnknownDecisionError

OPTIONS = {
    "per_arm": {},
    "outer": {"layout": "outer", "arm_dim": 2, "intercept": True},
    "disjoint": {"layout": "disjoint"},
}


def batch(layout, rng, n_users=4):
    users = rng.standard_normal((n_users, 5, 3) if layout == "per_arm" else (n_users, 3))
    given = {"arms": list("abcde")}
    if layout == "outer":
        given["arm_features"] = rng.standard_normal((5, 2))
    return users, given


@given(policy=policies, layout=st.sampled_from(list(OPTIONS)), seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=60 * MORE)
def test_a_batch_of_decisions_and_rewards_equals_one_by_one(policy, layout, seed):
    one, many = (vfb.Bandit(policy, dim=3, seed=seed, **OPTIONS[layout]) for _ in range(2))
    rng = np.random.default_rng(seed)
    # In parameter space a batch of rewards leaves another root of the same inverse: from then on
    # draws are equal in distribution only.
    turns = isinstance(policy, vfb.LinTS) and policy.space != "arm" and layout == "per_arm"
    # Five arms in three dimensions have a covariance without a full rank: rounding in it counts
    # with its root in a draw.
    tolerance = 1e-3 if isinstance(policy, vfb.LinTS) else 1e-8
    for number in range(3):
        users, given = batch(layout, rng)
        singles = [one.decide(user, **given) for user in users]
        together = many.decide_many(users, **given)
        if number == 0 or not turns:
            assert [d.arm for d in together] == [d.arm for d in singles]
            for left, right in zip(together, singles, strict=True):
                assert_allclose(left.scores, right.scores, atol=tolerance)
        values = rng.standard_normal(len(users))
        for decision, value in zip(singles, values, strict=True):
            one.reward(decision.id, value)
        assert many.reward_many(together, values) == len(users)
    if not turns:
        assert one.estimate_norm() == pytest.approx(many.estimate_norm(), rel=1e-7)


def test_a_federation_decides_in_batches_as_one_by_one():
    rng = np.random.default_rng(2)
    widths = {"a": 2, "b": 1, "c": 2}
    make = {"widths": widths, "mask": "dense", "aggregation": "secure", "seed": 1}
    one, many = vfb.Federation(vfb.LinUCB(), **make), vfb.Federation(vfb.LinUCB(), **make)
    for _ in range(5):
        blocks = {name: rng.standard_normal((3, 4, width)) for name, width in widths.items()}
        singles = [one.decide({n: b[i] for n, b in blocks.items()}) for i in range(3)]
        together = many.decide_many(blocks)
        assert [d.arm for d in together] == [d.arm for d in singles]
        values = [1.0, 0.0, 2.0]
        assert one.reward_many(singles, values) == many.reward_many(together, values) == 3


def test_repeated_rewards_in_a_batch_count_once():
    bandit = vfb.Bandit(vfb.LinUCB(), dim=1)
    first, second = bandit.decide([[1.0]]), bandit.decide([[1.0]])
    bandit.reward(first, 1.0)
    assert bandit.reward_many([first, second, second], [1.0, 2.0, 2.0]) == 1
    assert bandit.states[None].u[0] == 3.0


@pytest.mark.parametrize(
    ("ids", "values", "error"),
    [
        ([0, "unknown"], [1.0, 1.0], UnknownDecisionError),
        ([0, 1], [1.0, np.nan], RewardError),
        ([0, 0], [1.0, 2.0], RewardError),
        ([0, 1], [1.0], RewardError),
    ],
)
def test_one_bad_reward_in_a_batch_and_none_is_learnt(ids, values, error):
    bandit = vfb.Bandit(vfb.LinUCB(), dim=1)
    bandit.decide_many([[[1.0]], [[2.0]]])
    with pytest.raises(error):
        bandit.reward_many(ids, values)
    assert bandit.states[None].n_updates == 0
    assert bandit.open_decisions == (0, 1)


def test_one_bad_context_in_a_batch_and_nothing_is_decided():
    bandit = vfb.Bandit(vfb.LinUCB(), dim=1)
    with pytest.raises(ContextError, match="finite"):
        bandit.decide_many([[[1.0]], [[np.nan]]])
    assert bandit.open_decisions == ()


def test_an_empty_batch_is_fine():
    bandit = vfb.Bandit(vfb.LinUCB(), dim=2)
    assert bandit.decide_many(np.empty((0, 3, 2))) == []
    assert bandit.reward_many([], []) == 0


def test_arms_of_a_batch_that_have_contexts_of_their_own_take_no_features():
    bandit = vfb.Bandit(vfb.LinUCB(), dim=1)
    with pytest.raises(ArmError, match="arm_features as well"):
        bandit.decide_many([[[1.0]]], arm_features=[[1.0]])
