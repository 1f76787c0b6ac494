"""The mask generator: what it deals fits together, and to nobody else."""

import os
from dataclasses import replace

import numpy as np
import pytest
from dealt import dense_federation
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from vfbandits.core.mask import sample_mask
from vfbandits.errors import EnvelopeError, IdentityError, MaskError
from vfbandits.protocol.envelope import check_deal, open_share
from vfbandits.protocol.roster import Member, Terms


def open_all(dealt, envelopes, epoch):
    return [
        open_share(
            envelopes[name], roster=dealt.roster, epoch=epoch, participant=name, private_key=key
        ).columns
        for name, key in dealt.keys.items()
    ]


@given(widths=st.lists(st.integers(1, 5), min_size=2, max_size=5), epoch=st.integers(0, 99))
@settings(max_examples=25)
def test_the_shares_of_all_participants_form_an_orthogonal_matrix(widths, epoch):
    dealt = dense_federation({f"p{place}": width for place, width in enumerate(widths)})
    Q = np.hstack(open_all(dealt, dealt.generator.deal(dealt.roster, epoch), epoch))
    assert Q.shape == (sum(widths), sum(widths))
    assert_allclose(Q.T @ Q, np.eye(len(Q)), atol=1e-12)
    assert_allclose(Q @ Q.T, np.eye(len(Q)), atol=1e-12)


def test_the_mask_is_the_haar_one_of_the_entropy_and_of_nothing_else():
    dealt = dense_federation()
    envelopes = dealt.generator.deal(dealt.roster, 1, np.random.default_rng(3).bytes)
    rng = np.random.default_rng(3)
    assert check_deal(envelopes, roster=dealt.roster, epoch=1) == rng.bytes(16).hex()
    Q = np.hstack(open_all(dealt, envelopes, 1))
    assert (sample_mask(6, entropy=rng.bytes) == Q).all()


def test_each_deal_is_another_mask_under_another_name():
    dealt = dense_federation()
    one, two = (dealt.generator.deal(dealt.roster, 1) for _ in range(2))
    assert check_deal(one, roster=dealt.roster, epoch=1) != check_deal(
        two, roster=dealt.roster, epoch=1
    )
    for left, right in zip(open_all(dealt, one, 1), open_all(dealt, two, 1), strict=True):
        assert not np.isclose(left, right, rtol=1e-9).any()


def test_programs_get_no_share():
    dealt = dense_federation()
    web = Member("web", "application", certificate="ee" * 32)
    roster = replace(dealt.roster, members=(*dealt.roster.members, web))
    assert list(dealt.generator.deal(roster, 1)) == ["shop", "bank", "news"]


def test_it_tells_how_far_it_is():
    dealt = dense_federation()
    steps = []
    dealt.generator.deal(dealt.roster, 1, on_step=steps.append)
    assert steps == [1, 2, 3, 4]


def never(size):
    raise AssertionError("nothing must be drawn")


def test_masks_that_are_not_dense_are_refused_before_anything_is_drawn():
    dealt = dense_federation()
    roster = replace(dealt.roster, terms=Terms(mask="blockwise"))
    with pytest.raises(MaskError, match="deals dense masks; this roster has 'blockwise'"):
        dealt.generator.deal(roster, 1, never)


def test_a_roster_that_names_another_generator_is_refused_before_anything_is_drawn():
    dealt, other = dense_federation(), dense_federation()
    with pytest.raises(IdentityError, match=f"this is {other.generator.public_key}"):
        other.generator.deal(dealt.roster, 1, never)


def test_an_epoch_below_zero_is_refused_before_anything_is_drawn():
    dealt = dense_federation()
    with pytest.raises(EnvelopeError, match="from 0, got -1"):
        dealt.generator.deal(dealt.roster, -1, never)


def test_the_generator_keeps_no_number_and_shows_no_key():
    dealt = dense_federation()
    before = repr(dealt.generator)
    drawn = []

    def entropy(size):
        drawn.append(os.urandom(size))
        return drawn[-1]

    dealt.generator.deal(dealt.roster, 1, entropy)
    assert repr(dealt.generator) == before == "MaskGenerator()"
    assert dealt.generator.__slots__ == ("signing_key",)
    assert len(drawn) == 2
