"""Each policy against the textbook, and its law."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import stats
from textbook import Textbook, first_of_the_best
from worlds import KINDS, MORE, contexts

import vfbandits as vfb


@given(
    kind=st.sampled_from(KINDS),
    dim=st.integers(1, 6),
    ridge=st.sampled_from([0.1, 1.0, 5.0]),
    discount=st.sampled_from([1.0, 0.9]),
    beta=st.sampled_from([0.0, 0.5, 2.0]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(deadline=None, max_examples=60 * MORE)
def test_linucb_chooses_what_the_textbook_chooses(kind, dim, ridge, discount, beta, seed):
    rng = np.random.default_rng(seed)
    bandit = vfb.Bandit(vfb.LinUCB(beta=beta), dim=dim, ridge=ridge, discount=discount)
    book = Textbook(dim, ridge=ridge, discount=discount)
    for _ in range(15):
        X = contexts(rng, kind, int(rng.integers(1, 7)), dim)
        decision = bandit.decide(X)
        scores = book.ucb(X, beta)
        assert_allclose(decision.scores, scores, rtol=1e-6, atol=1e-8)
        one = max(map(abs, book.rewards), default=0.0) / (2 * np.sqrt(ridge))
        scale = np.linalg.norm(X) * (np.linalg.norm(book.theta) + one)
        assert decision.index == first_of_the_best(scores, scale)
        reward = float(np.rint(rng.standard_normal()))
        bandit.reward(decision, reward)
        book.learn(X[decision.index], reward)


@pytest.mark.parametrize("layout", ["outer", "disjoint"])
@pytest.mark.parametrize("intercept", [False, True])
def test_the_other_layouts_are_the_textbook_on_the_contexts_they_stand_for(layout, intercept):
    rng = np.random.default_rng(8)
    bandit = vfb.Bandit(
        vfb.LinUCB(beta=0.7),
        dim=3,
        layout=layout,
        intercept=intercept,
        arm_dim=2 if layout == "outer" else None,
    )
    one = [1.0] if intercept else []
    shared = Textbook((3 + len(one)) * (2 + len(one)))
    single = {arm: Textbook(3 + len(one)) for arm in "abcd"}
    for _ in range(40):
        arms = [str(arm) for arm in rng.permutation(list("abcd"))[: rng.integers(1, 5)]]
        u, W = rng.standard_normal(3), rng.standard_normal((len(arms), 2))
        if layout == "outer":
            X = np.array([np.kron([*one, *u], [*one, *w]) for w in W])
            wanted = shared.ucb(X, 0.7)
            decision = bandit.decide(u, arms=arms, arm_features=W)
        else:
            row = np.array([[*one, *u]])
            wanted = np.array([single[arm].ucb(row, 0.7)[0] for arm in arms])
            decision = bandit.decide(u, arms=arms)
        assert_allclose(decision.scores, wanted, rtol=1e-7)
        assert decision.arm == arms[int(wanted.argmax())]
        bandit.reward(decision, float(u.sum()))
        if layout == "outer":
            shared.learn(X[decision.index], float(u.sum()))
        else:
            single[decision.arm].learn(row[0], float(u.sum()))


def test_oful_s_radius_is_the_published_formula():
    rng = np.random.default_rng(3)
    schedule = vfb.OFUL(noise=0.3, norm_bound=2.0, delta=0.1)
    bandit = vfb.Bandit(vfb.LinUCB(beta=schedule), dim=3, ridge=0.5)
    book = Textbook(3, ridge=0.5)
    for _ in range(20):
        X = rng.standard_normal((4, 3))
        decision = bandit.decide(X)
        growth = np.linalg.slogdet(book.Lambda)[1] - 3 * np.log(0.5)
        beta = 0.3 * np.sqrt(growth + 2 * np.log(10.0)) + np.sqrt(0.5) * 2.0
        assert_allclose(decision.scores, book.ucb(X, beta), rtol=1e-8)
        bandit.reward(decision, 1.0)
        book.learn(X[decision.index], 1.0)


def test_oful_covers_the_truth_as_often_as_it_says():
    """In every round of at least 1 − delta of the runs; here far more, the bound is not tight."""
    covered = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        theta = rng.standard_normal(4)
        theta /= np.linalg.norm(theta)
        bandit = vfb.Bandit(vfb.LinUCB(beta=vfb.OFUL(noise=0.5, delta=0.1)), dim=4)
        always = True
        for _ in range(60):
            X = rng.standard_normal((5, 4))
            decision = bandit.decide(X)
            always &= bool((decision.scores >= X @ theta - 1e-9).all())
            x = X[decision.index]
            bandit.reward(decision, float(x @ theta + 0.5 * rng.standard_normal()))
        covered += always
    assert covered >= 54


def law(policy, layout="per_arm", n=20_000):
    """Empirical mean and covariance of LinTS scores, with the textbook's."""
    rng = np.random.default_rng(12)
    bandit = vfb.Bandit(policy, dim=3, ridge=0.5, seed=2)
    book = Textbook(3, ridge=0.5)
    for _ in range(5):
        X = rng.standard_normal((2, 3))
        decision = bandit.decide(X)
        bandit.reward(decision, 1.0)
        book.learn(X[decision.index], 1.0)
    X = rng.standard_normal((4, 3))
    draws = np.array([bandit.decide(X).scores for _ in range(n)])
    return draws, book.means(X), book.covariance(X)


@pytest.mark.parametrize("space", ["arm", "parameter"])
def test_lints_draws_from_its_posterior_in_both_spaces(space):
    draws, means, C = law(vfb.LinTS(posterior_scale=0.4, space=space))
    n = len(draws)
    assert_allclose(draws.mean(axis=0), means, atol=5 * 0.4 * np.sqrt(C.max() / n))
    assert_allclose(np.cov(draws.T), 0.16 * C, atol=0.16 * 6 * C.max() / np.sqrt(n))
    for arm in range(4):
        standard = (draws[:, arm] - means[arm]) / (0.4 * np.sqrt(C[arm, arm]))
        assert stats.kstest(standard, "norm").pvalue > 1e-4
    # A direction in which arms are correlated: the joint law, not only its margins.
    a = np.array([1.0, -2.0, 0.5, 1.0])
    joint = (draws - means) @ a / (0.4 * np.sqrt(a @ C @ a))
    assert stats.kstest(joint, "norm").pvalue > 1e-4


def test_lints_in_auto_space_switches_when_there_are_more_arms_than_dimensions():
    bandit = vfb.Bandit(vfb.LinTS(), dim=3, seed=1)
    bandit.decide(np.ones((3, 3)))
    assert bandit.states[None].form.name == "inverse"
    bandit.decide(np.ones((4, 3)))
    assert bandit.states[None].form.name == "root"


def test_discounted_policies_find_the_new_best_arm_after_a_change_and_others_stay_behind():
    def regret(discount):
        rng = np.random.default_rng(4)
        bandit = vfb.Bandit(vfb.LinUCB(beta=0.3), dim=3, discount=discount)
        theta, lost = np.array([1.0, 0.0, 0.0]), 0.0
        for round_number in range(3_000):
            if round_number == 1_500:
                theta = -theta
            X = rng.standard_normal((5, 3))
            decision = bandit.decide(X)
            mean = X @ theta
            lost += mean.max() - mean[decision.index]
            bandit.reward(decision, float(mean[decision.index] + 0.1 * rng.standard_normal()))
        return lost

    assert 5 * regret(0.98) < regret(1.0)


@pytest.mark.parametrize(
    "policy",
    [vfb.LinUCB(beta=0.5), vfb.LinTS(posterior_scale=0.1), vfb.LinGreedy(epsilon=0.05),
     vfb.InverseGap(scale=50.0)],
)  # fmt: skip
def test_every_policy_learns(policy):
    """A tenth of the regret of choosing at random, after a short while, in a plain world."""
    rng = np.random.default_rng(6)
    theta = rng.standard_normal(5)
    bandit = vfb.Bandit(policy, dim=5, seed=1)
    lost, random = 0.0, 0.0
    for round_number in range(2_000):
        X = rng.standard_normal((6, 5))
        mean = X @ theta
        decision = bandit.decide(X)
        bandit.reward(decision, float(mean[decision.index] + 0.1 * rng.standard_normal()))
        if round_number >= 500:
            lost += mean.max() - mean[decision.index]
            random += mean.max() - mean.mean()
    assert lost < 0.1 * random
