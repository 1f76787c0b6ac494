"""The noise of Thompson sampling, of which each server draws half and nobody knows the sum."""

import math
from functools import cache

import numpy as np
from scipy.special import ndtri

from vfbandits.core.ring import FRACTION, Layout, Words, WordSource
from vfbandits.core.shares.dealer import sheet_name
from vfbandits.core.shares.messages import Place
from vfbandits.core.shares.terms import ShareTerms


def half_noise(source: WordSource, terms: ShareTerms, place: Place) -> Words:
    """One server's half of v·z for one decision: N(0, v²/2) in each coordinate, (dim,).

    ``source`` is the server's own, and the dealer does not have it.  The same slot has the same
    noise, so that a repeated message has the same bytes.
    """
    words = source.sheet(sheet_name("noise", place), _layout(terms.dim)).take("noise")
    uniform = ((words[0] >> np.uint64(12)) + 0.5) * 2.0**-52
    # No deviate is beyond 8.3 and no scale beyond MAX_SCALE, so all are within the ring.
    half = ndtri(uniform) * math.ldexp(terms.posterior_scale / math.sqrt(2.0), FRACTION)
    whole = np.rint(half).astype(np.int64)
    words[0], words[1] = whole.view(np.uint64), (whole >> 63).view(np.uint64)
    return words


@cache
def _layout(dim: int) -> Layout:
    return Layout({"noise": (dim,)})
