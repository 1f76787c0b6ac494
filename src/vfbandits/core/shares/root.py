"""One server's side of the state: Lambda⁻¹ = GG', theta, and the rows that a window has learnt.

Both servers run this code, each on its own sides (``sides``).  Its results are shares under words
ρ of the server's own, as they are sent.
"""

from types import ModuleType
from typing import NamedTuple

import numpy as np

from vfbandits.core import kernels
from vfbandits.core.ring import (
    FRACTION,
    Sheet,
    Words,
    add,
    encode,
    from_integers,
    negative,
    zeros,
)
from vfbandits.core.shares.comparison import Numbers
from vfbandits.core.shares.kept import Kept
from vfbandits.core.shares.messages import Learn, RewardDeal
from vfbandits.core.shares.sides import (
    PRODUCT_BITS,
    combined,
    first_rows,
    minus_narrow_outer,
    open_side,
    product,
    refuse_other_shapes,
    refuse_unless_long,
    reopen_narrow_side,
    reopen_side,
    side,
    whole_product,
)
from vfbandits.core.shares.terms import ShareTerms
from vfbandits.errors import SharesError

_HALF = np.dtype(np.uint64)


class Held(NamedTuple):
    """One server's side of the state; the two sides add up to twice the values.

    ``root`` and ``theta`` are as of the last fold; ``a``, ``g`` and ``h`` are rows learnt since.
    """

    root: Words
    theta: Words
    a: Words
    g: Words
    h: Words


class Masked(NamedTuple):
    """A server's masked share of a vector, the side of it, and shares of its products."""

    own: Words
    side: Words
    products: Words


class Whitened(NamedTuple):
    """The sides of x and of u_l = g_l·x, and A's shares of u and of f = G'x."""

    x: Words
    overlaps: Words
    u: Words
    whitened: Words


class OpenedRow(NamedTuple):
    """The side of f, and shares of a_l·f, f·f and r − x·theta, as they are sent; or words ρ.

    Of f·f only the low half of a cut share is sent, which is a short one.
    """

    f: Words
    projections: Words
    square: Words
    difference: Words


class Scaled(NamedTuple):
    """Shares of c and 1/(1 + q), of g, of cf and of h."""

    scalars: Words
    gain: Words
    row: Words
    residual: Words


Exchanged = tuple[Words, Words, Words]
"""A server's own cut shares of a product, the other's, and its part of the mask."""
Inputs = tuple[Words, Words]
"""Masked contexts (n_arms, dim), and a server's part of their mask, (max_arms, dim)."""

_NOISE = ("mask_noise", "rho_projections")
_SAMPLE = (
    "mask_projections",
    "rho_direction",
    "blind_rows",
    "mask_direction",
    "blind_scores",
    "rho_scores",
)
_CONTEXT = ("mask_context", "rho_overlaps")
_OVERLAPS = ("rho_overlaps", "rho_whitened")
_WHITEN = (
    "mask_overlaps",
    "rho_whitened",
    "mask_whitened",
    "rho_projections",
    "rho_square",
    "rho_difference",
)
_GAIN = ("rho_projections", "rho_square", "rho_difference", "rho_scalars", "rho_gain")
_SCALE = (
    "mask_projections",
    "rho_gain",
    "coefficients",
    "rho_scalars",
    "mask_scalars",
    "mask_difference",
    "rho_row",
    "rho_residual",
)
_SETTLE = ("mask_row", "mask_gain", "mask_residual")
"""Words of a sheet that a step takes together."""


class RootSide:
    """The state as one server has it."""

    __slots__ = (
        "_a",
        "_g",
        "_h",
        "_minus_h",
        "_no_columns",
        "_numbers",
        "_rows",
        "_table",
        "_theta",
        "nothing",
    )

    def __init__(self, terms: ShareTerms) -> None:
        n, d = terms.window, terms.dim
        # G = I and theta = 0 are public at first: they have no mask until the first fold.
        unit = np.tile(np.eye(terms.row_dim), (terms.n_blocks, 1))
        self._rows = encode(unit, bound=1.0, what="a unit matrix")
        self._theta = zeros(d)
        self._a, self._g = zeros(n, d), zeros(n, d)
        self._h, self._minus_h = zeros(n), zeros(n)
        self._no_columns = zeros(d, 0)
        self._table = terms.scalars
        self._numbers = self._table.numbers(PRODUCT_BITS)
        self.nothing = zeros(max(n, d, terms.max_arms, 2))

    def held(self, n: int) -> Held:
        """The state with the first n rows of the window."""
        a, g, h = self._a[:, :n], self._g[:, :n], self._h[:, :n]
        return Held(self._rows, self._theta, a, g, h)

    def kept(self) -> dict[str, Words]:
        """The state between two windows."""
        return {"rows": self._rows, "theta": self._theta[:, None]}

    def restore(self, kept: Kept) -> None:
        """Go on from a state that was kept."""
        self._rows = kept.take("rows", self._rows)
        self._theta = np.ascontiguousarray(kept.take("theta", self._theta[:, None])[:, 0])

    @property
    def theta(self) -> Words:
        """As of the last fold, (dim,)."""
        return self._theta

    def _loops(self) -> ModuleType | None:
        """Compiled steps, which know one matrix G; None for the products of the state instead."""
        return kernels.load_root()

    # Steps of a decision.

    def mask_noise(self, sheet: Sheet, noise: Words, theirs: Words, n: int) -> Masked:
        """B's half of the noise, and shares of a_l·z, (n,)."""
        return _mask_and_open(sheet, _NOISE, noise, theirs, self._a, n)

    def open_noise(self, noise: Exchanged, n: int, rho: Words) -> tuple[Words, Words]:
        """The side of z, and shares of a_l·z, (n,)."""
        loops = self._loops()
        if loops is None:
            z = open_side(*noise)
            return z, product(self._a, z, rho, n)
        refuse_other_shapes(noise)
        z, out = np.empty(noise[0].shape, _HALF), np.empty((2, n), _HALF)
        loops.open_products(*noise, self._a, n, rho, z, out)
        return z, out

    def share_direction(
        self, z: Words, projections: Exchanged, rho: Words, terms: Words, lift: int
    ) -> Words:
        """Shares of Gz − Σ_l (a_l·z − h_l)·g_l, (dim,).

        ``terms`` are the dealer's of that sum, of which as many count as there are projections;
        they come without their low ``lift`` bits.
        """
        own, other, mask = projections
        refuse_other_shapes(projections)
        refuse_unless_long(terms, own.shape[1], z.shape[1])
        loops = self._loops()
        if loops is None:
            tau = reopen_side(*projections, self._minus_h)
            return self.direction(z, tau, add(rho, first_rows(terms, tau.shape[1], lift)))
        out, state = np.empty(z.shape, _HALF), (self._minus_h, self._g)
        loops.mixed(self._rows, z, own, other, mask, *state, rho, terms, lift, out)
        return out

    def share_direction_without_noise(self, n: int, rho: Words, terms: Words, lift: int) -> Words:
        """Shares of Σ_l h_l·g_l over the first n rows, (dim,)."""
        return self.direction(None, self._minus_h[:, :n], add(rho, first_rows(terms, n, lift)))

    def scores(self, direction: Exchanged, inputs: Inputs, rho: Words, more: Words) -> Words:
        """Shares of the scores x·(theta + direction) of the arms under ρ + more, (n_arms,)."""
        contexts, masks = inputs
        n_arms = contexts.shape[1]
        refuse_other_shapes(direction)
        refuse_unless_long(masks, n_arms, self._rows.shape[2])
        refuse_unless_long(rho[:, :, None], n_arms, 1)
        loops = self._loops()
        if loops is None:
            w = reopen_side(*direction, self._theta)
            share = self._products(side(contexts, masks[:, :n_arms]), w, rho)
            return add(share, more[:, :n_arms])
        out = np.empty((2, n_arms), _HALF)
        loops.sampled_scores(*direction, self._theta, contexts, masks, rho, more, out)
        return out

    def sample(
        self,
        sheet: Sheet,
        z: Words,
        projections: Words,
        theirs: tuple[Words, Words],
        inputs: Inputs,
    ) -> tuple[Words, Words]:
        """B's shares of the direction and of the scores, from A's of projections and direction."""
        their_projections, their_direction = theirs
        loops = self._loops()
        if loops is None:
            mask, rho, blinds, direction_mask, *words = map(sheet.take, _SAMPLE)
            exchanged = (projections, their_projections, mask)
            own = self.share_direction(z, exchanged, rho, blinds, 0)
            opened = (own, their_direction, direction_mask)
            return own, self.scores(opened, inputs, *words)
        contexts, masks = inputs
        own, scores = np.empty(z.shape, _HALF), np.empty((2, contexts.shape[1]), _HALF)
        halves, starts = sheet.take_together(_SAMPLE)
        loops.sample(
            halves,
            starts,
            self._rows,
            self._theta,
            self._g,
            self._minus_h,
            z,
            projections,
            their_projections,
            their_direction,
            contexts,
            masks,
            own,
            scores,
        )
        return own, scores

    # Steps of a reward.

    def mask_context(self, sheet: Sheet, context: Words, theirs: Words, n: int) -> Masked:
        """B's share of x, and shares of u_l = g_l·x, (n,)."""
        return _mask_and_open(sheet, _CONTEXT, context, theirs, self._g, n)

    def open_and_whiten(
        self, sheet: Sheet, context: Exchanged, theirs: Words, mask: Words, n: int
    ) -> Whitened:
        """A's shares of u_l = g_l·x, from B's of them, and of f = G'x − Σ_l u_l·a_l."""
        loops = self._loops()
        if loops is None:
            x = open_side(*context)
            overlaps = product(self._g, x, sheet.take(_OVERLAPS[0]), n)
            u = reopen_side(overlaps, theirs, mask, self.nothing)
            return Whitened(x, overlaps, u, self.whitened(x, u, sheet.take(_OVERLAPS[1])))
        own, other, own_mask = context
        x, whitened = np.empty(own.shape, _HALF), np.empty(own.shape, _HALF)
        overlaps, u = np.empty((2, n), _HALF), np.empty((2, n), _HALF)
        refuse_other_shapes(context, (overlaps, theirs, mask))
        halves, starts = sheet.take_together(_OVERLAPS)
        loops.open_and_whiten(
            halves,
            starts,
            self._rows,
            self._a,
            self._g,
            own,
            other,
            own_mask,
            theirs,
            mask,
            n,
            x,
            overlaps,
            u,
            whitened,
        )
        return Whitened(x, overlaps, u, whitened)

    def whiten_and_open(
        self, sheet: Sheet, x: Words, overlaps: Words, theirs: tuple[Words, Words]
    ) -> tuple[Words, OpenedRow]:
        """B's shares of f, and what ``OpenedRow`` has, from A's of g_l·x and of f."""
        loops = self._loops()
        if loops is None:
            mask, rho, f_mask, *words = map(sheet.take, _WHITEN)
            u = reopen_side(overlaps, theirs[0], mask, self.nothing)
            whitened = self.whitened(x, u, rho)
            exchanged = (whitened, theirs[1], f_mask)
            return whitened, self._open_row(exchanged, x, u, OpenedRow(x, *words))
        whitened, f = np.empty(x.shape, _HALF), np.empty(x.shape, _HALF)
        projections = np.empty(overlaps.shape, _HALF)
        square, difference = np.empty((2, 1), _HALF), np.empty((2, 1), _HALF)
        their_overlaps, their_whitened = theirs
        halves, starts = sheet.take_together(_WHITEN)
        loops.whiten_and_open(
            halves,
            starts,
            self._rows,
            self._theta,
            self._a,
            self._h,
            x,
            overlaps,
            their_overlaps,
            their_whitened,
            whitened,
            f,
            projections,
            square,
            difference,
        )
        return whitened, OpenedRow(f, projections, square, difference)

    def open_and_gain(
        self,
        sheet: Sheet,
        came: Whitened,
        f: Exchanged,
        theirs: Words,
        square: Numbers,
        dealt: RewardDeal,
        reward: int,
    ) -> tuple[OpenedRow, Words, Words]:
        """A's ``OpenedRow``, and its shares of c and 1/(1 + q) and of g = Gf − Σ_l (a_l·f)·g_l.

        ``theirs`` and ``square`` are B's shares of a_l·f and of q, and ``reward`` is r in units of
        2^-44.
        """
        x, _, u, _ = came
        loops = self._loops()
        if loops is None:
            rho_v, rho_q, rho_d, rho_s, rho_g = map(sheet.take, _GAIN)
            more = from_integers([reward << (PRODUCT_BITS - FRACTION)])
            row = self._open_row(f, x, u, OpenedRow(x, rho_v, rho_q, add(rho_d, more)))
            scalars = self._table.cut_share(
                row.square[0], square, dealt.coefficients, rho_s, bits=PRODUCT_BITS
            )
            v = reopen_side(row.projections, theirs, dealt.projections, self.nothing)
            return row, scalars, self.gain(row.f, v, rho_g)
        own, other, mask = f
        refuse_other_shapes(f, (u, theirs, dealt.projections))
        if square.shape != (1,) or dealt.coefficients.shape[1:] != self._table.shape:
            raise SharesError(
                f"wanted one short share of q and coefficients of shape {self._table.shape}, got "
                f"{square.size} and {dealt.coefficients.shape[1:]}"
            )
        opened, gain = np.empty(x.shape, _HALF), np.empty(x.shape, _HALF)
        projections, scalars = np.empty(u.shape, _HALF), np.empty((2, 2), _HALF)
        own_square, difference = np.empty((2, 1), _HALF), np.empty((2, 1), _HALF)
        halves, starts = sheet.take_together(_GAIN)
        loops.open_and_gain(
            halves,
            starts,
            self._rows,
            self._theta,
            self._a,
            self._g,
            self._h,
            x,
            u,
            reward,
            own,
            other,
            mask,
            theirs,
            dealt.projections,
            square,
            dealt.coefficients,
            self._numbers,
            self.nothing,
            opened,
            projections,
            own_square,
            difference,
            scalars,
            gain,
        )
        return OpenedRow(opened, projections, own_square, difference), scalars, gain

    def gain_and_scale(self, sheet: Sheet, row: OpenedRow, theirs: Learn) -> Scaled:
        """B's shares of c and 1/(1 + q), of g, of cf and of h, from A's of what they come from."""
        f = row.f
        loops = self._loops()
        if loops is None:
            mask, rho_g, coefficients, rho_s, *words = map(sheet.take, _SCALE)
            v = reopen_side(row.projections, theirs.projections, mask, self.nothing)
            gain = self.gain(f, v, rho_g)
            scalars = self._table.cut_share(
                row.square[0], theirs.square, coefficients, rho_s, bits=PRODUCT_BITS
            )
            opened = (scalars, theirs.scalars, words[0])
            difference = (row.difference, theirs.difference, words[1])
            return Scaled(scalars, gain, *self.scale_row(opened, difference, f, words[2], words[3]))
        gain, cf = np.empty(f.shape, _HALF), np.empty(f.shape, _HALF)
        scalars, h = np.empty((2, 2), _HALF), np.empty((2, 1), _HALF)
        halves, starts = sheet.take_together(_SCALE)
        loops.gain_and_scale(
            halves,
            starts,
            self._table.shape,
            self._numbers,
            self._rows,
            self._g,
            f,
            row.projections,
            theirs.projections,
            row.square,
            theirs.square,
            row.difference,
            theirs.difference,
            theirs.scalars,
            self.nothing,
            scalars,
            gain,
            cf,
            h,
        )
        return Scaled(scalars, gain, cf, h)

    def scale_row(
        self,
        scalars: Exchanged,
        difference: Exchanged,
        f: Words,
        rho_row: Words,
        rho_residual: Words,
    ) -> tuple[Words, Words]:
        """Shares of cf, and of h as (r − x·theta)/(1 + q), from c and 1/(1 + q)."""
        loops, none = self._loops(), self.nothing
        if loops is None:
            s, d = reopen_side(*scalars, none), reopen_side(*difference, none)
            return scaled(s[:, :1], f, rho_row), scaled(s[:, 1:], d, rho_residual)
        refuse_other_shapes(scalars, difference)
        row, residual = np.empty(f.shape, _HALF), np.empty((2, 1), _HALF)
        loops.scale_row(*scalars, *difference, f, rho_row, rho_residual, row, residual)
        return row, residual

    def append(self, n: int, row: Exchanged, gain: Exchanged, residual: Exchanged) -> None:
        """Put in row n of the window."""
        loops, none = self._loops(), self.nothing
        if loops is None:
            self._a[:, n], self._g[:, n] = reopen_side(*row, none), reopen_side(*gain, none)
            h = reopen_side(*residual, none)
            self._h[:, n : n + 1], self._minus_h[:, n : n + 1] = h, negative(h)
            return
        refuse_other_shapes(row, gain, residual)
        window = (self._a, self._g, self._h, self._minus_h)
        loops.append_row(*row, *gain, *residual, n, *window)

    def settle(
        self, n: int, sheet: Sheet, own: Scaled, gain: Words, theirs: tuple[Words, Words]
    ) -> None:
        """``append`` for B, which has A's shares of g, and of cf and h, and masks in its sheet."""
        row, residual = theirs
        loops = self._loops()
        if loops is None:
            row_mask, gain_mask, residual_mask = map(sheet.take, _SETTLE)
            self.append(
                n,
                (own.row, row, row_mask),
                (own.gain, gain, gain_mask),
                (own.residual, residual, residual_mask),
            )
            return
        halves, starts = sheet.take_together(_SETTLE)
        shares = (own.row, row, own.gain, gain, own.residual, residual)
        window = (self._a, self._g, self._h, self._minus_h)
        loops.settle(halves, starts, *shares, n, *window)

    # Products of the state, without compiled steps.

    def direction(self, z: Words | None, tau: Words, rho: Words) -> Words:
        """Shares of Gz − Σ_l tau_l·g_l, (dim,)."""
        if z is None:
            return combined(self._no_columns, zeros(0), self._g, tau, rho)
        return combined(self._rows, z, self._g, tau, rho)

    def whitened(self, x: Words, u: Words, rho: Words) -> Words:
        """Shares of f = G'x − Σ_l u_l·a_l, (dim,)."""
        columns = np.ascontiguousarray(self._rows.swapaxes(1, 2))
        return combined(columns, x, self._a, u, rho)

    def gain(self, f: Words, v: Words, rho: Words) -> Words:
        """Shares of g = Gf − Σ_l v_l·g_l, (dim,)."""
        return combined(self._rows, f, self._g, v, rho)

    def _products(self, X: Words, w: Words, rho: Words) -> Words:
        """Shares of x·w for each row of X, under ρ."""
        return whole_product(X, w, rho)

    def _open_row(self, f: Exchanged, x: Words, u: Words, rho: OpenedRow) -> OpenedRow:
        opened = reopen_side(*f, self.nothing)
        return OpenedRow(
            opened,
            product(self._a, opened, rho.projections, u.shape[1]),
            product(opened[:, None], opened, rho.square, 1),
            combined(negative(self._theta)[:, None], x, self._h[:, :, None], u, rho.difference),
        )

    # Folds.

    def changes(self, rho_root: Words, rho_theta: Words) -> tuple[Words, Words]:
        """Narrow shares of −Σ g_l a_l', and shares of Σ h_l g_l, for a full window."""
        theta = combined(self._no_columns, zeros(0), self._g, self._minus_h, rho_theta)
        return self._change_of_root(rho_root), theta

    def _change_of_root(self, rho: Words) -> Words:
        return minus_narrow_outer(self._g, self._a, rho)

    def fold(self, one: Words, other: Words, mask: Words) -> None:
        """Take the change of G into the state, from both servers' narrow shares of it."""
        self._rows = reopen_narrow_side(one, other, mask, self._rows)

    def shift(self, theta: Words) -> None:
        """Set theta, (dim,)."""
        self._theta = theta


def _mask_and_open(
    sheet: Sheet, parts: tuple[str, str], value: Words, theirs: Words, rows: Words, n: int
) -> Masked:
    """Mask a share of a vector, and open it with A's share, for products with the first n rows."""
    loops = kernels.load_root()
    if loops is None:
        mask, rho = map(sheet.take, parts)
        own = add(value, mask)
        opened = open_side(own, theirs, mask)
        return Masked(own, opened, product(rows, opened, rho, n))
    own, opened = np.empty(value.shape, _HALF), np.empty(value.shape, _HALF)
    products = np.empty((2, n), _HALF)
    halves, starts = sheet.take_together(parts)
    loops.mask_and_open(halves, starts, value, theirs, rows, n, own, opened, products)
    return Masked(own, opened, products)


def scaled(scalar: Words, row: Words, rho: Words) -> Words:
    """Shares of a row times a number, (1,)."""
    return product(row[:, :, None], scalar, rho, row.shape[1])
