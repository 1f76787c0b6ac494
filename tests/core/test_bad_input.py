"""Bad input gets one clear error that says what was wanted and what came, and changes nothing."""

import numpy as np
import pytest

import vfbandits as vfb
from vfbandits.errors import ArmError, ContextError, NotBlindError, SettingError

UCB = vfb.LinUCB()
AB = {"a": 2, "b": 1}
ABC = {"a": 2, "b": 1, "c": 1}


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: vfb.Bandit(UCB, dim=0), SettingError, "dim must be a whole number from 1, got 0"),
        (lambda: vfb.Bandit(UCB, dim=2.0), SettingError, "dim must be a whole number.*2.0"),
        (lambda: vfb.Bandit(UCB, dim=True), SettingError, "dim must be a whole number.*True"),
        (lambda: vfb.Bandit(UCB, dim=2, ridge=-1.0), SettingError, "ridge must be a positive.*-1"),
        (lambda: vfb.Bandit(UCB, dim=2, ridge=0), SettingError, "ridge must be a positive.*0"),
        (lambda: vfb.Bandit(UCB, dim=2, ridge=np.nan), SettingError, "ridge must be.*nan"),
        (
            lambda: vfb.Bandit(UCB, dim=2, ridge="1"),
            SettingError,
            "ridge must be a number, got '1'",
        ),
        (
            lambda: vfb.Bandit(UCB, dim=2, discount=0.0),
            SettingError,
            r"discount must be in \(0, 1\]",
        ),
        (lambda: vfb.Bandit(UCB, dim=2, discount=1.1), SettingError, "discount.*1.1"),
        (lambda: vfb.Bandit(UCB, dim=2, floor=1.5), SettingError, "floor must be between 0 and 1"),
        (lambda: vfb.Bandit(UCB, dim=2, seed=-1), SettingError, "seed must be.*-1"),
        (lambda: vfb.Bandit(UCB, dim=2, max_open=0), SettingError, "max_open must be"),
        (
            lambda: vfb.Bandit(UCB, dim=2, layout="wide"),
            SettingError,
            "per_arm, outer, disjoint.*wide",
        ),
        (lambda: vfb.Bandit(UCB, dim=2, layout="outer"), SettingError, "arm_dim .*got None"),
        (
            lambda: vfb.Bandit(UCB, dim=2, arm_dim=2),
            SettingError,
            "arm_dim goes with layout 'outer'",
        ),
        (lambda: vfb.Bandit(UCB, dim=2, intercept=True), SettingError, "intercept goes with"),
        (lambda: vfb.Bandit(vfb.LinUCB, dim=2), SettingError, "got the class LinUCB"),
        (lambda: vfb.Bandit("linucb", dim=2), SettingError, "a policy needs a method score"),
        (lambda: vfb.LinUCB(beta=-1.0), SettingError, "beta must be .*at least 0, got -1.0"),
        (lambda: vfb.LinUCB(beta="big"), SettingError, "beta must be"),
        (lambda: vfb.LinTS(posterior_scale=np.nan), SettingError, "posterior_scale must be"),
        (lambda: vfb.LinTS(space="log"), SettingError, "space must be.*got 'log'"),
        (lambda: vfb.LinTS(n_draws=0), SettingError, "n_draws must be.*got 0"),
        (lambda: vfb.LinGreedy(epsilon=2.0), SettingError, "epsilon must be between 0 and 1"),
        (lambda: vfb.InverseGap(scale=-1), SettingError, "scale must be"),
        (lambda: vfb.OFUL(noise=-1), SettingError, "noise must be"),
        (lambda: vfb.OFUL(noise=1, delta=0), SettingError, "delta must be between"),
        (lambda: vfb.OFUL(noise=1, delta="x"), SettingError, "delta must be a number"),
        (lambda: vfb.LinTS(n_draws=0.5), SettingError, "n_draws must be.*got 0.5"),
        (lambda: vfb.LinTS(n_draws=1e300), SettingError, "n_draws must be at most 1000000, got 1"),
        (lambda: vfb.LinTS(n_draws=True), SettingError, "n_draws must be.*got True"),
        (
            lambda: vfb.Bandit(vfb.LinUCB(beta=vfb.OFUL(noise=1)), dim=2, discount=0.9),
            SettingError,
            "without forgetting",
        ),
        (lambda: vfb.Federation(UCB, widths={"a": 1}), SettingError, "an active and a passive.*1"),
        (lambda: vfb.Federation(UCB, widths={"a": 1, "b": 0}), SettingError, "'b' must be.*got 0"),
        (lambda: vfb.Federation(UCB, widths={"a": 1, "": 1}), SettingError, "name must be text"),
        (lambda: vfb.Federation(UCB, widths=[1, 2]), SettingError, "map names to widths, got list"),
        (lambda: vfb.Federation(UCB, widths=AB, mask="signs"), SettingError, "blockwise, dense"),
        (lambda: vfb.Federation(UCB, widths=AB, aggregation="x"), SettingError, "plain, secure"),
        (
            lambda: vfb.Federation(UCB, widths=ABC, mask="blockwise", aggregation="secure"),
            SettingError,
            "needs mask='dense'",
        ),
        (
            lambda: vfb.Federation(UCB, widths=AB, mask="dense", aggregation="secure"),
            SettingError,
            "two passive participants, got one",
        ),
        (
            lambda: vfb.Federation(UCB, widths=ABC, mask="dense", aggregation="secure", bound=1e12),
            SettingError,
            "leaves an error",
        ),
        (lambda: vfb.Bandit(UCB, dim=2, ridge=[1.0, 2.0]), NotBlindError, "mixes coordinates"),
        (
            lambda: vfb.Bandit(UCB, dim=2, ridge=np.ones(2)),
            NotBlindError,
            "one for each coordinate",
        ),
        (lambda: vfb.Federation(UCB, widths=AB, penalty="l1"), NotBlindError, "one by one"),
        (lambda: vfb.Bandit(UCB, dim=2, penalty="elastic_net"), NotBlindError, "its L1 part"),
        (lambda: vfb.Bandit(UCB, dim=2, penalty="l7"), SettingError, "must be 'l2', got 'l7'"),
        (lambda: vfb.Bandit(UCB, dim=2, scaling="standardize"), NotBlindError, "before the mask"),
        (lambda: vfb.Bandit(UCB, dim=2, scaling="per_coordinate"), NotBlindError, "rotation"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_the_reason(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_policy_that_wants_contexts_is_refused_with_the_reason():
    class Peeking:
        needs_contexts = True

        def score(self, statistics, rng):
            raise AssertionError("never asked")

    with pytest.raises(NotBlindError, match=r"Peeking asks for contexts.*statistics only"):
        vfb.Federation(Peeking(), widths=AB)


@pytest.mark.parametrize(
    ("contexts", "given", "error", "message"),
    [
        (np.ones((3, 4)), {}, ContextError, r"shape \(n, 2\), got \(3, 4\)"),
        (np.ones(2), {}, ContextError, r"shape \(n, 2\), got \(2,\)"),
        ([[1.0, np.nan]], {}, ContextError, r"finite.*1 entries, first at \(0, 1\)"),
        ([[1.0, np.inf]], {}, ContextError, "finite"),
        ([[1e200, 1.0]], {}, ContextError, "small enough"),
        ([["a", "b"]], {}, ContextError, "real numbers, got dtype"),
        ([[1j, 2.0]], {}, ContextError, "real numbers, got dtype complex"),
        ([[1.0, 2.0], [3.0]], {}, ContextError, "rectangular"),
        (np.empty((0, 2)), {}, ArmError, "at least one arm, got none"),
        (np.ones((2, 2)), {"arms": ["x", "x"]}, ArmError, "x more than once"),
        (np.ones((2, 2)), {"arms": ["x"]}, ArmError, "2 arms have contexts, got 1"),
        (np.ones((2, 2)), {"arms": [1.5, 2.5]}, ArmError, "whole numbers or text, got float"),
        (np.ones((2, 2)), {"arm_features": np.ones((2, 1))}, ArmError, "arm_features as well"),
    ],
)
def test_bad_contexts_are_refused_and_nothing_changes(contexts, given, error, message):
    bandit = vfb.Bandit(vfb.LinTS(), dim=2, seed=0)
    untouched = vfb.Bandit(vfb.LinTS(), dim=2, seed=0)
    with pytest.raises(error, match=message):
        bandit.decide(contexts, **given)
    assert bandit.open_decisions == ()
    X = np.eye(2)
    assert bandit.decide(X).scores.tolist() == untouched.decide(X).scores.tolist()


@pytest.mark.parametrize(
    ("layout", "contexts", "given", "error", "message"),
    [
        ("outer", np.ones(2), {}, ArmError, r"needs arm_features \(n_arms, 3\), got none"),
        (
            "outer",
            np.ones(2),
            {"arm_features": np.ones((2, 4))},
            ContextError,
            r"\(n, 3\).*\(2, 4\)",
        ),
        (
            "outer",
            np.ones(3),
            {"arm_features": np.ones((2, 3))},
            ContextError,
            r"\(2\), got \(3,\)",
        ),
        ("outer", np.ones(2), {"arm_features": np.ones((0, 3))}, ArmError, "at least one arm"),
        (
            "outer",
            np.ones(2),
            {"arm_features": np.full((1, 3), np.nan)},
            ContextError,
            "arm_features must be finite",
        ),
        ("disjoint", np.ones(2), {}, ArmError, "needs arms="),
        ("disjoint", np.ones(2), {"arms": []}, ArmError, "at least one arm"),
        ("disjoint", np.ones(2), {"arms": ["a", "a"]}, ArmError, "more than once"),
        ("disjoint", [np.nan, 1.0], {"arms": ["a"]}, ContextError, "finite"),
        (
            "disjoint",
            np.ones(2),
            {"arms": ["a"], "arm_features": np.ones((1, 1))},
            ArmError,
            "by id only",
        ),
    ],
)
def test_bad_contexts_of_the_other_layouts_are_refused(layout, contexts, given, error, message):
    bandit = vfb.Bandit(UCB, dim=2, layout=layout, arm_dim=3 if layout == "outer" else None)
    with pytest.raises(error, match=message):
        bandit.decide(contexts, **given)
    assert bandit.open_decisions == ()


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ({"a": np.ones((2, 2)), "b": np.ones((2, 2))}, r"block of 'b'.*\(n, 1\), got \(2, 2\)"),
        (
            {"a": np.ones((2, 2)), "b": np.ones((3, 1))},
            r"block of 'b' must have shape \(2, 1\), got \(3, 1\)",
        ),
        ({"b": np.ones((2, 1))}, "active participant 'a' must bring"),
        ({"a": None, "b": np.ones((2, 1))}, "active participant 'a' must bring"),
        ({"a": np.ones((2, 2)), "x": np.ones((2, 1))}, "wanted blocks of a, b, got x"),
        ({"a": np.ones((2, 2)), "b": [[1.0], [np.nan]]}, r"block of 'b' must be finite.*\(1, 0\)"),
        ([np.ones((2, 2))], "a block for each participant, got list"),
    ],
)
@pytest.mark.parametrize("mask", ["dense", "blockwise"])
def test_bad_blocks_are_refused_by_their_owner_s_name(mask, blocks, message):
    federation = vfb.Federation(UCB, widths=AB, mask=mask)
    with pytest.raises(ContextError, match=message):
        federation.decide(blocks)
    assert federation.bandit.open_decisions == ()


def test_a_secure_sum_names_the_owner_of_a_nan_and_goes_on_afterwards():
    federation = vfb.Federation(UCB, widths=ABC, mask="dense", aggregation="secure")
    good = {name: np.ones((2, width)) for name, width in ABC.items()}
    with pytest.raises(ContextError, match="block of 'c' must be finite"):
        federation.decide({**good, "c": [[np.nan], [1.0]]})
    with pytest.raises(vfb.VFBanditsError, match="bound 64"):
        federation.decide({**good, "c": [[1e3], [1.0]]})
    assert federation.decide(good).contributors == ("a", "b", "c")


def test_no_error_message_holds_a_feature():
    federation = vfb.Federation(UCB, widths=ABC, mask="dense", aggregation="secure")
    secret = 63.123456789
    blocks = {"a": [[secret, np.nan]], "b": [[secret]], "c": [[secret * 99]]}
    for bad in (blocks, {**blocks, "a": [[secret, 1.0]]}):
        with pytest.raises(vfb.VFBanditsError) as caught:
            federation.decide(bad)
        assert "63.12" not in str(caught.value)
        assert "6249" not in str(caught.value)


@pytest.mark.parametrize(
    "value",
    [[[1, 2]], np.array([[1, 2]], dtype=np.int32), np.array([[1, 2]], dtype=np.float32),
     np.asfortranarray([[1.0, 2.0], [3.0, 4.0]]), np.ones((2, 4))[:, ::2], [[True, False]]],
)  # fmt: skip
def test_any_rectangular_numbers_will_do(value):
    assert vfb.Bandit(UCB, dim=2).decide(value).index in (0, 1)
