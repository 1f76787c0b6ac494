"""The change from one mask to the next, put together from parts that hide both.

Participant j knows its share before and after, S_j and S'_j, and sends S'_j S_j'.  The active
participant adds the parts (dense masks) or puts them in place (blockwise) and gets R = Q' Q', the
one matrix that carries what was learnt behind Q over to Q'.  With S'_j fresh from the Haar
measure a part is as random as S'_j itself: it tells nothing of S_j but the span of its columns,
which masked blocks of the same participant show anyway.  Parts may be summed securely as well.
"""

from collections.abc import Mapping

import numpy as np

from vfbandits.core.arrays import MaskedBlock, Matrix
from vfbandits.core.context import Split
from vfbandits.core.mask import MaskShare
from vfbandits.core.move import Remask
from vfbandits.errors import MaskError


def remask_part(old: MaskShare, new: MaskShare) -> MaskedBlock:
    """S'_j S_j', (new rows, old rows): one participant's part of the change.

    >>> share = MaskShare(np.eye(2))
    >>> remask_part(share, MaskShare(np.array([[0.0, -1.0], [1.0, 0.0]])))
    array([[ 0., -1.],
           [ 1.,  0.]])
    """
    if old.columns.shape[1] != new.columns.shape[1]:
        raise MaskError(
            f"a participant that stays keeps its width {old.columns.shape[1]}, "
            f"got a new share for {new.columns.shape[1]} features"
        )
    return MaskedBlock(np.ascontiguousarray(new.columns @ old.columns.T))


def kept_features(before: Split, after: Split) -> int:
    """Features of the participants that are in both; their widths must not change."""
    old = dict(before.items())
    for name, width in after.items():
        if old.get(name, width) != width:
            raise MaskError(
                f"{name!r} must keep its width {old[name]}, got {width}: "
                "it has to leave and come again"
            )
    return sum(width for name, width in after.items() if name in old)


def add_parts(total: Matrix, before: Split, after: Split) -> Remask:
    """The change behind dense masks, from the sum of all parts (after.dim, before.dim)."""
    return Remask(total, kept_features(before, after))


def place_parts(parts: Mapping[str, Matrix], before: Split, after: Split) -> Remask:
    """The change behind blockwise masks: each part meets its own features only.

    >>> before, after = Split.of({"shop": 1, "bank": 1}), Split.of({"shop": 1, "news": 1})
    >>> place_parts({"shop": np.array([[-1.0]])}, before, after).R
    array([[-1.,  0.],
           [ 0.,  0.]])
    """
    R = np.zeros((after.dim, before.dim))
    for name, part in parts.items():
        R[after.columns(name), before.columns(name)] = part
    return Remask(R, kept_features(before, after))
