"""Layout disjoint with many arms: what a decision, a snapshot and a restart cost, and the limit."""

import json
from collections import UserDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import vfbandits as vfb
from vfbandits.core.layout.disjoint import DisjointLearner
from vfbandits.core.move import Rotation
from vfbandits.core.reward import Observation
from vfbandits.core.settings import LearnerSettings
from vfbandits.core.snapshot import Record, Snapshot
from vfbandits.core.state import State
from vfbandits.errors import SettingError, SnapshotError


def taught(n_arms, *, per_arm=1, **options):
    rng = np.random.default_rng(0)
    bandit = vfb.Bandit(vfb.LinUCB(), dim=3, layout="disjoint", seed=1, **options)
    for _ in range(per_arm):
        for arm in range(n_arms):
            bandit.reward(bandit.decide(rng.standard_normal(3), arms=[arm]), float(arm % 3))
    return bandit


def learner_of(n_arms):
    learner = DisjointLearner(2, LearnerSettings(), intercept=False, max_arms=10**6)
    for arm in range(n_arms):
        learner.learn(Observation(np.ones(2), arm), 1.0)
    return learner


class Counting(UserDict):
    """A mapping that counts how often one of its entries is looked at."""

    looks = 0

    def __getitem__(self, key):
        self.looks += 1
        return super().__getitem__(key)

    def __contains__(self, key):
        self.looks += 1
        return super().__contains__(key)

    def __iter__(self):
        for key in super().__iter__():
            self.looks += 1
            yield key


def restored(record, arrays):
    again = DisjointLearner(2, LearnerSettings(), intercept=False, max_arms=10**6)
    again.unpack(record, arrays)
    return again


def packed(learner):
    header, rows = learner.pack()
    return header, Snapshot({}, rows).arrays


def test_a_restore_looks_at_each_array_a_fixed_number_of_times_for_each_arm():
    looks = {}
    for n_arms in (20, 200):
        header, arrays = packed(learner_of(n_arms))
        counting = Counting(arrays)
        assert restored(Record(header), counting).n_arms == n_arms
        looks[n_arms] = counting.looks
    assert looks[200] <= 10 * looks[20]  # linear


@given(n_arms=st.integers(0, 6), seed=st.integers(0, 2**32 - 1), root=st.booleans())
@settings(deadline=None)
def test_a_snapshot_is_restored_bit_for_bit(n_arms, seed, root):
    rng = np.random.default_rng(seed)
    learner = DisjointLearner(2, LearnerSettings(discount=0.9), intercept=True, max_arms=100)
    for _ in range(12 if n_arms else 0):
        arm = int(rng.integers(n_arms))
        learner.learn(Observation(rng.standard_normal(3), arm), float(rng.standard_normal()))
        if root:
            learner.state_of(arm).root()
    header, arrays = packed(learner)
    again = DisjointLearner(2, LearnerSettings(discount=0.9), intercept=True, max_arms=100)
    again.unpack(Record(json.loads(json.dumps(header))), arrays)
    assert list(again.states()) == list(learner.states())
    for arm, state in learner.states().items():
        assert again.state_of(arm).pack()[0] == state.pack()[0]
        for name, array in state.pack()[1].items():
            assert_array_equal(again.state_of(arm).pack()[1][name], array)


@pytest.mark.parametrize(
    "how", ["root", "update", "update_many", "downdate", "refactor", "move", "refill"]
)
@pytest.mark.parametrize("root", [False, True])
def test_what_a_snapshot_holds_does_not_change_with_later_rewards(how, root):
    bandit = taught(3, per_arm=2)
    if root:
        for state in bandit.states.values():
            state.root()
    snapshot = bandit.snapshot()
    before = {name: array.copy() for name, array in snapshot.arrays.items()}
    x = np.array([1.0, 2.0, 3.0])
    for state in bandit.states.values():
        match how:
            case "update":
                state.update(x, 5.0)
            case "update_many":
                state.update_many(np.array([x, x]), np.array([1.0, 2.0]))
            case "downdate":
                state.update(x, 5.0)
                state.downdate(x, 5.0)
            case "move":
                bandit.move(Rotation(np.eye(3)[::-1]))
            case _:
                getattr(state, how)()
    for name, array in snapshot.arrays.items():
        assert_array_equal(array, before[name])
    again = vfb.Bandit.restore(bandit.snapshot())  # and the next one holds what was learnt since
    for arm, state in bandit.states.items():
        assert again.state_of(arm).pack()[0] == state.pack()[0]
        for name, array in state.pack()[1].items():
            assert_array_equal(again.state_of(arm).pack()[1][name], array)


def test_a_snapshot_copies_nothing_and_an_update_only_what_it_changes():
    bandit = taught(4)
    held = bandit.snapshot().held["learner/A"]
    states = list(bandit.states.values())
    assert all(np.shares_memory(row, state.A) for row, state in zip(held, states, strict=True))
    bandit.reward(bandit.decide(np.ones(3), arms=[2]), 1.0)
    shared = [np.shares_memory(row, s.A) for row, s in zip(held, states, strict=True)]
    assert shared == [True, True, False, True]


def test_damaged_stacks_are_refused():
    header, arrays = packed(learner_of(2))
    for name, bad in (("A", arrays["A"][:1]), ("theta", arrays["theta"][:, :1]), ("b", None)):
        broken = {key: value for key, value in arrays.items() if key != name}
        broken |= {} if bad is None else {name: bad}
        with pytest.raises(SnapshotError, match=f"values of arm . in '{name}'"):
            restored(Record(header), broken)
    with pytest.raises(SnapshotError, match="an arm's header at 0"):
        restored(Record({"arms": [["tea", 1.0]]}), arrays)


# --- the limit ------------------------------------------------------------------------------------


def test_past_the_limit_the_arm_with_the_oldest_reward_goes():
    bandit = taught(3, max_arms=3)
    bandit.reward(bandit.decide(np.ones(3), arms=[0]), 1.0)  # 0 is now the latest
    bandit.reward(bandit.decide(np.ones(3), arms=["new"]), 1.0)
    assert list(bandit.states) == [2, 0, "new"]
    assert (bandit.n_arms, bandit.n_arms_dropped) == (3, 1)
    again = vfb.Bandit.restore(bandit.snapshot())
    for one in (bandit, again):  # the order is part of what is restored
        one.reward(one.decide(np.ones(3), arms=["newer"]), 1.0)
        assert list(one.states) == [0, "new", "newer"]
        assert (one.n_arms_dropped, one.options["max_arms"]) == (2, 3)


def test_an_arm_that_was_dropped_starts_from_the_prior_with_an_open_decisions_reward():
    bandit = taught(2, per_arm=5)
    decision = bandit.decide(np.array([1.0, 0.0, 0.0]), arms=[0])
    assert bandit.drop_arms([0, "never seen"]) == 1
    assert bandit.state_of(0) is None
    assert bandit.reward(decision, 1.0)
    assert bandit.state_of(0).n_updates == 1
    assert bandit.state_of(0).theta[0] == 0.5


def test_only_arms_with_models_of_their_own_can_be_dropped():
    with pytest.raises(SettingError, match="layout 'disjoint', got \\['tea'\\]"):
        vfb.Bandit(vfb.LinUCB(), dim=1).drop_arms(["tea"])
    with pytest.raises(SettingError, match="max_arms must be a whole number from 1"):
        vfb.Bandit(vfb.LinUCB(), dim=1, layout="disjoint", max_arms=0)


def test_a_decision_looks_at_the_arms_that_are_asked_and_at_no_other(monkeypatch):
    learner, looked = learner_of(50), []
    plain = State.magnitude.fget
    monkeypatch.setattr(State, "magnitude", property(lambda s: looked.append(s) or plain(s)))
    monkeypatch.setattr(State, "n_updates", property(looked.append), raising=True)
    statistics = learner.open_round(np.ones(2), arms=[0, 1, "new"], arm_features=None).statistics
    assert (statistics.n_updates, statistics.magnitude > 0.0) == (50, True)
    assert len(looked) == 3
