"""Masked blocks become masked contexts.

Dense masks: blocks are added.  Blockwise masks: they are put side by side.  A participant that is
missing counts as zeros either way.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from vfbandits.core.arrays import MaskedBlock, Matrix
from vfbandits.core.context import Split


def add_blocks(blocks: Iterable[MaskedBlock]) -> Matrix:
    """Σ Q_j x_j over the participants that came, (n, dim)."""
    first, *others = blocks
    if not others:
        return first
    total: Matrix = first + others[0]
    for part in others[1:]:
        total += part
    return total


def place_blocks(split: Split, blocks: Mapping[str, MaskedBlock]) -> Matrix:
    """[R_1 x_1; …; R_M x_M], zeros for the participants that did not come, (n, dim)."""
    n_rows = len(next(iter(blocks.values())))
    rows = np.zeros((n_rows, split.dim))
    for name, block in blocks.items():
        rows[:, split.columns(name)] = block
    return rows
