"""A change of masks made of parts does to the model what nobody could do who saw both masks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import block_diag
from worlds import MORE

import vfbandits as vfb
from vfbandits.core.context import Split
from vfbandits.core.fixed_point import FixedPoint
from vfbandits.core.mask import MaskShare, deal_blockwise, deal_dense, sample_mask
from vfbandits.core.move import Narrowing, Remask, Rotation, Widening, moved
from vfbandits.core.remask import add_parts, kept_features, place_parts, remask_part
from vfbandits.core.settings import LearnerSettings
from vfbandits.core.state import State
from vfbandits.errors import MaskError

BEFORE = {"shop": 2, "bank": 1, "news": 2}
POLICIES = st.sampled_from(
    [vfb.LinUCB(beta=0.4), vfb.LinTS(posterior_scale=0.3, space="arm"), vfb.InverseGap()]
)
LAYOUTS = st.sampled_from([("per_arm", False), ("outer", False), ("outer", True),
                           ("disjoint", False), ("disjoint", True)])  # fmt: skip
KINDS = st.sampled_from(["dense", "blockwise"])
CHANGES = {
    "rotate": dict(BEFORE),
    "join": {**BEFORE, "post": 2},
    "join in front": {"shop": 2, "post": 2, "bank": 1, "news": 2},
    "leave": {"shop": 2, "news": 2},
    "another order": {"shop": 2, "news": 2, "bank": 1},
    "replace": {"shop": 2, "news": 2, "post": 3},
    "replace all": {"shop": 2, "post": 3, "rail": 1},
}


def deal(kind, split):
    shares = (deal_dense if kind == "dense" else deal_blockwise)(split.widths)
    return dict(zip(split.names, shares, strict=True))


def whole(kind, shares):
    columns = [share.columns for share in shares.values()]
    return np.hstack(columns) if kind == "dense" else block_diag(*columns)


def remask_of(kind, old, new, before, after):
    """As the active participant makes it: from parts, each made of one participant's shares."""
    parts = {name: remask_part(old[name], new[name]) for name in old if name in new}
    if kind == "blockwise":
        return place_parts(parts, before, after)
    return add_parts(sum(parts.values()), before, after)


def plain_moves(before, after):
    """What the same change is without masks: leave, join, and stand in another order."""
    widths = {**dict(before.items()), **dict(after.items())}
    names = list(before.names)
    for name in [name for name in names if name not in after.names]:
        columns = Split.of({n: widths[n] for n in names}).columns(name)
        yield Narrowing(columns.start, columns.stop)
        names.remove(name)
    for name in [name for name in after.names if name not in names]:
        yield Widening(widths[name])
        names.append(name)
    now = Split.of({name: widths[name] for name in names})
    order = np.concatenate([np.arange(now.dim)[now.columns(name)] for name in after.names])
    yield Rotation(np.eye(after.dim)[order])


class Twins:
    """A bandit behind masks and one in the open, treated alike."""

    def __init__(self, policy, layout, kind, rng, **settings):
        self.layout, intercept = layout
        self.kind, self.rng = kind, rng
        self.split = Split.of(BEFORE)
        self.shares = deal(kind, self.split)
        options = {
            "layout": self.layout,
            "arm_dim": 2 if self.layout == "outer" else None,
            "intercept": intercept,
            "seed": int(rng.integers(2**32)),
            **settings,
        }
        self.masked, self.plain = (
            vfb.Bandit(policy, dim=self.split.dim, **options) for _ in range(2)
        )

    def decide(self):
        X = self.rng.standard_normal((4, self.split.dim))
        Z = X @ whole(self.kind, self.shares).T
        if self.layout != "per_arm":
            X, Z = X[0], Z[0]
        given = {"arms": ["w", "x", "y", "z"]}
        if self.layout == "outer":
            given["arm_features"] = self.rng.standard_normal((4, 2))
        pair = self.masked.decide(Z, **given), self.plain.decide(X, **given)
        assert pair[0].arm == pair[1].arm
        assert_allclose(pair[0].scores, pair[1].scores, rtol=1e-7, atol=1e-9)
        return pair

    def reward(self, masked, plain):
        value = float(np.rint(self.rng.standard_normal()))
        self.masked.reward(masked, value)
        self.plain.reward(plain, value)

    def play(self, n):
        for _ in range(n):
            self.reward(*self.decide())

    def change(self, widths):
        after = Split.of(widths)
        shares = deal(self.kind, after)
        self.masked.move(remask_of(self.kind, self.shares, shares, self.split, after))
        for move in plain_moves(self.split, after):
            self.plain.move(move)
        self.split, self.shares = after, shares


@given(policy=POLICIES, layout=LAYOUTS, kind=KINDS, change=st.sampled_from(list(CHANGES)),
       discount=st.sampled_from([1.0, 0.8]), ridge=st.sampled_from([0.1, 1.0, 7.0]),
       seed=st.integers(0, 2**32 - 1))  # fmt: skip
@settings(max_examples=40 * MORE)
def test_after_a_change_decisions_are_those_of_the_plain_twin(
    policy, layout, kind, change, discount, ridge, seed
):
    twins = Twins(policy, layout, kind, np.random.default_rng(seed), discount=discount, ridge=ridge)
    twins.play(5)
    late = twins.decide()
    twins.change(CHANGES[change])
    twins.play(3)
    twins.reward(*late)  # a reward for a decision from before the change
    twins.play(3)
    twins.change(BEFORE)
    twins.play(3)


@given(kind=KINDS, layout=LAYOUTS, seed=st.integers(0, 2**32 - 1),
       discount=st.sampled_from([1.0, 0.8]))  # fmt: skip
@settings(max_examples=15 * MORE)
def test_parts_do_what_a_federation_in_one_process_does(kind, layout, seed, discount):
    """``Federation`` sees both masks; the other bandit is given parts only."""
    rng = np.random.default_rng(seed)
    twins = Twins(vfb.LinUCB(beta=0.4), layout, kind, rng, discount=discount)
    federation = vfb.Federation(
        vfb.LinUCB(beta=0.4), widths=BEFORE, mask=kind, **twins.masked.options
    )

    def play():
        names = twins.split.names
        state = twins.rng.bit_generator.state
        masked, plain = twins.decide()
        twins.rng.bit_generator.state = state  # the same contexts for the federation
        X = twins.rng.standard_normal((4, twins.split.dim))
        given = {"arms": ["w", "x", "y", "z"]}
        if twins.layout == "outer":
            given["arm_features"] = twins.rng.standard_normal((4, 2))
        X = X if twins.layout == "per_arm" else X[0]
        blocks = {name: X[..., twins.split.columns(name)] for name in names}
        other = federation.decide(blocks, **given)
        assert other.arm == masked.arm
        assert_allclose(other.scores, masked.scores, rtol=1e-7, atol=1e-9)
        federation.reward(other, 1.0)
        twins.masked.reward(masked, 1.0)
        twins.plain.reward(plain, 1.0)

    for change in (
        lambda: (federation.rekey(), twins.change(BEFORE)),
        lambda: (federation.join("post", 2), twins.change({**BEFORE, "post": 2})),
        lambda: (federation.leave("bank"), twins.change({"shop": 2, "news": 2, "post": 2})),
    ):
        for _ in range(3):
            play()
        change()
    for _ in range(3):
        play()


@given(kind=KINDS, change=st.sampled_from(list(CHANGES)))
@settings(max_examples=30 * MORE)
def test_the_parts_add_up_to_a_partial_isometry_of_the_features_that_stay(kind, change):
    before, after = Split.of(BEFORE), Split.of(CHANGES[change])
    old, new = deal(kind, before), deal(kind, after)
    remask = remask_of(kind, old, new, before, after)
    Q, Q_new = whole(kind, old), whole(kind, new)
    stay = [name for name in before.names if name in after.names]
    x = np.zeros(before.dim)
    x_new = np.zeros(after.dim)
    for name in stay:
        block = np.random.default_rng(0).standard_normal(dict(before.items())[name])
        x[before.columns(name)], x_new[after.columns(name)] = block, block
    assert remask.kept == kept_features(before, after)
    assert_allclose(remask.vector(Q @ x), Q_new @ x_new, atol=1e-12)
    R = remask.R
    assert_allclose(R @ R.T @ R, R, atol=1e-12)
    assert_allclose(np.trace(R @ R.T), remask.kept, atol=1e-12)


def test_new_features_start_at_the_prior_and_lost_ones_are_as_if_they_had_never_been():
    rng = np.random.default_rng(0)
    before, after = Split.of(BEFORE), Split.of(CHANGES["replace"])
    old, new = deal("dense", before), deal("dense", after)
    Q, Q_new = whole("dense", old), whole("dense", new)
    state, part = (State(dim, LearnerSettings(ridge=0.5)) for dim in (5, 4))
    for x in rng.standard_normal((20, 5)):
        state.update(Q @ x, float(x[0]))
        part.update(np.delete(x, 2), float(x[0]))
    plain = block_diag(part.Lambda, 0.5 * np.eye(3))
    changed = moved(state, remask_of("dense", old, new, before, after))
    assert_allclose(changed.Lambda, Q_new @ plain @ Q_new.T, atol=1e-11)
    assert_allclose(changed.theta, Q_new @ [*part.theta, 0.0, 0.0, 0.0], atol=1e-11)
    assert changed.n_updates == 20


def test_what_sums_in_fixed_point_leave_is_taken_away():
    """An error of 1e-12 in each entry is squared, so that many changes do not add it up."""
    rng = np.random.default_rng(1)
    R = sample_mask(40)[:, :30] @ sample_mask(35)[:, :30].T
    noisy = R + rng.uniform(-1e-11, 1e-11, size=R.shape)
    mended = Remask(noisy, 30).R
    assert np.abs(noisy @ noisy.T @ noisy - noisy).max() > 1e-12
    assert np.abs(mended @ mended.T @ mended - mended).max() < 1e-14


@pytest.mark.parametrize("kind", ["dense", "blockwise"])
def test_a_part_that_is_missing_or_wrong_is_noticed(kind):
    before = Split.of(BEFORE)
    old, new = deal(kind, before), deal(kind, before)
    parts = {name: remask_part(old[name], new[name]) for name in old}
    wrong = {
        "missing": {name: part for name, part in parts.items() if name != "bank"},
        "twice": {**parts, "bank": 2.0 * parts["bank"]},
        "another's": {**parts, "news": remask_part(old["news"], deal(kind, before)["news"])},
        "not finite": {**parts, "news": parts["news"] * np.nan},
    }
    for what, bad in wrong.items():
        if kind == "blockwise" and what == "another's":
            continue  # each has a rotation of its own: any other one is as good
        make = place_parts if kind == "blockwise" else add_parts
        given = bad if kind == "blockwise" else sum(bad.values())
        with pytest.raises(MaskError, match="a participant's part is missing or wrong"):
            make(given, before, before)


@pytest.mark.parametrize(
    ("R", "kept", "message"),
    [
        (np.eye(3), 0, r"keeps 0 features, got shape \(3, 3\)"),
        (np.eye(3), 4, r"keeps 4 features, got shape \(3, 3\)"),
        (np.zeros((2, 3)), 3, r"keeps 3 features, got shape \(2, 3\)"),
        (np.eye(3)[0], 1, r"keeps 1 features, got shape \(3,\)"),
        (np.eye(3), 2, "of rank 2, off by 0.0e\\+00, rank 3.000"),
        (2.0 * np.eye(3), 3, "needs RR'R = R of rank 3"),
        (np.full((3, 3), np.inf), 3, "needs RR'R = R of rank 3"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_what_is_no_partial_isometry_of_that_rank_is_refused(R, kept, message):
    with pytest.raises(MaskError, match=message):
        Remask(R, kept)


def test_one_that_stays_keeps_its_width():
    with pytest.raises(MaskError, match="keeps its width 2, got a new share for 3 features"):
        remask_part(MaskShare(np.eye(2)), MaskShare(np.eye(3)))
    with pytest.raises(MaskError, match="'bank' must keep its width 1, got 2: it has to leave"):
        kept_features(Split.of(BEFORE), Split.of({**BEFORE, "bank": 2}))
    assert kept_features(Split.of(BEFORE), Split.of({"shop": 2, "mall": 9})) == 2


def test_a_part_tells_nothing_of_the_old_share_but_its_span():
    """With a fresh rotation under the new share, any two old shares of one span look alike."""
    old = deal("dense", Split.of(BEFORE))["news"]
    turned = old.layered(sample_mask(2))
    new = deal("dense", Split.of(BEFORE))["news"]
    undone = new.layered(np.linalg.lstsq(old.columns, turned.columns, rcond=None)[0])
    assert_allclose(remask_part(old, new), remask_part(turned, undone), atol=1e-12)


def test_parts_fit_into_a_secure_sum():
    split = Split.of(BEFORE)
    old, new = deal("dense", split), deal("dense", split)
    code = FixedPoint(n_terms=3, bound=1.0)
    total = sum(code.encode(remask_part(old[name], new[name])) for name in split.names)
    remask = add_parts(code.decode(total), split, split)
    wanted = whole("dense", new) @ whole("dense", old).T
    assert_allclose(remask.R, wanted, atol=1e-14)


def test_lifting_keeps_what_the_arms_bring():
    remask = Remask(sample_mask(3)[:, :2] @ sample_mask(4)[:, :2].T, 2)
    lifted = remask.lifted(before=1, factor=2)
    assert (lifted.kept, lifted.R.shape) == (5, (7, 9))
    u, w = np.array([1.0, 2.0, 3.0, 4.0]), np.array([5.0, 6.0])
    wanted = np.concatenate([[9.0], np.kron(remask.vector(u), w)])
    assert_allclose(lifted.vector(np.concatenate([[9.0], np.kron(u, w)])), wanted, atol=1e-12)


def test_the_matrix_is_not_shown():
    assert repr(Remask(np.eye(2), 2)) == "Remask(kept=2)"


def test_a_change_that_is_refused_leaves_the_bandit_as_it_was():
    bandit = vfb.Bandit(vfb.LinUCB(), dim=3)
    bandit.reward(bandit.decide(np.eye(3)), 1.0)
    before = bandit.states[None].Lambda
    with pytest.raises(MaskError):
        bandit.move(Remask(2.0 * np.eye(3), 3))
    assert_array_equal(bandit.states[None].Lambda, before)
