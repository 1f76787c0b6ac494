"""A hand-over to new secrets on shares: what was learnt goes on, also with other participants."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shares_world import (
    COVARIANCE_FORMS,
    GivenDraws,
    covariance_terms,
    local_shares,
    plain_twin,
    small_terms,
    split_rows,
    unit_rows,
)

import vfbandits as vfb
from vfbandits.core.mask import MaskShare
from vfbandits.core.move import Narrowing, Widening
from vfbandits.core.ring import add
from vfbandits.core.shares.dealer import Dealer
from vfbandits.core.shares.handover import NEW, Handover, halved, plan_handover
from vfbandits.core.shares.kept import Kept
from vfbandits.core.shares.messages import WindowDeal
from vfbandits.core.shares.passage import HelperPassage, NextEpoch, hand_over
from vfbandits.errors import SettingError, SharesError, SnapshotError

FORMS = {
    "LinTS": small_terms(),
    "root without noise": small_terms(posterior_scale=0.0),
    **{
        f"{reads}, {release}": covariance_terms(reads, release)
        for reads, release in COVARIANCE_FORMS
    },
}
EACH_FORM = pytest.mark.parametrize("terms", FORMS.values(), ids=FORMS)
POLICIES = [
    (vfb.LinTS(0.1), "arm"),
    (vfb.LinGreedy(), "arm"),
    (vfb.LinUCB(0.5), "arm"),
    (vfb.LinUCB(0.5), "statistics"),
    (vfb.InverseGap(), "statistics"),
]


class Pair:
    """A federation on shares and its plain twin, which see the same rows and rewards."""

    def __init__(self, policy, release, *, seed=1):
        self.rng = np.random.default_rng(seed)
        self.shared = vfb.Federation(
            policy,
            widths={"shop": 2, "bank": 3, "post": 2},
            protection="shares",
            helper="bank",
            release=release,
            entropy=self.rng.bytes,
            seed=seed,
            max_arms=4,
        )
        self.twin, self.draws = self.shared.twin(), GivenDraws()
        self.is_noisy = release == "arm" and isinstance(policy, vfb.LinTS)
        if self.is_noisy:
            self.twin.draw_from(self.draws)
        self.waiting = []

    def run(self, n):
        """How many arms of n decisions are equal; the rewards of the last eight wait."""
        split, equal = self.shared.split, 0
        for _ in range(n):
            X = 0.9 * unit_rows(self.rng, 4, split.dim)
            blocks = {name: X[:, split.columns(name)] for name in split.names}
            decision = self.shared.decide(blocks)
            if self.is_noisy:
                self.draws.normals = self.shared.noise_of(decision)
            plain = self.twin.decide(X)
            equal += decision.index == plain.index
            self.waiting.append((decision, plain, float(X[plain.index, 0])))
            if len(self.waiting) > 8:
                decision, plain, reward = self.waiting.pop(int(self.rng.integers(8)))
                assert self.shared.reward(decision, reward)
                assert self.twin.reward(plain, reward)
        return equal

    def error(self):
        """How far theta is from the twin's."""
        theta, _ = self.shared._learner.local.reveal()  # noqa: SLF001
        turned = theta @ self.shared.reveal_mask()
        return float(np.abs(turned - self.twin.states[None].theta).max())


@pytest.mark.parametrize(("policy", "release"), POLICIES)
def test_decisions_and_open_rewards_go_on_over_each_hand_over(policy, release):
    pair = Pair(policy, release)
    assert pair.run(40) == 40
    pair.shared.rekey()
    assert pair.run(40) == 40
    pair.shared.join("rail", 2)
    pair.twin.move(Widening(2))
    assert pair.run(40) == 40
    pair.shared.leave("post")
    pair.twin.move(Narrowing(5, 7))
    assert pair.error() < 1e-9
    assert pair.run(40) == 40
    pair.shared.join("post", 1)
    pair.twin.move(Widening(1))
    assert pair.run(40) == 40
    pair.shared.rekey()
    assert pair.run(20) == 20
    assert pair.error() < 1e-9


def learnt(terms, n, *, seed=1):
    """A federation in one process after n rewards, and the plain twin."""
    rng, local, (twin, draws) = (
        np.random.default_rng(seed),
        local_shares(terms, seed=seed),
        plain_twin(terms),
    )
    for _ in range(n):
        X = unit_rows(rng, 3, terms.dim)
        opened = local.decide(split_rows(X, terms))
        draws.normals = local.noise(opened.event)
        plain = twin.decide(X)
        reward = float(rng.normal())
        local.learn(local.pick(opened, plain.index), reward)
        twin.reward(plain, reward)
    return local, twin


def rotations(widths):
    return [MaskShare(np.eye(width)) for width in widths]


def hand(local, widths, origins):
    local.hand_over(widths, origins, rotations(widths))


@EACH_FORM
def test_a_new_key_changes_no_bit_of_what_was_learnt(terms):
    local, _ = learnt(terms, 2 * terms.window)
    assert local.active.needs_deal
    before, sides = local.reveal(), [s.copy() for s in local.active.held()[:2]]
    hand(local, terms.widths, (0, 1))
    for old, new in zip(before, local.reveal(), strict=True):
        assert (old == new).all()
    for old, new in zip(sides, local.active.held()[:2], strict=True):
        assert not (old == new).all(axis=0).any()
    assert (local.dealer.epoch, local.active.window) == (1, 2)


@settings(max_examples=25, deadline=None)
@given(
    form=st.sampled_from(["LinTS", "widths, statistics"]),
    widths=st.lists(st.integers(1, 3), min_size=3, max_size=4),
    data=st.data(),
)
def test_whoever_leaves_and_joins_the_state_is_that_of_the_plain_bandit(form, widths, data):
    terms = replace(FORMS[form], widths=tuple(widths))
    local, twin = learnt(terms, data.draw(st.integers(0, 25)), seed=data.draw(st.integers(0, 99)))
    gone = data.draw(st.integers(1, len(widths) - 1))
    origins = [number for number in range(len(widths)) if number != gone]
    after = [widths[number] for number in origins]
    extra = data.draw(st.integers(0, 4))
    start = sum(widths[:gone])
    twin.move(Narrowing(start, start + widths[gone]))
    if extra:
        after, origins = [*after, extra], [*origins, NEW]
        twin.move(Widening(extra))
    hand(local, after, origins)
    theta, inverse = local.reveal()
    state = twin.states[None]
    # Each number of the state is known to 2^-40; dividing by a variance of the twin loses bits.
    smallest = float(np.diag(inverse).min()) * terms.ridge
    bound = 100 * 2.0**-40 * (1.0 + np.abs(theta).max()) / smallest
    assert np.abs(theta - state.theta).max() < bound
    assert np.abs(inverse - np.linalg.inv(state.Lambda)).max() < bound
    hand(local, after, range(len(after)))
    assert np.abs(local.reveal()[0] - state.theta).max() < bound


def test_idle_columns_are_taken_over_by_those_that_join():
    local, _ = learnt(small_terms(widths=(2, 3, 2)), 9)
    hand(local, (2, 2), (0, 2))
    assert (local.terms.idle, local.terms.dim) == (3, 7)
    hand(local, (2, 2, 1), (0, 1, NEW))
    assert (local.terms.idle, local.terms.dim) == (2, 7)
    hand(local, (2, 2, 1, 4), (0, 1, 2, NEW))
    assert (local.terms.idle, local.terms.dim) == (0, 9)
    local, _ = learnt(covariance_terms("means", "arm", widths=(2, 3, 2)), 9)
    hand(local, (2, 2), (0, 2))
    assert (local.terms.idle, local.terms.dim) == (0, 4)


def test_an_absent_participant_is_filled_in_beside_idle_columns():
    local, _ = learnt(small_terms(widths=(1, 2, 1)), 4)
    hand(local, (1, 1), (0, 2))
    place = local.active.next_place()
    X = np.array([[0.5], [0.25]])
    shared = [local.participants[0].share(place, X)]
    shared += local._run(local.active.fill_absent(place, [1], n_arms=2))  # noqa: SLF001
    ready = local._run(local.active.prepare(place))  # noqa: SLF001
    opened = local._run(local.active.decide(ready, shared))  # noqa: SLF001
    assert opened.arm in (0, 1)


def passage(local, *, widths=None, origins=(0, 1)):
    """What B needs for a hand-over, A's exchange, and the dealer of the next epoch."""
    terms, plan = plan_handover(local.terms, widths or local.terms.widths, origins)
    dealer = Dealer(
        terms,
        entropy=np.random.default_rng(5).bytes,
        epoch=local.dealer.epoch + 1,
        first_window=local.active.window,
        handover=plan,
    )
    deal = dealer.deal()
    helper = HelperPassage(
        local.helper.snapshot(),
        [*local.helper.open_contexts().items()],
        NextEpoch(terms, plan, dealer.helper_secrets()),
        deal.handover.place,
    )

    def exchange():
        return hand_over(
            local.active, NextEpoch(terms, plan, dealer.active_secrets()), deal.handover
        )

    return helper, exchange, dealer, deal


def test_a_hand_over_that_was_interrupted_is_done_again_with_the_same_bytes():
    local, _ = learnt(small_terms(widths=(2, 1, 2)), 6)
    helper, exchange, _, _ = passage(local, widths=(2, 2), origins=(0, 2))
    sent = []
    for stop in (1, 3, None):  # A is killed after so many answers
        attempt, replies = exchange(), []
        message = next(attempt)
        with pytest.raises(StopIteration) if stop is None else pytest.raises(EOFError):
            while True:
                replies.append((message.to_bytes(), helper.answer(message).to_bytes()))
                if len(replies) == stop:
                    raise EOFError
                message = attempt.send(helper.answer(message))
        sent.append(replies)
    for some in sent[:2]:
        assert sent[2][: len(some)] == some
    assert helper.done.window == local.active.window


def test_a_helper_refuses_other_messages_in_a_hand_over():
    local, _ = learnt(small_terms(widths=(2, 1, 2)), 6)
    helper, exchange, _, _ = passage(local, widths=(2, 2), origins=(0, 2))
    steps = exchange()
    first = next(steps)
    with pytest.raises(SharesError, match="is under way, got a HandOver message"):
        helper.answer(replace(first, place=first.place._replace(epoch=7)))
    with pytest.raises(SharesError, match="seed of two words"):
        helper.answer(replace(first, seed=first.seed[:, :1]))
    with pytest.raises(SharesError, match="another shape"):
        helper.answer(replace(first, theta=first.theta[:, :1]))
    reply = helper.answer(first)
    with pytest.raises(SharesError, match="would show the difference of the two"):
        helper.answer(replace(first, seed=first.seed[:, ::-1].copy()))
    second = steps.send(reply)
    for wrong in (
        replace(second, shares=second.shares[:, :1]),
        replace(second, scalar=second.shares[:, :1]),
        replace(second, place=second.place._replace(slot=2)),
    ):
        with pytest.raises(
            SharesError, match="the next step of the hand-over is 1, with 6 numbers"
        ):
            helper.answer(wrong)
    assert helper.answer(second).place == second.place
    assert helper.done is None
    assert "share" not in repr(helper)


def test_after_the_hand_over_no_slot_of_the_old_epoch_is_answered():
    local, _ = learnt(small_terms(), 4)
    place = local.active.next_place()
    ask = next(local.active.prepare(place))
    hand(local, local.terms.widths, (0, 1))
    with pytest.raises(SharesError, match="epoch 1 is open, got a message for 0"):
        local.helper.answer(ask)
    with pytest.raises(SharesError, match="epoch 1 is open, got a message for 0"):
        local.helper.answer(ask)


def test_a_dealer_that_is_kept_before_its_first_window_deals_the_same_hand_over():
    local, _ = learnt(small_terms(), 6)
    _, _, _, deal = passage(local)
    terms, plan = plan_handover(local.terms, local.terms.widths, (0, 1))
    fresh = Dealer(
        terms, entropy=np.random.default_rng(5).bytes, epoch=1, first_window=2, handover=plan
    )
    kept = Kept.from_bytes(fresh.snapshot().to_bytes())
    again = Dealer.restore(terms, kept)
    assert again.deal().to_bytes() == deal.to_bytes()
    assert WindowDeal.from_bytes(deal.to_bytes()).handover is not None
    assert again.deal().handover is None
    with pytest.raises(SnapshotError, match="hand-over that cannot be read"):
        Handover.from_record({"widths": 1})


@given(st.integers(0, 2**128 - 1), st.integers(-(2**50), 2**50))
def test_halves_of_both_sides_add_up_to_the_number(gap, value):
    sides = [(value - gap) % 2**128, (value + gap) % 2**128]
    words = [np.array([[s % 2**64], [s >> 64]], np.uint64) for s in sides]
    halves = [halved(w, is_helper=bool(k)) for k, w in enumerate(words)]
    total = add(*halves)
    low, high = (int(part[0]) for part in total)
    assert (low + (high << 64) - value) % 2**127 == 0


@pytest.mark.parametrize(
    ("widths", "origins", "reason"),
    [
        ((2, 3), (0, 0), "each once, got"),
        ((2, 3), (0, 5), "each once, got"),
        ((2,), (NEW,), "each once, got"),
        ((2, 4), (0, 1), "does not lead to widths"),
    ],
)
def test_hand_overs_that_do_not_fit_are_refused_and_change_nothing(widths, origins, reason):
    local, _ = learnt(small_terms(), 4)
    before = local.active, local.helper, local.dealer
    with pytest.raises(SettingError, match=reason):
        hand(local, widths, origins)
    assert before == (local.active, local.helper, local.dealer)


def test_a_state_of_another_width_is_refused():
    local, _ = learnt(small_terms(), 3)
    terms, plan = plan_handover(small_terms(widths=(2, 2)), (2, 2), (0, 1))
    with pytest.raises(SharesError, match="starts from 4 columns, got a state of 5"):
        HelperPassage(
            local.helper.snapshot(), [], NextEpoch(terms, plan, local.dealer.helper_secrets()), None
        )


def test_only_roots_have_idle_columns():
    with pytest.raises(SettingError, match="only a square root has idle columns, got 2"):
        covariance_terms("means", "arm", idle=2)


def test_the_helper_and_strangers_do_not_leave_and_names_join_once():
    shared = Pair(vfb.LinTS(0.1), "arm").shared
    with pytest.raises(SettingError, match="the helper cannot leave"):
        shared.leave("bank")
    with pytest.raises(SettingError, match="one of bank, post may leave, got 'gym'"):
        shared.leave("gym")
    with pytest.raises(SettingError, match="needs a new name, got 'post'"):
        shared.join("post", 1)


def test_a_participant_that_would_make_contexts_too_long_does_not_join():
    shared = vfb.Federation(
        vfb.LinTS(0.1),
        widths={"shop": 1, "bank": 1, "post": 1},
        protection="shares",
        helper="bank",
        bound=9.0,
    )
    with pytest.raises(SettingError, match="must be at most 16 on secret shares, got 18"):
        shared.join("rail", 1)
    assert shared.split.names == ("shop", "bank", "post")
