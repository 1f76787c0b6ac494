"""A cell of the owners' study is a pure function, is lossless, and owners help."""

import pickle

import numpy as np
import pytest

import vfbandits as vfb
from vfbandits.datasets.owners import load_owned
from vfbandits.datasets.owners_study import OwnersCell, owners_cells, play_owners

pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
POLICIES = (vfb.LinUCB(beta=0.5), vfb.LinTS(posterior_scale=0.1))


def names(policy):
    return type(policy).__name__


@pytest.mark.parametrize("policy", POLICIES, ids=names)
def test_a_cell_gives_the_same_row_after_a_journey(policy):
    cell = OwnersCell("digits", policy, n_owners=2, seed=3, n_rounds=200)
    assert play_owners(pickle.loads(pickle.dumps(cell))) == play_owners(cell)  # noqa: S301


@pytest.mark.parametrize("policy", POLICIES, ids=names)
def test_masked_owners_earn_exactly_what_one_plain_bandit_earns(policy):
    row = play_owners(OwnersCell("digits", policy, n_owners=4, seed=1, n_rounds=300))
    data = load_owned("digits")
    order_seed, _ = np.random.SeedSequence(1).spawn(2)
    order = np.random.default_rng(order_seed).permutation(len(data.labels))[:300]
    bandit = vfb.Bandit(policy, dim=64, layout="disjoint", intercept=True, seed=1)
    total = 0.0
    for place in order:
        decision = bandit.decide(data.features[place], arms=range(10))
        reward = float(decision.index == data.labels[place])
        bandit.reward(decision, reward)
        total += reward
    assert row.reward == total / 300
    assert row.relative_ctr == pytest.approx(10 * row.reward)


@pytest.mark.parametrize("policy", POLICIES, ids=names)
def test_more_owners_of_the_digits_help(policy):
    gains = [play_owners(OwnersCell("digits", policy, m, seed=0)).relative_ctr for m in (1, 2, 4)]
    assert gains[0] + 1.0 < gains[1] < gains[2] - 0.5


def test_more_owners_of_the_letters_help(shared_data):
    gains = [
        play_owners(
            OwnersCell("letter", POLICIES[0], m, seed=0, n_rounds=3_000, folder=shared_data)
        ).relative_ctr
        for m in (1, 2, 3, 4)
    ]
    assert all(np.diff(gains) > 0.5)
    assert gains[0] > 1.5
    assert gains[3] > 9.0


def test_the_grid_has_every_policy_number_of_owners_and_seed():
    grid = list(owners_cells("digits", n_seeds=3))
    assert len(grid) == len(set(grid)) == 2 * 4 * 3
    assert {cell.n_owners for cell in grid} == {1, 2, 3, 4}
