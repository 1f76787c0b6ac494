"""A bandit whose state two servers share: references to slots, and a queue of rewards."""

from dataclasses import replace

import numpy as np
import pytest
from shares_world import local_shares, small_terms, split_rows, unit_rows

import vfbandits as vfb
from vfbandits.core.move import Widening
from vfbandits.core.reward import Observation
from vfbandits.core.ring import zeros
from vfbandits.core.shares.covariance.active import Statistics
from vfbandits.core.shares.released import plan
from vfbandits.core.shares.slots import ALONE, QueuedReward, SlotLearner, lone_rows, released_rows
from vfbandits.core.snapshot import Record
from vfbandits.errors import ArmError, ContextError, RewardError, SettingError, SharesError

TERMS = small_terms()
OWN = np.array([[0.5, 0.0], [0.0, 0.25], [0.1, 0.1]])


def slot_bandit(policy=None):
    policy = policy or vfb.LinTS(TERMS.posterior_scale)
    bandit = vfb.Bandit(plan(policy, "arm").policy, dim=TERMS.dim, ridge=TERMS.ridge, seed=1)
    bandit.learn_with(SlotLearner(TERMS))
    return bandit


def test_the_released_arm_is_chosen_and_its_reward_queued():
    bandit = slot_bandit()
    decision = bandit.decide(released_rows((3, 1), 2, OWN), arms=["a", "b", "c"])
    assert (decision.arm, decision.propensity.is_known) == ("c", False)
    assert np.isnan(decision.scores).all()
    bandit.reward(decision, 0.5)
    assert [*bandit.slots.queue] == [QueuedReward(1, (3, 1), 0.5)]
    bandit.slots.learnt_to(1)
    assert not bandit.slots.queue


def test_without_the_helper_a_plain_bandit_on_own_features_decides_that_learnt_alongside():
    bandit = slot_bandit(vfb.LinGreedy())  # whose terms are not asked for here
    plain = vfb.Bandit(vfb.LinGreedy(), dim=2, ridge=TERMS.ridge)
    for slot, value in enumerate((0.2, 0.9, 0.4)):
        shown = bandit.decide(released_rows((0, slot), slot, OWN))
        bandit.reward(shown, value)
        plain.fit(OWN[slot : slot + 1], [value])
    alone, twin = bandit.decide(lone_rows(TERMS, OWN, len(OWN))), plain.decide(OWN)
    assert alone.index == twin.index
    assert np.array_equal(alone.scores, twin.scores)
    bandit.reward(alone, 1.0)
    assert len(bandit.slots.queue) == 3  # the servers do not learn it


def test_thompson_sampling_alone_draws_in_arm_space_and_leaves_the_state_as_it_is():
    bandit = slot_bandit()
    before = bandit.snapshot()
    proposal = bandit.propose(lone_rows(TERMS, OWN, len(OWN)), draws=np.random.default_rng(3))
    twin = vfb.Bandit(vfb.LinTS(TERMS.posterior_scale, space="arm"), dim=2, ridge=TERMS.ridge)
    wanted = twin.propose(OWN, draws=np.random.default_rng(3))
    assert np.array_equal(proposal.decision.scores, wanted.decision.scores)
    assert not proposal.root
    assert bandit.snapshot().header == before.header


def test_a_snapshot_keeps_the_queue_and_the_state_beside():
    bandit = slot_bandit()
    open_one = bandit.decide(released_rows((0, 0), 1, OWN))
    bandit.reward(bandit.decide(released_rows((0, 1), 0, OWN)), 0.7)
    again = vfb.Bandit.restore(bandit.snapshot())
    again.policy = bandit.policy
    assert again.slots.queue == bandit.slots.queue
    assert again.slots.terms == TERMS
    for one in (bandit, again):
        one.reward(open_one.id, 0.1)
        assert [queued.number for queued in one.slots.queue] == [1, 2]
    rows = lone_rows(TERMS, OWN, len(OWN))
    draws = [one.propose(rows, draws=np.random.default_rng(0)) for one in (bandit, again)]
    assert np.array_equal(draws[0].decision.scores, draws[1].decision.scores)


def test_features_are_counted_in_every_layout_and_older_snapshots_are_read():
    terms = small_terms(layout="disjoint", intercept=True)
    learner = SlotLearner(terms)
    learner.move(Widening(2))
    assert learner.dim == 7
    header, arrays = learner.pack()
    again = SlotLearner(terms)
    again.unpack(Record(header), arrays)
    assert again.dim == 7
    again.take_terms(small_terms(layout="disjoint", intercept=True, widths=(2, 5)))
    for layout, dim in (("disjoint", 5), ("per_arm", 9)):
        older = SlotLearner(small_terms(layout=layout))
        of_layout, arrays = older.pack()
        del of_layout["features"]
        older.unpack(Record({**of_layout, "dim": 9}), arrays)
        assert older.dim == dim


def test_what_cannot_be_on_secret_shares_is_refused():
    bandit = slot_bandit()
    decision = bandit.decide(released_rows((0, 0), 1, OWN))
    with pytest.raises(RewardError, match="at most 16"):
        bandit.reward(decision, 17.0)
    with pytest.raises(SettingError, match="cannot take a reward back"):
        bandit.retract(bandit.observation(decision), 1.0)
    with pytest.raises(SettingError, match="not released"):
        bandit.estimate_norm()
    with pytest.raises(SettingError, match="one user after the other"):
        bandit.decide_many([released_rows((0, 1), 1, OWN)])
    with pytest.raises(ContextError):
        bandit.recall("x", Observation(np.array([0.5, 0.0, 1.0, 1.0])))
    with pytest.raises(ArmError, match="at least one arm"):
        bandit.decide(np.zeros((0, 7)))
    assert bandit.observation(decision).x[:2].tolist() == [0.0, 0.0]
    assert bandit.slots.own(bandit.observation(decision)).x.tolist()[:2] != [*ALONE]


def test_a_policy_for_which_no_words_were_dealt_is_refused():
    learner = SlotLearner(TERMS)
    assert learner.plan(vfb.LinTS(0.3, n_draws=5)).policy.policy.n_draws == 5
    with pytest.raises(SettingError, match=r"posterior_scale 0\.3, .* got LinTS with .* 0\.2"):
        learner.plan(vfb.LinTS(0.2))
    with pytest.raises(SettingError, match="reads noise, a term of the roster, got LinGreedy"):
        learner.plan(vfb.LinGreedy())


def test_released_statistics_are_scored_as_they_are():
    terms = small_terms(posterior_scale=0.0, release="statistics", reads="widths")
    bandit = vfb.Bandit(vfb.LinUCB(beta=0.5), dim=terms.dim, ridge=terms.ridge)
    bandit.learn_with(SlotLearner(terms))
    came = Statistics(np.array([0.25, 0.0, 0.16]), np.array([0.1, 0.3, 0.2]), zeros(0), zeros(0))
    decision = bandit.decide(released_rows((0, 0), -1, OWN, came))
    assert decision.scores.tolist() == pytest.approx([0.35, 0.3, 0.4])
    assert decision.index == 2


def test_blocks_of_absent_participants_count_as_zeros():
    terms = small_terms(widths=(2, 3, 1), posterior_scale=0.0)
    local, whole = (
        local_shares(terms, seed=3, rotate=True),
        local_shares(terms, seed=3, rotate=True),
    )
    rng = np.random.default_rng(5)
    for turn in range(7):
        X = unit_rows(rng, 4, terms.dim) / 2
        absent = [(), (1,), (2,), (1, 2)][turn % 4]
        blocks = split_rows(X, terms)
        zeroed = [0 * b if j in absent else b for j, b in enumerate(blocks)]
        if local.active.is_used_up:
            local._close_window()  # noqa: SLF001
        local._ensure_deal()  # noqa: SLF001
        place = local.active.next_place()
        ready = local._run(local.active.prepare(place))  # noqa: SLF001
        shared = [
            one.share(place, block)
            for one, block in zip(local.participants, blocks, strict=True)
            if one.number not in absent
        ]
        if absent:
            shared += local._run(local.active.fill_absent(place, absent, n_arms=4))  # noqa: SLF001
        shared.sort(key=lambda block: block.participant)
        opened = local._run(local.active.decide(ready, shared))  # noqa: SLF001
        twin = whole.decide(zeroed)
        assert opened.arm == twin.arm
        for one, other in ((local, opened), (whole, twin)):
            one.learn(one.pick(other, other.arm), 0.5)
        with pytest.raises(SharesError, match=r"or never|was used before|is open"):
            local._run(local.active.fill_absent(place, (0,), n_arms=4))  # noqa: SLF001


def test_a_change_of_members_leaves_references_and_own_features_as_they_are():
    bandit = slot_bandit()
    decision = bandit.decide(released_rows((0, 0), 1, OWN))
    before = bandit.observation(decision).x
    bandit.move(Widening(2))
    assert np.array_equal(bandit.observation(decision).x, before)
    learner = bandit.slots
    wider = replace(TERMS, widths=(*TERMS.widths, 2))
    learner.take_terms(wider)
    assert (learner.dim, learner.terms) == (wider.dim, wider)
    with pytest.raises(SettingError, match=r"terms of \d+ features, 2 of them .*, got widths"):
        learner.take_terms(TERMS)
    assert learner.terms == wider


def test_many_rewards_are_queued_one_after_the_other():
    bandit = slot_bandit()
    shown = [bandit.decide(released_rows((0, slot), 0, OWN)) for slot in range(2)]
    learner = bandit.slots
    learner.learn_many([bandit.observation(one) for one in shown], np.array([0.5, 1.0]))
    assert [(one.event, one.value) for one in learner.queue] == [((0, 0), 0.5), ((0, 1), 1.0)]


@pytest.mark.parametrize("layout", ["disjoint", "outer"])
def test_a_row_for_all_arms_needs_arms(layout):
    terms = small_terms(layout=layout, arm_dim=2 * (layout == "outer"))
    with pytest.raises(ArmError, match="at least one arm, got none"):
        SlotLearner(terms).open_round(np.zeros(5), arms=None, arm_features=None)


def test_covariances_have_no_place_in_a_request():
    terms = small_terms(posterior_scale=0.0, release="statistics", reads="covariance")
    with pytest.raises(SettingError, match="release 'arm' draws it in parameter space"):
        SlotLearner(terms).plan(vfb.LinTS(0.3, space="arm"))
