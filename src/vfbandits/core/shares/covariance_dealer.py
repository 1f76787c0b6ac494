"""The dealer's part of the covariance form: masks of the state, and words for each slot."""

import numpy as np

from vfbandits.core.ring import (
    Sheet,
    Words,
    add,
    negative,
    row_products,
    rows_times,
    short_mask,
    subtract,
    symmetric,
    times,
    triangle_rows,
    zeros,
)
from vfbandits.core.shares.comparison import (
    Numbers,
    deal_tables,
    shuffled,
    shuffled_masks,
    words_of_tables,
)
from vfbandits.core.shares.covariance import joined
from vfbandits.core.shares.covariance_messages import ScaleDeal, ScoreDeal, ShrinkDeal
from vfbandits.core.shares.masked import Mask, cross, fresh, fresh_matrix, row_of
from vfbandits.core.shares.messages import Place
from vfbandits.core.shares.terms import ShareTerms


class CovarianceWindow:
    """Masks of the rows V and numbers h that a window's rewards leave."""

    def __init__(self, terms: ShareTerms) -> None:
        n, d = terms.window, terms.dim
        self.V = Mask(zeros(n, d), zeros(n, d))
        self.h = Mask(zeros(1, n), zeros(1, n))


class CovarianceDealer:
    """Keeps the masks of S and theta."""

    def __init__(self, terms: ShareTerms) -> None:
        d = terms.dim
        self.terms = terms
        # S = I and theta = 0 are public at first: they need no mask until the first fold.
        self._S = Mask(zeros(d, d), zeros(d, d))
        self._theta = Mask(zeros(1, d), zeros(1, d))

    def deal_reward(self, place: Place, A: Sheet, B: Sheet, window: CovarianceWindow) -> ScaleDeal:
        """Words for the reward that fills row ``place.slot`` of the window."""
        d, i = self.terms.dim, place.slot
        V = window.V.rows(i)
        h = Mask(window.h.A[:, :, :i], window.h.B[:, :, :i])
        x = Mask(row_of(A, "mask_context"), row_of(B, "mask_context"))
        H = Mask(np.hstack((self._S.A, V.A)), np.hstack((self._S.B, V.B)))
        overlaps = fresh(cross(x, H, rows_times), A, B, "overlaps", d + i)
        y = Mask(overlaps.A[:, :, :d], overlaps.B[:, :, :d])
        u = Mask(overlaps.A[:, :, d:], overlaps.B[:, :, d:])
        mean = add(cross(x, self._theta, rows_times), cross(h, u, rows_times))
        gain_term = negative(np.dstack((cross(u, V, times), mean)))
        gain = fresh(gain_term, A, B, "gain")
        square = subtract(cross(x, y, rows_times), cross(u, u, rows_times))
        rho_square = add(row_of(A, "rho_square"), row_of(B, "rho_square"))
        square_mask = short_mask(subtract(rho_square, square))[0]
        table = self.terms.scale_table.coefficients(square_mask)[:, 0]
        scale = fresh(zeros(1, 1), A, B, "scale")
        row = fresh(cross(scale, gain, times), A, B, "row")
        for kept, new in zip(window.V, row, strict=True):
            kept[:, i] = new[:, 0, :d]
        for kept, new in zip(window.h, row, strict=True):
            kept[:, 0, i] = new[:, 0, d]
        return ScaleDeal(
            place,
            overlaps=overlaps.A[:, 0],
            gain=gain.A[:, 0],
            coefficients=subtract(table, B.take("coefficients")),
            scale=scale.A[:, 0],
            row=row.A[:, 0],
        )

    def deal_decision(
        self, place: Place, A: Sheet, B: Sheet, X: Mask, window: CovarianceWindow, bits: Numbers
    ) -> ScoreDeal:
        """Words for one decision, whatever the number of rows is by then.

        ``bits`` are the secret bits of its comparisons.
        """
        terms = self.terms
        if terms.reads == "means":
            products, rows, forms, means = self._deal_direction(A, B, X, window)
        else:
            products, forms, means = self._deal_forms(A, B, X, window)
            rows = zeros(0, terms.dim)
        tables, tops = zeros(0, 0), np.zeros(0, np.uint8)
        if terms.release == "arm":
            order = shuffled(A.take("order"))
            masks = shuffled_masks(A.take("mask_ranks"), B.take("rho_scores"), order)
            dealt, tops = deal_tables(masks, bits, words_of_tables(B.take("tables")))
            half = dealt.shape[1] // 2
            tables = np.stack((dealt[:, :half], dealt[:, half:]))
            tops = tops ^ (B.take("flips")[0] & np.uint64(1)).astype(np.uint8)
        context = times(row_of(A, "mask_choice"), X.B)[:, 0]
        return ScoreDeal(
            place,
            products=products,
            rows=rows,
            forms=forms,
            means=means,
            context=subtract(context, B.take("blind_context")),
            tables=tables,
            tops=tops,
        )

    def _deal_direction(
        self, A: Sheet, B: Sheet, X: Mask, window: CovarianceWindow
    ) -> tuple[Words, Words, Words, Words]:
        direction = fresh_matrix(zeros(1, self.terms.dim), A, B, "products")
        rows = [
            cross(Mask(h_A, h_B), Mask(v_A, v_B), times)[:, 0]
            for h_A, h_B, v_A, v_B in _by_row(window)
        ]
        rows_term = np.stack(rows, axis=1)
        w = Mask(add(self._theta.A, direction.A), add(self._theta.B, direction.B))
        means = cross(X, w, rows_times)[:, :, 0]
        return (
            direction.A,
            subtract(rows_term, B.take("blind_rows")),
            zeros(0, 0),
            subtract(means[:, None], B.take("blind_means")),
        )

    def _deal_forms(
        self, A: Sheet, B: Sheet, X: Mask, window: CovarianceWindow
    ) -> tuple[Words, Words, Words]:
        d, is_joint = self.terms.dim, self.terms.reads == "covariance"
        term = np.dstack((cross(X, self._S, triangle_rows), cross(X, window.V, rows_times)))
        products = fresh_matrix(term, A, B, "products")
        W = Mask(products.A[:, :, :d], products.B[:, :, :d])
        squares = [joined(cross(W, X, rows_times)) if is_joint else cross(W, X, row_products)]
        means = [cross(X, self._theta, rows_times)[:, :, 0]]
        for k in range(self.terms.window):
            column = slice(d + k, d + k + 1)
            G = Mask(products.A[:, :, column], products.B[:, :, column])
            h = Mask(window.h.A[:, :, k : k + 1], window.h.B[:, :, k : k + 1])
            square = joined(cross(G, G, rows_times)) if is_joint else cross(G, G, row_products)
            squares.append(negative(square))
            means.append(cross(G, h, rows_times)[:, :, 0])
        return (
            products.A,
            subtract(np.stack(squares, axis=1), B.take("blind_forms")),
            subtract(np.stack(means, axis=1), B.take("blind_means")),
        )

    def deal_fold(
        self, place: Place, A: Sheet, B: Sheet, window: CovarianceWindow
    ) -> tuple[ShrinkDeal, "CovarianceDealer"]:
        """Words for the fold, and the masks of the state after it."""
        d = self.terms.dim
        V = window.V
        both = Mask(V.A.swapaxes(1, 2), V.B.swapaxes(1, 2))
        i, j = np.tril_indices(d)
        term = cross(both, V, times)[:, i, j]
        inverse = fresh(term[:, None], A, B, "inverse")
        theta = fresh(cross(window.h, V, times), A, B, "theta")
        after = CovarianceDealer(self.terms)
        after._S = Mask(
            *(
                subtract(kept, symmetric(change[:, 0], d))
                for kept, change in zip(self._S, inverse, strict=True)
            )
        )
        after._theta = Mask(
            *(add(kept, shift) for kept, shift in zip(self._theta, theta, strict=True))
        )
        return ShrinkDeal(place, inverse=inverse.A[:, 0], theta=theta.A[:, 0]), after


def _by_row(window: CovarianceWindow) -> list[tuple[Words, Words, Words, Words]]:
    """h_l (1, 1) and v_l (1, dim) of each row, A's part and B's."""
    n = window.V.A.shape[1]
    return [
        (
            window.h.A[:, :, k : k + 1],
            window.h.B[:, :, k : k + 1],
            window.V.A[:, k : k + 1],
            window.V.B[:, k : k + 1],
        )
        for k in range(n)
    ]
