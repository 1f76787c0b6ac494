"""What the active participant reads from the last bits of the numbers that it may see.

A released number is a sum of products x·W, where W was masked again and lost bits in that.  Server
A knows the bits that the *masked* W lost, and with them much of the error e of W.  If what is
released shows x·e, then one context asked for again and again, while nothing is learnt, tells its
coordinates: each is a slope of the released numbers in bits that A knows.
"""

import numpy as np
import pytest
from shares_world import Recorder, covariance_terms, local_shares, split_rows, unit_rows

N_ASKS = 300


@pytest.mark.parametrize("reads", ["means", "widths"])
def test_the_error_of_a_released_number_does_not_follow_what_a_server_knows(reads):
    rng = np.random.default_rng(0)
    terms = covariance_terms(reads, "statistics", ridge=1.0, window=4, decisions=N_ASKS + 4)
    contexts = unit_rows(rng, 1, terms.dim)
    recorder = Recorder()
    local = local_shares(terms, on_message=recorder)
    for X in unit_rows(rng, 6, terms.dim)[:, None]:  # one fold, and rows in the next window
        local.learn(local.pick(local.decide(split_rows(X, terms)), 0), rng.uniform(-1.0, 1.0))
    released, low = [], []
    for _ in range(N_ASKS):
        recorder.messages.clear()
        came = local.decide(split_rows(contexts, terms)).statistics
        released.append(came.means[0] if reads == "means" else came.forms[0])
        asked, scored = recorder.view("helper")[0], recorder.view("active", "helper")[0]
        low.append((asked.products[0, 0] + scored.products[0, 0]) % np.uint64(2**9))
    error = (np.array(low, dtype=float) / 2**9)[:, : terms.dim] @ contexts[0]
    assert abs(np.corrcoef(released, error)[0, 1]) < 4.0 / np.sqrt(N_ASKS)
