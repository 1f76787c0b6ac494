"""What the active participant reads from the last bits of the numbers that it may see.

A released number is a sum of products x·W, where W was masked again and lost bits in that.  Server
A knows the bits that the *masked* W lost, and with them much of the error e of W.  If what is
released shows x·e, then one context asked for again and again, while nothing is learnt, tells its
coordinates: each is a slope of the released numbers in bits that A knows.
"""

from dataclasses import replace

import numpy as np
import pytest
from shares_world import Recorder, covariance_terms, local_shares, split_rows, unit_rows

from vfbandits.core import kernels
from vfbandits.core.ring import FRACTION, add, shifted_up
from vfbandits.core.shares.covariance import dealer as covariance_dealer
from vfbandits.core.shares.covariance import side as covariance_side
from vfbandits.core.shares.covariance.messages import Score, Scored
from vfbandits.core.shares.offer import Offer
from vfbandits.core.shares.sides import FINE_BITS, side

N_ASKS = 1_000
LOST = FINE_BITS - FRACTION
MOST = 4.0 / np.sqrt(N_ASKS)
FORMS = [
    ("per_arm", "means"),
    ("per_arm", "widths"),
    ("disjoint", "means"),
    ("disjoint", "widths"),
    ("outer", "means"),
    ("outer", "covariance"),
]
EACH_FORM = pytest.mark.parametrize(("layout", "reads"), FORMS)
OFFERS = {
    "per_arm": None,
    "disjoint": Offer((0, 1), 2),
    "outer": Offer(features=np.array([[0.6, -0.3], [0.2, 0.7]])),
}


def correlation(layout, reads):
    """Of a released number with the error that products of 44 bits would have, over all asks.

    It is the number of the first arm, or of the first arm feature.
    """
    rng = np.random.default_rng(1)
    # Rows are divided by √ridge: long ones show an error of 2^-44 above the rounding to 2^-40.
    sizes = {"ridge": 0.01, "window": 4, "decisions": N_ASKS + 4, "max_arms": 2}
    terms = covariance_terms(reads, "statistics", **sizes)
    terms = replace(terms, layout=layout, arm_dim=2 if layout == "outer" else 0)
    recorder, offer = Recorder(), OFFERS[layout]
    local = local_shares(terms, seed=1, on_message=recorder)
    rows = unit_rows(rng, 7, sum(terms.widths))[:, None]
    for row in rows[:6]:  # one fold, and rows in the next window
        local.learn(local.pick(local.decide(split_rows(row, terms), offer), 0), rng.uniform(-1, 1))
    x = np.kron(rows[6, 0], [1.0, 0.0]) if layout == "outer" else rows[6, 0]
    released, errors = [], []
    for _ in range(N_ASKS):
        recorder.messages.clear()
        came = local.decide(split_rows(rows[6], terms), offer).statistics
        released.append(came.means[0] if reads == "means" else came.forms[0])
        (asked,) = (one for one in recorder.view("helper") if isinstance(one, Score))
        (scored,) = (one for one in recorder.view("active", "helper") if isinstance(one, Scored))
        low = (asked.products[0, 0] + scored.products[0, 0]) % np.uint64(2**LOST)
        errors.append(low[: len(x)] / 2.0**LOST @ x)
    return abs(np.corrcoef(released, errors)[0, 1])


@EACH_FORM
def test_the_error_of_a_released_number_does_not_follow_what_a_server_knows(layout, reads):
    assert correlation(layout, reads) < MOST


@EACH_FORM
def test_with_products_of_44_bits_it_would(layout, reads, monkeypatch):
    """So the test above can see it."""
    reopen_side, reopened_mask = covariance_side.reopen_side, covariance_dealer.reopened_mask

    def coarse_side(one, other, mask, base, *, bits=FRACTION):
        if bits == FRACTION:
            return reopen_side(one, other, mask, base)
        n = one.shape[1]
        opened = reopen_side(one, other, np.zeros_like(mask), np.zeros_like(base))
        return add(side(shifted_up(opened, LOST), mask[:, :n]), base[:, :n])

    def coarse_mask(mask, *, bits=FRACTION):
        return shifted_up(reopened_mask(mask), LOST) if bits > FRACTION else reopened_mask(mask)

    monkeypatch.setattr(kernels, "load_covariance", lambda: None)
    monkeypatch.setattr(covariance_side, "reopen_side", coarse_side)
    monkeypatch.setattr(covariance_dealer, "reopened_mask", coarse_mask)
    assert correlation(layout, reads) > MOST
