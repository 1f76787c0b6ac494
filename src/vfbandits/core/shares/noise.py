"""The noise of Thompson sampling, of which each server draws half and nobody knows the sum."""

import math

import numpy as np
from scipy.special import ndtri

from vfbandits.core.ring import REACH, Words, WordSource, encode
from vfbandits.core.shares.dealer import sheet_name
from vfbandits.core.shares.messages import Place
from vfbandits.core.shares.terms import ShareTerms


def half_noise(source: WordSource, terms: ShareTerms, place: Place) -> Words:
    """One server's half of v·z for one decision: N(0, v²/2) in each coordinate, (dim,).

    ``source`` is the server's own, and the dealer does not have it.  The same slot has the same
    noise, so that a repeated message has the same bytes.
    """
    words = source.sheet(sheet_name("noise", place), {"noise": (terms.dim,)}).take("noise")
    uniform = ((words[0] >> np.uint64(12)) + 0.5) * 2.0**-52
    half = (terms.posterior_scale / math.sqrt(2.0)) * ndtri(uniform)
    return encode(half, bound=2.0**REACH, what="noise")
