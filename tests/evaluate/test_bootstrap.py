"""Intervals: coverage, agreement of the fast path with the obvious one, degenerate logs."""

import numpy as np
import pytest
from scipy.stats import bootstrap as scipy_bootstrap

from vfbandits.errors import SettingError
from vfbandits.evaluate import Bootstrap, EvaluationSettings
from vfbandits.evaluate.bootstrap import METHODS
from vfbandits.evaluate.evaluation import FrozenTarget
from vfbandits.evaluate.terms import Terms

N_LOGS = 200


@pytest.mark.parametrize(
    ("name", "method"),
    [("ips", "percentile"), ("ips", "bca"), ("ips", "studentised"), ("snips", "bca"),
     ("dr", "bca"), ("sndr", "bca")],
)  # fmt: skip
def test_intervals_of_95_percent_cover_the_truth_in_90_to_99_percent_of_logs(world, name, method):
    """200 logs of 200 rounds: the binomial error of the share is 1.5 %."""
    rng = np.random.default_rng(7)
    bootstrap = Bootstrap(method, n_resamples=300)
    covered = 0
    for _ in range(N_LOGS):
        log, target = world.sample(200, rng)
        judge = FrozenTarget(log, target, settings=EvaluationSettings(), rng=rng)
        low, high = bootstrap.interval(judge.terms(name), rng)
        covered += low <= world.value <= high
    assert 0.90 <= covered / N_LOGS <= 0.99


def test_bca_and_percentile_are_those_of_scipy():
    """In distribution: many resamples of the same skewed data, ends within 1 % of the width."""
    data = np.random.default_rng(0).exponential(size=40)
    terms = Terms(data, np.zeros(40), np.ones(40))
    for ours, theirs in (("percentile", "percentile"), ("bca", "BCa")):
        low, high = Bootstrap(ours, n_resamples=100_000).interval(terms, np.random.default_rng(1))
        wanted = scipy_bootstrap(
            (data,), np.mean, n_resamples=100_000, method=theirs, rng=np.random.default_rng(2)
        ).confidence_interval
        assert (low, high) == pytest.approx(tuple(wanted), abs=0.01 * (high - low))


def test_studentised_intervals_are_those_of_the_obvious_loop():
    """Exact up to rounding: a ratio estimate, resample by resample, with the same draws."""
    rng = np.random.default_rng(0)
    weights = rng.exponential(size=30)
    rewards = rng.standard_normal(30)
    terms = Terms(np.zeros(30), weights * rewards, weights)

    def error(w, r):
        pulls = w * (r - (w @ r) / w.sum()) / w.mean()
        return pulls.std(ddof=1) / np.sqrt(30)

    value = (weights @ rewards) / weights.sum()
    ratios = []
    for drawn in np.random.default_rng(1).integers(30, size=(200, 30)):
        w, r = weights[drawn], rewards[drawn]
        ratios.append(((w @ r) / w.sum() - value) / error(w, r))
    low, high = np.quantile(ratios, [0.05, 0.95])
    wanted = (value - high * error(weights, rewards), value - low * error(weights, rewards))
    bootstrap = Bootstrap("studentised", confidence=0.9, n_resamples=200)
    assert bootstrap.interval(terms, np.random.default_rng(1)) == pytest.approx(wanted, rel=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_generator_gives_the_same_interval(method):
    data = np.random.default_rng(0).standard_normal(50)
    terms = Terms(np.zeros(50), data, np.abs(data) + 0.1)
    intervals = [Bootstrap(method).interval(terms, np.random.default_rng(3)) for _ in range(2)]
    assert intervals[0] == intervals[1]
    assert intervals[0][0] < terms.value < intervals[0][1]


@pytest.mark.parametrize("method", METHODS)
def test_rounds_that_all_say_the_same_give_an_interval_of_no_width(method):
    terms = Terms(np.zeros(9), np.full(9, 2.0), np.ones(9))
    assert Bootstrap(method).interval(terms, np.random.default_rng(0)) == (2.0, 2.0)


@pytest.mark.parametrize("method", METHODS)
def test_a_single_reward_among_many_rounds_gives_a_finite_interval(method):
    data = np.zeros(200)
    data[17] = 1.0
    low, high = Bootstrap(method).interval(
        Terms(np.zeros(200), data, np.ones(200)), np.random.default_rng(0)
    )
    assert np.isfinite([low, high]).all()
    assert low <= 0.005 <= high


def test_more_confidence_is_a_wider_interval():
    terms = Terms(np.random.default_rng(0).standard_normal(80), np.zeros(80), np.ones(80))
    ends = [
        Bootstrap(confidence=level).interval(terms, np.random.default_rng(1))
        for level in (0.5, 0.9, 0.99)
    ]
    widths = [high - low for low, high in ends]
    assert widths == sorted(widths)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"method": "magic"}, "interval must be one of percentile, bca, studentised, got 'magic'"),
        ({"confidence": 1.0}, "confidence must be between 0 and 1, got 1.0"),
        ({"n_resamples": 0}, "resamples must be a whole number from 1, got 0"),
    ],
)
def test_what_is_no_interval_is_refused(setting, message):
    with pytest.raises(SettingError, match=message):
        Bootstrap(**setting)
