"""What is timed of a server is what it does in a federation."""

import numpy as np
from benchmarks.shares import CASES, Federation, sample_contexts


def test_servers_that_repeat_rounds_alone_end_where_they_did_together():
    rounds = sample_contexts(6, 5)[:7]
    for case in CASES:
        n_rows = 5 if case.layout == "per_arm" else 1
        shared = Federation.of(case, dim=6, n_arms=5, n_participants=2)
        for _ in range(2):
            spent, before = shared.play([contexts[:n_rows] for contexts in rounds])
        local = shared.local
        pairs = zip(local.active.held(), before.active.held(), strict=True)
        assert all(np.array_equal(*pair) for pair in pairs), case.name
        assert local.active.n_rows == local.helper.n_rows > 0
        assert set(spent) >= {"A", "B", "participants"}
        assert min(spent.values()) >= 0.0
