"""How wide an interval is that holds at all times together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfbandits.core.anytime import standard_errors

COUNTS = st.integers(1, 10**12)


@given(n=COUNTS, alpha=st.floats(1e-12, 0.5))
def test_it_is_wider_than_the_interval_of_one_look_and_the_wider_the_surer(n, alpha):
    wide = standard_errors(n, alpha=alpha)
    assert wide > np.sqrt(-2.0 * np.log(alpha))
    assert wide < standard_errors(n, alpha=alpha / 2.0)


@given(n=COUNTS)
def test_the_interval_itself_narrows_with_every_value(n):
    widths = [standard_errors(count) / np.sqrt(count) for count in (n, n + max(1, n // 100))]
    assert widths[1] < widths[0]


@pytest.mark.parametrize("draw", ["normal", "exponential"])
def test_a_mean_that_is_looked_at_after_every_value_stays_within(draw):
    """500 runs of 20,000 values: at most 5 % may ever leave, from the 50th value on."""
    rng = np.random.default_rng(11)
    z = np.array([standard_errors(n) for n in range(1, 20_001)])
    n, left = np.arange(1, 20_001), 0
    for _ in range(500):
        values = getattr(rng, f"standard_{draw}")(20_000)
        mean = np.cumsum(values) / n
        variance = np.maximum(np.cumsum(values**2) / n - mean**2, 0.0)
        off = np.abs(mean - (draw == "exponential")) > z * np.sqrt(variance / n)
        left += bool(off[50:].any())
    assert left <= 25
