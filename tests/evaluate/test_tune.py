"""Candidates are judged where they did not learn, and the best of them is in the set."""

import numpy as np
import pytest
from tuning_worlds import SETTINGS, SMALL_GRID, WHOLE_GRID, TuningWorld, tuned_worlds

import vfbandits as vfb
from vfbandits.errors import SettingError
from vfbandits.evaluate import EvaluationSettings, evaluate
from vfbandits.evaluate.best_set import MIN_ROUNDS, best_set
from vfbandits.evaluate.bootstrap import Bootstrap
from vfbandits.evaluate.tune import Candidate, TuneSettings, as_patch, make_grid, tune
from vfbandits.simulate.processes import ProcessEngine


def rng(seed=0):
    return np.random.default_rng(seed)


# --- the set --------------------------------------------------------------------------------------


@pytest.mark.parametrize("gaps", [np.zeros(8), np.linspace(-0.3, 0.0, 8)], ids=["tied", "spread"])
def test_the_best_is_in_the_set_as_often_as_the_confidence_says(gaps):
    """At 90 % in 400 sets at least 342: 85.5 %, three standard errors below."""
    hits = 0
    for seed in range(400):
        draws = rng(seed)
        common = draws.standard_normal((200, 1))
        rounds = 0.3 * draws.standard_normal((200, 8)) + common + gaps
        values, pulls = rounds.mean(axis=0), rounds - rounds.mean(axis=0)
        found = best_set(values, pulls, rng=draws, confidence=0.9, n_resamples=300)
        hits += bool(found.keep[-1])
    assert hits >= 342


def test_the_highest_estimate_is_always_in_it_and_a_clear_loser_never():
    rounds = rng().standard_normal((500, 4)) + np.array([0.0, 0.1, 0.2, -1.0])
    found = best_set(rounds.mean(axis=0), rounds - rounds.mean(axis=0), rng=rng(1))
    highest = rounds.mean(axis=0).argmax()
    assert (found.keep[highest], found.p_values[highest]) == (True, 1.0)
    assert not found.keep[3]
    assert found.p_values[3] < 0.01


def test_a_pair_that_differs_in_a_few_rounds_cannot_be_told_apart():
    """Ten rounds that all say the same are no normal distribution."""
    few, many = np.zeros((1_000, 2)), np.zeros((1_000, 2))
    few[:10, 1] = many[:100, 1] = 1.0
    for rounds, wanted in ((few, True), (many, False)):
        values = rounds.mean(axis=0)
        found = best_set(values, rounds - values, rng=rng())
        assert bool(found.keep[0]) is wanted
        assert bool(np.isnan(found.margins_behind[0])) is wanted
    assert MIN_ROUNDS > 10


def test_candidates_that_decide_alike_stay_together_whatever_rounding_says():
    rounds = rng().standard_normal((500, 1)) + np.array([0.0, 1e-15, 3e-16])
    values = rounds.mean(axis=0)
    assert best_set(values, rounds - values, rng=rng()).keep.all()


def test_intervals_of_all_values_hold_together():
    """All eight cover in at least 90 % of 300, at a confidence of 95 %.

    Of differences to the highest, those to a candidate that is the highest for sure.
    """
    covered = behind = 0
    for seed in range(300):
        rounds = rng(seed).standard_normal((300, 8)) + np.array([9.0, *[0.0] * 7])
        values = rounds.mean(axis=0)
        found = best_set(values, rounds - values, rng=rng(seed), n_resamples=300)
        off = values - np.array([9.0, *[0.0] * 7])
        covered += bool((np.abs(off) <= found.margins).all())
        behind += bool((np.abs(off - off[0]) <= found.margins_behind).all())
    assert min(covered, behind) >= 270


# --- candidates -----------------------------------------------------------------------------------


def test_a_candidate_is_judged_as_an_evaluation_judges_it():
    """Up to rounding without a reward model; with one, folds are dealt otherwise.  LinTS draws."""
    log = TuningWorld(0).log(800)
    grid = [
        Candidate(vfb.LinUCB(beta=0.5), floor=0.1, ridge=3.0),
        Candidate(vfb.LinTS(posterior_scale=0.3, n_draws=50), discount=0.99),
    ]
    settings = EvaluationSettings(train_share=0.5, bootstrap=Bootstrap(n_resamples=50))
    for estimator in ("dr", "sndr", "snips"):
        found = tune(log, grid, rng=rng(), settings=TuneSettings(estimator, evaluation=settings))
        for one in found.rated:
            make = lambda c=one.candidate: vfb.Bandit(  # noqa: E731
                c.policy, dim=10, layout="disjoint", intercept=True, ridge=c.ridge,
                discount=c.discount, floor=c.floor, seed=0,
            )  # fmt: skip
            (alone,) = evaluate(log, make, rng=rng(), estimators=[estimator], settings=settings)
            is_exact = estimator == "snips" and isinstance(one.candidate.policy, vfb.LinUCB)
            tolerance = 1e-12 if is_exact else 0.05
            assert one.value == pytest.approx(alone.value, abs=tolerance)
        assert [one.value for one in found.rated] == sorted(
            (one.value for one in found.rated), reverse=True
        )
        assert found.best.in_set


def test_the_engine_changes_nothing_and_what_was_kept_is_not_judged_again():
    log, grid = TuningWorld(1).log(700), make_grid({"linucb": {"beta": [0.1, 1.0, 10.0]}})

    class Kept(dict):
        def load(self, candidate):
            return self.get(candidate)

        def save(self, candidate, judgement):
            self[candidate] = judgement

    kept, told = Kept(), []
    here = tune(log, grid, rng=rng(), keeps=kept)
    there = tune(log, grid, rng=rng(), engine=ProcessEngine(2))
    again = tune(
        log,
        grid,
        rng=rng(),
        keeps=kept,
        on_candidate=lambda done, total: told.append((done, total)),
    )
    assert here == there == again
    assert told == [(3, 3)]
    assert len(kept) == 3


def test_exploring_counts_decisions_that_are_not_greedy():
    log = TuningWorld(2).log(600)
    grid = make_grid({"lingreedy": {"epsilon": [0.0, 0.5]}}, floors=[0.0, 0.2])
    explores = {one.candidate.label: one.explores for one in tune(log, grid, rng=rng()).rated}
    assert explores == pytest.approx(
        {
            "lingreedy epsilon=0": 0.0,
            "lingreedy epsilon=0.5": 0.4,
            "lingreedy epsilon=0 floor=0.2": 0.16,
            "lingreedy epsilon=0.5 floor=0.2": 0.48,
        }
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_grid({}), "candidates must differ, at least one, got none"),
        (
            lambda: make_grid({"linucb": {"beta": [1.0, 1.0]}}),
            "must differ, at least one, got linucb beta=1 twice",
        ),
        (lambda: make_grid({"linucb": {"beta": [-1.0]}}), "beta must be a number of at least 0"),
        (lambda: TuneSettings("ips"), "estimator must be one of dr, sndr, snips, got 'ips'"),
        (
            lambda: TuneSettings(evaluation=EvaluationSettings(train_share=0.0)),
            "train_share must be above 0",
        ),
        (
            lambda: tune(TuningWorld(0).log(150), SMALL_GRID, rng=rng()),
            "needs rounds to learn from and 100 held out, got 150",
        ),
    ],
)
def test_what_cannot_be_tuned_is_refused(call, message):
    with pytest.raises(SettingError, match=message):
        call()


def test_a_patch_names_the_policy_and_the_floor_only_where_it_was_judged():
    candidate = Candidate(vfb.LinTS(posterior_scale=0.1), floor=0.05, ridge=3.0)
    policy = {"name": "lints", "posterior_scale": 0.1}
    assert as_patch(candidate, with_floor=True) == {"policy": policy, "floor": 0.05}
    assert as_patch(candidate, with_floor=False) == {"policy": policy}
    other = Candidate(vfb.LinTS(posterior_scale=0.1, space="arm"))
    assert as_patch(other, with_floor=False) == {"policy": {**policy, "space": "arm"}}


# --- worlds with a known best ---------------------------------------------------------------------


def test_in_seeded_worlds_the_true_best_is_in_a_small_set():
    """In 5 of 6 at least: fewer would come in 3 of 100 tries if 95 % were the truth."""
    hits, parts = tuned_worlds(range(6), SMALL_GRID, n=1_500)
    assert sum(hits) >= 5
    assert np.mean(parts) <= 0.5


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_in_a_hundred_worlds_the_true_best_is_in_the_set_and_the_set_is_a_third_of_the_grid():
    hits, parts = tuned_worlds(range(100), WHOLE_GRID, n=2_500)
    assert sum(hits) >= 95
    assert np.mean(parts) <= 1 / 3
    assert SETTINGS.evaluation.bootstrap.confidence == 0.95
