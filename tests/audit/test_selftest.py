"""The table that the docs cite, at small sizes: what must come out whatever the size."""

import pytest

from vfbandits.audit.result import Level
from vfbandits.audit.selftest import Line, selftest


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
    assert [line.spell(level) for level in Level] == ["3e-15–4e-15", "0.87", "–"]
