"""The table that the docs cite, at small sizes: what must come out whatever the size."""

import pytest

from vfbandits.audit.result import Level
from vfbandits.audit.selftest import LIKELIEST, MATCHED, Line, selftest

# Whatever the seed, each figure of the table lies between these two.
EXACT, ALL_COLUMNS = (0.0, 1e-9), (1.0, 1.0)
BOUNDS = {
    "20 plain–masked pairs": {"mask": EXACT, "sum": (0.84, 0.88)},
    "80 plain–masked pairs": {"mask": EXACT, "sum": EXACT},
    "nothing; features independent, not Gaussian": {"mask": (0.02, 0.06), "sum": (0.04, 0.10)},
    "nothing; features Gaussian": {"mask": (1.0, 1.0), "sum": (1.0, 1.0)},
    MATCHED.format("all"): {"mask": (0.12, 0.5), "sum": (0.2, 0.8)},
    MATCHED.format("half"): {"mask": (0.14, 0.55), "sum": (0.2, 0.8)},
    LIKELIEST.format("all"): {"mask": (0.0, 0.12), "sum": (0.0, 0.4)},
    LIKELIEST.format("half"): {"mask": (0.0, 0.3), "sum": (0.2, 0.6)},
    "nothing; flags, one-hot, counts": {"mask": (0.5, 1.0), "sum": (0.4, 1.0)},
    "returning users, one feature changed": {"mask": ALL_COLUMNS, "sum": ALL_COLUMNS},
    "means of 3 arms, disjoint; ": {"statistics": (0.83, 0.89)},
    "means of 6 arms, disjoint; ": {"statistics": (0.62, 0.75)},
    "means of 10 arms, disjoint; ": {"statistics": (0.03, 0.5)},
    "means of 20 arms, disjoint; ": {"statistics": (0.02, 0.08)},
    "means of 3 arm features, outer; ": {"statistics": (0.83, 0.89)},
    "means of 10 arm features, outer; ": {"statistics": (0.03, 0.5)},
    "means of 20 arm features, outer; ": {"statistics": (0.02, 0.10)},
    "the same row 1 times": {"statistics": (0.95, 0.99)},
    "the same row 4 times": {"statistics": (0.84, 0.88)},
    "the same row 16 times": {"statistics": (0.0, 0.01)},
    "the same row 32 times": {"statistics": (0.0, 0.01)},
    "7,000 planted users, LinTS, 10 arms": {"statistics": (0.03, 0.4), "arm": (0.84, 0.93)},
    "7,000 planted users, LinTS, 20 arms": {"statistics": (0.01, 0.15), "arm": (0.80, 0.90)},
    "7,000 planted users, LinUCB, 10 arms": {"statistics": (0.03, 0.4), "arm": (0.60, 0.80)},
    "7,000 planted users, LinUCB, 20 arms": {"statistics": (0.0, 0.1), "arm": (0.50, 0.72)},
    "the arms of one user 1 times, 10 arms": {"arm": (0.88, 0.97)},
    "the arms of one user 16 times, 10 arms": {"arm": (0.80, 0.92)},
    "the arms of one user 32 times, 10 arms": {"arm": (0.76, 0.90)},
    "the arms of one user 1 times, 20 arms": {"arm": (0.83, 0.94)},
    "the arms of one user 16 times, 20 arms": {"arm": (0.68, 0.88)},
    "the arms of one user 32 times, 20 arms": {"arm": (0.64, 0.88)},
    "widths of the same row 1 times": {"arm": (1.0, 1.0)},
    "widths of the same row 16 times": {"arm": (0.2, 1.0)},
    "widths of the same row 32 times": {"arm": (0.0, 0.3)},
}


@pytest.fixture(scope="module")
def cases():
    return {case.attacker: case for case in selftest(rows=3000, seeds=1)}


def measured(cases, attacker):
    line = cases[attacker].measure()
    return {level: values[0] for level, values in line.measured.items()}


def test_insiders_open_a_block_with_20_pairs_and_a_sum_with_80(cases):
    few = measured(cases, "20 plain–masked pairs")
    assert few["mask"] < 1e-9
    assert few["sum"] == pytest.approx(0.87, abs=0.03)
    assert measured(cases, "80 plain–masked pairs")["sum"] < 1e-9


def test_gaussian_features_are_answered_with_the_mean(cases):
    assert measured(cases, "nothing; features Gaussian") == {"mask": 1.0, "sum": 1.0}


def test_public_second_moments_open_related_columns(cases):
    found = measured(cases, MATCHED.format("all"))
    assert found["mask"] < 0.5
    assert found["sum"] < 0.8


@pytest.mark.long
@pytest.mark.parametrize("case", selftest(seed=100, seeds=1), ids=lambda case: case.attacker)
def test_another_seed_gives_the_figures_of_the_docs(case):
    (bounds,) = (found for words, found in BOUNDS.items() if case.attacker.startswith(words))
    measured_by_level = case.measure().measured
    assert set(measured_by_level) == set(bounds)
    for level, (low, high) in bounds.items():
        assert all(low <= value <= high for value in measured_by_level[level])


def test_returning_users_open_every_column(cases):
    found = measured(cases, "returning users, one feature changed")
    assert found == {"mask": 1.0, "sum": 1.0}


def test_repeated_asks_open_a_row_once_there_are_as_many_as_features(cases):
    few = measured(cases, "the same row 4 times, 16 features, parameters known")
    many = measured(cases, "the same row 16 times, 16 features, parameters known")
    assert few["statistics"] == pytest.approx(0.87, abs=0.05)
    assert many["statistics"] < 0.01


def test_a_line_shows_the_range_over_seeds():
    line = Line("x", {"mask": (3e-15, 4e-15), "sum": (0.871, 0.866)})
    assert [line.spell(level) for level in Level] == ["3e-15–4e-15", "0.87", "–", "–"]


def test_a_line_of_many_seeds_shows_the_median_too():
    line = Line("x", {"statistics": (0.05, 0.34, 0.06, 0.06, 0.05)})
    assert line.spell(Level.STATISTICS) == "0.05–0.34, median 0.06"
