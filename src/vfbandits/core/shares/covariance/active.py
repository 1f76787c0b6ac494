"""Server A's part of the covariance form."""

from typing import NamedTuple

import numpy as np

from vfbandits.core.arrays import Vector
from vfbandits.core.ring import (
    CUT,
    FRACTION,
    Sheet,
    Words,
    add,
)
from vfbandits.core.shares.blocks import covariance_side
from vfbandits.core.shares.covariance.form import FORM_BITS, MEAN_BITS
from vfbandits.core.shares.covariance.messages import (
    Project,
    Projected,
    Scale,
    Scaled,
    ScaleDeal,
    Score,
    Scored,
    ScoreDeal,
    Shrink,
    ShrinkDeal,
    Shrunk,
)
from vfbandits.core.shares.covariance.side import Inputs, opened
from vfbandits.core.shares.messages import Exchange, Recall, Recalled, expect
from vfbandits.core.shares.terms import ShareTerms


class Statistics(NamedTuple):
    """What A opens of the arms of a decision.

    ``forms`` are squared widths, or the lower triangle of 2X Lambda⁻¹X', or none; ``means`` are
    empty where the arm alone is released, and then ``scores`` and ``others`` are A's and B's shares
    of them, under masks of B's.
    """

    forms: Vector
    means: Vector
    scores: Words
    others: Words


class ActiveCovariance:
    """A's side of the state, and the messages that it sends."""

    def __init__(self, terms: ShareTerms) -> None:
        self.terms = terms
        self.side = covariance_side(terms, lift=CUT, down=0)

    def score(
        self, deal: ScoreDeal, sheet: Sheet, sent: Words, inputs: Inputs, n: int
    ) -> Exchange[Statistics]:
        """Statistics of the arms after ``n`` rows of the window; B makes ``inputs`` of ``sent``."""
        side = self.side
        X, own = side.products(inputs, n, sheet.take("rho_products"), deal.rows)
        reply = expect(Scored, (yield Score(deal.place, n, inputs[0].shape[1], sent, own)))
        exchanged = own, reply.products, deal.products
        is_arm = self.terms.release == "arm"
        if self.terms.reads == "means":
            share = side.means(exchanged, inputs, deal.means)
            means = _NOTHING if is_arm else opened(share, reply.means, bits=MEAN_BITS)
            return Statistics(_NOTHING, means, share, reply.scores)
        if is_arm:
            forms, share = side.statistics(exchanged, X, deal.forms, deal.means)
            widths = opened(forms, reply.forms, bits=FORM_BITS)
            return Statistics(widths, _NOTHING, share, reply.scores)
        released = side.opened_statistics(
            exchanged, X, deal.forms, deal.means, reply.forms, reply.means
        )
        return Statistics(*released, reply.scores, reply.scores)

    def learn(
        self, deal: ScaleDeal, sheet: Sheet, event: tuple[int, int], share: Words, reward: float
    ) -> Exchange[None]:
        """Fill the next row of the window; q and the mean stay under masks."""
        place, n, form = deal.place, deal.place.slot, self.side
        mask = sheet.take("mask_context")
        own_x = add(share, mask)
        recalled = expect(Recalled, (yield Recall(place, *event, own_x)))
        overlaps, gain, square = form.overlap_and_gain(
            sheet,
            (own_x, recalled.context, mask),
            n,
            recalled.overlaps,
            deal.overlaps,
            round(reward * 2.0**FRACTION),
        )
        reply = expect(Projected, (yield Project(place, overlaps, gain, square)))
        own_scale, row = form.scale_row(
            sheet,
            (square, reply.square),
            deal.coefficients,
            (gain, reply.gain, deal.gain),
            reply.scale,
            deal.scale,
        )
        scaled = expect(Scaled, (yield Scale(place, own_scale, row)))
        form.append(n, (row, scaled.row, deal.row))

    def fold(self, deal: ShrinkDeal, sheet: Sheet) -> Exchange[None]:
        """Bring the rows of a full window into S and theta."""
        inverse, theta = self.side.changes(sheet.take("rho_inverse"), sheet.take("rho_theta"))
        shrunk = expect(Shrunk, (yield Shrink(deal.place, inverse, theta)))
        self.side.fold((inverse, shrunk.inverse, deal.inverse), (theta, shrunk.theta, deal.theta))


_NOTHING = np.zeros(0)
