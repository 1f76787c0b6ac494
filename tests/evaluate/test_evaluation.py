"""The whole evaluation: frozen and learning targets, masked and plain."""

import numpy as np
import pytest

import vfbandits as vfb
from vfbandits.errors import SettingError
from vfbandits.evaluate import (
    ESTIMATORS,
    Bootstrap,
    EvaluationSettings,
    LoggedBandit,
    evaluate,
    split_log,
    target_probabilities,
    teach,
)
from vfbandits.evaluate.diagnosis import (
    MODEL_ERROR,
    doubts_about_model,
    doubts_about_weights,
    merge_doubts,
)
from vfbandits.evaluate.player import AgentFactory
from vfbandits.simulate.processes import ProcessEngine

WIDTHS = {"shop": 2, "bank": 3, "news": 2}
OWNERS = ["shop", "bank", "news", "bank", "shop", "bank", "news"]
FEW = EvaluationSettings(bootstrap=Bootstrap(n_resamples=200))
POLICIES = {
    "linucb": vfb.LinUCB(beta=0.5),
    "lints": vfb.LinTS(posterior_scale=0.3, n_draws=50),
    "lingreedy": vfb.LinGreedy(epsilon=0.2),
    "inverse_gap": vfb.InverseGap(scale=5.0),
}
MASKS = {
    "blockwise": {"mask": "blockwise"},
    "dense": {"mask": "dense"},
    "secure": {"mask": "dense", "aggregation": "secure"},
}

HEAVY = np.r_[np.full(150, 30.0), np.full(5000, 0.1)]


def federated_log(layout, *, n=240, seed=0):
    """Rewards linear in the context; logged uniformly over four arms."""
    rng = np.random.default_rng(seed)
    contexts = rng.standard_normal((n, 4, 7) if layout == "per_arm" else (n, 7))
    chosen = rng.integers(4, size=n)
    features = rng.standard_normal((4, 2)) if layout == "outer" else None
    mine = contexts[np.arange(n), chosen] if layout == "per_arm" else contexts
    rewards = mine @ rng.standard_normal(7) * (1.0 + chosen) + rng.standard_normal(n)
    return LoggedBandit.of(
        contexts,
        chosen,
        rewards=rewards,
        probabilities=np.full(n, 0.25),
        arms=["a", "b", "c", "d"],
        layout=layout,
        arm_features=features,
        owners=OWNERS,
    )


def options(layout):
    return {"layout": layout, "arm_dim": 2 if layout == "outer" else None, "seed": 5}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("layout", ["per_arm", "outer", "disjoint"])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_masked_federation_gets_the_plain_bandits_numbers(policy, layout, mask):
    """Up to rounding, every estimator: value, interval and effective size."""
    log = federated_log(layout)
    plain, masked = (
        evaluate(log, make, rng=np.random.default_rng(1), settings=FEW)
        for make in (
            lambda: vfb.Bandit(POLICIES[policy], dim=7, **options(layout)),
            lambda: vfb.Federation(
                POLICIES[policy], widths=WIDTHS, **MASKS[mask], **options(layout)
            ),
        )
    )
    assert [one.estimator for one in plain] == list(ESTIMATORS)
    for one, other in zip(plain, masked, strict=True):
        assert (other.value, other.low, other.high, other.effective_size) == pytest.approx(
            (one.value, one.low, one.high, one.effective_size), rel=1e-6, abs=1e-9
        )
        assert other.doubts == one.doubts


@pytest.mark.parametrize("layout", ["per_arm", "outer", "disjoint"])
def test_a_taught_bandit_knows_what_the_log_did_and_nothing_else(layout):
    """Lambda and u against sums over the logged arms."""
    log = federated_log(layout, n=50)
    agent = teach(vfb.Bandit(vfb.LinUCB(), dim=7, **options(layout)), log)
    for arm, state in agent.states.items():
        rows = np.array(
            [
                {"per_arm": lambda i: log.contexts[i, log.chosen[i]],
                 "outer": lambda i: np.kron(log.contexts[i], log.arm_features[log.chosen[i]]),
                 "disjoint": lambda i: log.contexts[i]}[layout](i)
                for i in range(50) if arm is None or log.arms[log.chosen[i]] == arm
            ]
        )  # fmt: skip
        keep = [i for i in range(50) if arm is None or log.arms[log.chosen[i]] == arm]
        theta = np.linalg.solve(rows.T @ rows + np.eye(rows.shape[1]), rows.T @ log.rewards[keep])
        np.testing.assert_allclose(state.theta, theta, rtol=1e-8, atol=1e-10)


def test_asking_for_probabilities_teaches_nothing_and_leaves_nothing_open():
    log = federated_log("disjoint")
    agent = vfb.Bandit(vfb.LinGreedy(epsilon=0.2), dim=7, **options("disjoint"))
    probabilities = target_probabilities(agent, log)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert set(np.round(probabilities.ravel(), 6)) == {0.05, 0.85}
    assert (agent.states, agent.open_decisions) == ({}, ())


def test_probabilities_of_thompson_sampling_are_those_of_many_decisions():
    """In distribution: shares of 4,000 decisions of the frozen bandit, one round."""
    log = federated_log("disjoint")
    agent = teach(
        vfb.Bandit(vfb.LinTS(posterior_scale=2.0, n_draws=4000), dim=7, **options("disjoint")), log
    )
    probabilities = target_probabilities(agent, log.select(slice(0, 1)))[0]
    decisions = [agent.decide(log.contexts[0], arms=log.arms).index for _ in range(4000)]
    shares = np.bincount(decisions, minlength=4) / 4000
    assert np.abs(shares - probabilities).max() < 4.0 * np.sqrt(2 * 0.25 / 4000)


def test_the_first_rounds_teach_and_the_rest_judges():
    log = federated_log("disjoint", n=10)
    first, rest = split_log(log, train_share=0.35)
    assert (len(first), len(rest)) == (3, 7)
    np.testing.assert_array_equal(rest.rewards, log.rewards[3:])
    assert split_log(log, train_share=0.0)[0] is None
    with pytest.raises(SettingError, match=r"train_share must be in \[0, 1\), got 1.0"):
        split_log(log, train_share=1.0)


def test_more_teaching_makes_a_better_target(world):
    """A greedy target on a log that prefers the wrong arms; the truth is known."""
    log, _ = world.sample(4000, np.random.default_rng(3))
    best = float(world.means.max(axis=1).mean())
    estimates = evaluate(
        log,
        lambda: vfb.Bandit(vfb.LinGreedy(), dim=3, layout="disjoint", seed=0),
        rng=np.random.default_rng(0),
        estimators=["snips", "dr"],
        settings=FEW,
    )
    for one in estimates:
        assert one.low < best < one.high
        assert one.relative > 1.5
        assert 0.0 < one.gain_low < best - one.logging_value < one.gain_high
        assert one.doubts == ()


def test_the_same_seed_gives_the_same_evaluation():
    log = federated_log("disjoint")
    runs = [
        evaluate(
            log,
            lambda: vfb.Bandit(vfb.LinTS(), dim=7, **options("disjoint")),
            rng=np.random.default_rng(4),
            settings=FEW,
        )
        for _ in range(2)
    ]
    assert runs[0] == runs[1]


def test_an_estimate_does_not_depend_on_which_others_are_asked_for():
    log = federated_log("disjoint")

    def run(names):
        return evaluate(
            log,
            lambda: vfb.Bandit(vfb.LinGreedy(epsilon=0.1), dim=7, **options("disjoint")),
            rng=np.random.default_rng(4),
            estimators=names,
            settings=FEW,
        )

    together = {one.estimator: one for one in run(ESTIMATORS)}
    for name in ESTIMATORS:
        assert run([name]) == [together[name]]


@pytest.mark.parametrize(("usual", "others"), [(0.0, 0), (1.0, 0), (1.0, 3), (-2.0, 9)])
def test_rewards_that_are_nearly_all_the_same_are_a_reason_to_doubt(usual, others):
    """SNIPS would say "1 to 1": the value of rounds that happen to be alike."""
    rewards = np.full(400, usual)
    rewards[:others] = 5.0
    (told,) = doubts_about_weights(np.ones(400), rewards)
    said = "rewards other than" if others else "no round of weight has a reward other than"
    assert told.startswith(f"{said} {usual:g}")


def test_rewards_that_differ_are_no_reason_to_doubt():
    rewards = np.r_[np.ones(390), np.zeros(10)]
    assert doubts_about_weights(np.ones(400), rewards) == ()


def test_doubts_are_told(world):
    log, _ = world.sample(60, np.random.default_rng(0))
    make = lambda: vfb.Bandit(vfb.LinGreedy(), dim=3, layout="disjoint", seed=0)  # noqa: E731
    by_name = {
        one.estimator: " | ".join(one.doubts)
        for one in evaluate(log, make, rng=np.random.default_rng(0), settings=FEW)
    }
    assert "the log is not uniform, so replay is biased" in by_name["replay"]
    assert "of 60 rounds matched" in by_name["replay"]
    assert "effective sample size is" in by_name["ips"]
    weak = "the reward model predicts unseen rounds no better than their mean"
    assert by_name["dm"] == f"{weak} | {MODEL_ERROR}"
    assert by_name["dr"] == f"{by_name['ips']} | {weak}"


@pytest.mark.parametrize(
    ("weights", "rewards", "clip", "doubt"),
    [
        (np.zeros(200), np.ones(200), None, "the target never plays a logged arm"),
        (np.r_[100.0, np.full(199, 0.5)], np.ones(200), None, "one round carries 50% of the"),
        (np.full(200, 0.4), np.ones(200), None, "weights average 0.40, wanted 1"),
        (np.r_[np.full(150, 0.9), np.full(50, 2.0)], np.ones(200), 2.0, "cut 50 weights"),
        (
            np.ones(200),
            np.r_[np.ones(3), np.zeros(197)],
            None,
            "in rounds of weight: only 3",
        ),
        (np.ones(200), np.zeros(200), None, "the interval is too narrow"),
        (HEAVY, (HEAVY < 1.0).astype(float), None, "no round of weight has a reward"),
    ],
    ids=["none", "heavy", "average", "clipped", "few", "no_reward", "no_heavy_reward"],
)
def test_each_reason_to_doubt_has_its_sentence(weights, rewards, clip, doubt):
    assert any(doubt in told for told in doubts_about_weights(weights, rewards, clip=clip))


def test_the_logging_policy_gains_nothing_over_itself_and_no_doubt_is_left():
    """A uniform target on a uniform log: the same rounds, weight 1 each."""
    log = federated_log("disjoint", n=2000)
    names = ["ips", "snips"]
    for one in evaluate(
        log,
        lambda: vfb.Bandit(vfb.LinGreedy(epsilon=1.0), dim=7, **options("disjoint")),
        rng=np.random.default_rng(0),
        estimators=names,
        settings=FEW,
    ):
        assert (one.gain_low, one.gain_high) == pytest.approx((0.0, 0.0), abs=1e-12)
        assert one.value == pytest.approx(log.rewards[1000:].mean())
        assert one.doubts == ()


def test_a_model_that_is_no_better_than_the_mean_is_told():
    noise = np.random.default_rng(0).standard_normal((2, 100))
    assert "no better than their mean" in doubts_about_model(*noise)[0]
    assert doubts_about_model(noise[0], 0.5 * noise[0]) == ()
    assert doubts_about_model(np.ones(9), np.ones(9)) == ()


def test_doubts_that_differ_in_figures_only_are_one_with_their_range_and_count():
    doubts = [
        "effective sample size is 41 of 500 rounds",
        "weights average 0.72, wanted 1: the log may lack arms",
        "effective sample size is 9 of 500 rounds",
        "effective sample size is 9 of 500 rounds",
        "the log is not uniform",
    ]
    assert merge_doubts(doubts) == {
        "effective sample size is 9 to 41 of 500 rounds": 3,
        "weights average 0.72, wanted 1: the log may lack arms": 1,
        "the log is not uniform": 1,
    }
    assert merge_doubts([]) == {}


def test_good_weights_raise_no_doubt():
    weights = np.random.default_rng(0).choice([0.5, 1.5], size=500)
    assert doubts_about_weights(weights, np.arange(500.0) % 7) == ()


def test_a_replay_without_a_match_has_no_value_and_no_interval():
    log = LoggedBandit.of(
        np.ones((9, 1)), [1] * 9, rewards=np.ones(9), probabilities=np.ones(9), arms=["a", "b"]
    )
    one = evaluate(
        log,
        lambda: vfb.Bandit(vfb.LinGreedy(), dim=1, layout="disjoint"),
        rng=np.random.default_rng(0),
        estimators=["replay"],
    )[0]
    assert (one.value, one.low, one.high, one.relative, one.effective_size) == (*[None] * 4, 0.0)
    assert "only 0 of 9 rounds matched" in one.doubts


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: vfb.Bandit(vfb.LinUCB(), dim=7), "log's layout 'disjoint', got 'per_arm'"),
        (lambda: vfb.Bandit(vfb.LinUCB(), dim=3, layout="disjoint"), "of width 7, got 3"),
        (
            lambda: vfb.Federation(vfb.LinUCB(), widths={"a": 3, "b": 4}, layout="disjoint"),
            "the log's participants",
        ),
    ],
    ids=["layout", "width", "participants"],
)
def test_a_target_that_does_not_fit_the_log_is_refused(make, message):
    with pytest.raises(SettingError, match=message):
        evaluate(federated_log("disjoint"), make, rng=np.random.default_rng(0))


@pytest.mark.parametrize("names", [["magic"], [], ["ips", "ips"]], ids=["unknown", "none", "twice"])
def test_estimators_must_be_known_and_come_once(names):
    log = federated_log("disjoint")
    with pytest.raises(SettingError, match="estimators must be some of replay, ips"):
        evaluate(log, lambda: None, rng=np.random.default_rng(0), estimators=names)


def test_the_engine_changes_no_number():
    """Exact: frozen and learning targets in processes of their own."""
    log = federated_log("disjoint")
    make = AgentFactory(vfb.LinTS(posterior_scale=0.3, n_draws=50), 7, options("disjoint"))
    told = []
    here, there = (
        evaluate(
            log,
            make,
            rng=np.random.default_rng(1),
            settings=FEW,
            engine=engine,
            on_step=told.append,
        )
        for engine in (None, ProcessEngine(2))
    )
    assert here == there
    assert told[-1] == len(log)
