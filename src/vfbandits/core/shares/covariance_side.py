"""One server's side of the covariance form, and the steps that both servers take alike.

Each step makes shares of products under words ρ of the server's own, as they are sent, from sides
of the numbers (``sides``) and from what both servers sent before.  The dealer's terms of what is
opened come in as rows, of which as many count as the window has: A was dealt them without their
low bits, and B has the words that blind them.
"""

import numpy as np
from numpy.typing import NDArray

from vfbandits.core import kernels
from vfbandits.core.arrays import Vector
from vfbandits.core.ring import (
    FRACTION,
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
    shifted_up,
    short,
    subtract,
    symmetric,
    times,
    total,
    triangle_rows,
    zeros,
)
from vfbandits.core.shares.covariance import HeldCovariance, identity, joined
from vfbandits.core.shares.sides import PRODUCT_BITS, reopen_side, side
from vfbandits.core.shares.terms import ShareTerms
from vfbandits.errors import SharesError


class CovarianceSide:
    """Theta, S and the window's rows V and numbers h, as one server has them."""

    __slots__ = ("_S", "_V", "_h", "_lift", "_theta", "terms")

    def __init__(self, terms: ShareTerms, *, lift: int) -> None:
        n, d = terms.window, terms.dim
        self.terms = terms
        self._lift = lift  # bits that the dealer's terms come without
        # S = I and theta = 0 are public at first: they have no mask until the first fold.
        self._S = identity(d)
        self._theta = zeros(d)
        self._V, self._h = zeros(n, d), zeros(n)

    def held(self, n: int) -> HeldCovariance:
        """The state with the first ``n`` rows of the window."""
        return HeldCovariance(self._S, self._theta, self._V[:, :n], self._h[:, :n])

    def input_side(self, contexts: Words, mask: Words) -> Words:
        """P of contexts, (n_arms, dim), under the first rows of a mask."""
        _refuse_unless(contexts, mask)
        loops = kernels.load_ring()
        if loops is None:
            return side(contexts, mask[:, : contexts.shape[1]])
        X = np.empty(contexts.shape, np.uint64)
        loops.input_side(contexts, mask, X)
        return X

    def products(self, X: Words, n: int, rho: Words, rows: Words) -> Words:
        """Shares of the products of a decision, after ``n`` rows of the window.

        [XL' | XV'], (n_arms, dim + n); or where means alone are read V'h, (1, dim), of which
        ``rows`` are the dealer's terms.
        """
        V, h = self._V, self._h
        loops = kernels.load_ring()
        if self.terms.reads == "means":
            if loops is None:
                share = add(times(h[:, None, :n], V[:, :n]), self._first(rows, n)[:, None])
                return cut(add(share, rho))
            out = np.empty(rho.shape, np.uint64)
            loops.score_direction(V, h, n, rho, rows, self._lift, out)
            return out
        _, n_arms, d = X.shape
        if loops is None:
            share = np.dstack((triangle_rows(X, self._S), rows_times(X, V[:, :n])))
            return cut(add(share, rho[:, :n_arms, : d + n]))
        out = np.empty((2, n_arms, d + n), np.uint64)
        loops.score_products(X, self._S, V, n, rho, out)
        return out

    def statistics(
        self, own: Words, theirs: Words, mask: Words, X: Words, forms: Words, means: Words
    ) -> tuple[Words, Words]:
        """Shares of forms and means of the arms, once both servers have sent the products.

        ``forms`` and ``means`` are the dealer's terms: a row for the state at the last fold, and
        one for each row of the window.
        """
        _refuse_unless(own, theirs, exact=True)
        n_arms = X.shape[1]
        loops = kernels.load_ring()
        if self.terms.reads == "means":
            if loops is None:
                w = reopen_side(own[:, 0], theirs[:, 0], mask[:, 0], self._theta)
                mean = rows_times(X, w[:, None])[:, :, 0]
                return zeros(0), add(mean, self._first(means[:, :, :n_arms], 1))
            opened = np.empty((2, n_arms), np.uint64)
            loops.score_means(own, theirs, mask, X, self._theta, means, self._lift, opened)
            return zeros(0), opened
        is_joint = self.terms.reads == "covariance"
        n_forms = n_arms * (n_arms + 1) // 2 if is_joint else n_arms
        if loops is None:
            return self._plain_statistics(own, theirs, mask, X, forms[:, :, :n_forms], means)
        opened_forms = np.empty((2, n_forms), np.uint64)
        opened = np.empty((2, n_arms), np.uint64)
        numbers = (self._theta, self._h, forms, means, self._lift, is_joint)
        loops.score_statistics(own, theirs, mask, X, *numbers, opened_forms, opened)
        return opened_forms, opened

    def _plain_statistics(
        self, own: Words, theirs: Words, mask: Words, X: Words, forms: Words, means: Words
    ) -> tuple[Words, Words]:
        _, n_arms, d = X.shape
        n = own.shape[2] - d
        P = _reopened(own, theirs, mask[:, :n_arms, : d + n])
        W, G = P[:, :, :d], P[:, :, d:]
        mean = add(rows_times(X, self._theta[:, None]), rows_times(G, self._h[:, None, :n]))
        opened = add(mean[:, :, 0], self._first(means[:, :, :n_arms], n + 1))
        if self.terms.reads == "covariance":
            form = joined(subtract(rows_times(W, X), rows_times(G, G)))
        else:
            form = subtract(row_products(W, X), row_products(G, G))
        return add(form, self._first(forms, n + 1)), opened

    def _first(self, terms: Words, n: int) -> Words:
        """The sum of the first rows of the dealer's terms."""
        summed = total(terms[:, :n])
        return shifted_up(summed, self._lift) if self._lift else summed

    def overlaps(self, x: Words, n: int, rho: Words) -> Words:
        """Shares of [xS | xV'], (dim + n,)."""
        d = x.shape[1]
        loops = kernels.load_ring()
        if loops is None:
            rows = np.hstack((self._S, self._V[:, :n]))
            return cut(add(rows_times(x[:, None], rows)[:, 0], rho[:, : d + n]))
        out = np.empty((2, d + n), np.uint64)
        loops.update_overlaps(x, self._S, self._V, n, rho, out)
        return out

    def gain(
        self, exchanged: "Exchanged", x: Words, rho: Words, rho_square: Words, reward: int = 0
    ) -> tuple[Words, NDArray[np.uint64]]:
        """Shares of v = Lambda⁻¹x and r − x·theta, (dim + 1,), and a short share of q, (1,).

        ``reward`` is r in units of 2^-40, which A alone puts in.
        """
        own, theirs, mask = exchanged
        _refuse_unless(own, theirs, exact=True)
        d = x.shape[1]
        loops = kernels.load_ring()
        if loops is not None:
            gain, square = np.empty((2, d + 1), np.uint64), np.empty(1, np.uint64)
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
        loops = kernels.load_ring()
        if loops is None:
            s = _reopened(*scale)
            return cut(add(times(s[:, None], _reopened(*gain)[:, None])[:, 0], rho))
        out = np.empty(rho.shape, np.uint64)
        loops.update_row(*gain, *scale, rho, out)
        return out

    def append(self, n: int, row: "Exchanged") -> None:
        """Put in row ``n`` of the window."""
        _refuse_unless(row[0], row[1], exact=True)
        loops = kernels.load_ring()
        if loops is None:
            opened = _reopened(*row)
            self._V[:, n], self._h[:, n] = opened[:, :-1], opened[:, -1]
            return
        loops.append_row(*row, self._V, self._h, n)

    def changes(self, rho_inverse: Words, rho_theta: Words) -> tuple[Words, Words]:
        """Shares of the lower triangle of V'V, and of V'h, for a full window."""
        loops = kernels.load_ring()
        if loops is None:
            theta = times(self._h[:, None], self._V)[:, 0]
            return cut(add(gram(self._V), rho_inverse)), cut(add(theta, rho_theta))
        inverse, theta = (
            np.empty(rho_inverse.shape, np.uint64),
            np.empty(rho_theta.shape, np.uint64),
        )
        loops.fold_changes(self._V, self._h, rho_inverse, rho_theta, inverse, theta)
        return inverse, theta

    def fold(self, inverse: "Exchanged", theta: "Exchanged") -> None:
        """Take V'V and V'h into the state."""
        for own, theirs, _ in (inverse, theta):
            _refuse_unless(own, theirs, exact=True)
        loops = kernels.load_ring()
        if loops is None:
            self._S = subtract(self._S, symmetric(_reopened(*inverse), self.terms.dim))
            self._theta = add(self._theta, _reopened(*theta))
            return
        loops.fold_in(*inverse, *theta, self._S, self._theta)


def opened(own: Words, theirs: Words) -> Vector:
    """The numbers (n,) of which these are a whole share and the other server's rounded one."""
    if own.shape != theirs.shape:
        _refuse_unless(own, theirs, exact=True)
    loops = kernels.load_ring()
    if loops is None:
        return open_rounded(rounded(own, bits=PRODUCT_BITS), theirs, bits=PRODUCT_BITS)
    out = np.empty(own.shape[1])
    loops.open_rounded(own, theirs, PRODUCT_BITS - FRACTION, out)
    return out


Exchanged = tuple[Words, Words, Words]
"""A server's own shares, the other's, and its part of the mask."""


def _refuse_unless(one: Words, other: Words, *, exact: bool = False) -> None:
    """Compiled loops do not check bounds: with a short array they would read another's memory."""
    fits = one.shape == other.shape if exact else one.shape[2:] == other.shape[2:]
    if not fits or (not exact and one.shape[1] > other.shape[1]):
        raise SharesError(
            f"wanted words that fit together, got shapes {one.shape[1:]} and {other.shape[1:]}"
        )


def _reopened(own: Words, theirs: Words, mask: Words) -> Words:
    """P of products of any shape."""
    one, other, part = (words.reshape(2, -1) for words in (own, theirs, mask))
    return reopen_side(one, other, part, zeros(one.shape[1])).reshape(own.shape)
