"""Run every loop of secret shares once, before anybody waits for it."""

from functools import cache

import numpy as np

from vfbandits.core.arrays import PlainBlock
from vfbandits.core.mask import MaskShare
from vfbandits.core.shares.dealer import Dealer
from vfbandits.core.shares.local import LocalShares
from vfbandits.core.shares.messages import Place
from vfbandits.core.shares.participant import SharingParticipant
from vfbandits.core.shares.terms import ShareTerms


@cache
def warm_up_shares() -> None:
    """Decide, learn and fold with a small federation in this process, which is forgotten.

    Compiled loops are loaded, or compiled without a cache, when they are first called: that takes
    seconds.  They are the same for all sizes.
    """
    terms = ShareTerms(
        widths=(2, 2), max_arms=3, ridge=1.0, posterior_scale=0.1, window=2, decisions=2
    )
    local = LocalShares(terms, rotations=[MaskShare(np.eye(2))] * 2)
    block = PlainBlock(np.full((3, 2), 0.25))
    for _ in range(terms.window + 1):
        event = local.pick(local.decide([block, block]), 1)
        local.learn(event, 0.5)


@cache
def warm_up_sharing() -> None:
    """The same for a participant that is no server: a few of the loops, in a second."""
    terms = ShareTerms(widths=(2, 2), max_arms=1, ridge=1.0, posterior_scale=0.1)
    secrets = Dealer(terms).participant_secrets(1)
    participant = SharingParticipant(1, terms=terms, secrets=secrets, rotation=MaskShare(np.eye(2)))
    participant.share(Place(0, 0, 0, 0), PlainBlock(np.full((1, 2), 0.25)))
