"""One server's side of the state: Lambda⁻¹ = GG', theta, and the rows that a window has learnt.

Both servers run this code, each on its own sides (``sides``).  Its results are shares under words
ρ of the server's own, as they are sent.
"""

from typing import NamedTuple

import numpy as np

from vfbandits.core import kernels
from vfbandits.core.ring import CUT, Words, encode, negative, zeros
from vfbandits.core.shares.kept import Kept
from vfbandits.core.shares.sides import (
    CUTS,
    combined,
    minus_narrow_outer,
    product,
    refuse_unless_equal,
    reopen_narrow_side,
    reopen_side,
)
from vfbandits.core.shares.terms import ShareTerms


class Held(NamedTuple):
    """One server's side of the state; the two sides add up to twice the values.

    ``root`` and ``theta`` are as of the last fold; ``a``, ``g`` and ``h`` are rows learnt since.
    """

    root: Words
    theta: Words
    a: Words
    g: Words
    h: Words


class Exchanged(NamedTuple):
    """Cut shares of a product from both servers, and one server's part of its mask."""

    own: Words
    other: Words
    mask: Words


class OpenedRow(NamedTuple):
    """Shares of a_l·f, f·f and r − x·theta, as they are sent; or the words ρ for them.

    Of f·f only the low half of a cut share is sent, which is a short one.
    """

    projections: Words
    square: Words
    difference: Words


class RootSide:
    """The state as one server has it."""

    __slots__ = (
        "_a",
        "_columns",
        "_g",
        "_h",
        "_minus_h",
        "_minus_theta",
        "_no_columns",
        "_rows",
        "_theta",
        "nothing",
    )

    def __init__(self, terms: ShareTerms) -> None:
        n, d = terms.window, terms.dim
        # G = I and theta = 0 are public at first: they have no mask until the first fold.
        self._rows = encode(np.eye(d), bound=1.0, what="a unit matrix")
        self._columns = self._rows.copy()
        self._theta, self._minus_theta = zeros(1, d), zeros(1, d)
        self._a, self._g = zeros(n, d), zeros(n, d)
        self._h, self._minus_h = zeros(n, 1), zeros(n)
        self._no_columns = zeros(d, 0)
        self.nothing = zeros(max(n, d, 2))

    def held(self, n: int) -> Held:
        """The state with the first n rows of the window."""
        a, g, h = self._a[:, :n], self._g[:, :n], self._h[:, :n, 0]
        return Held(self._rows, self._theta[:, 0], a, g, h)

    def kept(self) -> dict[str, Words]:
        """The state between two windows."""
        return {"rows": self._rows, "theta": self._theta}

    def restore(self, kept: Kept) -> None:
        """Go on from a state that was kept."""
        self._rows = kept.take("rows", self._rows)
        self._columns = np.ascontiguousarray(self._rows.swapaxes(1, 2))
        self._theta = kept.take("theta", self._theta)
        self._minus_theta = negative(self._theta)

    @property
    def theta(self) -> Words:
        """As of the last fold, (dim,)."""
        return self._theta[:, 0]

    @property
    def minus_h(self) -> Words:
        """−h of all rows of the window, (window,)."""
        return self._minus_h

    def projections(self, z: Words, n: int, rho: Words) -> Words:
        """Shares of a_l·z, (n,)."""
        return product(self._a, z, rho, n)

    def direction(self, z: Words | None, tau: Words, rho: Words) -> Words:
        """Shares of Gz − Σ_l tau_l·g_l, (dim,)."""
        if z is None:
            return combined(self._no_columns, zeros(0), self._g, tau, rho)
        return combined(self._rows, z, self._g, tau, rho)

    def overlaps(self, x: Words, n: int, rho: Words) -> Words:
        """Shares of g_l·x, (n,)."""
        return product(self._g, x, rho, n)

    def whitened(self, x: Words, u: Words, rho: Words) -> Words:
        """Shares of f = G'x − Σ_l u_l·a_l, (dim,)."""
        return combined(self._columns, x, self._a, u, rho)

    def open_row(self, f: Exchanged, x: Words, u: Words, rho: OpenedRow) -> tuple[Words, OpenedRow]:
        """The side of f, and shares of a_l·f, f·f and −x·theta − Σ_l u_l·h_l."""
        n, none = u.shape[1], self.nothing
        loops = kernels.load_ring()
        if loops is None:
            side = reopen_side(*f, none)
            return side, OpenedRow(
                product(self._a, side, rho.projections, n),
                product(side[:, None], side, rho.square, 1),
                combined(self._minus_theta, x, self._h, u, rho.difference),
            )
        refuse_unless_equal(f.own, f.other, f.mask, x)
        side = np.empty(x.shape, np.uint64)
        v, q, d = (np.empty((2, size), np.uint64) for size in (n, 1, 1))
        loops.open_row(
            *(*f, none, CUTS, self._a, n, rho.projections, rho.square),
            *(self._minus_theta, x, self._h, u, rho.difference, CUT, side, v, q, d),
        )
        return side, OpenedRow(v, q, d)

    def scale_row(
        self, scalars: Exchanged, difference: Exchanged, f: Words, rho: tuple[Words, Words]
    ) -> tuple[Words, Words]:
        """Shares of cf, and of h as (r − x·theta)/(1 + q), from c and 1/(1 + q)."""
        loops, none = kernels.load_ring(), self.nothing
        if loops is None:
            s, d = reopen_side(*scalars, none), reopen_side(*difference, none)
            return scaled(s[:, :1], f, rho[0]), scaled(s[:, 1:], d, rho[1])
        refuse_unless_equal(scalars.own, scalars.other, scalars.mask)
        refuse_unless_equal(difference.own, difference.other, difference.mask)
        row, residual = np.empty(f.shape, np.uint64), np.empty((2, 1), np.uint64)
        loops.scale_row(*scalars, *difference, none, CUTS, f, *rho, CUT, row, residual)
        return row, residual

    def gain(self, f: Words, v: Words, rho: Words) -> Words:
        """Shares of g = Gf − Σ_l v_l·g_l, (dim,)."""
        return combined(self._rows, f, self._g, v, rho)

    def append(self, n: int, row: Exchanged, gain: Exchanged, residual: Exchanged) -> None:
        """Put in row n of the window."""
        loops, none = kernels.load_ring(), self.nothing
        if loops is None:
            self._a[:, n], self._g[:, n] = reopen_side(*row, none), reopen_side(*gain, none)
            h = reopen_side(*residual, none)
            self._h[:, n], self._minus_h[:, n : n + 1] = h, negative(h)
            return
        refuse_unless_equal(*row, *gain, self._theta[:, 0])
        refuse_unless_equal(*residual, self._h[:, 0])
        exchanged = zip(row, gain, residual, strict=True)
        loops.append_root_row(*exchanged, none, CUTS, n, self._a, self._g, self._h, self._minus_h)

    def changes(self, rho_root: Words, rho_theta: Words) -> tuple[Words, Words]:
        """Narrow shares of −Σ g_l a_l', and shares of Σ h_l g_l, for a full window."""
        root = minus_narrow_outer(self._g, self._a, rho_root)
        theta = combined(self._no_columns, zeros(0), self._g, self._minus_h, rho_theta)
        return root, theta

    def fold(self, one: Words, other: Words, mask: Words) -> None:
        """Take the change of G into the state, from both servers' narrow shares of it."""
        self._rows = reopen_narrow_side(one, other, mask, self._rows)
        self._columns = np.ascontiguousarray(self._rows.swapaxes(1, 2))

    def shift(self, theta: Words) -> None:
        """Set theta, (dim,)."""
        self._theta, self._minus_theta = theta[:, None], negative(theta)[:, None]


def scaled(scalar: Words, row: Words, rho: Words) -> Words:
    """Shares of a row times a number, (1,)."""
    return product(row[:, :, None], scalar, rho, row.shape[1])
