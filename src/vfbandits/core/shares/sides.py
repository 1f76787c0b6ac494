"""A server's side of a masked number, and products of sides.

A number v is masked: m = v + λ_A + λ_B is known to both servers, λ_A to A and λ_B to B.  Server S
keeps its *side* P_S = m − 2λ_S, so that v = (P_A + P_B)/2.  A sum of numbers has the sum of their
sides.  For a product

    2vw  =  P_vA·P_wA  +  P_vB·P_wB  −  2(λ_vA − λ_vB)(λ_wA − λ_wB)
            server A      server B      dealer, ahead of time

so that each server multiplies once, and by the same code.  The dealer needs the *gaps* λ_A − λ_B
only.  Twice the product of two numbers with 44 bits after the point is a number with 89.
"""

import numpy as np

from vfbandits.core import kernels
from vfbandits.core.ring import (
    CUT,
    FRACTION,
    REACH,
    Words,
    add,
    negative,
    opened_within,
    rows_times,
    shifted_down,
    shifted_up,
    subtract,
    times,
    total,
    zeros,
)
from vfbandits.errors import SharesError

PRODUCT_BITS = 2 * FRACTION + 1
"""Bits after the point of a share of a product."""
FINE_BITS = PRODUCT_BITS - CUT
"""Bits after the point of a product that goes into a number which is opened to A.

A knows most of the bits that its masked product loses, and so of the error that they make.  A
number that shows this error tells the factor with which it was multiplied, that is a feature of a
context, to an A that asks for the context again and again.  So products for it keep all bits that
are sent: the error is 2^-13 of a unit of what is opened.
"""
NARROW_BITS = 80
"""Bits of a narrow share, which has 44 of them after the point; for numbers below 2 in size."""

WRAP_BITS = 128 - (PRODUCT_BITS + REACH + 1)
"""The dealer refuses one mask of a product in 2^WRAP_BITS, under which a number could wrap.

So a masked number of size v lies with a chance of v in 2^(WRAP_BITS + REACH) where no masked 0
could lie.
"""
CLIP = CUT + 8
"""Low bits of the dealer's terms of a sum that A is not dealt."""

_DROP = PRODUCT_BITS - FRACTION
_OFFSET = 1 << (PRODUCT_BITS + REACH - CUT)
_NARROW_OFFSET = 1 << (FRACTION + 2)
_WRAPS_FROM = 2**64 - 2 ** (PRODUCT_BITS + REACH + 1 - 64)
_NARROW_WRAPS_FROM = 2**64 - 2 ** (FRACTION + 3)
_NARROW_TOP = 2 ** (NARROW_BITS - 64) - 1
_QUARTER = 1 << (_DROP - 2)
CUTS = (_DROP - CUT, 2 ** (64 - CUT) - 1, np.uint64(_OFFSET))
"""How cut shares are opened: bits to drop, bits of the high half to keep, and an offset."""
_WORD_HALF = np.dtype(np.uint64)


def _refuse_unless(fits: bool, *arrays: Words) -> None:  # noqa: FBT001
    """Compiled loops do not check bounds: with a short array they would read another's memory."""
    if not fits:
        shapes = ", ".join(str(array.shape[1:]) for array in arrays)
        raise SharesError(f"wanted words that fit together, got shapes {shapes}")


def refuse_other_shapes(*exchanged: tuple[Words, Words, Words]) -> None:
    """A server's own words and the other's have one shape, and a mask is as long or longer."""
    for own, other, mask in exchanged:
        if own.shape != other.shape or mask.shape[1] < own.shape[1]:
            _refuse_unless(False, own, other, mask)  # noqa: FBT003


def refuse_unless_long(terms: Words, n: int, width: int) -> None:
    """At least n rows of the dealer's terms, each as wide as that."""
    if terms.shape[1] < n or terms.shape[2] != width:
        _refuse_unless(False, terms)  # noqa: FBT003


def side(m: Words, mask: Words) -> Words:
    """P of a value of which m is known."""
    return subtract(subtract(m, mask), mask)


def open_side(one: Words, other: Words, mask: Words) -> Words:
    """P of a value of which each server sent one of the addends of m."""
    _refuse_unless(one.shape == other.shape == mask.shape, one, other, mask)
    loops = kernels.load_ring()
    if loops is None:
        return side(add(one, other), mask)
    out = np.empty(one.shape, _WORD_HALF)
    loops.open_side(one, other, mask, out)
    return out


def reopen_side(
    one: Words, other: Words, mask: Words, base: Words, *, bits: int = FRACTION
) -> Words:
    """P of a product plus ``base``, (n,), from cut shares of it; a longer mask or base is cut.

    It has ``bits`` after the point.  ``reopened_mask`` takes off what ``one`` and ``other`` have
    under them.
    """
    drop = FINE_BITS - bits
    shape = one.shape
    n = shape[1]
    if shape != other.shape or mask.shape[1] < n or base.shape[1] < n:
        _refuse_unless(False, one, other, mask, base)  # noqa: FBT003
    loops = kernels.load_ring()
    if loops is None:
        m = opened_within(one, other, bits=128 - CUT, drop=drop, offset=_OFFSET)
        return add(side(m, mask[:, :n]), base[:, :n])
    out = np.empty(shape, _WORD_HALF)
    loops.reopen_side(one, other, mask, base, drop, *CUTS[1:], out)
    return out


def reopened_mask(mask: Words, *, bits: int = FRACTION) -> Words:
    """What λ becomes in ``reopen_side``; refuses a λ under which a number could wrap.

    The chance is 2^-28 for each number (``WRAP_BITS``); the dealer then deals other words.
    """
    if (mask[1] >= np.uint64(_WRAPS_FROM)).any():
        raise SharesError("a mask is so near to 2^128 that a shared number could wrap")
    return shifted_down(mask, PRODUCT_BITS - bits)


def combined(rows: Words, v: Words, window: Words, weights: Words, rho: Words) -> Words:
    """Cut shares of rows·v − Σ_l weights_l·window_l, under ρ.

    ``rows`` is (n_rows, k), ``v`` (k,), ``weights`` (n,) and ``window`` (at least n, n_rows).
    """
    return _combined(rows, v, window, weights, rho, rows.shape[1], CUT)


def product(rows: Words, v: Words, rho: Words, n: int) -> Words:
    """Cut shares of the products of the first n rows with v, under ρ."""
    return _combined(rows, v, _NO_WINDOW, _NO_WEIGHTS, rho, n, CUT)


def whole_product(rows: Words, v: Words, rho: Words) -> Words:
    """Shares of rows·v under ρ with all their bits."""
    return _combined(rows, v, _NO_WINDOW, _NO_WEIGHTS, rho, rows.shape[1], 0)


_NO_WINDOW = zeros(0, 0)
_NO_WEIGHTS = zeros(0)


def _combined(
    rows: Words, v: Words, window: Words, weights: Words, rho: Words, n_rows: int, drop: int
) -> Words:
    n = weights.shape[1]
    _, height, width = rows.shape
    if (
        width != v.shape[1]
        or n_rows > height
        or n_rows > rho.shape[1]
        or (n and (n > window.shape[1] or n_rows > window.shape[2]))
    ):
        _refuse_unless(False, rows, v, window, weights, rho)  # noqa: FBT003
    loops = kernels.load_ring()
    if loops is None:
        share = add(rows_times(v[:, None], rows[:, :n_rows])[:, 0], rho[:, :n_rows])
        if n:
            share = subtract(share, times(weights[:, None], window[:, :n, :n_rows])[:, 0])
        return shifted_down(share, drop) if drop else share
    out = np.empty((2, n_rows), _WORD_HALF)
    loops.combined(rows, v, window, weights, n, rho, drop, out)
    return out


def picked(choice: Words, masks: Words, blind: Words) -> Words:
    """Blind − Σ_a choice_a·masks_a, (d,), for whole numbers (n,) and rows (n, d)."""
    loops = kernels.load_root()
    if loops is None:
        return subtract(blind, times(choice[:, None], masks)[:, 0])
    _refuse_unless(choice.shape[1] == masks.shape[1], choice, masks)
    out = np.empty(blind.shape, _WORD_HALF)
    loops.picked(choice, masks, blind, out)
    return out


def context_share(contexts: Words, masks: Words, arm: int, term: Words) -> Words:
    """A's share of the context of an arm, (d,), with the dealer's term of B's share."""
    loops = kernels.load_root()
    if loops is None:
        return add(subtract(contexts[:, arm], masks[:, arm]), term)
    _refuse_unless(term.shape[1] == contexts.shape[2] == masks.shape[2], contexts, masks, term)
    out = np.empty(term.shape, _WORD_HALF)
    loops.context_share(contexts, masks, arm, term, out)
    return out


def minus_narrow_outer(g: Words, a: Words, rho: Words) -> Words:
    """Narrow shares of −Σ_l g_l a_l' under ρ, for rows g and a, (n, d).

    Each server adds a quarter of the unit of which it drops a part: together they lose nothing on
    average.
    """
    _refuse_unless(g.shape == a.shape and rho.shape[1:] == (g.shape[2],) * 2, g, a, rho)
    loops = kernels.load_root()
    if loops is not None:
        share = np.empty(rho.shape, _WORD_HALF)
        loops.minus_outer(g, a, rho, _QUARTER, _DROP, _NARROW_TOP, share)
        return share
    quarter = np.zeros(rho.shape, np.uint64)
    quarter[0] = _QUARTER
    share = subtract(add(rho, quarter), times(g.swapaxes(1, 2), a))
    share = shifted_down(share, _DROP)
    share[1] &= np.uint64(_NARROW_TOP)
    return share


def reopen_narrow_side(one: Words, other: Words, mask: Words, base: Words) -> Words:
    """P of products plus ``base``, from narrow shares of them, all of one shape."""
    shapes = {one.shape, other.shape, mask.shape, base.shape}
    _refuse_unless(len(shapes) == 1, one, other, mask, base)
    loops = kernels.load_ring()
    if loops is None:
        m = opened_within(one, other, bits=NARROW_BITS, drop=0, offset=_NARROW_OFFSET)
        return add(side(m, mask), base)
    out = np.empty(one.shape, _WORD_HALF)
    flat = [words.reshape(2, -1) for words in (one, other, mask, base)]
    loops.reopen_side(*flat, 0, _NARROW_TOP, np.uint64(_NARROW_OFFSET), out.reshape(2, -1))
    return out


def narrow_mask(mask: Words) -> Words:
    """What λ becomes in ``reopen_narrow_side``; refuses one in 2^33, as ``reopened_mask`` does."""
    lowered = shifted_down(mask, _DROP)
    lowered[1] &= np.uint64(_NARROW_TOP)
    is_top = lowered[1] == np.uint64(_NARROW_TOP)
    if (is_top & (lowered[0] >= np.uint64(_NARROW_WRAPS_FROM))).any():
        raise SharesError("a mask is so near to 2^80 that a shared number could wrap")
    return lowered


def gap_term(v: Words, w: Words) -> Words:
    """The dealer's term of twice the products of rows v and w, from their gaps: −2·v·w'."""
    return _minus_twice(rows_times(v, w))


def scaled_gap_term(scalars: Words, rows: Words) -> Words:
    """The dealer's term of twice each row times its scalar: scalars (n,), rows (n, d)."""
    loops = kernels.load_ring()
    if loops is not None:
        out = np.empty(rows.shape, _WORD_HALF)
        loops.scaled_rows(scalars, rows, out)
        return _minus_twice(out)
    each = [times(scalars[:, k : k + 1, None], rows[:, k : k + 1]) for k in range(rows.shape[1])]
    return _minus_twice(np.concatenate(each, axis=1))


def _minus_twice(words: Words) -> Words:
    return negative(add(words, words))


def clipped(terms: Words) -> Words:
    """The dealer's terms as A is dealt them, without their low 44 bits: 84 bits a number."""
    return shifted_down(terms, CLIP)


def first_rows(terms: Words, n: int, lift: int) -> Words:
    """The sum of the first n of the dealer's terms, (at least n, d), times 2^lift: (d,)."""
    _refuse_unless(n <= terms.shape[1], terms)
    summed = total(terms[:, :n])
    return shifted_up(summed, lift) if lift else summed
