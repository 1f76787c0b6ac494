"""Run every loop of secret shares once, before anybody waits for it."""

from dataclasses import replace
from functools import cache

import numpy as np

from vfbandits.core.arrays import PlainBlock
from vfbandits.core.mask import MaskShare
from vfbandits.core.shares.dealer import Dealer
from vfbandits.core.shares.local import LocalShares
from vfbandits.core.shares.messages import Place
from vfbandits.core.shares.offer import Offer
from vfbandits.core.shares.participant import SharingParticipant
from vfbandits.core.shares.terms import ShareTerms

_SMALL = ShareTerms(
    widths=(2, 2), max_arms=3, ridge=1.0, posterior_scale=0.1, window=2, decisions=2
)


def warm_up_shares(terms: ShareTerms) -> None:
    """Decide, learn and fold with a small federation in this process, which is forgotten.

    Compiled loops are loaded, or compiled without a cache, when they are first called: that takes
    seconds.  They are the same for all sizes, and not for all forms of the state: ``terms`` says
    which one it is, in which layout.
    """
    _play(
        replace(
            _SMALL,
            posterior_scale=_SMALL.posterior_scale if terms.posterior_scale else 0.0,
            release=terms.release,
            reads=terms.reads,
            beta=0.5 if terms.beta else 0.0,
            layout=terms.layout,
            arm_dim=2 if terms.arm_dim else 0,
            intercept=terms.intercept,
        )
    )


@cache
def _play(terms: ShareTerms) -> None:
    local = LocalShares(terms, rotations=[MaskShare(np.eye(2))] * 2)
    # Arrays for fewer arms than there may be have gaps, for which loops are compiled once more.
    for n_arms in (terms.max_arms, terms.max_arms - 1) * terms.window:
        block = PlainBlock(np.full((n_arms if terms.layout == "per_arm" else 1, 2), 0.25))
        offers = {
            "disjoint": Offer(tuple(range(n_arms)), terms.max_arms),
            "outer": Offer(features=np.full((n_arms, 2), 0.25)),
        }
        event = local.pick(local.decide([block, block], offers.get(terms.layout)), 1)
        local.learn(event, 0.5)


@cache
def warm_up_sharing() -> None:
    """The same for a participant that is no server: a few of the loops, in a second."""
    terms = replace(_SMALL, max_arms=1)
    secrets = Dealer(terms).participant_secrets(1)
    participant = SharingParticipant(1, terms=terms, secrets=secrets, rotation=MaskShare(np.eye(2)))
    participant.share(Place(0, 0, 0, 0), PlainBlock(np.full((1, 2), 0.25)))
