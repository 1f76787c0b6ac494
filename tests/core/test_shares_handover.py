"""A hand-over to new secrets on shares: what was learnt goes on, also with other participants."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_loops import fewer_if_plain, needs_loops
from scipy.linalg import block_diag
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
from vfbandits.core.shares.handover.epoch import NEW, Handover, halved, plan_handover
from vfbandits.core.shares.handover.passage import HelperPassage, NextEpoch, hand_over
from vfbandits.core.shares.kept import Kept
from vfbandits.core.shares.messages import WindowDeal
from vfbandits.core.shares.offer import Offer
from vfbandits.errors import SettingError, SharesError, SnapshotError

FORMS = {
    "LinTS": small_terms(),
    "root without noise": small_terms(posterior_scale=0.0),
    **{
        f"{reads}, {release}": covariance_terms(reads, release)
        for reads, release in COVARIANCE_FORMS
    },
}
LAYOUT_FORMS = {
    f"{layout}, {name}": replace(terms, layout=layout, arm_dim=2 if layout == "outer" else 0)
    for layout, names in (
        ("disjoint", ("LinTS", "means, arm", "widths, statistics")),
        ("outer", ("LinTS", "widths, arm", "covariance, statistics")),
    )
    for name, terms in FORMS.items()
    if name in names
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

    def __init__(self, policy, release, *, layout="per_arm", intercept=False, seed=1):
        self.rng = np.random.default_rng(seed)
        options = {}
        if layout != "per_arm":
            options = {"layout": layout, "intercept": intercept}
            options["accept_leak"] = ("bank", "post") if needs_acceptance(policy, release) else ()
            options["arm_dim"] = 2 if layout == "outer" else None
        self.shared = vfb.Federation(
            policy,
            widths={"shop": 2, "bank": 3, "post": 2},
            protection="shares",
            helper="bank",
            release=release,
            entropy=self.rng.bytes,
            seed=seed,
            max_arms=4,
            **options,
        )
        self.layout = layout
        self.twin, self.draws = self.shared.twin(), GivenDraws()
        self.is_noisy = release == "arm" and isinstance(policy, vfb.LinTS)
        if self.is_noisy:
            self.twin.draw_from(self.draws)
        self.waiting = []

    def round(self):
        """Contexts, or one user's, and what names the arms."""
        dim = self.shared.split.dim
        if self.layout == "per_arm":
            return 0.9 * unit_rows(self.rng, 4, dim), {}
        user = 0.9 * unit_rows(self.rng, 1, dim)[0]
        if self.layout == "outer":
            return user, {"arm_features": self.rng.uniform(-0.7, 0.7, (4, 2))}
        return user, {"arms": [f"arm {k}" for k in self.rng.permutation(4)[:3]]}

    def run(self, n):
        """How many arms of n decisions are equal; the rewards of the last eight wait."""
        split, equal = self.shared.split, 0
        for _ in range(n):
            X, arms = self.round()
            blocks = {name: X[..., split.columns(name)] for name in split.names}
            decision = self.shared.decide(blocks, **arms)
            if self.is_noisy:
                self.draws.normals = self.shared.noise_of(decision)
            plain = self.twin.decide(X, **arms)
            equal += decision.index == plain.index
            worth = float(X[plain.index, 0] if X.ndim == 2 else X[plain.index % 4])
            self.waiting.append((decision, plain, worth))
            if len(self.waiting) > 8:
                decision, plain, reward = self.waiting.pop(int(self.rng.integers(8)))
                assert self.shared.reward(decision, reward)
                assert self.twin.reward(plain, reward)
        return equal

    def error(self):
        """How far theta is from the twin's."""
        local = self.shared._learner.local  # noqa: SLF001
        theta, terms = local.reveal()[0], local.terms
        turn = block_diag(np.eye(int(terms.intercept)), self.shared.reveal_mask())
        turn = np.kron(turn, np.eye(terms.arm_width))
        rows = theta.reshape(terms.n_blocks, -1) @ turn
        if self.layout != "disjoint":
            return float(np.abs(rows[0] - self.twin.states[None].theta).max())
        numbers = self.shared._learner.blocks  # noqa: SLF001
        pairs = [(rows[numbers.numbers([arm])[0]], s) for arm, s in self.twin.states.items()]
        return max(float(np.abs(row - state.theta).max()) for row, state in pairs)


def needs_acceptance(policy, release):
    """Whether numbers of each arm are released."""
    return release == "statistics" or isinstance(policy, vfb.LinUCB)


@needs_loops
@pytest.mark.parametrize(("policy", "release"), POLICIES)
@pytest.mark.parametrize(
    ("layout", "intercept"),
    [("per_arm", False), ("disjoint", False), ("disjoint", True), ("outer", True)],
)
def test_decisions_and_open_rewards_go_on_over_each_hand_over(policy, release, layout, intercept):
    pair = Pair(policy, release, layout=layout, intercept=intercept)
    accept = {"accept_leak": layout != "per_arm" and needs_acceptance(policy, release)}
    assert pair.run(40) == 40
    pair.shared.rekey()
    assert pair.run(40) == 40
    pair.shared.join("rail", 2, **accept)
    pair.twin.move(Widening(2))
    assert pair.run(40) == 40
    pair.shared.leave("post")
    pair.twin.move(Narrowing(5, 7))
    assert pair.error() < 1e-9
    assert pair.run(40) == 40
    pair.shared.join("post", 1, **accept)
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


@settings(max_examples=fewer_if_plain(25), deadline=None)
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


def learnt_in_layout(terms, n, *, seed=1):
    """As ``learnt``, with one user for all arms of a decision; some rewards wait."""
    rng, local = np.random.default_rng(seed), local_shares(terms, seed=seed)
    for k in range(n):
        user = 0.9 * unit_rows(rng, 1, sum(terms.widths))
        offer = Offer(features=rng.uniform(-0.7, 0.7, (3, 2)))
        if terms.layout == "disjoint":
            offer = Offer(tuple(rng.permutation(3)[:2].tolist()), 3)
        event = local.pick(local.decide(split_rows(user, terms), offer), k % 2)
        if k % 4 != 3:
            local.learn(event, float(rng.normal()))
    return local


def moved_blocks(local, *moves):
    """Theta and Lambda⁻¹ after moves of each block in the open, by Lambda and u."""
    theta, inverse = local.reveal()
    terms, of_each = local.terms, []
    n, p = len(theta) // terms.n_blocks, terms.arm_width
    for start in range(0, len(theta), n):
        Lambda = np.linalg.inv(inverse[start : start + n, start : start + n])
        u = Lambda @ theta[start : start + n]
        for move in moves:
            lifted = move.lifted(before=terms.intercept * p, factor=p)
            Lambda, u = lifted.matrix(Lambda, terms.ridge), lifted.vector(u)
        of_each.append((np.linalg.solve(Lambda, u), np.linalg.inv(Lambda)))
    thetas, inverses = zip(*of_each, strict=True)
    return np.concatenate(thetas), block_diag(*inverses)


@pytest.mark.parametrize("terms", LAYOUT_FORMS.values(), ids=LAYOUT_FORMS)
def test_a_new_key_keeps_every_bit_in_other_layouts_too(terms):
    local = learnt_in_layout(replace(terms, intercept=True), 9)
    local._close_window()  # noqa: SLF001
    before, sides = local.reveal(), [s.copy() for s in local.active.held()[:2]]
    waiting = [add(*both) for both in contexts_of(local)]
    hand(local, terms.widths, (0, 1))
    for old, new in zip(before, local.reveal(), strict=True):
        assert (old == new).all()
    for old, new in zip(sides, local.active.held()[:2], strict=True):
        assert not (old == new).all(axis=0).any()
    assert len(waiting) == 2
    for old, both in zip(waiting, contexts_of(local), strict=True):
        assert (old == add(*both)).all()


def contexts_of(local):
    """Both shares of each context that waits."""
    theirs = local.helper.open_contexts()
    return [(share, theirs[event]) for event, share in local.active.open_contexts().items()]


@needs_loops
@settings(max_examples=40, deadline=None)
@given(
    form=st.sampled_from(sorted(LAYOUT_FORMS)),
    intercept=st.booleans(),
    widths=st.lists(st.integers(1, 3), min_size=3, max_size=4),
    data=st.data(),
)
def test_blocks_and_products_change_as_those_of_the_plain_bandit(form, intercept, widths, data):
    terms = replace(LAYOUT_FORMS[form], widths=tuple(widths), intercept=intercept)
    n, seed = data.draw(st.integers(0, 20)), data.draw(st.integers(0, 99))
    local = learnt_in_layout(terms, n, seed=seed)
    gone = data.draw(st.integers(1, len(widths)))  # the last one is nobody
    origins = [number for number in range(len(widths)) if number != gone]
    after, moves, start = [widths[number] for number in origins], [], sum(widths[:gone])
    if gone < len(widths):
        moves.append(Narrowing(start, start + widths[gone]))
    if extra := data.draw(st.integers(0, 4)):
        after, origins = [*after, extra], [*origins, NEW]
        moves.append(Widening(extra))
    smallest = float(np.diag(local.reveal()[1]).min()) * terms.ridge
    wanted = moved_blocks(local, *moves)
    hand(local, after, origins)
    for _ in range(2):
        for came, want in zip(local.reveal(), wanted, strict=True):
            bound = 100 * 2.0**-40 * (1.0 + np.abs(wanted[0]).max()) / smallest
            assert np.abs(came - want).max() < bound
        hand(local, after, range(len(after)))


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
    with pytest.raises(SharesError, match="other server has other terms"):
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


def test_a_participant_whose_rows_could_be_read_joins_if_that_is_accepted():
    pair = Pair(vfb.LinUCB(0.5), "statistics", layout="disjoint")
    assert pair.run(3) == 3
    with pytest.raises(SettingError, match="'rail' has 2 features: its rows can be read"):
        pair.shared.join("rail", 2)
    assert (pair.shared.split.names, pair.shared.accept_leak) == (
        ("shop", "bank", "post"),
        ("bank", "post"),
    )
    pair.shared.join("rail", 2, accept_leak=True)
    pair.shared.leave("post")
    assert pair.shared.accept_leak == ("bank", "rail")
    pair.shared.join("gym", 5)
    with pytest.raises(SettingError, match="accept_leak goes with protection 'shares'"):
        vfb.Federation(vfb.LinTS(), widths={"shop": 1, "bank": 1}).join("rail", 1, accept_leak=True)


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
