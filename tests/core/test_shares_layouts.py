"""Secret shares in the layouts with one row of a user for all arms: the plain bandit's arms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_loops import fewer_if_plain, turn_off_loops
from shares_world import GivenDraws, Recorder, local_shares, small_terms

import vfbandits as vfb
from vfbandits.core.ring import add, decode, encode, subtract
from vfbandits.core.shares import messages as m
from vfbandits.core.shares.active import ActiveServer
from vfbandits.core.shares.dealer import Dealer
from vfbandits.core.shares.helper import Helper
from vfbandits.core.shares.kept import Kept
from vfbandits.core.shares.offer import ArmBlocks, Offer
from vfbandits.core.shares.rows import lift_mask, lift_share, lifted, lifted_rows
from vfbandits.core.shares.sides import side
from vfbandits.core.shares.terms import ShareTerms
from vfbandits.errors import ArmError, SettingError, SharesError

WIDTHS = {"shop": 3, "bank": 4, "post": 5}
DIM, MAX_ARMS, ARM_DIM = 12, 6, 2
POLICIES = [
    (vfb.LinTS(0.1), "arm"),
    (vfb.LinGreedy(), "arm"),
    (vfb.LinUCB(0.5), "arm"),
    (vfb.LinUCB(0.5), "statistics"),
    (vfb.LinGreedy(0.1), "statistics"),
    (vfb.LinTS(0.1), "statistics"),
    (vfb.InverseGap(), "statistics"),
]
LAYOUTS = ("disjoint", "outer")


def federation(policy=None, *, layout, **options):
    options = {"protection": "shares", "helper": "bank", "max_arms": MAX_ARMS, **options}
    if layout == "outer":
        options = {"arm_dim": ARM_DIM, **options}
    return vfb.Federation(policy or vfb.LinTS(0.1), widths=WIDTHS, layout=layout, **options)


def blocks_of(user):
    return dict(zip(WIDTHS, np.split(user, np.cumsum([*WIDTHS.values()])[:-1]), strict=True))


class World:
    """Users, and some of the arms for each of them."""

    def __init__(self, layout, rng):
        self.layout = layout
        self.rng = rng
        self.theta = rng.standard_normal((MAX_ARMS, DIM))
        self.M = rng.standard_normal((DIM, ARM_DIM))

    def round(self):
        """A user, what names the arms, and what each is worth."""
        rng = self.rng
        user = rng.standard_normal(DIM)
        user /= np.linalg.norm(user)
        n_arms = int(rng.integers(1, MAX_ARMS + 1))
        if self.layout == "disjoint":
            arms = rng.permutation(MAX_ARMS)[:n_arms]
            return user, {"arms": [f"arm {arm}" for arm in arms]}, self.theta[arms] @ user
        W = rng.uniform(-0.7, 0.7, (n_arms, ARM_DIM))
        return user, {"arm_features": W}, W @ (user @ self.M)


def compare(policy, release, layout, *, rounds, max_late, seed, intercept):
    """Decisions that differ from a plain bandit's, the largest error of a score, and of theta."""
    rng = np.random.default_rng(seed)
    world = World(layout, rng)
    options = {"release": release, "intercept": intercept, "entropy": rng.bytes, "seed": seed}
    shared = federation(policy, layout=layout, accept_leak=("bank", "post"), **options)
    twin, draws = shared.twin(), GivenDraws()
    is_noisy = release == "arm" and isinstance(policy, vfb.LinTS)
    if is_noisy:
        twin.draw_from(draws)
    due = [[] for _ in range(rounds + max_late + 1)]
    differ, error = [], 0.0
    for number in range(rounds):
        user, arms, worth = world.round()
        decision = shared.decide(blocks_of(user), **arms)
        if is_noisy:
            draws.normals = shared.noise_of(decision)
        plain = twin.decide(user, **arms)
        if decision.arm != plain.arm:
            differ.append(number)
        if release == "statistics":
            error = max(error, float(np.abs(decision.scores - plain.scores).max()))
        reward = float(worth[decision.index] + 0.05 * rng.standard_normal())
        due[number + int(rng.integers(max_late + 1))].append((decision, plain, reward))
        for one, other, value in due[number]:
            assert shared.reward(one, value)
            twin.reward(other, value)
    return differ, error, abs(shared.estimate_norm() - twin.estimate_norm())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("policy", "release"), POLICIES)
@settings(max_examples=2)
@given(
    seed=st.integers(0, 2**32 - 1), max_late=st.sampled_from([0, 7, 25]), intercept=st.booleans()
)
def test_arms_are_those_of_a_plain_bandit_of_the_layout(
    policy, release, layout, seed, max_late, intercept
):
    rounds = fewer_if_plain(45)
    options = {"rounds": rounds, "max_late": max_late, "seed": seed, "intercept": intercept}
    differ, error, of_theta = compare(policy, release, layout, **options)
    assert not differ
    assert error < 1e-10
    assert of_theta < 1e-10


@pytest.mark.long
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("policy", "release"), POLICIES)
def test_two_thousand_decisions_with_late_rewards_have_the_arms_of_a_plain_bandit(
    policy, release, layout
):
    options = {"rounds": 2_000, "max_late": 200, "seed": 3, "intercept": layout == "outer"}
    differ, error, _ = compare(policy, release, layout, **options)
    assert not differ
    assert error < 1e-9


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("policy", "release"), POLICIES)
def test_the_plain_loops_decide_as_the_compiled_ones_do(policy, release, layout, monkeypatch):
    turn_off_loops(monkeypatch)
    options = {"rounds": 20, "max_late": 3, "seed": 5, "intercept": True}
    differ, error, _ = compare(policy, release, layout, **options)
    assert not differ
    assert error < 1e-10


@given(
    u=st.lists(st.floats(-16.0, 16.0), min_size=1, max_size=3),
    w=st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=3),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_product_of_two_masked_vectors_is_their_outer_product(u, w, seed):
    rng = np.random.default_rng(seed)

    def words(*shape):
        return rng.integers(0, 2**64, (2, *shape), dtype=np.uint64)

    plain_u, plain_w = encode([u], bound=16.0, what="u"), encode([w], bound=1.0, what="w")
    of_a, of_b, of_w = words(1, len(u)), words(1, len(u)), words(1, len(w))
    rho_a, rho_b = words(1, len(u) * len(w)), words(1, len(u) * len(w))
    masked_u, masked_w = add(add(plain_u, of_a), of_b), add(plain_w, of_w)
    own = lift_share(side(masked_u, of_a)[:, 0], side(masked_w, of_w), rho_a)
    theirs = lift_share(side(masked_u, of_b)[:, 0], masked_w, rho_b)
    mask = lift_mask(subtract(of_a, of_b)[:, 0], of_w, add(rho_a, rho_b))
    sent = lifted(own, theirs)
    assert (sent[1] < 2**23).all()  # it is sent in 88 bits
    product = decode(subtract(lifted_rows(sent), mask))
    assert product[0] == pytest.approx(np.kron(u, w), abs=2.0**-35)


def messages_of(layout, release="arm", policy=None):
    recorder = Recorder()
    options = {"release": release, "accept_leak": ("bank", "post")}
    shared = federation(policy, layout=layout, entropy=np.random.default_rng(1).bytes, **options)
    shared._learner.local.on_message = recorder  # noqa: SLF001
    world = World(layout, np.random.default_rng(2))
    for _ in range(3):
        user, arms, _ = world.round()
        shared.reward(shared.decide(blocks_of(user), **arms), 1.0)
    return [message for _, _, message in recorder.messages]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_participants_share_one_row_for_all_arms(layout):
    sent = [one for one in messages_of(layout) if isinstance(one, m.Contribution)]
    assert {one.contexts.shape[1] for one in sent} == {1}


def test_the_helper_learns_how_many_arms_are_on_offer_and_not_which():
    """B sees counts and a set of positions in a secret order."""
    found = messages_of("disjoint")
    asks = [one for one in found if isinstance(one, m.Sample)]
    assert [one.n_arms for one in asks] == sorted(one.n_arms for one in asks)  # blocks in use
    local = local_shares(small_terms(layout="disjoint", widths=(1, 1), max_arms=6))
    lives = set()
    for _ in range(30):
        recorder = Recorder()
        local.on_message = recorder
        opened = local.decide([np.array([[0.5]])] * 2, Offer((0, 1), 6))
        local.learn(local.pick(opened, 0), 0.0)
        (compared,) = [one for one in recorder.view("helper") if isinstance(one, m.Compare)]
        assert compared.live.sum() == len(compared.numbers) == 2
        lives.add(tuple(compared.live))
    assert len(lives) > 5


def test_outer_takes_one_more_round_trip_and_sends_arm_features_under_a_mask_only():
    found = messages_of("outer")
    lifts = [one for one in found if isinstance(one, m.Lift)]
    assert len(lifts) == len([one for one in found if isinstance(one, m.Ask)]) == 3
    (first, second) = (decode(one.arms[:, :1]) for one in lifts[:2])
    assert np.abs(first).min() > 1.0  # a feature is smaller
    assert (first != second).all()


def test_statistics_in_outer_are_those_of_arm_features_whatever_the_number_of_arms():
    policy = vfb.LinUCB(0.5)
    found = messages_of("outer", "statistics", policy)
    scored = [one for one in found if type(one).__name__ == "Scored"]
    assert {one.means.shape[1] for one in scored} == {ARM_DIM}
    shared = federation(
        policy, layout="outer", release="statistics", accept_leak=(), max_arms=MAX_ARMS
    )
    assert shared.learns == "the means and the covariance of all arm features in a decision"


def test_blocks_are_the_arms_in_the_order_of_first_use():
    blocks = ArmBlocks(3, ["tea"])
    assert blocks.offer(["milk", "tea"]).blocks == (1, 0)
    assert len(blocks) == 2
    with pytest.raises(ArmError, match=r"max_arms=3 arms in all, .* got the new arm 'rice'"):
        blocks.numbers(["soup", "rice"])
    assert len(blocks) == 2


def test_an_arm_too_many_is_refused_and_uses_no_slot():
    shared = federation(layout="disjoint", max_arms=2)
    user = blocks_of(np.full(DIM, 0.1))
    shared.decide(user, arms=["tea", "milk"])
    with pytest.raises(ArmError, match="all blocks are in use; got the new arm 'soup'"):
        shared.decide(user, arms=["tea", "soup"])
    assert shared.bandit.n_decisions == 1
    assert shared.decide(user, arms=["milk"]).arm == "milk"


@pytest.mark.parametrize(
    ("options", "arms", "message"),
    [
        ({"layout": "disjoint"}, {}, "needs arms"),
        ({"layout": "disjoint"}, {"arms": ["a", "a"]}, "each arm id may come once, got a"),
        ({"layout": "disjoint"}, {"arms": ["a"], "arm_features": [[1.0]]}, "arms by id only"),
        ({"layout": "outer"}, {}, r"needs arm_features \(n_arms, 2\), got none"),
        ({"layout": "outer"}, {"arm_features": [[3.0, 4.0]]}, "at most 1 long .* got 5"),
        (
            {"layout": "outer", "arm_bound": 2.0},
            {"arm_features": [[3.0, 4.0]]},
            "at most 2 long .* got 5",
        ),
        ({"layout": "outer"}, {"arm_features": [[0.1, 0.1]] * 7}, "max_arms=6 arms, got 7"),
    ],
)
def test_arms_that_do_not_fit_the_layout_are_refused(options, arms, message):
    shared = federation(**options)
    with pytest.raises(ArmError, match=message):
        shared.decide(blocks_of(np.full(DIM, 0.1)), **arms)
    assert shared.bandit.n_decisions == 0


@pytest.mark.parametrize(
    ("layout", "release", "policy", "options", "message"),
    [
        ("disjoint", "statistics", vfb.LinGreedy(), {}, "6 arms .* 'bank' has 4 features"),
        ("disjoint", "arm", vfb.LinUCB(), {}, "6 arms .* 'bank' has 4 features"),
        ("disjoint", "statistics", vfb.LinTS(), {"accept_leak": ("bank",)}, "'post' has 5"),
        ("outer", "statistics", vfb.LinUCB(), {"arm_dim": 4}, "4 arm features .* 'bank' has 4"),
        (
            "outer",
            "statistics",
            vfb.LinUCB(),
            {"arm_dim": 3, "intercept": True},
            r"4 arm features .* fewer than 4 arm features \(arm_dim\), or accept_leak with 'bank'",
        ),
    ],
)
def test_numbers_from_which_a_row_could_be_read_are_refused_unless_accepted(
    layout, release, policy, options, message
):
    with pytest.raises(SettingError, match=message):
        federation(policy, layout=layout, release=release, **options)
    options = {**options, "accept_leak": ("bank", "post")}
    shared = federation(policy, layout=layout, release=release, **options)
    assert "accept_leak=('bank', 'post')" in repr(shared)


@pytest.mark.parametrize(
    ("layout", "release", "policy", "options"),
    [
        ("disjoint", "arm", vfb.LinTS(0.1), {}),
        ("disjoint", "arm", vfb.LinGreedy(0.1), {}),
        ("disjoint", "statistics", vfb.LinUCB(), {"max_arms": 3}),
        ("outer", "statistics", vfb.LinUCB(), {"arm_dim": 3}),
    ],
)
def test_fewer_numbers_than_features_need_no_consent(layout, release, policy, options):
    assert federation(policy, layout=layout, release=release, **options).accept_leak == ()


def test_only_shares_have_consent_and_a_bound_of_arm_features():
    for name, value in (("accept_leak", ("bank",)), ("arm_bound", 2.0)):
        with pytest.raises(SettingError, match=f"only protection 'shares' has an {name}"):
            vfb.Federation(vfb.LinTS(), widths=WIDTHS, **{name: value})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"layout": "outer", "arm_dim": 2, "arm_bound": 20.0},
            r"arm_bound·bound·√\(participants/ridge\) must be at most 16 .* got 40",
        ),
        (
            {"layout": "disjoint", "intercept": True, "ridge": 0.01},
            r"√\(\(participants·bound² \+ 1\)/ridge\) must be at most 16",
        ),
        ({"layout": "disjoint", "reads": "covariance"}, "does not go with layout 'disjoint'"),
        ({"layout": "outer", "arm_dim": 2, "reads": "widths"}, "does not go with layout 'outer'"),
        ({"layout": "outer", "arm_dim": 65, "reads": "covariance"}, "arm_dim must be at most 64"),
        ({"layout": "per_arm", "arm_dim": 2}, "arm_dim goes with layout 'outer'"),
    ],
)
def test_terms_that_do_not_go_together_are_refused(changes, message):
    values = {"widths": (2, 3), "max_arms": 4, "ridge": 0.5, "posterior_scale": 0.0}
    with pytest.raises(SettingError, match=message):
        ShareTerms(**{**values, "release": "statistics", "reads": "means", **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"layout": "disjoint"},
        {"layout": "disjoint", "posterior_scale": 0.0, "reads": "widths", "beta": 0.5},
        {"layout": "outer", "arm_dim": 2},
    ],
)
def test_servers_and_dealer_go_on_from_what_was_kept(changes):
    """After each window all three are restored from bytes; others are not."""
    terms = small_terms(**changes)
    kept, fresh = (local_shares(terms, seed=4) for _ in range(2))
    rng = np.random.default_rng(0)
    offer = Offer((2, 0), 3) if terms.layout == "disjoint" else Offer(features=np.eye(2))
    for number in range(3 * terms.window):
        user = rng.uniform(-0.5, 0.5, (1, 5))
        parts = np.split(user, [2], axis=1)
        opened = [local.decide(parts, offer) for local in (kept, fresh)]
        assert opened[0].arm == opened[1].arm
        for local, one in zip((kept, fresh), opened, strict=True):
            local.learn(local.pick(one, number % 2), 1.0)
        if kept.active.needs_deal:
            secrets = kept.dealer.active_secrets(), kept.dealer.helper_secrets()
            states = (kept.active.snapshot(), kept.helper.snapshot(), kept.dealer.snapshot())
            states = [Kept.from_bytes(state.to_bytes()) for state in states]
            kept.active = ActiveServer.restore(terms, secrets[0], states[0])
            kept.helper = Helper.restore(terms, secrets[1], states[1])
            kept.dealer = Dealer.restore(terms, states[2])
    for one, other in zip(kept.reveal(), fresh.reveal(), strict=True):
        assert np.array_equal(one, other)


def test_a_lift_out_of_turn_or_of_another_shape_is_refused():
    terms = small_terms(layout="outer", arm_dim=2)
    local = local_shares(terms)
    local._ensure_deal()  # noqa: SLF001
    place = local.active.next_place()
    good = m.Lift(place, words(1, 5), words(3, 2), words(3, 10))
    with pytest.raises(SharesError, match="contexts by a Lift message before"):
        local.helper.answer(m.Sample(place, 3, words(0, 0), words(0), words(10)))
    for bad in (
        m.Lift(place, words(1, 4), words(3, 2), words(3, 10)),
        m.Lift(place, words(1, 5), words(5, 2), words(5, 10)),
        m.Lift(place, words(1, 5), words(3, 3), words(3, 10)),
        m.Lift(place, words(1, 5), words(3, 2), words(3, 9)),
    ):
        with pytest.raises(SharesError, match="wanted features of 1 to 4 arms, 2 of each"):
            local.helper.answer(bad)
    answered = local.helper.answer(good)
    assert local.helper.answer(good).to_bytes() == answered.to_bytes()
    with pytest.raises(SharesError, match="was used before"):
        local.helper.answer(m.Lift(place, words(1, 5), words(2, 2), words(2, 10)))
    with pytest.raises(SharesError, match="before its contexts come, or never"):
        local.helper.answer(m.Absent(place, 1, np.array([0, 1], np.uint8)))
    plain = local_shares(small_terms())
    with pytest.raises(SharesError, match="wanted features of 1 to 0 arms"):
        plain.helper.answer(good)


def words(*shape):
    return np.zeros((2, *shape), np.uint64)
