"""The promise: behind any mask the same arm in every round."""

import numpy as np
import pytest
from hypothesis import given, settings
from worlds import cases

import vfbandits as vfb


@given(case=cases())
@settings(max_examples=400, deadline=None)
def test_masked_and_plain_choose_the_same_arm_in_every_round(case):
    report = vfb.parity(case.federation, case.rounds)
    assert report.total == len(case.rounds)
    assert report.first_difference is None, f"round {report.first_difference}"
    assert report.equal == report.total
    # Up to rounding, which grows with the condition of Lambda (ridge 0.01: about 1e4 here).
    assert report.largest_score_difference < 1e-8
    assert report.masked_norm == pytest.approx(report.plain_norm, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_a_bare_argmax_would_part_in_the_first_round_where_the_tie_rule_does_not(seed):
    """Unit contexts tie in round one: this is the case that the paper's claim overlooks."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((50, 10, 20))
    X /= np.linalg.norm(X, axis=2, keepdims=True)
    Q = vfb.sample_mask(20, entropy=rng.bytes)
    plain = np.sqrt(np.sum(X * X, axis=2))
    masked = np.sqrt(np.sum((X @ Q.T) ** 2, axis=2))
    assert (plain.argmax(axis=1) != masked.argmax(axis=1)).any()
    bandit = vfb.Bandit(vfb.LinUCB(beta=0.5), dim=20)
    assert all(bandit.decide(rows).index == 0 for rows in X)
    assert all(bandit.decide(rows @ Q.T).index == 0 for rows in X)


@pytest.mark.parametrize("policy", [vfb.LinUCB(beta=0.5), vfb.LinTS(posterior_scale=0.01)])
@pytest.mark.parametrize("mask", ["dense", "blockwise"])
def test_the_paper_s_own_setting_is_lossless_decision_for_decision(policy, mask):
    rng = np.random.default_rng(7)
    theta = rng.standard_normal(100)
    theta /= np.linalg.norm(theta)
    widths = {f"p{j}": 20 for j in range(5)}

    def rounds():
        for _ in range(400):
            X = rng.standard_normal((10, 100))
            X /= np.linalg.norm(X, axis=1, keepdims=True)
            blocks = dict(zip(widths, np.split(X, 5, axis=1), strict=True))
            yield blocks, X @ theta + 0.05 * rng.standard_normal(10)

    report = vfb.parity(lambda: vfb.Federation(policy, widths=widths, mask=mask, seed=3), rounds())
    assert (report.equal, report.total) == (400, 400)
    assert report.largest_score_difference < 1e-12


def test_parity_reports_a_difference_when_there_is_one():
    class FirstCoordinate:
        """Looks at widths in a way that depends on how often it was asked: not a fair policy."""

        def __init__(self):
            self.calls = 0

        def score(self, statistics, rng):
            del rng
            self.calls += 1
            values = np.array([float(self.calls % 2 == place) for place in range(2)])
            return vfb.core.policy.Scored(values)

    rounds = [({"a": np.eye(2)[:, :1], "b": np.eye(2)[:, 1:]}, np.zeros(2))] * 4
    report = vfb.parity(lambda: vfb.Federation(FirstCoordinate(), widths={"a": 1, "b": 1}), rounds)
    assert (report.equal, report.total, report.first_difference) == (0, 4, 0)
    assert not report.lossless


@pytest.mark.parametrize("policy", [vfb.LinGreedy(), vfb.LinUCB(beta=0.0), vfb.InverseGap()])
@pytest.mark.parametrize("mask", ["dense", "blockwise"])
def test_rewards_that_cancel_leave_ties_and_no_noise_to_decide_by(policy, mask):
    """u is zero again after +1 and −1: the estimate is rounding noise, on either side another."""
    rng = np.random.default_rng(5)
    widths = {"a": 3, "b": 2}
    for _ in range(20):
        X = rng.standard_normal((6, 5))
        X[:] = X[0]  # all arms alike, so every choice sees the same context
        other = rng.standard_normal((6, 5))
        rounds = []
        for contexts, reward in ((X, 1.0), (X, -1.0), (other, 0.0), (other, 0.0)):
            blocks = {"a": contexts[:, :3], "b": contexts[:, 3:]}
            rounds.append((blocks, np.full(6, reward)))
        report = vfb.parity(
            lambda: vfb.Federation(policy, widths=widths, mask=mask, seed=1), rounds
        )
        assert report.lossless
