"""The dealer's part of the covariance form: words for each slot.

Of a masked number the dealer needs the gap λ_A − λ_B only (``sides``).
"""

from typing import NamedTuple

import numpy as np

from vfbandits.core.ring import (
    FRACTION,
    Sheet,
    Words,
    add,
    cut,
    negative,
    row_products,
    rows_times,
    short_mask,
    subtract,
    symmetric,
    times,
    zeros,
)
from vfbandits.core.ring import gram as gram_of
from vfbandits.core.shares.blocks import (
    split_blocks,
    state_times,
    theta_times,
    triangle_times,
    window_times,
)
from vfbandits.core.shares.comparison import (
    Numbers,
    deal_tables,
    shuffled,
    shuffled_masks,
    words_of_tables,
)
from vfbandits.core.shares.covariance.form import MEAN_BITS, as_fine, joined
from vfbandits.core.shares.covariance.messages import ScaleDeal, ScoreDeal, ShrinkDeal
from vfbandits.core.shares.kept import Kept
from vfbandits.core.shares.messages import Place
from vfbandits.core.shares.rows import chosen, lift_mask, scored_rows
from vfbandits.core.shares.sides import FINE_BITS, PRODUCT_BITS, reopened_mask, scaled_gap_term
from vfbandits.core.shares.terms import ShareTerms


class Fresh(NamedTuple):
    """The mask of a product after both servers have sent shares of it."""

    A: Words
    gap: Words


class CovarianceWindow:
    """Gaps of the rows V and numbers h that a window's rewards leave."""

    def __init__(self, terms: ShareTerms) -> None:
        self.V, self.h = zeros(terms.window, terms.dim), zeros(terms.window)


class CovarianceDealer:
    """Keeps the gaps of S and theta."""

    def __init__(
        self, terms: ShareTerms, S: Words | None = None, theta: Words | None = None
    ) -> None:
        self.terms = terms
        # S = I and theta = 0 are public at first: they need no mask until the first fold.
        self._S = zeros(terms.dim, terms.row_dim) if S is None else S
        self._theta = zeros(1, terms.dim) if theta is None else theta

    def kept(self) -> dict[str, Words]:
        """The state between two windows."""
        return {"S": self._S, "theta": self._theta}

    def restore(self, kept: Kept) -> None:
        """Go on from a state that was kept."""
        self._S = kept.take("S", self._S)
        self._theta = kept.take("theta", self._theta)

    def deal_reward(self, place: Place, A: Sheet, B: Sheet, window: CovarianceWindow) -> ScaleDeal:
        """Words for the reward that fills row ``place.slot`` of the window."""
        d, i = self.terms.dim, place.slot
        V, h = window.V[:, :i], window.h[:, None, :i]
        x = subtract(A.take("mask_context"), B.take("mask_context"))[:, None]
        products = np.dstack((state_times(x, self._S), rows_times(x, V)))
        overlaps = _fresh(_term(products)[:, 0], A, B, "overlaps")
        y, u = overlaps.gap[:, None, :d], overlaps.gap[:, None, d:]
        mean = add(rows_times(x, self._theta), rows_times(u, h))
        gain_term = negative(_term(np.dstack((times(u, V), mean))))
        gain = _fresh(gain_term[:, 0], A, B, "gain")
        square = _term(subtract(rows_times(x, y), rows_times(u, u)))[:, 0]
        rho_square = add(A.take("rho_square"), B.take("rho_square"))
        square_mask = short_mask(subtract(rho_square, square), bits=PRODUCT_BITS)
        table = self.terms.scale_table.coefficients(square_mask)[:, 0]
        scale = _fresh(zeros(1), A, B, "scale")
        row = _fresh(_term(times(scale.gap[:, None], gain.gap[:, None]))[:, 0], A, B, "row")
        window.V[:, i], window.h[:, i] = row.gap[:, :d], row.gap[:, d]
        return ScaleDeal(
            place,
            overlaps=overlaps.A,
            gain=gain.A,
            coefficients=subtract(table, B.take("coefficients")),
            scale=scale.A,
            row=row.A,
        )

    def deal_decision(
        self,
        place: Place,
        A: Sheet,
        B: Sheet,
        inputs: list[Words],
        window: CovarianceWindow,
        bits: Numbers,
    ) -> ScoreDeal:
        """Words for one decision, whatever the number of rows is by then.

        ``inputs`` are both servers' masks of the contexts, ``bits`` the secret bits of its
        comparisons.
        """
        terms = self.terms
        lift = zeros(0, 0)
        if terms.lift_rows:
            parts = deal_lift(terms, A, B, subtract(*inputs))
            lift = parts[0]
        if terms.lift_rows and not terms.has_units:
            inputs = parts
        else:
            inputs = [scored_rows(terms, part, terms.max_rows) for part in inputs]
        gaps = subtract(*inputs)
        if terms.reads == "means":
            products, rows, means = self._deal_direction(A, B, gaps, window)
            forms = zeros(0, 0)
        else:
            products, forms, means = self._deal_forms(A, B, gaps, window)
            rows = zeros(0, terms.dim)
        tables, tops = zeros(0, 0), np.zeros(0, np.uint8)
        if terms.release == "arm":
            order = shuffled(A.take("order"))
            masks = shuffled_masks(
                A.take("mask_ranks"), B.take("rho_scores"), order, bits=MEAN_BITS
            )
            dealt, tops = deal_tables(masks, bits, words_of_tables(B.take("tables")))
            half = dealt.shape[1] // 2
            tables = np.stack((dealt[:, :half], dealt[:, half:]))
            tops = tops ^ (B.take("flips")[0] & np.uint64(1)).astype(np.uint8)
        context = zeros(0)
        if not terms.has_units:
            context = chosen(terms, A.take("mask_choice"), inputs[1])
            context = subtract(context, B.take("blind_context"))
        return ScoreDeal(
            place,
            products=products,
            rows=rows,
            forms=forms,
            means=means,
            context=context,
            tables=tables,
            tops=tops,
            lift=lift,
        )

    def _deal_direction(
        self, A: Sheet, B: Sheet, X: Words, window: CovarianceWindow
    ) -> tuple[Words, Words, Words]:
        direction = _fresh(zeros(1, self.terms.dim), A, B, "products", bits=FINE_BITS)
        rows = scaled_gap_term(window.h, window.V)
        means = _term(theta_times(X, add(as_fine(self._theta), direction.gap)))[:, None]
        return (
            direction.A,
            cut(subtract(rows, B.take("blind_rows"))),
            cut(subtract(means, B.take("blind_means"))),
        )

    def _deal_forms(
        self, A: Sheet, B: Sheet, X: Words, window: CovarianceWindow
    ) -> tuple[Words, Words, Words]:
        d, is_joint = self.terms.row_dim, self.terms.reads == "covariance"
        term = _term(np.dstack((triangle_times(X, self._S), window_times(X, window.V))))
        products = _fresh(term, A, B, "products", bits=FINE_BITS)
        W, G = products.gap[:, :, :d], products.gap[:, :, d:]
        forms = [as_fine(joined(rows_times(W, X)) if is_joint else row_products(W, X))]
        means = [as_fine(theta_times(X, self._theta))]
        for k in range(self.terms.window):
            g = G[:, :, k : k + 1]
            square = joined(rows_times(g, g)) if is_joint else row_products(g, g)
            forms.append(negative(square))
            means.append(rows_times(g, window.h[:, None, k : k + 1])[:, :, 0])
        return (
            products.A,
            cut(subtract(_term(np.stack(forms, axis=1)), B.take("blind_forms"))),
            cut(subtract(_term(np.stack(means, axis=1)), B.take("blind_means"))),
        )

    def deal_fold(
        self, place: Place, A: Sheet, B: Sheet, window: CovarianceWindow
    ) -> tuple[ShrinkDeal, "CovarianceDealer"]:
        """Words for the fold, and the dealer of the state after it."""
        n, d = self.terms.n_blocks, self.terms.row_dim
        triangles = np.hstack([gram_of(V) for V in split_blocks(window.V, n, axis=2)])
        inverse = _fresh(_term(triangles), A, B, "inverse")
        changed = [symmetric(gap, d) for gap in split_blocks(inverse.gap, n)]
        theta = _fresh(_term(times(window.h[:, None], window.V))[:, 0], A, B, "theta")
        after = CovarianceDealer(
            self.terms,
            subtract(self._S, np.hstack(changed)),
            add(self._theta, theta.gap[:, None]),
        )
        return ShrinkDeal(place, inverse=inverse.A, theta=theta.A), after


def deal_lift(terms: ShareTerms, A: Sheet, B: Sheet, user: Words) -> list[Words]:
    """Both servers' parts of the masks of u ⊗ w, (lift_rows, dim), from the gap of u (1, d)."""
    rho = add(A.take("rho_lift"), B.take("rho_lift"))
    whole = lift_mask(user[:, 0], A.take("mask_arms"), rho)
    helper = B.take("mask_lift")
    return [subtract(whole, helper), helper]


def _term(product: Words) -> Words:
    """The dealer's term of twice a product, from the product of the gaps."""
    return negative(add(product, product))


def _fresh(term: Words, A: Sheet, B: Sheet, name: str, *, bits: int = FRACTION) -> Fresh:
    """The mask of a product; of the words of its name as many are used as ``term`` has.

    The product is opened with ``bits`` after the point.
    """
    used = tuple(slice(size) for size in term.shape)
    rho = add(A.take(f"rho_{name}")[used], B.take(f"rho_{name}")[used])
    helper = B.take(f"mask_{name}")[used]
    active = subtract(reopened_mask(subtract(rho, term), bits=bits), helper)
    return Fresh(active, subtract(active, helper))
