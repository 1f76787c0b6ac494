"""A parity run has public features behind public masks, and nothing real meets either."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from pure_federation import LAYOUTS, MODES, WIDTHS, PureFederation, features

from vfbandits.core.arrays import PlainBlock
from vfbandits.protocol.messages import Ask
from vfbandits.protocol.trial import TrialMask, trial_block, trial_shares

ASK = Ask(1, 0, 1, ("ann", "bob"), (("a", "b"), ("b",)), trial=7)


def whole(shares, dense):
    columns = [share.columns for share in shares.values()]
    if dense:
        return np.hstack(columns)
    mask = np.zeros((9, 9))
    start = 0
    for part in columns:
        mask[start : start + len(part), start : start + len(part)] = part
        start += len(part)
    return mask


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("mask", "aggregation"), MODES)
def test_a_trial_goes_through_the_federation_behind_masks_of_its_own(mask, aggregation, layout):
    federation = PureFederation(mask=mask, aggregation=aggregation, layout=layout)
    number = federation.ask(trial=7)
    gathered = federation.gathered[number]
    assert gathered.contributors == tuple(WIDTHS)
    keys = federation.rounds[number][0]
    plain = np.hstack([trial_block(7, n, keys, width=w) for n, w in WIDTHS.items()])
    public = whole(trial_shares(7, federation.roster), mask == "dense")
    assert_allclose(gathered.contexts, plain @ public.T, atol=1e-11)
    assert np.abs(gathered.contexts - plain @ federation.mask().T).max() > 1e-3


def test_everybody_draws_the_same_and_each_trial_anew():
    federation = PureFederation(mask="dense", start=False)
    keys = ASK.keys()
    assert_array_equal(trial_block(7, "bank", keys, width=2), trial_block(7, "bank", keys, width=2))
    for other in (
        trial_block(8, "bank", keys, width=2),
        trial_block(7, "news", keys, width=2),
        trial_block(7, "bank", keys[::-1], width=2),
    ):
        assert np.abs(other - trial_block(7, "bank", keys, width=2)).max() > 1e-6
    first, again, other = (trial_shares(t, federation.roster)["bank"].columns for t in (7, 7, 8))
    assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-6


def test_one_participant_keeps_the_mask_of_the_latest_trial():
    federation = PureFederation(mask="dense", start=False)
    mask = TrialMask("bank", federation.roster)
    assert mask.share(7) is mask.share(7)
    assert_array_equal(mask.share(8).columns, trial_shares(8, federation.roster)["bank"].columns)


@pytest.mark.parametrize("kind", ["dense", "blockwise"])
def test_real_features_never_go_through_a_public_mask(kind):
    """Everybody could undo it: not even a service that mixes them up gets them out."""
    federation = PureFederation(mask=kind)
    bank = federation.passive["bank"]
    real = features("bank", ASK.keys(), 2)
    mixed = bank.trial_rows(ASK).copy()
    mixed[1, 0] = real[1, 0]
    for block in (real, PlainBlock(mixed), PlainBlock(mixed[:2])):
        (reply,) = bank.answer(ASK, block)
        assert reply.message.code == "features"
    (reply,) = bank.answer(ASK, bank.trial_rows(ASK))
    sent = np.frombuffer(reply.message.values).reshape(3, -1)
    public = trial_shares(7, federation.roster)["bank"]
    assert_array_equal(sent, public.mask(bank.trial_rows(ASK)))


def test_public_features_go_through_the_real_mask_of_nobody():
    """A pair of plain and masked rows gives a mask away; here are all rows that were sent."""
    federation = PureFederation(mask="dense")
    federation.runs_by_itself = False
    federation.ask(trial=7)
    while federation.down:
        federation.deliver_down(*federation.down.popleft())
    for name, _, answer in federation.up:
        sent = np.frombuffer(answer.values).reshape(answer.n_rows, -1)
        keys = federation.rounds[1][0]
        public = trial_block(7, name, keys, width=WIDTHS[name])
        real = federation.disks[name].held[1].share.mask(public)
        assert np.abs(sent - real).max() > 1e-3


def test_a_trial_does_not_make_a_share_irreplaceable():
    federation = PureFederation()
    federation.ask(trial=7)
    assert federation.active.has_share == frozenset()
    federation.ask()
    assert federation.active.has_share == {"bank", "news"}
