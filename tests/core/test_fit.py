"""Learning from history, and copies of a bandit."""

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import vfbandits as vfb
from vfbandits.errors import ContextError, RewardError, SnapshotError, VFBanditsError

LAYOUTS = ("per_arm", "outer", "disjoint")
POLICIES = (vfb.LinUCB(beta=0.5), vfb.LinTS(posterior_scale=0.2), vfb.InverseGap())
WIDTHS = {"shop": 2, "bank": 3, "news": 1}
DIM, ARM_DIM, N = sum(WIDTHS.values()), 2, 40


def history(layout, seed=0):
    rng = np.random.default_rng(seed)
    rows = {"contexts": rng.normal(size=(N, DIM)), "rewards": rng.normal(size=N)}
    if layout == "outer":
        rows["arm_features"] = rng.normal(size=(N, ARM_DIM))
    if layout == "disjoint":
        rows["arms"] = [f"arm {number}" for number in rng.integers(3, size=N)]
    return rows


def bandit(layout, policy=POLICIES[0]):
    arm_dim = ARM_DIM if layout == "outer" else None
    return vfb.Bandit(policy, dim=DIM, layout=layout, arm_dim=arm_dim, seed=3)


def question(layout, seed=9):
    rng = np.random.default_rng(seed)
    shape = (3, DIM) if layout == "per_arm" else (DIM,)
    asked = {"contexts": rng.normal(size=shape), "arms": [f"arm {number}" for number in range(3)]}
    if layout == "outer":
        asked["arm_features"] = rng.normal(size=(3, ARM_DIM))
    return asked


def cut(federation, contexts):
    return {name: contexts[..., federation.split.columns(name)] for name in WIDTHS}


def play_on(one, layout):
    """What a bandit does from here on."""
    decisions = []
    for seed in range(20):
        decision = one.decide(**question(layout, seed))
        one.reward(decision, float(seed % 3))
        decisions.append((decision.id, decision.arm, decision.scores.tolist()))
    return decisions


@pytest.mark.parametrize("layout", LAYOUTS)
def test_fitting_is_deciding_and_rewarding_each_row_with_its_arm_alone_on_offer(layout):
    rows, slow = history(layout), bandit(layout)
    for place in range(N):
        one = {key: value[place : place + 1] for key, value in rows.items() if key != "rewards"}
        if layout != "per_arm":
            one["contexts"] = one["contexts"][0]
        slow.reward(slow.decide(**one), rows["rewards"][place])
    fast = bandit(layout).fit(**rows)
    asked = question(layout)
    assert_array_equal(fast.decide(**asked).scores, slow.decide(**asked).scores)


@pytest.mark.parametrize("mask", [("blockwise", "plain"), ("dense", "plain"), ("dense", "secure")])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_federation_learns_from_history_what_its_plain_twin_does(layout, mask):
    federation = vfb.Federation(
        POLICIES[0],
        widths=WIDTHS,
        mask=mask[0],
        aggregation=mask[1],
        layout=layout,
        arm_dim=ARM_DIM if layout == "outer" else None,
    )
    twin, rows, asked = federation.twin(), history(layout), question(layout)
    blocks = cut(federation, rows.pop("contexts"))
    federation.fit(blocks, **rows)
    twin.fit(history(layout)["contexts"], **rows)
    contexts = asked.pop("contexts")
    ours = federation.decide(cut(federation, contexts), **asked)
    theirs = twin.decide(contexts, **asked)
    assert ours.arm == theirs.arm
    assert_allclose(ours.scores, theirs.scores, atol=1e-9)


@pytest.mark.parametrize(
    ("layout", "change", "says"),
    [
        ("per_arm", {"rewards": [1.0]}, "rewards must have one for each of 40 rows, got 1"),
        ("per_arm", {"contexts": np.ones((N, 2))}, "contexts"),
        ("per_arm", {"arm_features": np.ones((N, 2))}, "arm_features"),
        ("outer", {"arm_features": np.ones((3, ARM_DIM))}, "one for each of 40 rows, got 3"),
        ("outer", {"arm_features": None}, "arm_features"),
        ("disjoint", {"arms": None}, "arms"),
        ("disjoint", {"arms": ["tea"]}, "arms must have one for each of 40 rows, got 1"),
    ],
)
def test_a_history_that_does_not_fit_is_refused(layout, change, says):
    with pytest.raises(VFBanditsError, match=says):
        bandit(layout).fit(**{**history(layout), **change})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_bad_row_leaves_the_bandit_as_it_was(layout):
    rows, one = history(layout), bandit(layout)
    rows["contexts"][-1, 0] = 1e30  # finite, and too large to be learnt from
    with pytest.raises(ContextError):
        one.fit(**rows)
    rows = history(layout)
    rows["rewards"][-1] = np.nan
    with pytest.raises(RewardError):
        one.fit(**rows)
    assert one.estimate_norm() == 0.0


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_copies_and_pickles_go_on_as_the_original_would_and_share_nothing(layout, policy):
    original = bandit(layout, policy).fit(**history(layout))
    waiting = original.decide(**question(layout))
    copies = [
        original.copy(),
        copy.copy(original),
        copy.deepcopy(original),
        pickle.loads(pickle.dumps(original)),  # noqa: S301  (our own bytes)
    ]
    expected = play_on(original, layout)
    for one in copies:
        assert play_on(one, layout) == expected
        assert one.reward(waiting, 1.0)


def test_a_federation_is_not_pickled_by_accident():
    federation = vfb.Federation(POLICIES[0], widths=WIDTHS)
    for take in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(SnapshotError, match=r"holds the masks of all participants.*vfb.save"):
            take(federation)
