"""Noise on vectors: its size, its memory, and what it leaves alone."""

import math

import dp_accounting
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy.stats import chi2

import vfbandits as vfb
from vfbandits.core.noise import GRID_BITS, KeyedNoise, clip_rows
from vfbandits.errors import SettingError, SnapshotError
from vfbandits.journal.snapshot import load, save

TERMS = vfb.VectorNoise(epsilon=10.0, delta=1e-5, clip=1.0)
KEY = bytes(range(32))
WIDTHS = {"shop": 2, "bank": 3, "news": 2}


def names(n):
    return [(f"user-{number}",) for number in range(n)]


def noise_on(rows, *, terms=TERMS, key=KEY, whose=None):
    noisy, _ = KeyedNoise(terms, key=key).add(rows, whose or names(len(rows)))
    return noisy - rows


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 10.0, 100.0])
def test_the_variance_is_the_calibrated_one(epsilon):
    """In distribution: the sum of 40,000 squares lies where all but one in a million do."""
    terms = vfb.VectorNoise(epsilon, 1e-6, clip=2.0)
    drawn = noise_on(np.zeros((2000, 20)), terms=terms) / terms.sigma
    low, high = chi2.ppf([5e-7, 1 - 5e-7], drawn.size)
    assert low < (drawn**2).sum() < high
    assert abs(drawn.mean()) < 5.0 / math.sqrt(drawn.size)
    assert np.abs(drawn).max() < 6.5


@given(st.floats(1e-3, 1e6), st.floats(1e-9, 0.1), st.floats(1e-3, 1e3))
def test_epsilon_and_sigma_are_those_of_dp_accounting(epsilon, delta, clip):
    """Two vectors of norm clip are up to 2·clip apart, so that is the sensitivity."""
    noise = vfb.VectorNoise(epsilon, delta, clip)
    spent = dp_accounting.get_epsilon_gaussian(noise.sigma / (2.0 * clip), delta)
    assert spent == pytest.approx(epsilon, rel=1e-6, abs=1e-6)
    assert noise.epsilon_of(1) == pytest.approx(epsilon, rel=1e-6, abs=1e-6)


def test_n_vectors_spend_what_an_accountant_that_composes_says():
    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-2)
    multiplier = TERMS.sigma / (2.0 * TERMS.clip)
    accountant.compose(dp_accounting.GaussianDpEvent(multiplier), 5)
    assert TERMS.epsilon_of(5) == pytest.approx(accountant.get_epsilon(TERMS.delta), rel=1e-2)
    assert TERMS.epsilon < TERMS.epsilon_of(2) < 2 * TERMS.epsilon


def test_a_vector_has_the_same_noise_for_ever():
    """Otherwise the mean over many visits would be the vector itself."""
    rows = np.random.default_rng(0).standard_normal((5, 4)) / 4
    first, _ = KeyedNoise(TERMS, key=KEY).add(rows, names(5))
    later, _ = KeyedNoise(TERMS, key=KEY).add(rows[::-1], names(5)[::-1])
    alone, _ = KeyedNoise(TERMS, key=KEY).add(rows[2:3], names(5)[2:3])
    assert_array_equal(first, later[::-1])
    assert_array_equal(first[2:3], alone)


@pytest.mark.parametrize(
    "other",
    [
        {"whose": [("ann", "tea")]},
        {"whose": [("an", "ntea")]},
        {"whose": [("anntea",)]},
        {"whose": [("ann",)]},
        {"key": bytes(32)},
        {"terms": vfb.VectorNoise(9.0, 1e-5, clip=1.0)},
        {"terms": vfb.VectorNoise(10.0, 1e-6, clip=1.0)},
        {"terms": vfb.VectorNoise(10.0, 1e-5, clip=2.0)},
        {"rows": np.array([[0.5, 0.25, 0.0, 0.001]])},
    ],
)
def test_another_user_key_vector_or_term_has_other_noise(other):
    """What a receiver of both would subtract must not be left without noise."""
    one = {"rows": np.array([[0.5, 0.25, 0.0, 0.0]]), "whose": [("bob",)]}
    first, second = noise_on(**one), noise_on(**{**one, **other})
    scale = TERMS.sigma / other.get("terms", TERMS).sigma
    assert np.abs(first - second * scale).min() > 1e-6


def test_noise_of_different_users_is_independent():
    """In distribution: no correlation of 20,000 pairs beyond five deviations."""
    drawn = noise_on(np.tile([0.3, -0.2], (20_000, 1))) / TERMS.sigma
    neighbours = (drawn[:-1] * drawn[1:]).mean(axis=0)
    assert np.abs(neighbours).max() < 5.0 / math.sqrt(len(drawn))
    assert abs((drawn[:, 0] * drawn[:, 1]).mean()) < 5.0 / math.sqrt(len(drawn))
    assert len(np.unique(drawn, axis=0)) > 19_990


def test_vectors_that_are_too_long_are_clipped_and_counted():
    """What is released depends on the clipped vector alone, and so the bound holds."""
    rows = np.array([[30.0, 40.0], [0.3, 0.4], [0.6, 0.8]])
    keyed = KeyedNoise(TERMS, key=KEY)
    noisy, clipped = keyed.add(rows, names(3))
    short, _ = clip_rows(rows, 1.0)
    assert clipped == 1
    assert_array_equal(noisy, keyed.add(short, names(3))[0])


def test_all_that_leaves_is_on_one_grid():
    """The last bits of a sum of floats would tell which vectors it can be the sum of."""
    grid = 2.0 ** (math.floor(math.log2(TERMS.sigma)) - GRID_BITS)
    rows = np.random.default_rng(1).standard_normal((50, 3)) / 10
    noisy, _ = KeyedNoise(TERMS, key=KEY).add(rows, names(50))
    assert_array_equal(noisy / grid, np.rint(noisy / grid))


def test_rows_of_unknown_users_stay_zeros():
    noisy, _ = KeyedNoise(TERMS, key=KEY).add(np.zeros((3, 2)), names(3), absent=[1])
    assert_array_equal(noisy[1], [0.0, 0.0])
    assert np.all(noisy[[0, 2]] != 0.0)


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ((0.0, 1e-5, 1.0), "epsilon must be between 0.001 and 1e.06, got 0.0"),
        ((math.inf, 1e-5, 1.0), "epsilon must be between 0.001 and 1e.06, got inf"),
        ((1.0, 0.0, 1.0), "delta must be between 1e-09 and 0.1, got 0.0"),
        ((1.0, 1e-5, math.nan), "clip must be a finite number above 0, got nan"),
        ((True, 1e-5, 1.0), "epsilon must be between 0.001 and 1e.06, got True"),
    ],
)
def test_terms_without_a_calibration_are_refused(terms, said):
    with pytest.raises(SettingError, match=said):
        vfb.VectorNoise(*terms)


def test_no_key_is_in_a_repr():
    assert repr(KeyedNoise(TERMS, key=KEY)) == f"KeyedNoise({TERMS})"
    federation = vfb.Federation(vfb.LinUCB(), widths=WIDTHS, noise=TERMS)
    assert repr(federation).endswith("epoch=0, noise=ε = 10 per vector, δ = 1e-05, clip 1)")


# --- in a federation ----------------------------------------------------------------------------


def blocks(rng, n=3):
    return {name: rng.standard_normal((n, width)) / 4 for name, width in WIDTHS.items()}


def federation_of(mask="blockwise", aggregation="plain", **more):
    drawn = np.random.default_rng(5).bytes
    return vfb.Federation(
        vfb.LinUCB(), widths=WIDTHS, mask=mask, aggregation=aggregation, entropy=drawn, **more
    )


def seen(federation, given):
    """What the active participant has of a decision's context, without the mask."""
    decision = federation.decide(given)
    row = federation.bandit.snapshot().arrays["open"][-1]
    return row @ federation.reveal_mask(), federation.split.join(given, ndim=2)[decision.index]


MODES = [("blockwise", "plain"), ("dense", "plain"), ("dense", "secure")]


@pytest.mark.parametrize("mode", MODES)
def test_each_passive_participant_adds_its_own_noise_and_the_active_one_none(mode):
    federation = federation_of(*mode, noise=TERMS)
    noisy, plain = seen(federation, blocks(np.random.default_rng(0)))
    added = noisy - plain
    assert np.abs(added[:2]).max() < 1e-9
    assert np.abs(added[2:]).min() > 1e-6
    # Also where two hold the same numbers.
    twice = federation.split.join({n: np.full((1, w), 0.1) for n, w in WIDTHS.items()}, ndim=2)
    same = {name: twice[:, federation.split.columns(name)] for name in WIDTHS}
    added = seen(federation, same)[0] - twice[0]
    assert abs(added[2] - added[5]) > 1e-6


@pytest.mark.parametrize("mode", MODES)
def test_without_noise_nothing_is_drawn_and_nothing_changes(mode):
    """The masks and so the decisions are those of a federation that knows no noise."""
    plain, noisy = federation_of(*mode), federation_of(*mode, noise=TERMS)
    assert_array_equal(plain.reveal_mask(), noisy.reveal_mask())
    assert plain.noise is None
    rng, twin = np.random.default_rng(3), plain.twin()
    for _ in range(20):
        given = blocks(rng)
        ours, theirs = plain.decide(given), twin.decide(plain.split.join(given, ndim=2))
        assert ours.arm == theirs.arm
        plain.reward(ours, 1.0)
        twin.reward(theirs, 1.0)
    assert "noise" not in plain.snapshot().header


def test_a_change_of_masks_releases_the_same_noisy_vectors():
    federation = federation_of("dense", noise=TERMS)
    given = {name: rows[:1] for name, rows in blocks(np.random.default_rng(1)).items()}
    before, _ = seen(federation, given)
    federation.rekey()
    after, _ = seen(federation, given)
    np.testing.assert_allclose(before, after, atol=1e-9)


def test_a_federation_keeps_its_noise_when_members_change_and_when_it_is_restored(tmp_path):
    federation = federation_of(noise=TERMS)
    given = {name: rows[:1] for name, rows in blocks(np.random.default_rng(1)).items()}
    before, _ = seen(federation, given)
    federation.join("post", 1)
    save(federation, tmp_path / "saved")
    restored = load(tmp_path / "saved")
    after, _ = seen(restored, {**given, "post": [[0.5]]})
    np.testing.assert_allclose(before, after[:-1], atol=1e-9)
    assert restored.noise == TERMS


def test_a_snapshot_with_a_damaged_key_is_refused():
    snapshot = federation_of(noise=TERMS).snapshot()
    snapshot.header["noise"]["keys"]["bank"] = "no hex"
    with pytest.raises(SnapshotError, match="wanted a key of noise in hex at 'bank'"):
        vfb.Federation.restore(snapshot)


def test_a_federation_counts_rows_that_were_clipped():
    federation = federation_of(noise=TERMS)
    given = {name: np.full((2, width), 5.0) for name, width in WIDTHS.items()}
    federation.decide(given)
    assert federation.clipped == 4  # two rows of each passive participant
