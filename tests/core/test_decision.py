"""Ties, exploration floor, and probabilities against the frequencies they promise."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textbook import first_of_the_best
from worlds import MORE

import vfbandits as vfb
from vfbandits.core.decision import first_best
from vfbandits.errors import NumericalError


@given(
    scores=st.lists(st.sampled_from([-1.0, 0.0, 1.0, 1.0 + 1e-13, 2.0, 2.0 - 1e-12]), min_size=1),
    scale=st.sampled_from([0.0, 1.0, 50.0]),
)
def test_the_first_of_the_tied_best_is_taken(scores, scale):
    assert first_best(np.array(scores), scale) == first_of_the_best(scores, scale)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_that_are_not_finite_are_an_error_and_never_a_choice(bad):
    with pytest.raises(NumericalError, match="finite"):
        first_best(np.array([0.0, bad, 1.0]), 1.0)


def test_the_caller_s_order_breaks_ties():
    bandit = vfb.Bandit(vfb.LinUCB(), dim=2)
    rows = [[1.0, 0.0], [0.0, 1.0]]
    assert bandit.decide(rows, arms=["left", "right"]).arm == "left"
    assert bandit.decide(rows, arms=["right", "left"]).arm == "right"


def trained(policy, *, floor=0.0, layout="per_arm", n_rewards=6):
    rng = np.random.default_rng(11)
    bandit = vfb.Bandit(policy, dim=3, floor=floor, layout=layout, seed=5)
    arms = None if layout == "per_arm" else list(range(5))
    for _ in range(n_rewards):
        X = rng.standard_normal((5, 3)) if layout == "per_arm" else rng.standard_normal(3)
        bandit.reward(bandit.decide(X, arms=arms), float(rng.standard_normal()))
    X = rng.standard_normal((5, 3)) if layout == "per_arm" else rng.standard_normal(3)
    return bandit, X, arms


@pytest.mark.parametrize("layout", ["per_arm", "disjoint"])
@pytest.mark.parametrize("floor", [0.0, 0.25])
@pytest.mark.parametrize(
    "policy",
    [
        vfb.LinUCB(beta=0.5),
        vfb.LinGreedy(epsilon=0.2),
        vfb.InverseGap(scale=3.0),
        vfb.LinTS(posterior_scale=0.5, n_draws=20_000),
        vfb.LinTS(posterior_scale=0.5, n_draws=20_000, space="parameter"),
    ],
)
def test_probabilities_are_the_frequencies_with_which_arms_are_chosen(policy, floor, layout):
    bandit, X, arms = trained(policy, floor=floor, layout=layout)
    decision = bandit.decide(X, arms=arms)
    promised = decision.probabilities
    n = 4_000
    chosen = [bandit.decide(X, arms=arms).index for _ in range(n)]
    counted = np.bincount(chosen, minlength=5) / n
    error = np.sqrt(promised * (1 - promised) / n) + decision.propensity.errors()
    assert promised.sum() == pytest.approx(1.0)
    assert (np.abs(counted - promised) <= 4.5 * error + 1e-9).all()
    assert decision.probability == promised[decision.index] > 0.0


def test_known_probabilities_are_exact_and_say_so():
    bandit, X, _ = trained(vfb.LinUCB(beta=0.5), floor=0.2)
    decision = bandit.decide(X)
    assert decision.probability_error == 0.0
    assert sorted(decision.probabilities)[:4] == pytest.approx([0.04] * 4)
    assert max(decision.probabilities) == pytest.approx(0.84)


def test_monte_carlo_probabilities_come_with_their_error_and_disturb_no_later_decision():
    policy = vfb.LinTS(posterior_scale=1.0, n_draws=500)
    asked, X, _ = trained(policy)
    silent, _, _ = trained(policy)
    first, other = asked.decide(X), silent.decide(X)
    assert 0.0 < first.probability_error < 0.03
    assert first.probability == first.probability
    assert [asked.decide(X).arm for _ in range(20)] == [silent.decide(X).arm for _ in range(20)]
    assert other.probability == first.probability


@pytest.mark.parametrize("space", ["arm", "parameter"])
def test_a_probability_asked_for_late_is_that_of_the_moment_of_the_decision(space):
    policy = vfb.LinTS(posterior_scale=0.5, space=space)
    early, X, _ = trained(policy)
    late, _, _ = trained(policy)
    buffer = X.copy()
    at_once, afterwards = early.decide(X), late.decide(buffer)
    wanted = at_once.probabilities
    buffer[:] = 99.0
    for _ in range(5):
        late.reward(late.decide(X), 10.0)
    late.reward(afterwards, 3.0)
    assert afterwards.probabilities == pytest.approx(wanted, abs=0.0)


@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(0.0, 50.0))
@settings(deadline=None, max_examples=50 * MORE)
def test_inverse_gap_weights_are_a_distribution_that_favours_the_best(seed, scale):
    rng = np.random.default_rng(seed)
    bandit = vfb.Bandit(vfb.InverseGap(scale=scale), dim=2, seed=1)
    for _ in range(3):
        bandit.reward(bandit.decide(rng.standard_normal((4, 2))), float(rng.standard_normal()))
    decision = bandit.decide(rng.standard_normal((4, 2)))
    p = decision.probabilities
    assert p.sum() == pytest.approx(1.0)
    assert p.min() > 0.0
    assert p[decision.means.argmax()] == pytest.approx(p.max())
    gaps = decision.means.max() - decision.means
    gamma = scale * np.sqrt(3)
    others = np.arange(4) != decision.means.argmax()
    assert p[others] == pytest.approx(1.0 / (4 + gamma * gaps[others]))


def test_a_decision_shows_no_context():
    bandit, X, _ = trained(vfb.LinUCB())
    decision = bandit.decide(X)
    wanted = f"Decision(id=6, arm={decision.arm}, index={decision.arm}, contributors=('all',))"
    assert repr(decision) == wanted


def test_a_notebook_shows_the_best_arms_of_a_decision_and_the_chosen_one():
    bandit, X, _ = trained(vfb.LinUCB())
    shown = bandit.decide(X)._repr_html_()
    assert shown.count("(chosen: ") == 1
    assert shown.count("<tr>") == 1 + len(X)
    rows = np.linspace(1.0, 2.0, 100)[:, None]
    always = vfb.Bandit(vfb.LinGreedy(epsilon=1.0), dim=1, seed=1)
    shown = always.decide(rows, arms=[f"<{i}>" for i in range(100)])._repr_html_()
    assert "20 of 100 arms are shown" in shown
    assert shown.count("(chosen: &lt;") == 1
    assert "(chosen: <" not in shown


def test_the_probabilities_of_a_named_decision_are_those_of_its_id():
    """The Monte Carlo behind them is seeded by bandit and id: exact equality, in any process."""

    def probabilities(event_id):
        bandit = vfb.Bandit(vfb.LinTS(n_draws=200), dim=3, seed=5)
        return bandit.decide(np.eye(3), event_id=event_id).probabilities.tolist()

    assert probabilities("a") == probabilities("a") != probabilities("b")
