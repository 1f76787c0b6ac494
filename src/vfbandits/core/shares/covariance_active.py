"""Server A's part of the covariance form."""

from typing import NamedTuple

import numpy as np

from vfbandits.core.arrays import Vector
from vfbandits.core.ring import (
    Sheet,
    Words,
    add,
    cut,
    encode,
    lifted,
    open_rounded,
    open_short,
    reopen,
    rounded,
    row_products,
    rows_times,
    short,
    subtract,
    symmetric,
    times,
    total,
    triangle_rows,
    zeros,
)
from vfbandits.core.ring import gram as gram_of
from vfbandits.core.shares.covariance import HeldCovariance, identity, joined
from vfbandits.core.shares.covariance_messages import (
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
from vfbandits.core.shares.messages import Exchange, Recall, Recalled, expect
from vfbandits.core.shares.terms import MAX_REWARD, ShareTerms


class Statistics(NamedTuple):
    """What A opens of the arms of a decision.

    ``forms`` are squared widths, or the lower triangle of 2X Lambda⁻¹X', or none; ``means`` are
    empty where the arm alone is released, and then ``scores`` are the means under masks of B's.
    """

    forms: Vector
    means: Vector
    scores: Words


class ActiveCovariance:
    """A's side of theta, S and the window's rows."""

    def __init__(self, terms: ShareTerms) -> None:
        n, d = terms.window, terms.dim
        self.terms = terms
        self._S = identity(d)
        self._theta = zeros(1, d)
        self._V, self._h = zeros(n, d), zeros(1, n)

    def held(self, n: int) -> HeldCovariance:
        """A's side of the state, with the first ``n`` rows of the window."""
        return HeldCovariance(self._S, self._theta, self._V[:, :n], self._h[:, :, :n])

    def score(
        self, deal: ScoreDeal, sheet: Sheet, contexts: Words, T_X: Words, n: int
    ) -> Exchange[Statistics]:
        """Statistics of the arms after ``n`` rows of the window."""
        d, n_arms = self.terms.dim, T_X.shape[1]
        V, h = self._V[:, :n], self._h[:, :, :n]
        if self.terms.reads == "means":
            share = add(times(h, V), total(deal.rows[:, :n])[:, None])
            own = cut(add(share, sheet.take("rho_products")))
        else:
            share = np.dstack((triangle_rows(T_X, self._S), rows_times(T_X, V)))
            own = cut(add(share, sheet.take("rho_products")[:, :n_arms, : d + n]))
        reply = expect(Scored, (yield Score(deal.place, n, contexts, own)))
        opened = reopen(own, reply.products)
        if self.terms.reads == "means":
            T_w = add(self._theta, subtract(opened, deal.products))
            forms = zeros(0)
            means = add(rows_times(T_X, T_w)[:, :, 0], deal.means[:, 0, :n_arms])
        else:
            T_P = subtract(opened, deal.products[:, :n_arms, : d + n])
            W, G = T_P[:, :, :d], T_P[:, :, d:]
            forms = self._forms(W, T_X, G)
            forms = add(forms, total(deal.forms[:, : n + 1, : forms.shape[1]]))
            means = add(rows_times(T_X, self._theta), rows_times(G, h))[:, :, 0]
            means = add(means, total(deal.means[:, : n + 1, :n_arms]))
        opened_forms = open_rounded(rounded(forms), reply.forms)
        if self.terms.release == "arm":
            return Statistics(opened_forms, np.zeros(0), add(means, reply.scores))
        return Statistics(opened_forms, open_rounded(rounded(means), reply.means), zeros(0))

    def _forms(self, W: Words, X: Words, G: Words) -> Words:
        if self.terms.reads == "covariance":
            return joined(subtract(rows_times(W, X), rows_times(G, G)))
        return subtract(row_products(W, X), row_products(G, G))

    def learn(
        self, deal: ScaleDeal, sheet: Sheet, recall: tuple[int, int], share: Words, reward: float
    ) -> Exchange[None]:
        """Fill the next row of the window; q and the mean stay under masks."""
        d, n, place = self.terms.dim, deal.place.slot, deal.place
        V, h = self._V[:, :n], self._h[:, :, :n]
        mask = sheet.take("mask_context")
        own = add(share, mask)
        recalled = expect(Recalled, (yield Recall(place, *recall, own)))
        T_x = subtract(add(own, recalled.context), mask)[:, None]
        overlaps = np.dstack((rows_times(T_x, self._S), rows_times(T_x, V)))[:, 0]
        own_overlaps = cut(add(overlaps, sheet.take("rho_overlaps")[:, : d + n]))
        T_o = subtract(reopen(own_overlaps, recalled.overlaps), deal.overlaps)[:, None]
        T_y, T_u = T_o[:, :, :d], T_o[:, :, d:]
        mean = add(rows_times(T_x, self._theta), rows_times(h, T_u))
        value = encode([[reward]], bound=MAX_REWARD, what="a reward")
        gain = np.dstack((subtract(lifted(T_y), times(T_u, V)), subtract(lifted(value), mean)))
        own_gain = cut(add(gain[:, 0], sheet.take("rho_gain")))
        square = subtract(rows_times(T_x, T_y), rows_times(T_u, T_u))[:, 0]
        own_square = short(add(square, sheet.take("rho_square")))
        message = Project(place, own_overlaps, own_gain, own_square)
        reply = expect(Projected, (yield message))
        T_g = subtract(reopen(own_gain, reply.gain), deal.gain)[:, None]
        opened = open_short(own_square, reply.square)
        scale = self.terms.scale_table.share(opened, deal.coefficients[:, None])[:, 0]
        own_scale = cut(add(scale, sheet.take("rho_scale")))
        T_s = subtract(reopen(own_scale, reply.scale), deal.scale)[:, None]
        own_row = cut(add(times(T_s, T_g)[:, 0], sheet.take("rho_row")))
        scaled = expect(Scaled, (yield Scale(place, own_scale, own_row)))
        row = subtract(reopen(own_row, scaled.row), deal.row)
        self._V[:, n], self._h[:, 0, n] = row[:, :d], row[:, d]

    def fold(self, deal: ShrinkDeal, sheet: Sheet) -> Exchange[None]:
        """Bring the rows of a full window into S and theta."""
        inverse = cut(add(gram_of(self._V), sheet.take("rho_inverse")))
        theta = cut(add(times(self._h, self._V)[:, 0], sheet.take("rho_theta")))
        shrunk = expect(Shrunk, (yield Shrink(deal.place, inverse, theta)))
        change = subtract(reopen(inverse, shrunk.inverse), deal.inverse)
        self._S = subtract(self._S, symmetric(change, self.terms.dim))
        shift = subtract(reopen(theta, shrunk.theta), deal.theta)
        self._theta = add(self._theta, shift[:, None])
