"""Feature drift: what is missing, how long rows are, and how own columns have moved."""

import numpy as np
import pytest

from vfbandits.features.scaling import Scaling
from vfbandits.protocol.instructions import Gathered
from vfbandits.serving.drift import EVERY_S, MAX_ROWS, WINDOW, FeatureDrift

NAMES = ("shop", "bank", "news")


class Watched(FeatureDrift):
    """One that is looked at as often as it samples."""

    def __init__(self, **more):
        self.now = 0.0
        super().__init__(NAMES, width=2, clock=lambda: self.now, **more)
        self.rng = np.random.default_rng(3)

    def rounds(self, n_rows, *, size=1.0, news=True, unknown=0, secure=False, trial=False):
        while n_rows > 0:
            n = min(n_rows, MAX_ROWS)
            bank = size * self.rng.standard_normal((n, 3))
            bank[:unknown] = 0.0
            blocks = {"bank": bank, **({"news": np.ones((n, 2))} if news else {})}
            total = bank if secure else None
            self.look(
                Gathered(
                    *(1, bank, ("shop", *blocks), 80),
                    blocks={} if secure else blocks,
                    total=total,
                    unknown={"bank": unknown} if unknown else {},
                    is_trial=trial,
                )
            )
            n_rows -= n
            self.now += EVERY_S

    def own(self, n_rows, *, mean=0.0, sd=1.0):
        for _ in range(n_rows // 50):
            self.look_at_own(mean + sd * self.rng.standard_normal((50, 2)))
            self.now += EVERY_S


def test_nothing_is_said_before_there_are_enough_rows():
    drift = Watched()
    drift.rounds(WINDOW // 2)
    assert drift.describe("bank") == {"missing_ratio": None, "norm_ratio": None}
    assert drift.describe("nobody") == {}


def test_rows_that_become_longer_are_seen_within_a_window():
    drift = Watched()
    drift.rounds(2 * WINDOW)
    assert drift.describe("bank")["norm_ratio"] == pytest.approx(1.0, abs=0.15)
    drift.rounds(2 * WINDOW, size=2.0)
    assert drift.describe("bank")["norm_ratio"] == pytest.approx(4.0, rel=0.15)
    assert drift.describe("news")["norm_ratio"] == 1.0
    drift.rounds(2 * WINDOW)  # and when they are as before again
    assert drift.describe("bank")["norm_ratio"] == pytest.approx(1.0, abs=0.15)


def test_rows_of_users_that_are_not_known_and_of_absent_participants_are_missing():
    drift = Watched()
    drift.rounds(4 * WINDOW, unknown=16, news=False)
    assert drift.describe("bank")["missing_ratio"] == pytest.approx(16 / MAX_ROWS, abs=0.02)
    assert drift.describe("news") == {"missing_ratio": 1.0, "norm_ratio": None}
    assert drift.describe("bank")["norm_ratio"] == pytest.approx(1.0, abs=0.15)


def test_under_secure_sums_the_length_of_the_sum_is_all_that_is_known():
    drift = Watched()
    drift.rounds(2 * WINDOW, secure=True)
    drift.rounds(2 * WINDOW, secure=True, size=3.0)
    shown = {name: drift.describe(name)["norm_ratio"] for name in ("bank", "news")}
    assert shown["bank"] == shown["news"] == pytest.approx(9.0, rel=0.15)


def test_own_columns_are_compared_with_what_they_were_fitted_to_from_the_first_row():
    scaling = Scaling("standard", ("age", "income"), np.zeros(2), np.ones(2), {}, 100)
    drift = Watched(variances=scaling.fitted_variances)
    drift.own(WINDOW, mean=0.8, sd=2.0)
    found = drift.describe("shop")
    assert found["mean_shift"] == pytest.approx(0.8, abs=0.2)
    assert found["variance_shift"] == pytest.approx(2.0, abs=0.2)
    assert found["missing_ratio"] == 0.0


def test_without_a_fitted_scaling_the_first_rows_are_the_baseline():
    drift = Watched()
    drift.own(WINDOW, mean=5.0)
    assert drift.describe("shop")["mean_shift"] == 0.0
    drift.own(2 * WINDOW, mean=5.0)
    assert drift.describe("shop")["mean_shift"] < 0.15
    drift.own(2 * WINDOW, mean=7.0, sd=0.5)
    assert drift.describe("shop")["mean_shift"] == pytest.approx(2.0, abs=0.2)
    assert drift.describe("shop")["variance_shift"] == pytest.approx(2.0, abs=0.3)


def test_columns_that_never_vary_are_no_alarm():
    drift = Watched()
    for _ in range(2 * WINDOW // 50):
        drift.look_at_own(np.ones((50, 2)))
        drift.now += EVERY_S
    found = drift.describe("shop")
    assert (found["mean_shift"], found["variance_shift"]) == (0.0, 0.0)


@pytest.mark.parametrize("value", [0.1, 1.0 / 3.0, 1e-9, 12_345.678, 1e9 / 7.0])
def test_rounding_of_a_constant_column_is_no_alarm(value):
    drift = Watched()
    for n_rows in (50, 49, 51, 17) * 100:
        drift.look_at_own(np.full((n_rows, 2), value))
        drift.now += EVERY_S
    found = drift.describe("shop")
    assert (found["mean_shift"], found["variance_shift"]) == (0.0, 0.0)


def test_a_column_far_from_zero_is_measured_by_what_it_varies():
    drift = Watched()
    drift.own(2 * WINDOW, mean=1e4, sd=1.0)
    found = drift.describe("shop")
    assert found["mean_shift"] < 0.2
    assert found["variance_shift"] < 0.3


def test_trials_and_rounds_that_come_too_soon_are_not_looked_at():
    drift = Watched()
    drift.rounds(4 * WINDOW, trial=True)
    assert drift.describe("bank")["missing_ratio"] is None
    for _ in range(WINDOW):  # all at one time
        drift.look(Gathered(1, np.ones((64, 3)), NAMES, 80))
    assert drift.describe("bank")["missing_ratio"] is None


@pytest.mark.parametrize(
    ("method", "fitted_rows", "variances"),
    [("standard", 9, 1.0), ("unit", 9, 0.5), ("minmax", 9, None), ("none", 0, None)],
)
def test_only_what_was_fitted_to_a_variance_has_one(method, fitted_rows, variances):
    columns = {"city": ("Bern", "Rome")}
    scaling = Scaling(method, ("age",), np.zeros(1), np.ones(1), columns, fitted_rows)
    number, *flags = scaling.fitted_variances
    assert (number == variances) or (variances is None and np.isnan(number))
    assert np.isnan(flags).all()
