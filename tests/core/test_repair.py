"""One large feature stops nothing: refused where it comes in, and survived where it came in before.

In version 0.1.0 a Unix time sent as a feature was accepted; at the 1,000th reward the refactoring
raised NumericalError, and again after each restart.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import vfbandits as vfb
from vfbandits.core.mask import sample_mask
from vfbandits.core.move import Narrowing, Remask, Rotation, Widening, moved
from vfbandits.core.reward import Observation
from vfbandits.core.settings import MAX_WEIGHT, LearnerSettings
from vfbandits.core.snapshot import Record
from vfbandits.core.state import State
from vfbandits.errors import ContextError

NOW = 1_790_000_000.0
seeds = st.integers(0, 2**32 - 1)
sizes = st.sampled_from([0.0, 1e-150, 1.0, 1e6, NOW, 1e12, 1e60, 1e150])


# --- refused where it comes in --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "contexts", "more"),
    [
        ({}, [[1.0, 2.0], [1.0, NOW]], {}),
        ({"layout": "outer", "arm_dim": 1}, [1.0, NOW], {"arm_features": [[0.5], [1.0]]}),
        ({"layout": "outer", "arm_dim": 1}, [1.0, 2.0], {"arm_features": [[0.5], [NOW]]}),
        ({"layout": "outer", "arm_dim": 1}, [0.0, 1e4], {"arm_features": [[0.5], [1e4]]}),
        (
            {"layout": "outer", "arm_dim": 1, "intercept": True},
            [0.0, 1e4],
            {"arm_features": [[0.5], [1e4]]},
        ),
        ({"layout": "outer", "arm_dim": 1}, [1e150, 2.0], {"arm_features": [[0.5], [1e150]]}),
        ({"layout": "disjoint"}, [1.0, NOW], {"arms": ["tea", "milk"]}),
        ({"layout": "disjoint", "intercept": True}, [1.0, NOW], {"arms": ["tea", "milk"]}),
    ],
)
def test_a_context_beside_which_the_ridge_is_lost_is_refused(options, contexts, more):
    bandit = vfb.Bandit(vfb.LinUCB(), dim=2, **options)
    for ask, rows in ((bandit.decide, contexts), (bandit.decide_many, [contexts, contexts])):
        with pytest.raises(ContextError, match=r"‖x‖²/ridge of at most 1e\+12, got about"):
            ask(rows, **more)
    assert bandit.n_decisions == 0


@pytest.mark.parametrize("options", [{}, {"layout": "disjoint"}])
def test_the_limit_is_on_each_row_and_goes_with_the_ridge(options):
    longest = 0.999 * np.sqrt(MAX_WEIGHT)
    many = {} if options else {"shape": (50, 1)}
    contexts = np.full(many.get("shape", (1,)), longest)  # together they are longer than one may be
    arms = {"arms": ["tea"]} if options else {}
    assert vfb.Bandit(vfb.LinUCB(), dim=1, **options).decide(contexts, **arms).index == 0
    with pytest.raises(ContextError, match="scale the features, or raise the ridge"):
        vfb.Bandit(vfb.LinUCB(), dim=1, ridge=0.9, **options).decide(contexts, **arms)


def test_a_federation_refuses_it_too():
    federation = vfb.Federation(vfb.LinUCB(), widths={"shop": 1, "bank": 1})
    with pytest.raises(ContextError, match="of at most 1e"):
        federation.decide({"shop": [[NOW]], "bank": [[1.0]]})


# --- survived where it came in before -------------------------------------------------------------


@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize("discount", [1.0, 0.995])
@pytest.mark.parametrize("compiled", [True, False])
def test_thousands_of_rewards_with_a_unix_time_break_nothing(root, discount, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setenv("VFBANDITS_COMPILED", "0")
        monkeypatch.setattr("vfbandits.core.kernels.compiled", None)
    rng = np.random.default_rng(1)
    Q = sample_mask(5, entropy=rng.bytes)
    plain, masked = (vfb.Bandit(vfb.LinUCB(), dim=5, discount=discount) for _ in range(2))
    equal = 0
    for number in range(2_100):
        x = np.append(rng.standard_normal(4), NOW + 60.0 * number)
        reward = float(x[0] - x[1])
        for bandit, context in ((plain, x), (masked, Q @ x)):
            bandit.recall(f"then {number}", Observation(context), root=root)
            assert bandit.reward(f"then {number}", reward)
        if number % 50 == 0:  # decisions of today, without the time
            X = rng.standard_normal((6, 5))
            equal += plain.decide(X).arm == masked.decide(X @ Q.T).arm
    assert equal == 42
    for bandit in (plain, masked):
        assert bandit.n_repairs >= 2_100
        assert np.isfinite(bandit.states[None].theta).all()
    assert_allclose(masked.estimate_norm(), plain.estimate_norm(), atol=1e-3)


def test_a_campaign_learns_again_once_the_feature_is_gone():
    rng = np.random.default_rng(2)
    bandit = vfb.Bandit(vfb.LinUCB(beta=0.1), dim=4)
    for number in range(1_500):
        x = np.append(rng.standard_normal(3), NOW + number)
        bandit.recall(f"then {number}", Observation(x))
        bandit.reward(f"then {number}", float(x[0]))
    for _ in range(3_000):
        X = np.column_stack([rng.standard_normal((5, 3)), np.zeros(5)])
        decision = bandit.decide(X)
        bandit.reward(decision, float(X[decision.index, 0]))
    assert_allclose(bandit.states[None].theta[:3], [1.0, 0.0, 0.0], atol=0.05)


@given(
    steps=st.lists(st.tuples(sizes, st.integers(0, 9)), min_size=1, max_size=12),
    dim=st.integers(1, 5),
    ridge=st.sampled_from([1e-6, 1.0, 1e6]),
    discount=st.sampled_from([1.0, 0.9, 0.3]),
    seed=seeds,
)
@settings(deadline=None, max_examples=200)
def test_no_stream_of_contexts_makes_a_state_raise(steps, dim, ridge, discount, seed):
    rng = np.random.default_rng(seed)
    state = State(dim, LearnerSettings(ridge=ridge, discount=discount))
    for size, deed in steps:
        x, reward = size * rng.standard_normal(dim), float(rng.standard_normal())
        match deed:
            case 0:
                state.refactor()
            case 1:
                state.refill()
            case 2:
                state.root()
            case 3:
                X = np.array([x, rng.standard_normal(dim)])
                state.update_many(np.repeat(X, dim, axis=0), np.ones(2 * dim))
            case 4:
                state = moved(state, Rotation(sample_mask(dim, entropy=rng.bytes)))
            case 5:
                R = sample_mask(dim, entropy=rng.bytes)
                state = moved(state, Remask(R, dim))
            case 6:
                state = moved(moved(state, Widening(2)), Narrowing(dim, dim + 2))
            case _:
                state.update(x, reward)
        assert np.isfinite(state.theta).all()
        assert np.isfinite(state.log_det_ratio)
        assert np.isfinite(state.form.squared_widths(np.eye(dim))).all()
    replayed = State.unpack(Record(state.pack()[0]), state.pack()[1], state.settings)
    assert replayed.n_repairs == state.n_repairs
    for one in (state, replayed):  # the same bits from a snapshot as from the run itself
        one.update(np.ones(dim), 1.0)
        one.refactor()
    for name, array in state.pack()[1].items():
        assert_array_equal(array, replayed.pack()[1][name])


@given(dim=st.integers(2, 8), seed=seeds, weight=st.floats(6.0, 40.0), root=st.booleans())
@settings(deadline=None)
def test_a_repair_is_the_same_behind_a_mask_and_no_larger_than_rounding(dim, seed, weight, root):
    rng = np.random.default_rng(seed)
    Q = sample_mask(dim, entropy=rng.bytes)
    x = rng.standard_normal(dim)
    x *= 10.0 ** (weight / 2.0) / np.linalg.norm(x)
    states = []
    for turn in (np.eye(dim), Q):
        state = State(dim, LearnerSettings())
        if root:
            state.root()
        state.A += np.outer(turn @ x, turn @ x)  # as version 0.1.0 would have learnt it
        state.b += turn @ x
        state.n_updates = 1
        state.refactor()
        states.append(state)
    plain, masked = states
    assert (plain.n_repairs > 0) == (masked.n_repairs > 0) or 13.0 < weight < 16.0
    added = plain.Lambda - np.outer(x, x) - np.eye(dim)
    assert np.abs(added).max() <= 1e-13 * dim * x @ x
    widths = np.sqrt(plain.form.squared_widths(np.eye(dim)))
    assert_allclose(np.sqrt(masked.form.squared_widths(Q.T)), widths, rtol=0.3)


def test_a_matrix_of_before_is_repaired_counted_and_kept():
    x = np.array([1.0, NOW])
    state = State(2, LearnerSettings())
    for _ in range(999):  # what version 0.1.0 had learnt before it stopped
        state.A += np.outer(x, x)
        state.b += x
    state.n_updates = 999
    state.update(np.array([1.0, 0.0]), 1.0)
    assert state.n_repairs == 1
    header, arrays = state.pack()
    assert header["n_repairs"] == 1
    assert State.unpack(Record(header), arrays, state.settings).n_repairs == 1
    assert moved(state, Rotation(np.eye(2))).n_repairs >= 1
    old = {key: value for key, value in header.items() if key != "n_repairs"}
    assert State.unpack(Record(old), arrays, state.settings).n_repairs == 0


def test_a_reward_of_a_shortened_context_can_be_taken_back():
    state = State(2, LearnerSettings())
    state.update(np.array([1.0, 0.0]), 1.0)
    state.update(np.array([NOW, 0.0]), 1.0)
    state.downdate(np.array([NOW, 0.0]), 1.0)
    assert_allclose(state.theta, [0.5, 0.0], rtol=1e-3)


def test_ordinary_contexts_need_no_repair():
    rng = np.random.default_rng(4)
    bandit = vfb.Bandit(vfb.LinUCB(), dim=8, ridge=1e-3)
    for _ in range(2_500):
        bandit.reward(bandit.decide(64.0 * rng.standard_normal((3, 8))), 1.0)
    assert bandit.n_repairs == 0
