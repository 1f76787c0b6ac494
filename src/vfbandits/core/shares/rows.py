"""From rows that participants share to rows that are scored, and to the context that is learnt.

A masked number is m = v + λ_A + λ_B, and what follows uses m and each server's λ alike.  So a
linear map that everybody knows is applied to m by both servers, to its λ by each of them, and to
all masks by the dealer; a constant has λ = 0.  No message is needed for it.

u ⊗ w with arm features w of A's is a product of masked numbers, of which B drops the low bits:
A never sees them, and so does not know the error that they make (``sides.FINE_BITS``).
"""

import numpy as np

from vfbandits.core.ring import (
    Words,
    add,
    cut,
    encode,
    shifted_down,
    subtract,
    times,
    zeros,
)
from vfbandits.core.shares.sides import CUTS, reopened_mask, whole_product
from vfbandits.core.shares.terms import ShareTerms

_DROP, _HIGH, _OFFSET = (int(part) for part in CUTS)


def with_constant(terms: ShareTerms, contexts: Words) -> Words:
    """Masked rows of all participants, (n, sum of widths), with the constant of an intercept."""
    if not terms.intercept:
        return contexts
    one = encode(1.0 / terms.unit, bound=terms.max_length, what="an intercept")
    column = np.broadcast_to(one[:, None, None], (2, contexts.shape[1], 1))
    return np.concatenate((column, contexts), axis=2)


def scored_rows(terms: ShareTerms, rows: Words, n: int) -> Words:
    """Of masked rows (n_rows, user_dim), or of masks of them, those of the first n scored rows.

    In "disjoint" that is u for each block.  Where unit vectors are scored, it is u ⊗ e_k.
    """
    if terms.layout == "per_arm":
        return rows[:, :n]
    if not terms.has_units:
        return np.ascontiguousarray(np.broadcast_to(rows[:, :1], (2, n, rows.shape[2])))
    d, p = terms.user_dim, terms.arm_width
    out = zeros(n, d, p)
    for k in range(n):
        out[:, k, :, k] = rows[:, 0]
    return out.reshape(2, n, d * p)


def in_block(terms: ShareTerms, row: Words, number: int) -> Words:
    """The context e_b ⊗ row, (dim,)."""
    if terms.n_blocks == 1:
        return row
    out = zeros(terms.n_blocks, terms.row_dim)
    out[:, number] = row
    return out.reshape(2, terms.dim)


def chosen(terms: ShareTerms, choice: Words, rows: Words) -> Words:
    """Σ_a choice_a·(context of row a), (dim,), for rows (max_rows, row_dim)."""
    if terms.n_blocks == 1:
        return times(choice[:, None], rows)[:, 0]
    return times(choice[:, :, None], rows[:, :1]).reshape(2, terms.dim)


def row_scores(terms: ShareTerms, P_X: Words, w: Words, rho: Words) -> Words:
    """Shares of x_a·w under ρ, for sides of rows (n, row_dim) and of w (dim,)."""
    if terms.n_blocks == 1:
        return whole_product(P_X, w, rho)
    n, d = P_X.shape[1:]
    blocks = np.ascontiguousarray(w[:, : n * d]).reshape(2, n, d)
    return whole_product(blocks, np.ascontiguousarray(P_X[:, 0]), rho)


def outer_rows(u: Words, W: Words) -> Words:
    """U ⊗ w for each row w of W (n, p) and one u (d,): (n, d·p)."""
    (_, n, p), d = W.shape, u.shape[1]
    products = times(u[:, :, None], np.ascontiguousarray(W).reshape(2, 1, n * p))
    return np.ascontiguousarray(products.reshape(2, d, n, p).swapaxes(1, 2)).reshape(2, n, d * p)


def lift_share(u: Words, W: Words, rho: Words) -> Words:
    """A server's cut shares of u ⊗ w under ρ, from its sides of u and of W."""
    return cut(add(outer_rows(u, W), rho[:, : W.shape[1]]))


def lifted(one: Words, other: Words) -> Words:
    """What B sends of u ⊗ w from both servers' shares: 83 bits, of which 44 are after the point."""
    opened = add(add(one, other), _like(one, _OFFSET))
    opened[1] &= np.uint64(_HIGH)
    return shifted_down(opened, _DROP)


def lifted_rows(sent: Words) -> Words:
    """The masked rows u ⊗ w, from what B sends."""
    return subtract(sent, _like(sent, _OFFSET >> _DROP))


def lift_mask(u: Words, W: Words, rho: Words) -> Words:
    """The mask of u ⊗ w, from the dealer's gaps of u and W and the sum of both servers' ρ."""
    term = outer_rows(u, W)
    return reopened_mask(add(rho, add(term, term)))


def _like(words: Words, value: int) -> Words:
    """A number below 2^64 in each place of ``words``."""
    out = np.zeros(words.shape, np.uint64)
    out[0] = value
    return out
