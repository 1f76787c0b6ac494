"""Fitted exponents: exact where the law is exact, and honest about scatter."""

import numpy as np
import pytest

from vfbandits.errors import SettingError
from vfbandits.reproduce.growth import fit_growth


def test_standard_errors_cover_the_true_exponents_about_as_often_as_they_should():
    rng = np.random.default_rng(0)
    dims = np.repeat([10.0, 20.0, 40.0, 80.0], 3)
    arms = np.tile([5.0, 50.0, 500.0], 4)
    within = 0
    for _ in range(400):
        values = dims**2 * arms * np.exp(0.1 * rng.standard_normal(12))
        growth = fit_growth({"d": dims, "K": arms}, values)
        within += abs(growth["d"].value - 2.0) <= growth["d"].error
    assert 0.58 < within / 400 < 0.75  # 65 % for Student's t with nine degrees of freedom


def test_without_spare_data_there_is_no_error_to_state():
    exponent = fit_growth({"d": [1.0, 2.0]}, [3.0, 24.0])["d"]
    assert (exponent.value, exponent.error, str(exponent)) == (3.0, None, "3.00")


def test_sizes_that_do_not_vary_are_refused():
    with pytest.raises(SettingError, match="vary one without the other"):
        fit_growth({"d": [2.0, 2.0], "K": [1.0, 2.0]}, [1.0, 2.0])
