"""``Federation(protection="shares")``: the central bandit's arms, and refusals with the reason."""

import copy
import pickle

import numpy as np
import pytest
from plain_loops import needs_loops
from shares_world import GivenDraws, unit_rows

import vfbandits as vfb
from vfbandits.core.move import Rotation
from vfbandits.core.policy.base import Scored
from vfbandits.errors import (
    ArmError,
    ContextError,
    RewardError,
    SettingError,
    SharesError,
    SnapshotError,
)

WIDTHS = {"shop": 2, "bank": 3}


def federation(policy=None, *, widths=None, **options):
    options = {"protection": "shares", "helper": "bank", **options}
    return vfb.Federation(policy or vfb.LinTS(0.1), widths=widths or WIDTHS, **options)


def equal_arms(*, rounds, widths, n_arms, max_late, seed, policy, release="arm"):
    """How many arms a federation on shares and a plain bandit have in common, and score errors.

    A bandit that draws noise where the arm is released gets the noise of the servers.
    """
    rng = np.random.default_rng(seed)
    shared = federation(policy, widths=widths, entropy=rng.bytes, release=release, seed=seed)
    twin, draws = shared.twin(), GivenDraws()
    is_noisy = release == "arm" and isinstance(policy, vfb.LinTS)
    if is_noisy:
        twin.draw_from(draws)
    error = 0.0
    dim = sum(widths.values())
    theta_star = rng.standard_normal(dim) / np.sqrt(dim)
    due: list[list] = [[] for _ in range(rounds + max_late + 1)]
    equal = 0
    for number in range(rounds):
        X = unit_rows(rng, n_arms, dim)
        blocks = dict(
            zip(widths, np.split(X, np.cumsum(list(widths.values()))[:-1], 1), strict=True)
        )
        decision = shared.decide(blocks)
        if is_noisy:
            draws.normals = shared.noise_of(decision)
        plain = twin.decide(X)
        if release == "statistics":
            error = max(error, float(np.abs(decision.scores - plain.scores).max()))
        equal += decision.index == plain.index
        reward = float(X[decision.index] @ theta_star + 0.05 * rng.standard_normal())
        due[number + int(rng.integers(max_late + 1))].append((decision, plain, reward))
        for decision, plain, reward in rng.permutation(
            np.array(due[number], dtype=object)
        ).tolist():
            assert shared.reward(decision, reward)
            twin.reward(plain, reward)
    return equal, error


POLICIES = [
    (vfb.LinTS(0.1), "arm"),
    (vfb.LinGreedy(), "arm"),
    (vfb.LinUCB(0.5), "arm"),
    (vfb.LinUCB(0.5), "statistics"),
    (vfb.LinGreedy(0.1), "statistics"),
    (vfb.LinTS(0.1), "statistics"),
    (vfb.InverseGap(), "statistics"),
]


@needs_loops
@pytest.mark.parametrize(("policy", "release"), POLICIES)
def test_a_federation_on_shares_chooses_the_arms_of_a_plain_bandit(policy, release):
    widths = {"shop": 4, "bank": 4, "post": 4}
    options = {"policy": policy, "release": release}
    equal, error = equal_arms(rounds=120, widths=widths, n_arms=5, max_late=20, seed=7, **options)
    assert equal == 120
    assert error < 1e-10


@pytest.mark.long
@pytest.mark.parametrize(
    ("policy", "release", "seed"),
    [(*case, 1) for case in POLICIES]
    + [(vfb.LinUCB(0.5), release, seed) for release in ("arm", "statistics") for seed in (2, 3)],
)
def test_five_thousand_decisions_with_late_rewards_have_the_arms_of_a_plain_bandit(
    policy, release, seed
):
    widths = {"shop": 20, "bank": 20, "post": 20, "rail": 20, "tax": 20}
    options = {"policy": policy, "release": release}
    equal, error = equal_arms(
        rounds=5_000, widths=widths, n_arms=10, max_late=200, seed=seed, **options
    )
    assert equal == 5_000
    assert error < 1e-9


def blocks(n_arms=2):
    rng = np.random.default_rng(n_arms)
    return {"shop": 0.5 * unit_rows(rng, n_arms, 2), "bank": 0.5 * unit_rows(rng, n_arms, 3)}


def test_rewards_are_learnt_once():
    shared = federation()
    decision = shared.decide(blocks(), arms=["tea", "milk"])
    assert decision.arm in ("tea", "milk")
    assert shared.reward(decision, 1.0)
    assert not shared.reward(decision, 1.0)
    with pytest.raises(RewardError, match="already has the reward 1"):
        shared.reward(decision, 0.0)


def test_several_rewards_are_learnt_one_by_one():
    shared = federation()
    decisions = [shared.decide(blocks()) for _ in range(3)]
    with pytest.raises(RewardError, match="at most 16 in size, got 99"):
        shared.reward_many(decisions, [1.0, 0.0, 99.0])
    assert shared.reward_many(decisions, [1.0, 0.0, 1.0]) == 3


def test_the_active_participant_sees_the_arm_alone():
    decision = federation().decide(blocks())
    assert np.isnan(decision.scores).all()
    assert np.isnan(decision.means).all()
    with pytest.raises(SettingError, match="probability of an arm is not released"):
        _ = decision.probability
    assert "position" in decision._repr_html_()


def test_a_greedy_policy_knows_its_probabilities():
    decision = federation(vfb.LinGreedy(epsilon=0.2)).decide(blocks())
    assert sorted(decision.probabilities) == pytest.approx([0.1, 0.9])


def test_a_floor_shows_other_arms_and_they_are_learnt():
    shared = federation(floor=1.0, seed=1)
    shown = set()
    for _ in range(20):
        decision = shared.decide(blocks())
        shown.add(decision.index)
        shared.reward(decision, 0.5)
    assert shown == {0, 1}


def test_a_helper_without_features_decides_and_learns_like_one_that_has_some():
    def plays(helper):
        shared = federation(helper=helper, entropy=np.random.default_rng(5).bytes, seed=1)
        arms = []
        for _ in range(30):
            decision = shared.decide(blocks())
            assert decision.contributors == ("shop", "bank")
            arms.append(decision.arm)
            shared.reward(decision, float(decision.index))
        return arms, shared.estimate_norm()

    assert plays("notary") == plays("bank")
    assert "helper='notary' (without features), " in repr(federation(helper="notary"))


def test_a_missing_participant_counts_as_zeros():
    shared = federation(seed=1)
    decision = shared.decide({"shop": blocks()["shop"]})
    assert decision.contributors == ("shop",)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"helper": None}, "needs helper, bank or a party without features, got None"),
        ({"helper": "shop"}, "got 'shop': the active participant is the other server"),
        ({"helper": ""}, "needs helper, bank or a party without features, got ''"),
        ({"discount": 0.99}, "cannot forget: .* wanted discount 1, got 0.99"),
        ({"layout": "outer"}, "arm_dim"),
        ({"arm_bound": 0.0}, "arm_bound must be a positive number, got 0.0"),
        ({"accept_leak": ["bnak"]}, "accept_leak names passive participants, bank, got 'bnak'"),
        ({"mask": "dense"}, "needs mask='blockwise'"),
        ({"max_arms": 65}, "max_arms must be at most 64"),
        ({"bound": 64.0}, "must be at most 16 on secret shares, got 90.5"),
        ({"protection": "share"}, "protection must be one of mask, sum, shares, got 'share'"),
        ({"protection": "mask"}, "only protection 'shares' has a helper, got helper 'bank'"),
        (
            {"protection": "mask", "helper": None, "release": "arm"},
            "only protection 'shares' has a release, got release 'arm'",
        ),
        ({"release": "arms"}, "release must be one of arm, statistics, got 'arms'"),
        ({"protection": "sum", "helper": None}, "'sum' does not go with aggregation='plain'"),
    ],
)
def test_settings_that_shares_are_not_built_for_are_refused(options, reason):
    with pytest.raises(SettingError, match=reason):
        federation(**options)


def test_shares_do_not_go_with_secure_sums():
    widths = {"shop": 1, "bank": 1, "post": 1}
    with pytest.raises(SettingError, match="'shares' does not go with aggregation='secure'"):
        federation(widths=widths, mask="dense", aggregation="secure")


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (vfb.InverseGap(), "got InverseGap: .* as release='statistics' opens"),
        (vfb.LinUCB(vfb.OFUL(noise=0.1)), "got an OFUL schedule: it reads det Lambda"),
        (vfb.LinTS(space="arm"), "got space 'arm', which needs the covariance"),
    ],
)
def test_policies_that_need_statistics_are_refused(policy, reason):
    with pytest.raises(SettingError, match=reason):
        federation(policy)


class Cautious:
    def score(self, statistics, rng):
        del rng
        return Scored(statistics.means - statistics.widths)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (vfb.LinTS(space="parameter"), "draws LinTS in arm space"),
        (Cautious(), "knows what LinTS, LinUCB, LinGreedy and InverseGap read, got Cautious"),
        (vfb.LinUCB(vfb.OFUL(noise=0.1)), "got an OFUL schedule"),
    ],
)
def test_policies_that_read_what_is_never_released_are_refused(policy, reason):
    with pytest.raises(SettingError, match=reason):
        federation(policy, release="statistics")


@pytest.mark.parametrize(
    ("policy", "release", "learns"),
    [
        (vfb.LinTS(), "arm", "the arm of a decision"),
        (vfb.LinGreedy(), "arm", "the arm of a decision"),
        (vfb.LinUCB(), "arm", "the arm and the widths of all arms of a decision"),
        (vfb.LinUCB(), "statistics", "the means and widths of all arms of a decision"),
        (vfb.InverseGap(), "statistics", "the means of all arms of a decision"),
        (vfb.LinTS(), "statistics", "the means and the covariance of all arms of a decision"),
    ],
)
def test_what_is_released_is_named(policy, release, learns):
    shared = federation(policy, release=release)
    assert shared.learns == learns
    assert f"release={release!r} ({learns})" in repr(shared)


def test_released_statistics_are_those_that_the_policy_reads():
    decision = federation(vfb.LinUCB(0.5), release="statistics").decide(blocks())
    assert np.isfinite(decision.scores).all()
    assert decision.probability == 1.0
    drawn = federation(vfb.LinTS(0.1), release="statistics", seed=3).decide(blocks())
    assert 0.0 < drawn.probability <= 1.0
    shared = federation(vfb.LinGreedy(), release="statistics")
    learner = shared._learner  # noqa: SLF001
    reference = learner.gather(list(blocks().values()))
    statistics = learner.open_round(reference, arms=None, arm_features=None).statistics
    for call, reason in (
        (lambda: statistics.widths, "the width of an arm is not released"),
        (lambda: statistics.log_det_ratio, "the information gathered is not released"),
        (lambda: statistics.sampler("arm"), "a joint draw in arm space is not released"),
    ):
        with pytest.raises(SettingError, match=reason):
            call()


def test_a_released_covariance_has_the_widths_in_it():
    shared = federation(vfb.LinTS(0.1), release="statistics")
    learner = shared._learner  # noqa: SLF001
    reference = learner.gather(list(blocks().values()))
    statistics = learner.open_round(reference, arms=None, arm_features=None).statistics
    rows = np.hstack(list(blocks().values()))
    np.testing.assert_allclose(statistics.widths, np.linalg.norm(rows, axis=1), atol=1e-10)
    with pytest.raises(SettingError, match="a joint draw in parameter space is not released"):
        statistics.sampler("parameter")


def test_a_covariance_of_equal_arms_has_no_noise_in_its_factor():
    shared = federation(vfb.LinTS(1.0), release="statistics", seed=1)
    rng = np.random.default_rng(0)
    equal = {name: np.repeat(block[:1], 2, axis=0) for name, block in blocks().items()}
    for _ in range(6):
        shared.reward(shared.decide(blocks()), float(rng.random()))
    decisions = [shared.decide(equal) for _ in range(20)]
    assert {decision.index for decision in decisions} == {0}
    for decision in decisions:
        assert abs(np.diff(decision.scores)[0]) < 1e-9


def test_bad_rounds_are_refused_and_change_nothing():
    shared = federation(max_arms=3)
    with pytest.raises(ArmError, match="at most max_arms=3 arms, got 4"):
        shared.decide(blocks(4))
    with pytest.raises(SharesError, match="at most 1 long, the declared bound, got a longer one"):
        shared.decide({"shop": [[3.0, 4.0]], "bank": [[0.0, 0.0, 0.0]]})
    with pytest.raises(ContextError, match="block of 'bank' must be finite"):
        shared.decide({"shop": [[0.0, 0.0]], "bank": [[np.nan, 0.0, 0.0]]})
    with pytest.raises(ArmError, match="2 arms have contexts, got 1 arm ids"):
        shared.decide(blocks(), arms=["tea"])
    with pytest.raises(ArmError, match="got arm_features as well"):
        shared.decide(blocks(), arm_features=[[1.0], [2.0]])
    with pytest.raises(ArmError, match="at least one arm"):
        shared.decide({"shop": np.zeros((0, 2)), "bank": np.zeros((0, 3))})
    assert shared.bandit.n_decisions == 0
    assert shared.decide(blocks()).id == 0


def test_what_is_not_built_is_refused_with_the_reason():
    shared = federation()
    decision = shared.decide(blocks())
    stacked = {name: block[None] for name, block in blocks().items()}
    for call in (
        lambda: shared.decide_many(stacked),
        lambda: shared.fit(blocks(), [1.0, 0.0]),
    ):
        with pytest.raises(SettingError, match="is not built for protection 'shares' yet"):
            call()
    observation = shared.bandit.observation(decision)
    for call, reason in (
        (lambda: shared.bandit.states, "what was learnt is not released"),
        (shared.bandit.estimate_norm, "what was learnt is not released"),
        (lambda: shared.bandit.retract(observation, 1.0), "is not recalled"),
        (lambda: shared.bandit.decide([[0, 0]]), "opened once, after it was gathered"),
    ):
        with pytest.raises(SettingError, match=reason):
            call()


def test_a_learner_on_shares_refuses_what_needs_the_state_in_the_open():
    shared = federation()
    learner = shared._learner  # noqa: SLF001
    reference = learner.gather([block[:1] for block in blocks().values()])
    with pytest.raises(ArmError, match="got arm_features as well"):
        learner.open_round(reference, arms=None, arm_features=[[1.0]])
    opened = learner.open_round(reference, arms=None, arm_features=None)
    observation = opened.observation(0)
    statistics = opened.statistics
    for call, reason in (
        (lambda: statistics.widths, "the width of an arm is not released"),
        (lambda: statistics.log_det_ratio, "the information gathered is not released"),
        (lambda: statistics.sampler("arm"), "a joint draw in arm space is not released"),
        (lambda: learner.open_rounds(reference, arms=None, arm_features=None), "one by one"),
        (lambda: learner.unlearn(observation, 1.0), "cannot take a reward back"),
        (lambda: learner.move(Rotation(np.eye(5))), "has no rotation of masks yet"),
    ):
        with pytest.raises(SettingError, match=reason):
            call()
    with pytest.raises(SnapshotError, match="not saved"):
        learner.unpack(None, {})
    assert learner.drop(["tea"]) == 0


@pytest.mark.parametrize("keep", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_federation_on_shares_is_not_copied_or_pickled(keep):
    with pytest.raises(SnapshotError, match="not saved, copied or pickled"):
        keep(federation())


def test_a_federation_on_shares_is_not_saved(tmp_path):
    with pytest.raises(SnapshotError, match="a copy would use the same words for other values"):
        vfb.save(federation(), tmp_path / "federation.vfb")
    assert not list(tmp_path.iterdir())


def test_noise_is_known_in_its_window_only_and_is_zero_without_a_scale():
    shared = federation()
    first = shared.decide(blocks())
    assert shared.noise_of(first).std() > 0.1
    for _ in range(25):  # fills the window
        shared.reward(shared.decide(blocks()), 0.5)
    with pytest.raises(SharesError, match="window 1 is open, got a decision of 0"):
        shared.noise_of(first)
    greedy = federation(vfb.LinTS(0.0))
    assert not greedy.noise_of(greedy.decide(blocks())).any()


def test_only_shares_have_noise_in_two_halves():
    masked = vfb.Federation(vfb.LinTS(), widths=WIDTHS)
    assert masked.protection == "mask"
    decision = masked.decide(blocks())
    with pytest.raises(SettingError, match="only protection 'shares'"):
        masked.noise_of(decision)


def test_the_level_is_shown():
    assert "protection='shares', helper='bank'" in repr(federation())
    assert federation().protection == "shares"
