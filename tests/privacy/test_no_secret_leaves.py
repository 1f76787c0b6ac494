"""Everything that leaves its owner is searched for plain features, masks and keys."""

import logging
import pickle

import numpy as np
import pytest

import vfbandits as vfb
from vfbandits.core.arrays import PlainBlock
from vfbandits.core.fixed_point import FixedPoint
from vfbandits.core.mask import deal_blockwise, deal_dense
from vfbandits.core.pads import Stamp
from vfbandits.core.secure_sum import BlindedBlock, Blinder

WIDTHS = (3, 2, 4)


def contains(haystack: np.ndarray, needles: np.ndarray) -> bool:
    """Whether any number of ``needles`` stands in ``haystack``, as bytes or up to rounding."""
    data = haystack.tobytes()
    exact = any(np.float64(value).tobytes() in data for value in needles.ravel())
    return exact or bool(np.isclose(haystack.ravel()[:, None], needles.ravel(), rtol=1e-9).any())


@pytest.mark.parametrize("deal", [deal_dense, deal_blockwise])
def test_masked_blocks_hold_no_feature_and_no_mask(deal):
    rng = np.random.default_rng(0)
    for share, width in zip(deal(WIDTHS), WIDTHS, strict=True):
        block = rng.standard_normal((20, width))
        masked = share.mask(PlainBlock(block))
        assert not contains(masked, block)
        assert not contains(masked, share.columns)


def test_blinded_messages_hold_no_masked_value_either():
    code = FixedPoint(n_terms=3, bound=64.0)
    ends = [Blinder(name, code) for name in "abc"]
    for end in ends:
        end.meet({other.name: other.public_key for other in ends})
    shares = deal_dense(WIDTHS)
    rng = np.random.default_rng(1)
    for end, share, width in zip(ends, shares, WIDTHS, strict=True):
        masked = share.mask(PlainBlock(rng.standard_normal((20, width))))
        message = end.blind(masked, Stamp(0, 1), "abc", asked=b"")
        assert isinstance(message, BlindedBlock)
        assert not contains(message.values.view(np.float64), masked)
        assert not (message.values == code.encode(masked)).any()


def test_a_bandit_s_snapshot_holds_no_plain_feature_and_no_mask():
    rng = np.random.default_rng(2)
    widths = {"a": 3, "b": 2}
    federation = vfb.Federation(vfb.LinUCB(), widths=widths, mask="dense")
    seen = []
    for _ in range(10):
        blocks = {name: rng.standard_normal((4, width)) for name, width in widths.items()}
        seen.append(np.hstack(list(blocks.values())))
        federation.reward(federation.decide(blocks), 1.0)
        federation.decide(blocks)
    for array in federation.bandit.snapshot().arrays.values():
        assert not contains(array, np.array(seen))
        assert not contains(array, federation.reveal_mask())


def test_nothing_is_logged_and_nothing_is_printed(caplog, capsys):
    def play():
        federation = vfb.Federation(vfb.LinUCB(), widths={"a": 1, "b": 1})
        federation.reward(federation.decide({"a": [[1.0]], "b": [[2.0]]}), 1.0)
        federation.rekey()

    play()  # numba logs what it compiles
    caplog.set_level(logging.DEBUG)
    play()
    assert caplog.text == ""
    assert capsys.readouterr() == ("", "")


def test_the_reprs_of_all_that_is_secret_are_empty():
    share = deal_blockwise([2])[0]
    for text in (repr(share), str(share), f"{share}", repr([share]), repr({"share": share})):
        assert not any(character.isdigit() for character in text)


def test_a_key_cannot_be_pickled_by_accident():
    end = Blinder("a", FixedPoint(n_terms=2, bound=1.0))
    with pytest.raises((TypeError, pickle.PicklingError)):
        pickle.dumps(end)
