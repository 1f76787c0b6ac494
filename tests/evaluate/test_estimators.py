"""Estimators against values known in closed form, over many logs."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfbandits.errors import SettingError
from vfbandits.evaluate.estimators import dm, dr, ips, sndr, snips
from vfbandits.evaluate.evaluation import FROZEN, EvaluationSettings, FrozenTarget
from vfbandits.evaluate.log import LoggedBandit
from vfbandits.evaluate.reward_model import RewardModel
from vfbandits.evaluate.weights import effective_size, importance_weights

N_LOGS, N_ROUNDS = 200, 400
MANY_LOGS = 1_000
FAR = 4.0  # standard errors: a right estimator goes past it once in 16,000 tries


def repeat(world, settings=None, *, n_logs=N_LOGS, seed=0):
    """Values of all estimators on many logs of one world, name -> (n_logs,)."""
    rng = np.random.default_rng(seed)
    settings = settings or EvaluationSettings()
    rows = []
    for _ in range(n_logs):
        log, target = world.sample(N_ROUNDS, rng)
        judge = FrozenTarget(log, target, settings=settings, rng=rng)
        rows.append([judge.terms(name).value for name in FROZEN])
    return dict(zip(FROZEN, np.array(rows).T, strict=True))


@pytest.fixture(scope="module")
def many(world):
    return repeat(world, EvaluationSettings(model=RewardModel(n_folds=2)), n_logs=MANY_LOGS)


def bias_in_standard_errors(values, truth):
    return abs(values.mean() - truth) / (values.std(ddof=1) / np.sqrt(len(values)))


@pytest.mark.parametrize("name", ["ips", "snips", "dr", "sndr"])
def test_bias_is_within_its_standard_error(world, many, name):
    """SNIPS has one of −0.001 here (first order in 1/n), less than its standard error."""
    assert bias_in_standard_errors(many[name], world.value) < FAR


def test_the_variance_of_ips_is_the_one_of_the_closed_form(world, many):
    ratio = many["ips"].var(ddof=1) / world.ips_variance(N_ROUNDS)
    assert ratio == pytest.approx(1.0, abs=4.0 * np.sqrt(2.0 / MANY_LOGS))


def test_standard_errors_are_those_seen_over_many_logs(world, many):
    log, target = world.sample(20_000, np.random.default_rng(1))
    judge = FrozenTarget(log, target, settings=EvaluationSettings(), rng=np.random.default_rng(2))
    for name in ("ips", "snips", "dr", "sndr"):
        scaled = judge.terms(name).standard_error * np.sqrt(20_000 / N_ROUNDS)
        assert scaled == pytest.approx(many[name].std(ddof=1), rel=0.15)


def test_where_rewards_have_a_level_normalising_and_modelling_cut_the_variance(level_world):
    """Var(IPS) grows with the level squared; SNIPS and DR do not feel it."""
    many = repeat(level_world)
    for name in ("snips", "dr", "sndr"):
        assert many[name].var() < 0.1 * many["ips"].var()
        assert bias_in_standard_errors(many[name], level_world.value) < FAR


def test_a_wrong_model_biases_dm_and_not_dr(world):
    """An additive model cannot say that each kind of user has a favourite of its own."""
    many = repeat(world, EvaluationSettings(model=RewardModel("shared")))
    assert bias_in_standard_errors(many["dm"], world.value) > 20.0
    assert bias_in_standard_errors(many["dr"], world.value) < FAR


def test_a_right_model_leaves_dm_only_the_bias_of_its_ridge(world, many):
    """Shrinking pulls towards the mean reward, which is lower here; without it nothing is left."""
    free = repeat(world, EvaluationSettings(model=RewardModel(ridge=1e-3)))
    assert bias_in_standard_errors(free["dm"], world.value) < FAR
    assert many["dm"].mean() < world.value - FAR * many["dm"].std() / np.sqrt(MANY_LOGS)
    assert free["dm"].var() < 0.5 * free["ips"].var()


def test_without_cross_fitting_dr_would_believe_its_own_training_data(world):
    """Noise alone, a model with one column per round: in-sample residuals vanish, ours do not."""
    rng = np.random.default_rng(0)
    log, _ = world.sample(40, rng)
    wide = LoggedBandit.of(
        10.0 * np.eye(40),
        log.chosen,
        rewards=rng.standard_normal(40),
        probabilities=log.probabilities,
        arms=log.arms,
    )
    modelled = RewardModel("shared", ridge=1e-3).predict(wide, rng)
    residuals = wide.rewards - modelled[np.arange(40), wide.chosen]
    assert residuals.std() > 0.7 * wide.rewards.std()


def test_clipping_cuts_weights_and_variance_and_biases_downwards(world, many):
    clipped = repeat(world, EvaluationSettings(clip=1.5))
    assert clipped["ips"].var() < many["ips"].var()
    assert clipped["ips"].mean() < world.value - 0.1


@pytest.mark.parametrize(
    ("name", "clip"),
    [("ips", None), ("ips", 2.0), ("snips", None), ("dm", None), ("dr", None), ("dr", 2.0),
     ("sndr", None)],
)  # fmt: skip
def test_values_are_those_of_the_open_bandit_pipeline(name, clip):
    """Exact up to rounding; obp_values.json says which version, class and call they come from."""
    stored = json.loads(Path(__file__).with_name("obp_values.json").read_text())
    log = log_of(stored)
    target, modelled = np.array(stored["target"]), np.array(stored["modelled"])
    weights = importance_weights(log, target, clip=clip)
    ours = {
        "ips": lambda: ips(weights, log.rewards),
        "snips": lambda: snips(weights, log.rewards),
        "dm": lambda: dm(target, modelled),
        "dr": lambda: dr(log, target, modelled, weights),
        "sndr": lambda: sndr(log, target, modelled, weights),
    }[name]()
    theirs = stored["values"][name if clip is None else f"{name}_clip_{clip:g}"]
    assert ours.value == pytest.approx(theirs, rel=1e-12)


def test_their_replay_of_a_frozen_policy_is_snips_with_uniform_probabilities():
    stored = json.loads(Path(__file__).with_name("obp_values.json").read_text())
    stored["probabilities"] = [1 / 3] * len(stored["chosen"])
    log = log_of(stored)
    greedy = np.eye(3)[np.argmax(stored["target"], axis=1)]
    value = snips(importance_weights(log, greedy), log.rewards).value
    assert value == pytest.approx(stored["values"]["replay_of_the_most_likely_arm"], rel=1e-12)


def log_of(stored):
    return LoggedBandit.of(
        np.ones((len(stored["chosen"]), 1)),
        stored["chosen"],
        rewards=stored["rewards"],
        probabilities=stored["probabilities"],
        arms=range(3),
    )


@st.composite
def logs(draw):
    """A log, a target and modelled rewards, none of them tame."""
    n = draw(st.integers(1, 30))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    logging, target = rng.dirichlet(np.ones(4), size=(2, n)) * 0.96 + 0.01
    chosen = rng.integers(4, size=n)
    log = LoggedBandit.of(
        rng.standard_normal((n, 2)),
        chosen,
        rewards=np.rint(rng.normal(0.0, 10.0, size=n)),
        probabilities=logging[np.arange(n), chosen],
        arms=["a", "b", "c", "d"],
    )
    return log, logging, target, rng.normal(size=(n, 4))


def all_terms(log, target, modelled):
    weights = importance_weights(log, target)
    return {
        "ips": ips(weights, log.rewards),
        "snips": snips(weights, log.rewards),
        "dm": dm(target, modelled),
        "dr": dr(log, target, modelled, weights),
        "sndr": sndr(log, target, modelled, weights),
    }


@given(logs())
def test_the_logging_policy_itself_gets_its_mean_reward_exactly(case):
    log, logging, _, _ = case
    weights = importance_weights(log, logging)
    assert ips(weights, log.rewards).value == log.value
    assert snips(weights, log.rewards).value == log.value
    assert effective_size(weights) == len(log)


@given(logs(), st.sampled_from([-3.0, 0.5, 4.0]))
def test_scaling_rewards_scales_values_and_errors(case, factor):
    log, _, target, modelled = case
    scaled = with_rewards(log, factor * log.rewards)
    before = all_terms(log, target, modelled)
    after = all_terms(scaled, target, factor * modelled)
    for name, terms in after.items():
        assert terms.value == pytest.approx(factor * before[name].value, abs=1e-9)
        error = abs(factor) * before[name].standard_error
        assert terms.standard_error == pytest.approx(error, abs=1e-9)


@given(logs(), st.floats(-50.0, 50.0))
def test_a_constant_added_to_rewards_is_added_to_all_values_but_that_of_ips(case, constant):
    log, _, target, modelled = case
    before = all_terms(log, target, modelled)
    after = all_terms(with_rewards(log, log.rewards + constant), target, modelled + constant)
    for name in ("snips", "dm", "dr", "sndr"):
        assert after[name].value == pytest.approx(before[name].value + constant, abs=1e-9)


@given(logs(), st.randoms(use_true_random=False))
def test_the_order_of_rounds_changes_nothing(case, shuffler):
    log, _, target, modelled = case
    order = list(range(len(log)))
    shuffler.shuffle(order)
    before = all_terms(log, target, modelled)
    after = all_terms(log.select(np.array(order)), target[order], modelled[order])
    for name, terms in after.items():
        assert terms.value == pytest.approx(before[name].value, abs=1e-9)
        assert terms.standard_error == pytest.approx(before[name].standard_error, abs=1e-9)


@given(logs())
def test_snips_never_leaves_the_range_of_rewards(case):
    log, _, target, modelled = case
    value = all_terms(log, target, modelled)["snips"].value
    assert log.rewards.min() - 1e-9 <= value <= log.rewards.max() + 1e-9


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=50))
def test_effective_size_is_at_most_the_number_of_rounds(weights):
    size = effective_size(np.array(weights))
    assert 0.0 <= size <= len(weights) * (1.0 + 1e-9)


def with_rewards(log, rewards):
    return LoggedBandit.of(
        log.contexts,
        log.chosen,
        rewards=rewards,
        probabilities=log.probabilities,
        arms=log.arms,
    )


def test_a_target_that_never_plays_a_logged_arm_gets_zero_and_not_a_nan():
    log = with_one_round()
    weights = importance_weights(log, np.array([[0.0, 1.0]]))
    assert (ips(weights, log.rewards).value, snips(weights, log.rewards).value) == (0.0, 0.0)
    assert effective_size(weights) == 0.0


@pytest.mark.parametrize(
    ("target", "clip", "message"),
    [
        ([[1.0]], None, r"target probabilities must be \(1, 2\), got \(1, 1\)"),
        ([[0.5, 0.6]], None, "sum to 1 in every round"),
        ([[1.5, -0.5]], None, "at least 0"),
        ([[np.nan, 1.0]], None, "at least 0"),
        ([[0.5, 0.5]], 0.0, "clip must be a positive number, got 0.0"),
        ([[0.5, 0.5]], np.nan, "clip must be a positive number, got nan"),
    ],
)
def test_a_target_that_is_no_probability_is_refused(target, clip, message):
    with pytest.raises(SettingError, match=message):
        importance_weights(with_one_round(), np.array(target), clip=clip)


def with_one_round():
    return LoggedBandit.of([[1.0]], [0], rewards=[2.0], probabilities=[0.5], arms=["a", "b"])
