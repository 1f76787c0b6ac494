"""One server's side of the state: Lambda⁻¹ = GG', theta, and the rows that a window has learnt.

Both servers run this code, each on its own sides (``sides``).  Its results are shares under words
ρ of the server's own, as they are sent.
"""

from typing import NamedTuple

import numpy as np

from vfbandits.core.ring import Words, encode, negative, short, zeros
from vfbandits.core.shares.sides import (
    combined,
    minus_narrow_outer,
    product,
    reopen_narrow_side,
    whole_product,
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

    def difference(self, x: Words, u: Words, rho: Words) -> Words:
        """Shares of −x·theta − Σ_l u_l·h_l, (1,)."""
        return combined(self._minus_theta, x, self._h, u, rho)

    def gain(self, f: Words, v: Words, rho: Words) -> Words:
        """Shares of g = Gf − Σ_l v_l·g_l, (dim,)."""
        return combined(self._rows, f, self._g, v, rho)

    def append(self, n: int, row: Words, gain: Words, residual: Words) -> None:
        """Put in row n of the window."""
        self._a[:, n], self._g[:, n] = row, gain
        self._h[:, n], self._minus_h[:, n : n + 1] = residual, negative(residual)

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


def square(f: Words, rho: Words) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]]:
    """A short share of f·f, (1,)."""
    return short(whole_product(f[:, None], f, rho))


def scaled(scalar: Words, row: Words, rho: Words) -> Words:
    """Shares of a row times a number, (1,)."""
    return product(row[:, :, None], scalar, rho, row.shape[1])
