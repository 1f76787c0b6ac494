"""Lines that the type checker must go on refusing.

Each carries an ignore of the very error it must raise; mypy reports an ignore that is not needed,
so the day the checker lets one of them pass, CI fails.
"""

import numpy as np

import vfbandits as vfb
from vfbandits.core.aggregate import add_blocks, place_blocks
from vfbandits.core.arrays import MaskedBlock, PlainBlock
from vfbandits.core.context import Split
from vfbandits.core.mask import MaskShare
from vfbandits.core.pads import Stamp
from vfbandits.core.secure_sum import Blinder


def a_plain_block_is_never_aggregated(block: PlainBlock, split: Split) -> None:
    add_blocks([block])  # type: ignore[list-item]
    place_blocks(split, {"a": block})  # type: ignore[dict-item]


def a_plain_block_is_never_blinded_without_a_mask(block: PlainBlock, end: Blinder) -> None:
    end.blind(block, Stamp(0, 0), ["a", "b"], asked=b"")  # type: ignore[arg-type]


def a_masked_block_is_not_masked_twice(block: MaskedBlock, share: MaskShare) -> None:
    share.mask(block)  # type: ignore[arg-type]


def only_a_share_makes_a_masked_block(block: PlainBlock, share: MaskShare) -> MaskedBlock:
    if block.size:
        return block  # type: ignore[return-value]
    return share.mask(block)


def a_decision_is_frozen(decision: vfb.Decision) -> None:
    decision.arm = 3  # type: ignore[misc]


def options_are_named() -> None:
    vfb.Bandit(vfb.LinUCB(), dim=3, ridge="one")  # type: ignore[arg-type]
    vfb.Bandit(vfb.LinUCB(), dim=3, momentum=1.0)  # type: ignore[arg-type]
    vfb.Federation(vfb.LinUCB(), widths={"a": 1, "b": 1}, rigde=1.0)  # type: ignore[arg-type]
    vfb.Bandit(vfb.LinUCB(), 3)  # type: ignore[call-arg]
    vfb.Bandit(np.eye(3), dim=3)  # type: ignore[arg-type]
