"""Steps of the root form on secret shares, compiled by numba (extra ``fast``).

``shares.root`` and ``shares.comparison`` describe them.  A step is one call or two, since calls
take longer than most products.  Where a step needs many words of a sheet it is given the whole
stream, and where each part begins.  Import this module through ``kernels``, which knows whether
numba is there.
"""

import numpy as np
from numba import njit

from vfbandits.core.kernels.covariance import (
    _dot,
    _down,
    _minus,
    _part,
    _plus,
    _side,
    chebyshev_cut,
)
from vfbandits.core.kernels.ring import _add_product, add, open_side
from vfbandits.core.ring import Words

# As in ``covariance``, and for its reason.
FRACTION = 44
CUT = 36


@njit(cache=True)
def _weighted(weights, rows, n, low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Σ_l weights_l·rows_l over the first n rows, in vector registers as ``_dot`` is."""
    half, keep = np.uint64(32), np.uint64(0xFFFFFFFF)
    d = rows.shape[2]
    lowest, lower = np.zeros(d, np.uint64), np.zeros(d, np.uint64)
    upper = np.zeros(d, np.uint64)
    for k in range(n):
        x, z = weights[0, k], weights[1, k]
        x0, x1 = x & keep, x >> half
        r0, r1 = rows[0, k], rows[1, k]
        for j in range(d):
            y = r0[j]
            y0, y1 = y & keep, y >> half
            product, one, other = x0 * y0, x0 * y1, x1 * y0
            lowest[j] += product & keep
            lower[j] += (product >> half) + (one & keep) + (other & keep)
            upper[j] += (one >> half) + (other >> half) + x1 * y1 + x * r1[j] + z * y
    for j in range(d):
        middle = lower[j] + (lowest[j] >> half)
        low[j] = (middle << half) | (lowest[j] & keep)
        high[j] = upper[j] + (middle >> half)


@njit(cache=True)
def _sides(own, theirs, mask, out):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """P of products (2, n) from cut shares of them."""
    for i in range(own.shape[1]):
        out[0, i], out[1, i] = _side(
            own[0, i], own[1, i], theirs[0, i], theirs[1, i], mask[0, i], mask[1, i]
        )


@njit(cache=True)
def _cut_product(rows, k, v, rho, out, i):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """A cut share of row k times v, under word i of ρ, into place i."""
    low, high = _dot(rows[0, k], rows[1, k], v[0], v[1])
    low, high = _plus(low, high, rho[0, i], rho[1, i])
    out[0, i], out[1, i] = _down(low, high, CUT)


@njit(cache=True)
def open_products(  # noqa: PLR0913, PLR0917
    own: Words,
    theirs: Words,
    mask: Words,
    rows: Words,
    n: int,
    rho: Words,
    side: Words,
    out: Words,
) -> None:
    """P of a vector, (2, d), and cut shares of its products with the first n rows, (2, n)."""
    open_side(own, theirs, mask, side)
    for k in range(n):
        _cut_product(rows, k, side, rho, out, k)


@njit(cache=True)
def mixed(  # noqa: PLR0913, PLR0917
    rows: Words,
    v: Words,
    own: Words,
    theirs: Words,
    mask: Words,
    base: Words,
    window: Words,
    rho: Words,
    terms: Words,
    lift: int,
    out: Words,
) -> None:
    """Cut shares of rows·v − Σ_l w_l·window_l, (2, d), with w = base and products that are opened.

    The first rows of ``terms``, one for each weight, are added, shifted up by ``lift``.
    """
    n, d = own.shape[1], out.shape[1]
    weights = np.empty((2, n), np.uint64)
    _sides(own, theirs, mask, weights)
    for k in range(n):
        weights[0, k], weights[1, k] = _plus(weights[0, k], weights[1, k], base[0, k], base[1, k])
    less, much = np.empty(d, np.uint64), np.empty(d, np.uint64)
    _weighted(weights, window, n, less, much)
    if terms.shape[1]:
        more = np.zeros((2, d), np.uint64)
        for k in range(n):
            for j in range(d):
                low = more[0, j] + terms[0, k, j]
                more[1, j] += terms[1, k, j] + np.uint64(low < terms[0, k, j])
                more[0, j] = low
        up = np.uint64(lift)
        for j in range(d):
            low, high = more[0, j], more[1, j]
            if lift:
                low, high = low << up, (high << up) | (low >> (np.uint64(64) - up))
            less[j], much[j] = _minus(less[j], much[j], low, high)
    for i in range(d):
        low, high = _dot(rows[0, i], rows[1, i], v[0], v[1])
        low, high = _plus(low, high, rho[0, i], rho[1, i])
        low, high = _minus(low, high, less[i], much[i])
        out[0, i], out[1, i] = _down(low, high, CUT)


@njit(cache=True)
def sampled_scores(  # noqa: PLR0913, PLR0917
    own: Words,
    theirs: Words,
    mask: Words,
    theta: Words,
    contexts: Words,
    masks: Words,
    rho: Words,
    more: Words,
    out: Words,
) -> None:
    """Shares of the scores of the arms, (2, n_arms), under ρ + more, once w is opened."""
    d = own.shape[1]
    w = np.empty((2, d), np.uint64)
    _sides(own, theirs, mask, w)
    for j in range(d):
        w[0, j], w[1, j] = _plus(w[0, j], w[1, j], theta[0, j], theta[1, j])
    x = np.empty((2, d), np.uint64)
    for i in range(contexts.shape[1]):
        for j in range(d):
            p0, p1 = masks[0, i, j], masks[1, i, j]
            low, high = _minus(contexts[0, i, j], contexts[1, i, j], p0, p1)
            x[0, j], x[1, j] = _minus(low, high, p0, p1)
        low, high = _dot(x[0], x[1], w[0], w[1])
        low, high = _plus(low, high, rho[0, i], rho[1, i])
        out[0, i], out[1, i] = _plus(low, high, more[0, i], more[1, i])


@njit(cache=True)
def picked(choice: Words, masks: Words, blind: Words, out: Words) -> None:
    """Blind − Σ_a choice_a·masks_a, (2, d)."""
    low, high = np.empty(out.shape[1], np.uint64), np.empty(out.shape[1], np.uint64)
    _weighted(choice, masks, masks.shape[1], low, high)
    for j in range(out.shape[1]):
        out[0, j], out[1, j] = _minus(blind[0, j], blind[1, j], low[j], high[j])


@njit(cache=True)
def whiten(  # noqa: PLR0913, PLR0917
    rows: Words,
    x: Words,
    own: Words,
    theirs: Words,
    mask: Words,
    window: Words,
    rho: Words,
    u: Words,
    out: Words,
) -> None:
    """P of the overlaps u, and cut shares of rows'x − Σ_l u_l·window_l, (2, d)."""
    n, d = own.shape[1], x.shape[1]
    _sides(own, theirs, mask, u)
    less, much = np.empty(d, np.uint64), np.empty(d, np.uint64)
    _weighted(u, window, n, less, much)
    lows, highs = np.empty(d, np.uint64), np.empty(d, np.uint64)
    _weighted(x, rows, d, lows, highs)
    for j in range(d):
        low, high = _plus(lows[j], highs[j], rho[0, j], rho[1, j])
        low, high = _minus(low, high, less[j], much[j])
        out[0, j], out[1, j] = _down(low, high, CUT)


@njit(cache=True)
def open_row(  # noqa: PLR0913, PLR0917
    own: Words,
    theirs: Words,
    mask: Words,
    a: Words,
    n: int,
    rho_v: Words,
    rho_q: Words,
    theta: Words,
    x: Words,
    h: Words,
    u: Words,
    rho_d: Words,
    f: Words,
    v: Words,
    q: Words,
    d: Words,
) -> None:
    """As ``RootSide.open_row``."""
    _sides(own, theirs, mask, f)
    for k in range(n):
        _cut_product(a, k, f, rho_v, v, k)
    low, high = _plus(rho_q[0, 0], rho_q[1, 0], *_dot(f[0], f[1], f[0], f[1]))
    q[0, 0], q[1, 0] = _down(low, high, CUT)
    low, high = _minus(rho_d[0, 0], rho_d[1, 0], *_dot(x[0], x[1], theta[0], theta[1]))
    low, high = _minus(low, high, *_dot(u[0], u[1], h[0, :n], h[1, :n]))
    d[0, 0], d[1, 0] = _down(low, high, CUT)


@njit(cache=True)
def scale_row(  # noqa: PLR0913, PLR0917
    scalars: Words,
    their_scalars: Words,
    scalars_mask: Words,
    difference: Words,
    their_difference: Words,
    difference_mask: Words,
    f: Words,
    rho_row: Words,
    rho_residual: Words,
    row: Words,
    residual: Words,
) -> None:
    """As ``RootSide.scale_row``."""
    s, d = np.empty((2, 2), np.uint64), np.empty((2, 1), np.uint64)
    _sides(scalars, their_scalars, scalars_mask, s)
    _sides(difference, their_difference, difference_mask, d)
    c0, c1 = s[0, 0], s[1, 0]
    for j in range(f.shape[1]):
        low, high = rho_row[0, j], rho_row[1, j]
        low, high = _add_product(low, high, c0, f[0, j])  # type: ignore[call-arg]
        high += c0 * f[1, j] + c1 * f[0, j]
        row[0, j], row[1, j] = _down(low, high, CUT)
    c0, c1 = s[0, 1], s[1, 1]
    low, high = rho_residual[0, 0], rho_residual[1, 0]
    low, high = _add_product(low, high, c0, d[0, 0])  # type: ignore[call-arg]
    high += c0 * d[1, 0] + c1 * d[0, 0]
    residual[0, 0], residual[1, 0] = _down(low, high, CUT)


@njit(cache=True)
def append_row(  # noqa: PLR0913, PLR0917
    row: Words,
    their_row: Words,
    row_mask: Words,
    gain: Words,
    their_gain: Words,
    gain_mask: Words,
    residual: Words,
    their_residual: Words,
    residual_mask: Words,
    n: int,
    a: Words,
    g: Words,
    h: Words,
    minus_h: Words,
) -> None:
    """As ``RootSide.append``."""
    for j in range(a.shape[2]):
        a[0, n, j], a[1, n, j] = _side(
            row[0, j], row[1, j], their_row[0, j], their_row[1, j], row_mask[0, j], row_mask[1, j]
        )
        g[0, n, j], g[1, n, j] = _side(
            gain[0, j],
            gain[1, j],
            their_gain[0, j],
            their_gain[1, j],
            gain_mask[0, j],
            gain_mask[1, j],
        )
    one = np.empty((2, 1), np.uint64)
    _sides(residual, their_residual, residual_mask, one)
    h[0, n], h[1, n] = one[0, 0], one[1, 0]
    minus_h[0, n], minus_h[1, n] = _minus(np.uint64(0), np.uint64(0), one[0, 0], one[1, 0])


@njit(cache=True)
def mask_and_open(  # noqa: PLR0913, PLR0917
    halves: Words,
    starts: Words,
    value: Words,
    theirs: Words,
    rows: Words,
    n: int,
    own: Words,
    side: Words,
    out: Words,
) -> None:
    """As ``RootSide.mask_and_open``."""
    mask = _part(halves, starts[0], value.shape[1])
    add(value, mask, own)
    rho = _part(halves, starts[1], rows.shape[1])
    open_products(own, theirs, mask, rows, n, rho, side, out)


@njit(cache=True)
def sample(  # noqa: PLR0913, PLR0917
    halves: Words,
    starts: Words,
    rows: Words,
    theta: Words,
    g: Words,
    minus_h: Words,
    z: Words,
    projections: Words,
    their_projections: Words,
    their_direction: Words,
    contexts: Words,
    masks: Words,
    direction: Words,
    scores: Words,
) -> None:
    """As ``RootSide.sample``."""
    window, d, max_arms = g.shape[1], g.shape[2], masks.shape[1]
    mask = _part(halves, starts[0], window)
    rho = _part(halves, starts[1], d)
    blinds = _part(halves, starts[2], window * d).reshape(2, window, d)
    weights = (projections, their_projections, mask, minus_h)
    mixed(rows, z, *weights, g, rho, blinds, 0, direction)
    mask = _part(halves, starts[3], d)
    blind, rho = _part(halves, starts[4], max_arms), _part(halves, starts[5], max_arms)
    opened = (direction, their_direction, mask, theta)
    sampled_scores(*opened, contexts, masks, blind, rho, scores)


@njit(cache=True)
def open_and_whiten(  # noqa: PLR0913, PLR0917
    halves: Words,
    starts: Words,
    rows: Words,
    a: Words,
    g: Words,
    own: Words,
    theirs: Words,
    mask: Words,
    their_overlaps: Words,
    overlaps_mask: Words,
    n: int,
    x: Words,
    overlaps: Words,
    u: Words,
    whitened: Words,
) -> None:
    """As ``RootSide.open_and_whiten``."""
    rho = _part(halves, starts[0], g.shape[1])
    open_products(own, theirs, mask, g, n, rho, x, overlaps)
    rho = _part(halves, starts[1], x.shape[1])
    whiten(rows, x, overlaps, their_overlaps, overlaps_mask, a, rho, u, whitened)


@njit(cache=True)
def whiten_and_open(  # noqa: PLR0913, PLR0917
    halves: Words,
    starts: Words,
    rows: Words,
    theta: Words,
    a: Words,
    h: Words,
    x: Words,
    overlaps: Words,
    their_overlaps: Words,
    their_whitened: Words,
    whitened: Words,
    f: Words,
    projections: Words,
    square: Words,
    difference: Words,
) -> None:
    """As ``RootSide.whiten_and_open``."""
    window, d, n = a.shape[1], x.shape[1], overlaps.shape[1]
    u = np.empty((2, n), np.uint64)
    mask, rho = _part(halves, starts[0], window), _part(halves, starts[1], d)
    whiten(rows, x, overlaps, their_overlaps, mask, a, rho, u, whitened)
    mask, rho = _part(halves, starts[2], d), _part(halves, starts[3], window)
    rho_q, rho_d = _part(halves, starts[4], 1), _part(halves, starts[5], 1)
    words = (rho, rho_q, theta, x, h, u, rho_d)
    outs = (f, projections, square, difference)
    open_row(whitened, their_whitened, mask, a, n, *words, *outs)


@njit(cache=True)
def minus_outer(
    g: Words, a: Words, rho: Words, more: int, down: int, keep: int, out: Words
) -> None:
    """As ``sides.minus_narrow_outer``: (rho + more − Σ_l g_l a_l') shifted down."""
    kept, d = np.uint64(keep), a.shape[2]
    less, much = np.empty(d, np.uint64), np.empty(d, np.uint64)
    for i in range(g.shape[2]):
        _weighted(g[:, :, i], a, g.shape[1], less, much)
        for j in range(d):
            low, high = _plus(rho[0, i, j], rho[1, i, j], np.uint64(more), np.uint64(0))
            low, high = _minus(low, high, less[j], much[j])
            low, high = _down(low, high, down)
            out[0, i, j], out[1, i, j] = low, high & kept


@njit(cache=True)
def _look_up(x, tables, pair):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """As ``comparison.look_up`` for one pair, for the sizes that it has."""
    code = np.uint64(0)
    for t in range(13):
        digit = t if t < 7 else t - 6
        word = tables[0, pair, t] if t < 8 else tables[1, pair, t - 8]
        at = (x >> np.uint64(6 * digit)) & np.uint64(63)
        code |= ((word >> at) & np.uint64(1)) << np.uint64(t)
    return code


@njit(cache=True)
def _is_less(opened, tables, pair):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """As ``comparison.is_less`` for one pair, in the lowest bit.

    The formula of ``comparison`` is a table of 200 KB; its entries are faster made than fetched.
    """
    one = np.uint64(1)
    sets, plain, others = one, np.uint64(0), np.uint64(0)
    for i in range(6, -1, -1):
        if i < 6:
            keep = np.uint64(0) - ((opened >> np.uint64(7 + i)) & one)
            sets = (sets & keep) ^ (sets << np.uint64(1 << i))
        plain ^= sets & (np.uint64(0) - ((opened >> np.uint64(i)) & one))
        if i:
            others ^= sets << np.uint64(1 << (i - 1))
    word = (tables[1, pair, 5] & plain) ^ (tables[1, pair, 6] & sets)
    word ^= tables[1, pair, 7] & others
    for shift in (32, 16, 8, 4, 2, 1):
        word ^= word >> np.uint64(shift)
    return word


@njit(cache=True)
def _difference(numbers, i, j, tolerance):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    modulus = (np.uint64(1) << np.uint64(43)) - np.uint64(1)
    return (numbers[i] - numbers[j] + np.uint64(tolerance)) & modulus


@njit(cache=True)
def begin_comparison(  # noqa: PLR0913, PLR0917
    scores: Words,
    others: Words,
    order_words: Words,
    ranks: Words,
    tables: Words,
    down: int,
    tolerance: int,
    order: Words,
    is_live: Words,
    numbers: Words,
    lookups: Words,
    tops: Words,
) -> None:
    """As ``comparison.begin_comparison``; ``numbers`` are those of live positions."""
    max_arms, n = len(order), scores.shape[1]
    modulus = (np.uint64(1) << np.uint64(43)) - np.uint64(1)
    for i in range(max_arms):  # the order that sorts the high halves
        j = i
        while j and order_words[1, order[j - 1]] > order_words[1, i]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = i
    live = np.empty(n, np.int64)
    k = 0
    for i in range(max_arms):
        arm = order[i]
        is_live[i] = arm < n
        if arm >= n:
            continue
        low, high = _plus(scores[0, arm], scores[1, arm], others[0, arm], others[1, arm])
        low, high = _plus(low, high, ranks[0, i], ranks[1, i])
        numbers[k] = _down(low, high, down)[0] & modulus
        live[k] = i
        k += 1
    place = 0
    for k in range(n):
        for m in range(n):
            if k == m:
                continue
            x = _difference(numbers, k, m, tolerance)
            pair = live[k] * (max_arms - 1) + live[m] - (m > k)
            lookups[place] = _look_up(x, tables, pair)
            tops[place] = x >> np.uint64(42)
            place += 1


@njit(cache=True)
def compare(  # noqa: PLR0913, PLR0917
    is_live: Words,
    numbers: Words,
    theirs: Words,
    tables: Words,
    flips: Words,
    tolerance: int,
    lookups: Words,
    less: Words,
) -> None:
    """As ``comparison.compare``."""
    max_arms, n = len(is_live), len(numbers)
    live = np.empty(n, np.int64)
    k = 0
    for i in range(max_arms):
        if is_live[i]:
            live[k] = i
            k += 1
    place = 0
    for k in range(n):
        for m in range(n):
            if k == m:
                continue
            pair = live[k] * (max_arms - 1) + live[m] - (m > k)
            code = _look_up(_difference(numbers, k, m, tolerance), tables, pair)
            lookups[place] = code
            word = _is_less(code ^ np.uint64(theirs[place]), tables, pair)
            less[place] = (word ^ flips[0, pair]) & np.uint64(1)
            place += 1


@njit(cache=True)
def end_comparison(
    is_live: Words,
    own: Words,
    theirs: Words,
    tables: Words,
    flips: Words,
    tops: Words,
    results: Words,
) -> None:
    """As ``comparison.end_comparison``."""
    max_arms = len(is_live)
    place = 0
    for i in range(max_arms):
        for j in range(max_arms):
            if i == j or not is_live[i] or not is_live[j]:
                continue
            pair = i * (max_arms - 1) + j - (j > i)
            word = _is_less(np.uint64(own[place] ^ theirs[place]), tables, pair)
            bits = flips[pair] ^ tops[place]
            results[place] = (word ^ np.uint64(bits) ^ np.uint64(1)) & np.uint64(1)
            place += 1


@njit(cache=True)
def is_beyond(lookups: Words) -> bool:
    """Whether a look-up has more than 13 bits."""
    bits = np.uint64(0)
    for i in range(len(lookups)):
        bits |= np.uint64(lookups[i])
    return bool(bits >> np.uint64(13))


@njit(cache=True)
def best_arm(order: Words, is_live: Words, found: Words) -> int:
    """As ``comparison.best_arm``."""
    best, k = -1, 0
    for i in range(len(order)):
        if not is_live[i]:
            continue
        if found[k] and (best < 0 or order[i] < best):
            best = order[i]
        k += 1
    return best


@njit(cache=True)
def context_share(contexts: Words, masks: Words, arm: int, term: Words, out: Words) -> None:
    """Row ``arm`` of contexts − masks, plus the dealer's term, (2, d)."""
    for j in range(out.shape[1]):
        low, high = _minus(
            contexts[0, arm, j], contexts[1, arm, j], masks[0, arm, j], masks[1, arm, j]
        )
        out[0, j], out[1, j] = _plus(low, high, term[0, j], term[1, j])


@njit(cache=True)
def candidates(own: Words, theirs: Words, out: Words) -> None:
    """As ``comparison.candidates``."""
    n = len(out)
    for i in range(n):
        out[i] = 1
        for j in range(i * (n - 1), (i + 1) * (n - 1)):
            if own[j] == theirs[j]:
                out[i] = 0


@njit(cache=True)
def open_and_gain(  # noqa: PLR0913, PLR0917
    halves: Words,
    starts: Words,
    rows: Words,
    theta: Words,
    a: Words,
    g: Words,
    h: Words,
    x: Words,
    u: Words,
    reward: int,
    whitened: Words,
    their_whitened: Words,
    whitened_mask: Words,
    their_projections: Words,
    projections_mask: Words,
    their_square: Words,
    coefficients: Words,
    numbers: tuple[int, int, int, int, int],
    nothing: Words,
    f: Words,
    projections: Words,
    square: Words,
    difference: Words,
    scalars: Words,
    gain: Words,
) -> None:
    """As ``RootSide.open_and_gain``."""
    window, d, n = a.shape[1], x.shape[1], u.shape[1]
    rho, rho_q = _part(halves, starts[0], window), _part(halves, starts[1], 1)
    rho_d = _part(halves, starts[2], 1).copy()
    up = FRACTION + 1
    low, high = np.uint64(reward) << np.uint64(up), np.uint64(reward >> (64 - up))
    rho_d[0, 0], rho_d[1, 0] = _plus(rho_d[0, 0], rho_d[1, 0], low, high)
    words = (rho, rho_q, theta, x, h, u, rho_d)
    outs = (f, projections, square, difference)
    open_row(whitened, their_whitened, whitened_mask, a, n, *words, *outs)
    rho = _part(halves, starts[3], 2)
    chebyshev_cut(square[0, 0], their_square[0], *numbers, coefficients, rho, scalars)
    rho = _part(halves, starts[4], d)
    weights = (projections, their_projections, projections_mask, nothing)
    mixed(rows, f, *weights, g, rho, a[:, :0], 0, gain)


@njit(cache=True)
def gain_and_scale(  # noqa: PLR0913, PLR0917
    halves: Words,
    starts: Words,
    shape: tuple[int, int, int],
    numbers: tuple[int, int, int, int, int],
    rows: Words,
    g: Words,
    f: Words,
    projections: Words,
    their_projections: Words,
    square: Words,
    their_square: Words,
    difference: Words,
    their_difference: Words,
    their_scalars: Words,
    nothing: Words,
    scalars: Words,
    gain: Words,
    row: Words,
    residual: Words,
) -> None:
    """As ``RootSide.gain_and_scale``."""
    window, d = g.shape[1], f.shape[1]
    mask, rho = _part(halves, starts[0], window), _part(halves, starts[1], d)
    mixed(rows, f, projections, their_projections, mask, nothing, g, rho, g[:, :0], 0, gain)
    size = shape[0] * shape[1] * shape[2]
    coefficients = _part(halves, starts[2], size).reshape(2, shape[0], shape[1], shape[2])
    rho = _part(halves, starts[3], 2)
    chebyshev_cut(square[0, 0], their_square[0], *numbers, coefficients, rho, scalars)
    mask, mask_d = _part(halves, starts[4], 2), _part(halves, starts[5], 1)
    rho, rho_r = _part(halves, starts[6], d), _part(halves, starts[7], 1)
    opened = (scalars, their_scalars, mask, difference, their_difference, mask_d)
    scale_row(*opened, f, rho, rho_r, row, residual)


@njit(cache=True)
def settle(  # noqa: PLR0913, PLR0917
    halves: Words,
    starts: Words,
    row: Words,
    their_row: Words,
    gain: Words,
    their_gain: Words,
    residual: Words,
    their_residual: Words,
    n: int,
    a: Words,
    g: Words,
    h: Words,
    minus_h: Words,
) -> None:
    """``append_row`` with masks of a sheet."""
    d = row.shape[1]
    mask, mask_g = _part(halves, starts[0], d), _part(halves, starts[1], d)
    mask_r = _part(halves, starts[2], 1)
    shares = (row, their_row, mask, gain, their_gain, mask_g, residual, their_residual, mask_r)
    append_row(*shares, n, a, g, h, minus_h)
