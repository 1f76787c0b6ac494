"""One server's side of the covariance form, and the steps that both servers take alike.

Each step makes shares of products under words ρ of the server's own, as they are sent, from sides
of the numbers (``sides``) and from what both servers sent before.  The dealer's terms of what is
opened come in as rows, of which as many count as the window has: A was dealt them without their
low bits, and B has the words that blind them.
"""

from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from vfbandits.core import kernels
from vfbandits.core.arrays import Vector
from vfbandits.core.ring import (
    FRACTION,
    RELEASED,
    Sheet,
    Words,
    add,
    cut,
    from_integers,
    gram,
    lifted,
    open_rounded,
    rounded,
    row_products,
    rows_times,
    shifted_down,
    shifted_up,
    short,
    subtract,
    symmetric,
    times,
    total,
    triangle_rows,
    zeros,
)
from vfbandits.core.shares.covariance.form import (
    FORM_BITS,
    MEAN_BITS,
    HeldCovariance,
    as_fine,
    identity,
    joined,
)
from vfbandits.core.shares.kept import Kept
from vfbandits.core.shares.sides import (
    FINE_BITS,
    PRODUCT_BITS,
    open_side,
    refuse_other_shapes,
    reopen_side,
    side,
)
from vfbandits.core.shares.terms import ShareTerms
from vfbandits.errors import SharesError

_HALF = np.dtype(np.uint64)

# Parts of sheets that a step takes together.
_SCORE = ("rho_products", "mask_products", "blind_forms", "blind_means")
_CONTEXT = ("mask_context", "rho_overlaps")
_OVERLAPS = ("rho_overlaps", "rho_gain", "rho_square")
_GAIN = ("mask_overlaps", "rho_gain", "rho_square", "coefficients", "rho_scale")
_ROW = ("rho_scale", "rho_row")
_SETTLE = ("mask_gain", "mask_scale", "rho_row", "mask_row")


class CovarianceSide:
    """Theta, S and the window's rows V and numbers h, as one server has them."""

    __slots__ = (
        "_S",
        "_V",
        "_down",
        "_h",
        "_is_joint",
        "_lift",
        "_max_rows",
        "_numbers",
        "_table",
        "_theta",
        "terms",
    )

    def __init__(self, terms: ShareTerms, *, lift: int, down: int) -> None:
        # S = I and theta = 0 are public at first: they have no mask until the first fold.
        self._S = identity(terms.dim)
        self._begin(terms, lift=lift, down=down)

    def _begin(self, terms: ShareTerms, *, lift: int, down: int) -> None:
        """Theta and the rows of a window, untaught."""
        n, d = terms.window, terms.dim
        self.terms = terms
        self._lift = lift  # bits that the dealer's terms come without
        self._down = down  # bits that shares of forms are sent without
        self._is_joint = terms.reads == "covariance"
        self._max_rows = terms.max_rows
        self._table = terms.scale_table
        self._numbers = self._table.numbers(PRODUCT_BITS)
        self._theta = zeros(d)
        self._V, self._h = zeros(n, d), zeros(n)

    def held(self, n: int) -> HeldCovariance:
        """The state with the first ``n`` rows of the window."""
        return HeldCovariance(self._S, self._theta, self._V[:, :n], self._h[:, :n])

    def kept(self) -> dict[str, Words]:
        """The state between two windows."""
        return {"S": self._S, "theta": self._theta}

    def restore(self, kept: Kept) -> None:
        """Go on from a state that was kept."""
        self._S = kept.take("S", self._S)
        self._theta = kept.take("theta", self._theta)

    def set_state(self, S: Words, theta: Words) -> None:
        """Set S and theta."""
        self._S, self._theta = S, theta

    def put(self, n: int, V: Words, h: Words) -> None:
        """Set row n of the window, and its number."""
        self._V[:, n], self._h[:, n] = V, h

    def products(self, inputs: "Inputs", n: int, rho: Words, rows: Words) -> tuple[Words, Words]:
        """P of the contexts, and shares of the products of a decision after ``n`` rows.

        The products are [XL' | XV'], (n_arms, dim + n).  Where means alone are read they are V'h,
        (1, dim), of which ``rows`` are the dealer's terms, and P is not needed yet.
        """
        contexts, mask = inputs
        _refuse_unless(contexts, mask)
        V, h = self._V, self._h
        loops = kernels.load_covariance()
        if self.terms.reads == "means":
            if loops is None:
                share = add(times(h[:, None, :n], V[:, :n]), self._first(rows, n)[:, None])
                return contexts, cut(add(share, rho))
            out = np.empty(rho.shape, _HALF)
            loops.score_direction(V, h, n, rho, rows, self._lift, out)
            return contexts, out
        _, n_arms, d = contexts.shape
        if loops is None:
            X = side(contexts, mask[:, :n_arms])
            share = np.dstack((triangle_rows(X, self._S), rows_times(X, V[:, :n])))
            return X, cut(add(share, rho[:, :n_arms, : d + n]))
        X, out = np.empty(contexts.shape, _HALF), np.empty((2, n_arms, d + n), _HALF)
        loops.score_products(contexts, mask, self._S, V, n, rho, X, out)
        return X, out

    def means(self, exchanged: "Exchanged", inputs: "Inputs", terms: Words) -> Words:
        """Shares of the means of the arms, where they alone are read.

        ``terms`` are the dealer's, (1, max_arms).
        """
        own, theirs, mask = exchanged
        _refuse_unless(own, theirs, exact=True)
        contexts, masks = inputs
        n_arms = contexts.shape[1]
        loops = kernels.load_covariance()
        if loops is None:
            theta = as_fine(self._theta)
            w = reopen_side(own[:, 0], theirs[:, 0], mask[:, 0], theta, bits=FINE_BITS)
            share = rows_times(side(contexts, masks[:, :n_arms]), w[:, None])[:, :, 0]
            return add(share, self._first(terms[:, :, :n_arms], 1))
        out = np.empty((2, n_arms), _HALF)
        loops.score_means(*exchanged, contexts, masks, self._theta, terms, self._lift, out)
        return out

    def statistics(
        self, exchanged: "Exchanged", X: Words, forms: Words, means: Words
    ) -> tuple[Words, Words]:
        """Shares of forms and means of the arms, once both servers have sent the products.

        ``forms`` and ``means`` are the dealer's terms: a row for the state at the last fold, and
        one for each row of the window.
        """
        _refuse_unless(exchanged[0], exchanged[1], exact=True)
        n_forms, n_arms = self.n_forms(X.shape[1]), X.shape[1]
        loops = kernels.load_covariance()
        if loops is None:
            return self._plain_statistics(*exchanged, X, forms[:, :, :n_forms], means)
        out = np.empty((2, n_forms), _HALF), np.empty((2, n_arms), _HALF)
        numbers = (forms, means, self._lift, self._down, self._is_joint)
        loops.score_statistics(*exchanged, X, self._theta, self._h, *numbers, *out)
        return out

    def opened_statistics(
        self,
        exchanged: "Exchanged",
        X: Words,
        forms: Words,
        means: Words,
        their_forms: Words,
        their_means: Words,
    ) -> tuple[Vector, Vector]:
        """As ``statistics``, opened with the other server's shares."""
        n_forms, n_arms = self.n_forms(X.shape[1]), X.shape[1]
        loops = kernels.load_covariance()
        if loops is None:
            own_forms, own_means = self.statistics(exchanged, X, forms, means)
            return (
                opened(own_forms, their_forms, bits=FORM_BITS),
                opened(own_means, their_means, bits=MEAN_BITS),
            )
        fits = exchanged[0].shape == exchanged[1].shape
        if not fits or their_forms.shape != (2, n_forms) or their_means.shape != (2, n_arms):
            raise SharesError(
                f"wanted {n_forms} forms and {n_arms} means from the helper, got "
                f"{their_forms.shape[1:]} and {their_means.shape[1:]}"
            )
        out = np.empty(n_forms), np.empty(n_arms)
        bits = (FORM_BITS - RELEASED, MEAN_BITS - RELEASED, RELEASED)
        numbers = (forms, means, self._lift, self._is_joint, bits)
        state = (self._theta, self._h)
        loops.score_opened(*exchanged, X, *state, *numbers, their_forms, their_means, *out)
        return out

    def n_forms(self, n_arms: int) -> int:
        """One for each arm, or one for each pair."""
        return n_arms * (n_arms + 1) // 2 if self._is_joint else n_arms

    def _plain_statistics(
        self, own: Words, theirs: Words, mask: Words, X: Words, forms: Words, means: Words
    ) -> tuple[Words, Words]:
        _, n_arms, d = X.shape
        n = own.shape[2] - d
        P = _reopened(own, theirs, mask[:, :n_arms, : d + n], bits=FINE_BITS)
        W, G = P[:, :, :d], P[:, :, d:]
        mean = as_fine(rows_times(X, self._theta[:, None]))
        mean = add(mean, rows_times(G, self._h[:, None, :n]))
        opened = add(mean[:, :, 0], self._first(means[:, :, :n_arms], n + 1))
        if self._is_joint:
            form = joined(subtract(as_fine(rows_times(W, X)), rows_times(G, G)))
        else:
            form = subtract(as_fine(row_products(W, X)), row_products(G, G))
        form = add(form, self._first(forms, n + 1))
        return shifted_down(form, self._down) if self._down else form, opened

    def _first(self, terms: Words, n: int) -> Words:
        """The sum of the first rows of the dealer's terms."""
        summed = total(terms[:, :n])
        return shifted_up(summed, self._lift) if self._lift else summed

    def overlaps(self, exchanged: "Exchanged", n: int, rho: Words) -> tuple[Words, Words]:
        """P of a context x that was masked again, and shares of [xS | xV'], (dim + n,)."""
        own, theirs, mask = exchanged
        _refuse_unless(own, theirs, exact=True)
        d = own.shape[1]
        loops = kernels.load_covariance()
        if loops is None:
            x = open_side(own, theirs, mask)
            rows = np.hstack((self._S, self._V[:, :n]))
            return x, cut(add(rows_times(x[:, None], rows)[:, 0], rho[:, : d + n]))
        x, out = np.empty(own.shape, _HALF), np.empty((2, d + n), _HALF)
        loops.update_overlaps(*exchanged, self._S, self._V, n, rho, x, out)
        return x, out

    def gain(
        self, exchanged: "Exchanged", x: Words, rho: Words, rho_square: Words, reward: int = 0
    ) -> tuple[Words, NDArray[np.uint64]]:
        """Shares of v = Lambda⁻¹x and r − x·theta, (dim + 1,), and a short share of q, (1,).

        ``reward`` is r in units of 2^-44, which A alone puts in.
        """
        own, theirs, mask = exchanged
        _refuse_unless(own, theirs, exact=True)
        d = x.shape[1]
        loops = kernels.load_covariance()
        if loops is not None:
            gain, square = np.empty((2, d + 1), _HALF), np.empty(1, _HALF)
            state = (self._theta, self._V, self._h)
            words = (rho, rho_square, gain, square)
            loops.update_gain(own, theirs, mask, x, *state, reward, *words)
            return gain, square
        n = own.shape[1] - d
        o = _reopened(own, theirs, mask[:, : d + n])[:, None]
        y, u = o[:, :, :d], o[:, :, d:]
        v = subtract(lifted(y), times(u, self._V[:, :n]))[:, 0]
        mean = add(
            rows_times(x[:, None], self._theta[:, None]), rows_times(u, self._h[:, None, :n])
        )
        value = from_integers([reward << (FRACTION + 1)])
        share = add(np.concatenate((v, subtract(value, mean[:, 0])), axis=1), rho)
        square = subtract(rows_times(x[:, None], y), rows_times(u, u))[:, 0]
        return cut(share), short(add(square, rho_square))

    def row(self, gain: "Exchanged", scale: "Exchanged", rho: Words) -> Words:
        """Shares of s·v and s·(r − x·theta), (dim + 1,)."""
        for own, theirs, _ in (gain, scale):
            _refuse_unless(own, theirs, exact=True)
        loops = kernels.load_covariance()
        if loops is None:
            s = _reopened(*scale)
            return cut(add(times(s[:, None], _reopened(*gain)[:, None])[:, 0], rho))
        out = np.empty(rho.shape, _HALF)
        loops.update_row(*gain, *scale, rho, out)
        return out

    def append(self, n: int, row: "Exchanged") -> None:
        """Put in row ``n`` of the window."""
        _refuse_unless(row[0], row[1], exact=True)
        loops = kernels.load_covariance()
        if loops is None:
            opened = _reopened(*row)
            self._V[:, n], self._h[:, n] = opened[:, :-1], opened[:, -1]
            return
        loops.append_row(*row, self._V, self._h, n)

    # Several of these steps in one, with words of a sheet.

    def _steps(self) -> ModuleType | None:
        """Compiled steps, which know one matrix S; None for the steps above, one by one."""
        return kernels.load_covariance()

    def answer_score(
        self, sheet: Sheet, inputs: "Inputs", n: int, theirs: Words, mean_down: int
    ) -> tuple[Words, Words, Words]:
        """B's shares of the products, forms and means of a decision, from A's of the products.

        Those of means come without their low ``mean_down`` bits.
        """
        loops = self._steps()
        if loops is None:
            rho, mask, blind_forms, blind_means = map(sheet.take, _SCORE)
            X, own = self.products(inputs, n, rho, _NOTHING)
            forms, means = self.statistics((own, theirs, mask), X, blind_forms, blind_means)
            return own, forms, shifted_down(means, mean_down) if mean_down else means
        contexts, masks = inputs
        _refuse_unless(contexts, masks)
        _, n_arms, d = contexts.shape
        own = np.empty((2, n_arms, d + n), _HALF)
        _refuse_unless(own, theirs, exact=True)
        forms, means = np.empty((2, self.n_forms(n_arms)), _HALF), np.empty((2, n_arms), _HALF)
        halves, starts = sheet.take_together(_SCORE)
        loops.answer_score(
            halves,
            starts,
            self._max_rows,
            contexts,
            masks,
            self._S,
            self._theta,
            self._V,
            self._h,
            theirs,
            self._down,
            mean_down,
            self._is_joint,
            own,
            forms,
            means,
        )
        return own, forms, means

    def mask_context(
        self, sheet: Sheet, share: Words, theirs: Words, n: int
    ) -> tuple[Words, Words, Words]:
        """B's share of a context, masked again, and what ``overlaps`` gives for it."""
        loops = self._steps()
        if loops is None:
            mask, rho = map(sheet.take, _CONTEXT)
            own = add(share, mask)
            return own, *self.overlaps((own, theirs, mask), n, rho)
        _refuse_unless(share, theirs, exact=True)
        shape = share.shape
        own, x = np.empty(shape, _HALF), np.empty(shape, _HALF)
        overlaps = np.empty((2, shape[1] + n), _HALF)
        halves, starts = sheet.take_together(_CONTEXT)
        state = (self._S, self._V)
        loops.mask_and_overlap(halves, starts, share, theirs, *state, n, own, x, overlaps)
        return own, x, overlaps

    def overlap_and_gain(
        self, sheet: Sheet, context: "Exchanged", n: int, theirs: Words, mask: Words, reward: int
    ) -> tuple[Words, Words, NDArray[np.uint64]]:
        """A's shares that ``overlaps`` and ``gain`` give, from B's of x and of overlaps."""
        loops = self._steps()
        if loops is None:
            rho, rho_gain, rho_square = map(sheet.take, _OVERLAPS)
            x, own = self.overlaps(context, n, rho)
            return own, *self.gain((own, theirs, mask), x, rho_gain, rho_square, reward)
        d = self._V.shape[2]
        own, gain = np.empty((2, d + n), _HALF), np.empty((2, d + 1), _HALF)
        square = np.empty(1, _HALF)
        refuse_other_shapes(context, (own, theirs, mask))
        halves, starts = sheet.take_together(_OVERLAPS)
        state = (self._S, self._theta, self._V, self._h)
        out = (own, gain, square)
        loops.overlap_and_gain(halves, starts, *context, theirs, mask, *state, n, reward, *out)
        return out

    def gain_and_scale(
        self, sheet: Sheet, x: Words, own: Words, theirs: Words, square: NDArray[np.uint64]
    ) -> tuple[Words, NDArray[np.uint64], Words]:
        """B's shares that ``gain`` gives, and of s, (1,), from A's of overlaps and of q."""
        loops = self._steps()
        if loops is None:
            mask, rho, rho_square, *words = map(sheet.take, _GAIN)
            gain, own_square = self.gain((own, theirs, mask), x, rho, rho_square)
            scale = self._table.cut_share(own_square, square, *words, bits=PRODUCT_BITS)
            return gain, own_square, scale
        _refuse_unless(own, theirs, exact=True)
        out = np.empty((2, x.shape[1] + 1), _HALF), np.empty(1, _HALF), np.empty((2, 1), _HALF)
        halves, starts = sheet.take_together(_GAIN)
        table = (self._table.shape, self._numbers)
        state = (self._theta, self._V, self._h)
        loops.gain_and_scale(halves, starts, *table, x, own, theirs, square, *state, *out)
        return out

    def scale_row(
        self,
        sheet: Sheet,
        squares: tuple[NDArray[np.uint64], NDArray[np.uint64]],
        coefficients: Words,
        gain: "Exchanged",
        theirs: Words,
        mask: Words,
    ) -> tuple[Words, Words]:
        """A's shares of s, (1,), and those that ``row`` gives, from B's of q, v and s."""
        loops = self._steps()
        if loops is None:
            rho, rho_row = map(sheet.take, _ROW)
            scale = self._table.cut_share(*squares, coefficients, rho, bits=PRODUCT_BITS)
            return scale, self.row(gain, (scale, theirs, mask), rho_row)
        own, other = squares
        if other.shape != (1,) or coefficients.shape[1:] != self._table.shape:
            raise SharesError(
                f"wanted one short share of q and coefficients of shape {self._table.shape}, got "
                f"{other.size} and {coefficients.shape[1:]}"
            )
        scale, row = np.empty((2, 1), _HALF), np.empty(gain[0].shape, _HALF)
        refuse_other_shapes(gain, (scale, theirs, mask))
        halves, starts = sheet.take_together(_ROW)
        q = (self._numbers, own, other, coefficients)
        loops.scale_row(halves, starts, *q, *gain, theirs, mask, scale, row)
        return scale, row

    def settle(
        self,
        n: int,
        sheet: Sheet,
        gain: tuple[Words, Words],
        scale: tuple[Words, Words],
        theirs: Words,
    ) -> Words:
        """``row`` and ``append`` for B, which has A's shares of v, of s and of the row."""
        loops = self._steps()
        if loops is None:
            gain_mask, scale_mask, rho, mask = map(sheet.take, _SETTLE)
            own = self.row((*gain, gain_mask), (*scale, scale_mask), rho)
            self.append(n, (own, theirs, mask))
            return own
        own = np.empty(theirs.shape, _HALF)
        halves, starts = sheet.take_together(_SETTLE)
        loops.settle(halves, starts, *gain, *scale, theirs, self._V, self._h, n, own)
        return own

    # Folds.

    def changes(self, rho_inverse: Words, rho_theta: Words) -> tuple[Words, Words]:
        """Shares of the lower triangle of V'V, and of V'h, for a full window."""
        loops = kernels.load_covariance()
        if loops is None:
            theta = times(self._h[:, None], self._V)[:, 0]
            return cut(add(gram(self._V), rho_inverse)), cut(add(theta, rho_theta))
        inverse, theta = (
            np.empty(rho_inverse.shape, _HALF),
            np.empty(rho_theta.shape, _HALF),
        )
        loops.fold_changes(self._V, self._h, rho_inverse, rho_theta, inverse, theta)
        return inverse, theta

    def fold(self, inverse: "Exchanged", theta: "Exchanged") -> None:
        """Take V'V and V'h into the state."""
        for own, theirs, _ in (inverse, theta):
            _refuse_unless(own, theirs, exact=True)
        loops = kernels.load_covariance()
        if loops is None:
            self._S = subtract(self._S, symmetric(_reopened(*inverse), self.terms.dim))
            self._theta = add(self._theta, _reopened(*theta))
            return
        loops.fold_in(*inverse, *theta, self._S, self._theta)


def opened(own: Words, theirs: Words, *, bits: int) -> Vector:
    """The numbers (n,) of which these are a whole share and the other server's rounded one.

    Whole shares have ``bits`` after the point.
    """
    _refuse_unless(own, theirs, exact=True)
    loops = kernels.load_covariance()
    if loops is None:
        return open_rounded(rounded(own, bits=bits), theirs, bits=bits)
    out = np.empty(own.shape[1])
    loops.open_rounded(own, theirs, bits - RELEASED, RELEASED, out)
    return out


Exchanged = tuple[Words, Words, Words]
"""A server's own shares, the other's, and its part of the mask."""
Inputs = tuple[Words, Words]
"""Masked contexts (n_arms, dim), and a server's part of their mask, (max_arms, dim)."""


def _refuse_unless(one: Words, other: Words, *, exact: bool = False) -> None:
    """Compiled loops do not check bounds: with a short array they would read another's memory."""
    fits = one.shape == other.shape if exact else one.shape[2:] == other.shape[2:]
    if not fits or (not exact and one.shape[1] > other.shape[1]):
        raise SharesError(
            f"wanted words that fit together, got shapes {one.shape[1:]} and {other.shape[1:]}"
        )


def _reopened(own: Words, theirs: Words, mask: Words, *, bits: int = FRACTION) -> Words:
    """P of products of any shape."""
    one, other, part = (words.reshape(2, -1) for words in (own, theirs, mask))
    return reopen_side(one, other, part, zeros(one.shape[1]), bits=bits).reshape(own.shape)


_NOTHING = zeros(0, 0)
