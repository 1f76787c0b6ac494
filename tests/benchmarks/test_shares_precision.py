"""Errors of fixed point stay below what ties, however many rewards were learnt."""

import pytest
from benchmarks.shares_precision import CASES, TIE, measure

from vfbandits.core import state


@pytest.mark.parametrize("name", CASES)
def test_scores_are_those_of_a_plain_bandit(name):
    found = measure(name, n_rounds=120, world="correlated", ridge=0.1)
    assert found.n_equal == found.n_rounds == 120
    assert found.error < 1e-10
    assert state.REFACTOR_EVERY == 10_000


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", CASES)
def test_arms_are_equal_over_a_hundred_thousand_rewards(name):
    found = measure(name, n_rounds=100_000)
    assert found.n_equal == 100_000
    assert found.error < TIE


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", ["lints", "linucb-statistics"])
def test_so_are_those_of_correlated_contexts_with_a_small_ridge(name):
    found = measure(name, n_rounds=50_000, world="correlated", ridge=0.1)
    assert found.n_equal == 50_000
    assert found.error < TIE
