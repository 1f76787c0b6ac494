"""Re-keying, joining and leaving: decisions equal those of a plain bandit treated the same way."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from worlds import MORE

import vfbandits as vfb
from vfbandits.core.move import Narrowing, Widening, drop, embed, rotate
from vfbandits.core.settings import LearnerSettings
from vfbandits.core.state import State
from vfbandits.errors import MaskError, SettingError

LAYOUTS = st.sampled_from(["per_arm", "outer", "disjoint"])
MASKS = st.sampled_from([("blockwise", "plain"), ("dense", "plain"), ("dense", "secure")])
POLICIES = st.sampled_from(
    [vfb.LinUCB(beta=0.4), vfb.LinTS(posterior_scale=0.3, space="arm"), vfb.InverseGap()]
)


class Pair:
    """A federation and its plain twin, treated alike."""

    def __init__(self, policy, layout, mask, discount, rng):
        self.layout, self.rng = layout, rng
        self.federation = vfb.Federation(
            policy,
            widths={"a": 2, "b": 1, "c": 2},
            mask=mask[0],
            aggregation=mask[1],
            layout=layout,
            arm_dim=2 if layout == "outer" else None,
            discount=discount,
            seed=int(rng.integers(2**32)),
            entropy=rng.bytes,
        )
        self.plain = self.federation.twin()

    def play(self, n):
        for _ in range(n):
            self.reward(*self.decide())

    def decide(self):
        split, rows = self.federation.split, 4 if self.layout == "per_arm" else 1
        X = self.rng.standard_normal((rows, split.dim))
        X = X if self.layout == "per_arm" else X[0]
        given = {"arms": ["w", "x", "y", "z"]}
        if self.layout == "outer":
            given["arm_features"] = self.rng.standard_normal((4, 2))
        blocks = {name: X[..., split.columns(name)] for name in split.names}
        masked = self.federation.decide(blocks, **given)
        plain = self.plain.decide(X, **given)
        assert masked.arm == plain.arm
        assert_allclose(masked.scores, plain.scores, rtol=1e-7, atol=1e-9)
        return masked, plain

    def reward(self, masked, plain):
        value = float(np.rint(self.rng.standard_normal()))
        self.federation.reward(masked, value)
        self.plain.reward(plain, value)


@given(policy=POLICIES, layout=LAYOUTS, mask=MASKS, discount=st.sampled_from([1.0, 0.8]),
       seed=st.integers(0, 2**32 - 1))  # fmt: skip
@settings(deadline=None, max_examples=40 * MORE)
def test_a_federation_that_changes_decides_on_as_its_plain_twin(
    policy, layout, mask, discount, seed
):
    pair = Pair(policy, layout, mask, discount, np.random.default_rng(seed))
    pair.play(4)
    late = pair.decide()

    pair.federation.rekey()
    pair.play(3)
    pair.federation.join("d", 2)
    pair.plain.move(Widening(2))
    pair.play(3)
    columns = pair.federation.split.columns("b")
    pair.federation.leave("b")
    pair.plain.move(Narrowing(columns.start, columns.stop))
    pair.play(3)

    pair.reward(*late)  # a reward for a decision from before all that
    pair.play(3)


def test_rekeying_draws_a_new_mask():
    federation = vfb.Federation(vfb.LinUCB(), widths={"a": 2, "b": 2})
    before = federation.reveal_mask()
    federation.rekey()
    assert not np.allclose(before, federation.reveal_mask())


def test_leaving_equals_never_having_had_the_features():
    rng = np.random.default_rng(0)
    whole, part = State(5, LearnerSettings()), State(3, LearnerSettings())
    for x, r in zip(rng.standard_normal((30, 5)), rng.standard_normal(30), strict=True):
        whole.update(x, r)
        part.update(np.delete(x, [1, 2]), r)
    cut = drop(whole, 1, 3)
    assert_allclose(cut.Lambda, part.Lambda, atol=1e-12)
    assert_allclose(cut.theta, part.theta, atol=1e-12)


@pytest.mark.parametrize("root", [False, True])
def test_rotate_and_embed_keep_what_was_learnt(root):
    rng = np.random.default_rng(1)
    state = State(4, LearnerSettings(ridge=0.5))
    if root:
        state.root()
    for x in rng.standard_normal((10, 4)):
        state.update(x, float(x[0]))
    R = vfb.sample_mask(4)
    turned = rotate(state, R)
    assert_allclose(turned.Lambda, R @ state.Lambda @ R.T, atol=1e-12)
    assert_allclose(turned.theta, R @ state.theta, atol=1e-12)
    assert turned.form.name == state.form.name
    wider = embed(state, 2)
    assert_allclose(wider.Lambda[4:, 4:], 0.5 * np.eye(2))
    assert_allclose(wider.theta, [*state.theta, 0.0, 0.0], atol=1e-12)
    assert wider.n_updates == 10


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda s, f: rotate(s, np.ones((3, 3))), MaskError, "RR' = I"),
        (lambda s, f: rotate(s, np.ones((2, 3))), MaskError, "square"),
        (lambda s, f: embed(s, 0), MaskError, "got 0"),
        (lambda s, f: drop(s, 2, 2), MaskError, "2 to 2"),
        (lambda s, f: drop(s, 0, 3), MaskError, "0 to 3"),
        (lambda s, f: f.join("a", 1), SettingError, "new name"),
        (lambda s, f: f.join("n", 0), SettingError, "whole number from 1"),
        (lambda s, f: f.leave("a"), SettingError, "one of b may leave, got 'a'"),
        (lambda s, f: f.leave("nobody"), SettingError, "got 'nobody'"),
    ],
)
def test_bad_moves_are_refused_and_change_nothing(call, error, message):
    state = State(3, LearnerSettings())
    federation = vfb.Federation(vfb.LinUCB(), widths={"a": 1, "b": 2})
    mask = federation.reveal_mask()
    with pytest.raises(error, match=message):
        call(state, federation)
    assert_allclose(federation.reveal_mask(), mask)
    assert federation.split.names == ("a", "b")
    assert_allclose(state.Lambda, np.eye(3))


def test_the_last_passive_participant_may_not_leave():
    federation = vfb.Federation(vfb.LinUCB(), widths={"a": 1, "b": 2})
    with pytest.raises(SettingError, match="an active and a passive"):
        federation.leave("b")
    assert federation.decide({"a": [[1.0]], "b": [[1.0, 2.0]]}).contributors == ("a", "b")


def test_secure_sums_keep_two_passive_participants():
    federation = vfb.Federation(
        vfb.LinUCB(), widths={"a": 1, "b": 2, "c": 1}, mask="dense", aggregation="secure"
    )
    with pytest.raises(SettingError, match="two passive"):
        federation.leave("b")
