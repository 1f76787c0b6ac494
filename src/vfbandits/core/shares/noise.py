"""The noise of Thompson sampling, of which each server draws half and nobody knows the sum."""

import math

import numpy as np
from scipy.special import ndtri

from vfbandits.core.ring import FRACTION, Layout, Words, WordSource
from vfbandits.core.shares.dealer import of_window, sheet_name
from vfbandits.core.shares.messages import Place
from vfbandits.core.shares.terms import ShareTerms


class HalfNoise:
    """One server's half of v·z in each decision: N(0, v²/2) in each coordinate.

    ``source`` is the server's own, and the dealer does not have it.  The same slot has the same
    noise, so that a repeated message has the same bytes.
    """

    __slots__ = ("_layout", "_noise", "_scale", "_source", "_window")

    def __init__(self, source: WordSource, terms: ShareTerms) -> None:
        self._source = source
        self._layout = Layout({"noise": (terms.decisions, terms.dim)})
        self._scale = math.ldexp(terms.posterior_scale / math.sqrt(2.0), FRACTION)
        self._window: tuple[int, ...] = ()
        self._noise: list[Words] = []

    def to_bytes(self) -> bytes:
        """The secret of the source, to be kept in a file that only its owner may read."""
        return self._source.to_bytes()

    def of(self, place: Place) -> Words:
        """The half of one decision, (dim,); drawn for all decisions of its window together."""
        if place[:3] != self._window:
            name = sheet_name("noise", of_window(place))
            words = self._source.sheet(name, self._layout).take("noise")
            uniform = ((words[0] >> np.uint64(12)) + 0.5) * 2.0**-52
            # No deviate is beyond 8.3 and no scale beyond MAX_SCALE, so all are within the ring.
            whole = np.rint(ndtri(uniform) * self._scale).astype(np.int64)
            halves = (whole.view(np.uint64), (whole >> 63).view(np.uint64))
            self._window, self._noise = place[:3], list(np.stack(halves, axis=1))
        return self._noise[place.slot]
