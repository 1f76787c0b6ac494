"""Test data that everybody can make, for a parity run through a live federation.

A parity run compares decisions with those of a central bandit, which needs every participant's
features in one place.  Real ones must not be there, and public ones must never go through a real
mask: a few pairs of plain and masked rows give the mask away.  So a trial has features *and*
masks that all members draw from the trial's public number; the wire, the sums, the pads and the
order of rows are the real ones.
"""

import hashlib
from collections.abc import Iterable

import numpy as np

from vfbandits.core.arrays import PlainBlock
from vfbandits.core.mask import MaskShare, deal_blockwise, deal_dense
from vfbandits.protocol.messages import Key
from vfbandits.protocol.roster import Roster


def trial_block(trial: int, name: str, keys: Iterable[Key], *, width: int) -> PlainBlock:
    """Public test features of participant ``name`` for these row keys, (n, width), of length 1.

    >>> trial_block(7, "bank", [("ann",)], width=2).shape
    (1, 2)
    """
    drawn = [_draws(trial, name, *key).standard_normal(width) for key in keys]
    rows = np.array(drawn).reshape(-1, width)
    return PlainBlock(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def trial_shares(trial: int, roster: Roster) -> dict[str, MaskShare]:
    """Public test masks of the roster's kind, one share for each participant."""
    deal = deal_dense if roster.terms.mask == "dense" else deal_blockwise
    split = roster.split
    shares = deal(split.widths, entropy=_draws(trial, "masks").bytes)
    return dict(zip(split.names, shares, strict=True))


class TrialMask:
    """One participant's share in the latest trial, drawn once for all rounds of a parity run."""

    def __init__(self, name: str, roster: Roster) -> None:
        self._name = name
        self._roster = roster
        self._latest: tuple[int, MaskShare] | None = None

    def share(self, trial: int) -> MaskShare:
        """The share of trial number ``trial``."""
        if self._latest is None or self._latest[0] != trial:
            self._latest = (trial, trial_shares(trial, self._roster)[self._name])
        return self._latest[1]


def _draws(trial: int, *words: str) -> np.random.Generator:
    digest = hashlib.sha256(repr((trial, *words)).encode()).digest()
    return np.random.default_rng(np.frombuffer(digest, dtype="<u4"))
