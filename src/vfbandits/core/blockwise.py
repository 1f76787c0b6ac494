"""Blockwise masks of a federation in one process, applied in one pass.

Across a network each participant masks alone with its own ``MaskShare``.  Where all shares are in
one process anyway, a call for each of them costs more than its arithmetic; this does the same
products in one compiled loop.  Without numba, or for large blocks, shares are called one by one.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from vfbandits.core import kernels
from vfbandits.core.arrays import Matrix, PlainBlock
from vfbandits.core.mask import MaskShare

SMALL_MASKING = 40_000


class BlockwiseMasker:
    """All shares of a blockwise mask; secret as they are."""

    __slots__ = ("_compiled", "_few_rows", "_shares", "_turns", "_widths")

    def __init__(self, shares: Sequence[MaskShare]) -> None:
        self._shares = tuple(shares)
        self._turns = np.concatenate([share.columns.T.reshape(-1) for share in shares])
        self._widths = np.array([len(share.columns) for share in shares])
        self._compiled = kernels.load()
        self._few_rows = SMALL_MASKING // self._turns.size

    def __repr__(self) -> str:
        """Nothing but the number of shares."""
        return f"BlockwiseMasker({len(self._shares)} shares)"

    def mask(self, blocks: Mapping[str, PlainBlock]) -> Matrix:
        """Masked contexts (n, dim) from the blocks of all participants, in order."""
        parts = list(blocks.values())
        if self._compiled is None or len(parts[0]) > self._few_rows:
            pairs = zip(self._shares, parts, strict=True)
            return np.concatenate([share.mask(part) for share, part in pairs], axis=1)
        X = np.concatenate(parts, axis=1)
        masked = np.empty(X.shape)
        self._compiled.turn_blocks(X, self._turns, self._widths, masked)
        return masked
