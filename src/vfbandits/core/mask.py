"""The orthogonal mask: a secret rotation, dealt out by columns (O3M in the paper).

Two families, both isometries, so inner products survive and a linear policy decides on masked
contexts as it would on plain ones:

* ``dense``: a mask generator draws Q uniformly from the orthogonal group and gives participant j
  the columns Q_j that meet its features.  Q x = sum of Q_j x_j, so participants mask alone and the
  active participant only adds.  Each participant turns its block by a rotation R_j of its own
  first (a *layered* share, Q_j R_j), so that a mask generator who talks still opens nothing.
* ``blockwise``: Q = diag(R_1 … R_M), and participant j draws R_j itself and tells nobody.

Not hidden from the active participant: lengths and angles, of each block and of the whole.  A
block of a single feature has nothing else: a rotation of one number is a sign.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from scipy.linalg import qr
from scipy.linalg.blas import dgemm
from scipy.special import ndtri

from vfbandits.core.arrays import MaskedBlock, Matrix, PlainBlock
from vfbandits.errors import MaskError

Entropy: TypeAlias = Callable[[int], bytes]

# Below this NumPy's BLAS runs in one thread and its call is the cheaper one.  Above it everything
# goes through SciPy's: two libraries with a pool of threads each get into each other's way.
SMALL_PRODUCT = 200_000


@dataclass(frozen=True, slots=True, eq=False)
class MaskShare:
    """The columns of Q that one participant holds, (dim, width); secret to all others."""

    columns: Matrix = field(repr=False)
    _turn: Matrix = field(init=False, repr=False)
    _few_rows: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Keep at hand what each product needs."""
        object.__setattr__(self, "_turn", self.columns.T)
        object.__setattr__(self, "_few_rows", SMALL_PRODUCT // max(1, self.columns.size))

    def mask(self, block: PlainBlock) -> MaskedBlock:
        """Rotate plain rows (n, width) into masked rows (n, dim).

        >>> share = MaskShare(np.array([[0.0, -1.0], [1.0, 0.0]]))
        >>> share.mask(PlainBlock(np.array([[3.0, 4.0]])))
        array([[-4.,  3.]])
        """
        turn = self._turn
        if block.ndim != 2 or block.shape[1] != len(turn):
            raise MaskError(
                f"this share masks rows of {len(turn)} features, got shape {block.shape}"
            )
        if len(block) <= self._few_rows:
            return MaskedBlock(block.dot(turn))
        return MaskedBlock(dgemm(1.0, self.columns, block.T).T)

    def layered(self, rotation: Matrix) -> "MaskShare":
        """Turn the block by ``rotation`` (width, width) before this share: columns Q_j R_j."""
        width = self.columns.shape[1]
        if rotation.shape != (width, width):
            raise MaskError(f"a layer needs shape {(width, width)}, got {rotation.shape}")
        return MaskShare(np.asfortranarray(self.columns @ rotation))


def sample_mask(dim: int, *, entropy: Entropy = os.urandom) -> Matrix:
    """Draw Q of shape (dim, dim) from the Haar measure.

    A bare QR is not uniform: the factorisation picks the signs of R's diagonal by a rule of its
    own.  Carrying those signs into Q undoes the choice (Mezzadri 2007).

    >>> Q = sample_mask(3)
    >>> np.allclose(Q @ Q.T, np.eye(3))
    True
    """
    if dim < 1:
        raise MaskError(f"a mask needs at least one dimension, got {dim}")
    Q, R = qr(standard_normal(dim * dim, entropy).reshape(dim, dim))
    return np.asfortranarray(Q * np.where(np.diagonal(R) < 0.0, -1.0, 1.0))


def split_columns(Q: Matrix, widths: Sequence[int]) -> tuple[MaskShare, ...]:
    """Deal consecutive columns of Q, ``widths[j]`` of them to participant j.

    >>> [share.columns.shape for share in split_columns(sample_mask(5), [2, 3])]
    [(5, 2), (5, 3)]
    """
    if min(widths, default=0) < 1 or sum(widths) != Q.shape[1]:
        raise MaskError(f"widths must be positive and sum to {Q.shape[1]}, got {tuple(widths)}")
    # Copies, not views: a view would keep the whole of Q in one participant's memory.
    parts = np.split(Q, np.cumsum(widths)[:-1], axis=1)
    return tuple(MaskShare(np.array(part, order="F")) for part in parts)


def deal_dense(widths: Sequence[int], *, entropy: Entropy = os.urandom) -> tuple[MaskShare, ...]:
    """Layered shares Q_j R_j of one dense mask: the mask generator's Q, each owner's R_j."""
    shares = split_columns(sample_mask(sum(widths), entropy=entropy), widths)
    return tuple(
        share.layered(sample_mask(width, entropy=entropy))
        for share, width in zip(shares, widths, strict=True)
    )


def deal_blockwise(
    widths: Sequence[int], *, entropy: Entropy = os.urandom
) -> tuple[MaskShare, ...]:
    """One private rotation (width, width) for each participant; there is no common secret."""
    return tuple(MaskShare(sample_mask(width, entropy=entropy)) for width in widths)


def standard_normal(count: int, entropy: Entropy) -> Matrix:
    """Gaussians by inversion, so that every secret bit comes from ``entropy`` and nowhere else."""
    bits = np.frombuffer(entropy(8 * count), dtype="<u8") >> 12
    normal: Matrix = ndtri((bits + 0.5) * 2.0**-52)  # 52 bits and a half: never 0, 1 or infinite
    return normal
