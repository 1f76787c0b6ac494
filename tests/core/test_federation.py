"""Contributors, missing participants, and who sees what."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import vfbandits as vfb

WIDTHS = {"shop": 2, "bank": 3, "news": 2}


def blocks(rng, n=3):
    return {name: rng.standard_normal((n, width)) for name, width in WIDTHS.items()}


@pytest.mark.parametrize(
    ("mask", "aggregation"), [("blockwise", "plain"), ("dense", "plain"), ("dense", "secure")]
)
def test_a_missing_participant_counts_as_zeros_and_the_decision_says_who_contributed(
    mask, aggregation
):
    rng = np.random.default_rng(0)
    widths = {**WIDTHS, "post": 1}
    federation = vfb.Federation(
        vfb.LinUCB(), widths=widths, mask=mask, aggregation=aggregation, seed=1
    )
    twin = federation.twin()
    for missing in (None, "bank", "news", "post"):
        given = {**blocks(rng), "post": rng.standard_normal((3, 1))}
        if missing:
            given[missing] = None
        masked = federation.decide(given)
        assert masked.contributors == tuple(name for name in widths if name != missing)
        plain = twin.decide(federation.split.join(given, ndim=2))
        assert_allclose(masked.scores, plain.scores, atol=1e-12)
        federation.reward(masked, 1.0)
        twin.reward(plain, 1.0)


def test_a_secure_sum_never_shows_a_single_participant():
    """With one passive participant left it is left out: the decision rests on the active one."""
    rng = np.random.default_rng(1)
    federation = vfb.Federation(vfb.LinUCB(), widths=WIDTHS, mask="dense", aggregation="secure")
    given = blocks(rng)
    del given["news"]
    assert federation.decide(given).contributors == ("shop",)
    assert federation.decide(blocks(rng)).contributors == ("shop", "bank", "news")


def test_what_the_active_participant_sees_is_masked():
    rng = np.random.default_rng(2)
    for mask in ("dense", "blockwise"):
        federation = vfb.Federation(vfb.LinUCB(), widths=WIDTHS, mask=mask)
        given = blocks(rng)
        decision = federation.decide(given)
        seen = federation.bandit.snapshot().arrays["open"][0]
        plain = federation.split.join(given, ndim=2)[decision.index]
        assert not np.isclose(seen[:, None], plain[None, :], atol=1e-6).any()
        assert np.linalg.norm(seen) == pytest.approx(np.linalg.norm(plain))


def test_a_block_of_one_feature_shows_its_size_behind_any_mask():
    """A rotation of one number is a sign: said in the documentation, and shown here."""
    federation = vfb.Federation(vfb.LinUCB(), widths={"a": 2, "b": 1})
    federation.decide({"a": [[1.0, 2.0]], "b": [[0.7]]})
    assert abs(federation.bandit.snapshot().arrays["open"][0][2]) == pytest.approx(0.7)


def test_the_reprs_show_settings_and_no_secret():
    federation = vfb.Federation(vfb.LinUCB(beta=0.5), widths=WIDTHS, mask="dense")
    assert repr(federation) == (
        "Federation(LinUCB(beta=0.5), widths={'shop': 2, 'bank': 3, 'news': 2}, mask='dense', "
        "aggregation='plain', epoch=0)"
    )
    assert repr(federation.bandit) == (
        "Bandit(LinUCB(beta=0.5), layout='per_arm', dim=7, decisions=0, open=0)"
    )


def test_masks_come_from_the_operating_system_whatever_the_seed_is():
    first, second = (
        vfb.Federation(vfb.LinUCB(), widths=WIDTHS, mask="dense", seed=1) for _ in range(2)
    )
    assert not np.allclose(first.reveal_mask(), second.reveal_mask())


def test_the_twin_draws_what_the_federation_draws_even_without_a_seed():
    federation = vfb.Federation(vfb.LinTS(), widths=WIDTHS)
    X = np.ones((3, 7))
    given = {name: X[:, federation.split.columns(name)] for name in WIDTHS}
    assert_allclose(federation.decide(given).scores, federation.twin().decide(X).scores, atol=1e-12)
