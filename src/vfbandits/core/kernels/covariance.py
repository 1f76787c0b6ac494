"""Steps of the covariance form on secret shares, compiled by numba (extra ``fast``).

``shares.covariance.side`` describes them.  A step is one call, since for few features calls take
longer than products.  Where a step needs several words of a sheet it is given the whole stream, and
where each part begins.  Import this module through ``kernels``, which knows whether numba is there.
"""

import numpy as np
from numba import njit

from vfbandits.core.arrays import Vector
from vfbandits.core.kernels.ring import _add_product, chebyshev_shares
from vfbandits.core.ring import Words

# As in ``ring`` and ``sides``.  They are not imported: numba keeps compiled code until this file
# changes.
FRACTION = 44
CUT = 36
FINE = 9
"""Bits that a fine number has after those of another one."""
KEPT = 2**28 - 1
"""The high bits of a cut share."""
OFFSET = 2**63


@njit(cache=True, inline="always")
def _dot(a0, a1, b0, b1):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """The inner product of two vectors, given by their planes.

    Halves of 32 bits can be multiplied in vector registers; a product of 64 by 64 bits cannot.
    """
    half, keep = np.uint64(32), np.uint64(0xFFFFFFFF)
    cross = lowest = lower = upper = highest = np.uint64(0)
    for c in range(len(a0)):
        x, y = a0[c], b0[c]
        cross += x * b1[c] + a1[c] * y
        x0, x1, y0, y1 = x & keep, x >> half, y & keep, y >> half
        product, one, other = x0 * y0, x0 * y1, x1 * y0
        lowest += product & keep
        lower += (product >> half) + (one & keep) + (other & keep)
        upper += (one >> half) + (other >> half)
        highest += x1 * y1
    lower += lowest >> half
    return (lower << half) | (lowest & keep), cross + highest + upper + (lower >> half)


@njit(cache=True)
def _plus(a0, a1, b0, b1):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    low = a0 + b0
    return low, a1 + b1 + np.uint64(low < a0)


@njit(cache=True)
def _minus(a0, a1, b0, b1):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return a0 - b0, a1 - b1 - np.uint64(a0 < b0)


@njit(cache=True)
def _down(low, high, bits):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    return (low >> np.uint64(bits)) | (high << np.uint64(64 - bits)), high >> np.uint64(bits)


@njit(cache=True)
def _far_down(low, high, bits):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """As ``_down``, for more than 63 bits too."""
    if bits >= 64:
        return high >> np.uint64(bits - 64), np.uint64(0)
    return _down(low, high, bits)


@njit(cache=True)
def _side(a0, a1, b0, b1, p0, p1):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """P of a product of which (a0, a1) and (b0, b1) are cut shares and (p0, p1) is a mask."""
    lift = np.uint64(OFFSET)
    low, high = _plus(a0, a1, b0, b1)
    low, high = _plus(low, high, lift, np.uint64(0))
    low, high = _down(low, high & np.uint64(KEPT), FINE)
    low, high = _minus(low, high, lift >> np.uint64(FINE), np.uint64(0))
    return _minus(low, high, p0 << np.uint64(1), (p1 << np.uint64(1)) | (p0 >> np.uint64(63)))


@njit(cache=True)
def _fine_side(a0, a1, b0, b1, p0, p1):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """As ``_side`` with ``sides.FINE_BITS`` after the point."""
    lift = np.uint64(OFFSET)
    low, high = _plus(a0, a1, b0, b1)
    low, high = _plus(low, high, lift, np.uint64(0))
    low, high = _minus(low, high & np.uint64(KEPT), lift, np.uint64(0))
    return _minus(low, high, p0 << np.uint64(1), (p1 << np.uint64(1)) | (p0 >> np.uint64(63)))


@njit(cache=True)
def _part(halves, start, n):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Words (2, n) of a part of a sheet."""
    return halves[start : start + 2 * n].reshape(2, n)


@njit(cache=True)
def chebyshev_cut(  # noqa: PLR0913, PLR0917
    one: int,
    other: int,
    drop: int,
    period_bits: int,
    segment_bits: int,
    bits: int,
    guard: int,
    coefficients: Words,
    rho: Words,
    out: Words,
) -> None:
    """As ``FunctionTable.cut_share``: coefficients (2, segments, functions, degree + 1)."""
    number = (np.uint64(one) + np.uint64(other)) >> np.uint64(drop)
    number &= (np.uint64(1) << np.uint64(period_bits)) - np.uint64(1)
    segment = np.int64(number >> np.uint64(segment_bits))
    place = np.int64(number & ((np.uint64(1) << np.uint64(segment_bits)) - np.uint64(1)))
    part = coefficients[:, segment].copy()
    share = np.empty((2, part.shape[1]), np.uint64)
    chebyshev_shares(int(place), segment_bits - 1, bits, guard, part, share)
    for k in range(part.shape[1]):
        low, high = _plus(share[0, k], share[1, k], rho[0, k], rho[1, k])
        out[0, k], out[1, k] = _down(low, high, CUT)


@njit(cache=True)
def open_and_cut(  # noqa: PLR0913, PLR0917
    one: Words,
    other: Words,
    drop: int,
    period_bits: int,
    segment_bits: int,
    bits: int,
    guard: int,
    coefficients: Words,
    rho: Words,
    out: Words,
) -> None:
    """``chebyshev_cut`` for shares (1,): numbers of NumPy are slow to pass."""
    numbers = (drop, period_bits, segment_bits, bits, guard)
    chebyshev_cut(one[0], other[0], *numbers, coefficients, rho, out)


@njit(cache=True)
def _as_fine(low, high):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """As ``covariance.as_fine``."""
    return low << np.uint64(FINE), (high << np.uint64(FINE)) | (low >> np.uint64(64 - FINE))


@njit(cache=True)
def open_rounded(own: Words, theirs: Words, bits: int, left: int, out: Vector) -> None:
    """As ``ring.open_rounded`` for a whole share and a rounded one of numbers (n,).

    Rounded shares have lost ``bits`` and have ``left`` after the point.
    """
    far = bits >= 64
    up = np.uint64(bits - 64 if far else bits)
    for i in range(len(out)):
        low, high = _far_down(own[0, i], own[1, i], bits)
        low, high = _plus(low, high, theirs[0, i], theirs[1, i])
        if far:
            low, high = np.uint64(0), low << up
        else:
            low, high = low << up, (high << up) | (low >> (np.uint64(64) - up))
        sign = 1.0
        if high >> np.uint64(63):
            low, high = _minus(np.uint64(0), np.uint64(0), low, high)
            sign = -1.0
        # The low bits are zero: one number of 64 bits is left above them.
        value = np.float64(high) * 2.0**64 + np.float64(low)
        out[i] = sign * value * 2.0 ** -(bits + left) + 2.0**-left


@njit(cache=True)
def _first_rows(terms, n, i, lift):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """The sum of column i of the first n rows, times 2^lift."""
    low = high = np.uint64(0)
    for k in range(n):
        low, high = _plus(low, high, terms[0, k, i], terms[1, k, i])
    if lift == 0:
        return low, high
    up = np.uint64(lift)
    return low << up, (high << up) | (low >> (np.uint64(64) - up))


@njit(cache=True)
def _input_side(contexts, mask, X):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
    """Contexts − 2·mask for words (2, n_arms, d); the mask may have more rows."""
    for i in range(contexts.shape[1]):
        for j in range(contexts.shape[2]):
            p0, p1 = mask[0, i, j], mask[1, i, j]
            low, high = _minus(contexts[0, i, j], contexts[1, i, j], p0, p1)
            X[0, i, j], X[1, i, j] = _minus(low, high, p0, p1)


@njit(cache=True)
def score_products(  # noqa: PLR0913, PLR0917
    contexts: Words, mask: Words, S: Words, V: Words, n: int, rho: Words, X: Words, out: Words
) -> None:
    """P of contexts, and cut shares of [XL' | XV'], (2, n_arms, d + n)."""
    _input_side(contexts, mask, X)
    n_arms, d = X.shape[1], X.shape[2]
    for j in range(d):
        s0, s1 = S[0, j, :j], S[1, j, :j]
        for i in range(n_arms):
            low, high = _dot(X[0, i, :j], X[1, i, :j], s0, s1)
            low, high = low << np.uint64(1), (high << np.uint64(1)) | (low >> np.uint64(63))
            low, high = _add_product(low, high, X[0, i, j], S[0, j, j])  # type: ignore[call-arg]
            high += X[0, i, j] * S[1, j, j] + X[1, i, j] * S[0, j, j]
            low, high = _plus(low, high, rho[0, i, j], rho[1, i, j])
            out[0, i, j], out[1, i, j] = _down(low, high, CUT)
    for j in range(n):
        v0, v1 = V[0, j], V[1, j]
        for i in range(n_arms):
            low, high = _dot(X[0, i], X[1, i], v0, v1)
            low, high = _plus(low, high, rho[0, i, d + j], rho[1, i, d + j])
            out[0, i, d + j], out[1, i, d + j] = _down(low, high, CUT)


@njit(cache=True)
def score_statistics(  # noqa: PLR0913, PLR0917
    own: Words,
    theirs: Words,
    mask: Words,
    X: Words,
    theta: Words,
    h: Words,
    form_terms: Words,
    mean_terms: Words,
    lift: int,
    down: int,
    is_joint: bool,  # noqa: FBT001
    forms: Words,
    means: Words,
) -> None:
    """Shares of forms, (2, n_forms), and means, (2, n_arms), once the products are opened.

    Those of forms come without their low ``down`` bits.
    """
    n_arms, d = X.shape[1], X.shape[2]
    n = own.shape[2] - d
    W = np.empty(own.shape, np.uint64)
    for i in range(n_arms):
        for j in range(d + n):
            W[0, i, j], W[1, i, j] = _fine_side(
                own[0, i, j],
                own[1, i, j],
                theirs[0, i, j],
                theirs[1, i, j],
                mask[0, i, j],
                mask[1, i, j],
            )
    place = 0
    for i in range(n_arms):
        w0, w1, x0, x1 = W[0, i, :d], W[1, i, :d], X[0, i], X[1, i]
        g0, g1 = W[0, i, d:], W[1, i, d:]
        low, high = _as_fine(*_dot(x0, x1, theta[0], theta[1]))
        low, high = _plus(low, high, *_dot(g0, g1, h[0, :n], h[1, :n]))
        means[0, i], means[1, i] = _plus(low, high, *_first_rows(mean_terms, n + 1, i, lift))
        for b in range(i + 1 if is_joint else 1):
            other = b if is_joint else i
            low, high = _as_fine(*_dot(w0, w1, X[0, other], X[1, other]))
            much = _dot(g0, g1, W[0, other, d:], W[1, other, d:])
            low, high = _minus(low, high, *much)
            if is_joint:
                other_way = _dot(W[0, other, :d], W[1, other, :d], x0, x1)
                low, high = _plus(low, high, *_as_fine(*other_way))
                low, high = _minus(low, high, *much)
            low, high = _plus(low, high, *_first_rows(form_terms, n + 1, place, lift))
            forms[0, place], forms[1, place] = _far_down(low, high, down) if down else (low, high)
            place += 1


@njit(cache=True)
def score_opened(  # noqa: PLR0913, PLR0917
    own: Words,
    theirs: Words,
    mask: Words,
    X: Words,
    theta: Words,
    h: Words,
    form_terms: Words,
    mean_terms: Words,
    lift: int,
    is_joint: bool,  # noqa: FBT001
    bits: tuple[int, int, int],
    their_forms: Words,
    their_means: Words,
    forms: Vector,
    means: Vector,
) -> None:
    """Forms and means, from the other server's rounded shares of them."""
    own_forms = np.empty((2, len(forms)), np.uint64)
    own_means = np.empty((2, len(means)), np.uint64)
    numbers = (theta, h, form_terms, mean_terms, lift, 0, is_joint)
    score_statistics(own, theirs, mask, X, *numbers, own_forms, own_means)
    open_rounded(own_forms, their_forms, bits[0], bits[2], forms)
    open_rounded(own_means, their_means, bits[1], bits[2], means)


@njit(cache=True)
def score_direction(
    V: Words, h: Words, n: int, rho: Words, terms: Words, lift: int, out: Words
) -> None:
    """Cut shares of V'h, (2, 1, d); ``terms`` has a row for each row of V."""
    d = V.shape[2]
    v0, v1 = rho[0, 0].copy(), rho[1, 0].copy()
    for k in range(n):
        a0, a1, b0, b1 = h[0, k], h[1, k], V[0, k], V[1, k]
        for j in range(d):
            v0[j], v1[j] = _add_product(v0[j], v1[j], a0, b0[j])  # type: ignore[call-arg]
            v1[j] += a0 * b1[j] + a1 * b0[j]
    for j in range(d):
        low, high = _plus(v0[j], v1[j], *_first_rows(terms, n, j, lift))
        out[0, 0, j], out[1, 0, j] = _down(low, high, CUT)


@njit(cache=True)
def score_means(  # noqa: PLR0913, PLR0917
    own: Words,
    theirs: Words,
    mask: Words,
    contexts: Words,
    masks: Words,
    theta: Words,
    terms: Words,
    lift: int,
    means: Words,
) -> None:
    """Shares of the means, (2, n_arms), once the direction is opened."""
    n_arms, d = contexts.shape[1], contexts.shape[2]
    X = np.empty((2, n_arms, d), np.uint64)
    _input_side(contexts, masks, X)
    w0, w1 = np.empty(d, np.uint64), np.empty(d, np.uint64)
    for j in range(d):
        low, high = _fine_side(
            own[0, 0, j],
            own[1, 0, j],
            theirs[0, 0, j],
            theirs[1, 0, j],
            mask[0, 0, j],
            mask[1, 0, j],
        )
        w0[j], w1[j] = _plus(low, high, *_as_fine(theta[0, j], theta[1, j]))
    for i in range(n_arms):
        low, high = _dot(X[0, i], X[1, i], w0, w1)
        means[0, i], means[1, i] = _plus(low, high, *_first_rows(terms, 1, i, lift))


@njit(cache=True)
def update_overlaps(  # noqa: PLR0913, PLR0917
    own: Words,
    theirs: Words,
    mask: Words,
    S: Words,
    V: Words,
    n: int,
    rho: Words,
    x: Words,
    out: Words,
) -> None:
    """P of a context, and cut shares of [xS | xV'], (2, d + n)."""
    d = x.shape[1]
    for j in range(d):
        low, high = _plus(own[0, j], own[1, j], theirs[0, j], theirs[1, j])
        low, high = _minus(low, high, mask[0, j], mask[1, j])
        x[0, j], x[1, j] = _minus(low, high, mask[0, j], mask[1, j])
    for j in range(d + n):
        if j < d:
            low, high = _dot(x[0], x[1], S[0, j], S[1, j])
        else:
            low, high = _dot(x[0], x[1], V[0, j - d], V[1, j - d])
        low, high = _plus(low, high, rho[0, j], rho[1, j])
        out[0, j], out[1, j] = _down(low, high, CUT)


@njit(cache=True)
def update_gain(  # noqa: PLR0913, PLR0917
    own: Words,
    theirs: Words,
    mask: Words,
    x: Words,
    theta: Words,
    V: Words,
    h: Words,
    reward: int,
    rho: Words,
    rho_square: Words,
    gain: Words,
    square: Words,
) -> None:
    """Cut shares of v and r − x·theta, (2, d + 1), and a short share of q, (1,)."""
    d = x.shape[1]
    n = own.shape[1] - d
    o = np.empty((2, d + n), np.uint64)
    for j in range(d + n):
        o[0, j], o[1, j] = _side(
            own[0, j], own[1, j], theirs[0, j], theirs[1, j], mask[0, j], mask[1, j]
        )
    y0, y1, u0, u1 = o[0, :d], o[1, :d], o[0, d:], o[1, d:]
    v0, v1 = np.empty(d, np.uint64), np.empty(d, np.uint64)
    for j in range(d):
        low, high = y0[j] << np.uint64(FRACTION), y1[j] << np.uint64(FRACTION)
        high |= y0[j] >> np.uint64(64 - FRACTION)
        v0[j], v1[j] = _plus(rho[0, j], rho[1, j], low, high)
    for k in range(n):
        a0, a1, b0, b1 = np.uint64(0) - u0[k], ~u1[k] + np.uint64(u0[k] == 0), V[0, k], V[1, k]
        for j in range(d):
            v0[j], v1[j] = _add_product(v0[j], v1[j], a0, b0[j])  # type: ignore[call-arg]
            v1[j] += a0 * b1[j] + a1 * b0[j]
    for j in range(d):
        gain[0, j], gain[1, j] = _down(v0[j], v1[j], CUT)
    up = FRACTION + 1
    low, high = np.uint64(reward) << np.uint64(up), np.uint64(reward >> (64 - up))
    low, high = _plus(low, high, rho[0, d], rho[1, d])
    low, high = _minus(low, high, *_dot(x[0], x[1], theta[0], theta[1]))
    low, high = _minus(low, high, *_dot(u0, u1, h[0, :n], h[1, :n]))
    gain[0, d], gain[1, d] = _down(low, high, CUT)
    low, high = _plus(rho_square[0, 0], rho_square[1, 0], *_dot(x[0], x[1], y0, y1))
    low, high = _minus(low, high, *_dot(u0, u1, u0, u1))
    square[0] = _down(low, high, CUT)[0]


@njit(cache=True)
def update_row(  # noqa: PLR0913, PLR0917
    own_gain: Words,
    gain: Words,
    gain_mask: Words,
    own_scale: Words,
    scale: Words,
    scale_mask: Words,
    rho: Words,
    out: Words,
) -> None:
    """Cut shares of s·v and s·(r − x·theta), (2, d + 1)."""
    s0, s1 = _side(
        own_scale[0, 0],
        own_scale[1, 0],
        scale[0, 0],
        scale[1, 0],
        scale_mask[0, 0],
        scale_mask[1, 0],
    )
    for j in range(out.shape[1]):
        g0, g1 = _side(
            own_gain[0, j], own_gain[1, j], gain[0, j], gain[1, j], gain_mask[0, j], gain_mask[1, j]
        )
        low, high = rho[0, j], rho[1, j]
        low, high = _add_product(low, high, s0, g0)  # type: ignore[call-arg]
        high += s0 * g1 + s1 * g0
        out[0, j], out[1, j] = _down(low, high, CUT)


@njit(cache=True)
def append_row(own: Words, theirs: Words, mask: Words, V: Words, h: Words, n: int) -> None:
    """Put the new row and its h into the window at n."""
    d = V.shape[2]
    for j in range(d + 1):
        low, high = _side(own[0, j], own[1, j], theirs[0, j], theirs[1, j], mask[0, j], mask[1, j])
        if j < d:
            V[0, n, j], V[1, n, j] = low, high
        else:
            h[0, n], h[1, n] = low, high


@njit(cache=True)
def fold_changes(
    V: Words, h: Words, rho_inverse: Words, rho_theta: Words, inverse: Words, theta: Words
) -> None:
    """Cut shares of the lower triangle of V'V, row by row, and of V'h."""
    n, d = V.shape[1], V.shape[2]
    z0, z1 = np.empty(d, np.uint64), np.empty(d, np.uint64)
    start = 0
    for i in range(d + 1):
        size = min(i + 1, d)
        rho, out = (rho_inverse, inverse) if i < d else (rho_theta, theta)
        place = start if i < d else 0
        for j in range(size):
            z0[j], z1[j] = rho[0, place + j], rho[1, place + j]
        for k in range(n):
            x0, x1 = (V[0, k, i], V[1, k, i]) if i < d else (h[0, k], h[1, k])
            y0, y1 = V[0, k], V[1, k]
            for j in range(size):
                z0[j], z1[j] = _add_product(z0[j], z1[j], x0, y0[j])  # type: ignore[call-arg]
                z1[j] += x0 * y1[j] + x1 * y0[j]
        for j in range(size):
            out[0, place + j], out[1, place + j] = _down(z0[j], z1[j], CUT)
        start += size


@njit(cache=True)
def fold_in(  # noqa: PLR0913, PLR0917
    own: Words,
    theirs: Words,
    mask: Words,
    own_theta: Words,
    their_theta: Words,
    theta_mask: Words,
    S: Words,
    theta: Words,
) -> None:
    """S − V'V and theta + V'h, in place."""
    place = 0
    for i in range(S.shape[1]):
        for j in range(i + 1):
            low, high = _side(
                own[0, place],
                own[1, place],
                theirs[0, place],
                theirs[1, place],
                mask[0, place],
                mask[1, place],
            )
            low, high = _minus(S[0, i, j], S[1, i, j], low, high)
            S[0, i, j], S[1, i, j] = low, high
            S[0, j, i], S[1, j, i] = low, high
            place += 1
        low, high = _side(
            own_theta[0, i],
            own_theta[1, i],
            their_theta[0, i],
            their_theta[1, i],
            theta_mask[0, i],
            theta_mask[1, i],
        )
        theta[0, i], theta[1, i] = _plus(theta[0, i], theta[1, i], low, high)


# Several of these steps in one call, with words of a sheet.


@njit(cache=True)
def answer_score(  # noqa: PLR0913, PLR0917
    halves: Words,
    starts: Words,
    max_rows: int,
    contexts: Words,
    masks: Words,
    S: Words,
    theta: Words,
    V: Words,
    h: Words,
    theirs: Words,
    down: int,
    mean_down: int,
    is_joint: bool,  # noqa: FBT001
    own: Words,
    forms: Words,
    means: Words,
) -> None:
    """As ``CovarianceSide.answer_score``; means come without their low ``mean_down`` bits."""
    d, window = contexts.shape[2], V.shape[1]
    width, n_forms = d + window, max_rows * (max_rows + 1) // 2 if is_joint else max_rows
    rho = _part(halves, starts[0], max_rows * width).reshape(2, max_rows, width)
    mask = _part(halves, starts[1], max_rows * width).reshape(2, max_rows, width)
    n = 1 + window
    form_terms = _part(halves, starts[2], n * n_forms).reshape(2, n, n_forms)
    mean_terms = _part(halves, starts[3], n * max_rows).reshape(2, n, max_rows)
    X = np.empty(contexts.shape, np.uint64)
    score_products(contexts, masks, S, V, own.shape[2] - d, rho, X, own)
    terms = (form_terms, mean_terms, 0, down, is_joint)
    score_statistics(own, theirs, mask, X, theta, h, *terms, forms, means)
    if mean_down:
        for i in range(means.shape[1]):
            means[0, i], means[1, i] = _far_down(means[0, i], means[1, i], mean_down)


@njit(cache=True)
def mask_and_overlap(  # noqa: PLR0913, PLR0917
    halves: Words,
    starts: Words,
    share: Words,
    theirs: Words,
    S: Words,
    V: Words,
    n: int,
    own: Words,
    x: Words,
    out: Words,
) -> None:
    """As ``CovarianceSide.mask_context``."""
    d = share.shape[1]
    mask, rho = _part(halves, starts[0], d), _part(halves, starts[1], d + V.shape[1])
    for j in range(d):
        own[0, j], own[1, j] = _plus(share[0, j], share[1, j], mask[0, j], mask[1, j])
    update_overlaps(own, theirs, mask, S, V, n, rho, x, out)


@njit(cache=True)
def overlap_and_gain(  # noqa: PLR0913, PLR0917
    halves: Words,
    starts: Words,
    own_x: Words,
    their_x: Words,
    mask_x: Words,
    theirs: Words,
    mask: Words,
    S: Words,
    theta: Words,
    V: Words,
    h: Words,
    n: int,
    reward: int,
    overlaps: Words,
    gain: Words,
    square: Words,
) -> None:
    """As ``CovarianceSide.overlap_and_gain``."""
    d = own_x.shape[1]
    x = np.empty((2, d), np.uint64)
    rho = _part(halves, starts[0], d + V.shape[1])
    update_overlaps(own_x, their_x, mask_x, S, V, n, rho, x, overlaps)
    rho, rho_square = _part(halves, starts[1], d + 1), _part(halves, starts[2], 1)
    state = (theta, V, h)
    update_gain(overlaps, theirs, mask, x, *state, reward, rho, rho_square, gain, square)


@njit(cache=True)
def gain_and_scale(  # noqa: PLR0913, PLR0917
    halves: Words,
    starts: Words,
    shape: tuple[int, int, int],
    numbers: tuple[int, int, int, int, int],
    x: Words,
    own: Words,
    theirs: Words,
    their_square: Words,
    theta: Words,
    V: Words,
    h: Words,
    gain: Words,
    square: Words,
    scale: Words,
) -> None:
    """As ``CovarianceSide.gain_and_scale``."""
    d = x.shape[1]
    mask, rho = _part(halves, starts[0], d + V.shape[1]), _part(halves, starts[1], d + 1)
    rho_square = _part(halves, starts[2], 1)
    update_gain(own, theirs, mask, x, theta, V, h, 0, rho, rho_square, gain, square)
    size = shape[0] * shape[1] * shape[2]
    coefficients = _part(halves, starts[3], size).reshape(2, shape[0], shape[1], shape[2])
    rho = _part(halves, starts[4], 1)
    chebyshev_cut(square[0], their_square[0], *numbers, coefficients, rho, scale)


@njit(cache=True)
def scale_row(  # noqa: PLR0913, PLR0917
    halves: Words,
    starts: Words,
    numbers: tuple[int, int, int, int, int],
    square: Words,
    their_square: Words,
    coefficients: Words,
    own_gain: Words,
    gain: Words,
    gain_mask: Words,
    their_scale: Words,
    scale_mask: Words,
    scale: Words,
    row: Words,
) -> None:
    """As ``CovarianceSide.scale_row``."""
    rho = _part(halves, starts[0], 1)
    chebyshev_cut(square[0], their_square[0], *numbers, coefficients, rho, scale)
    rho = _part(halves, starts[1], row.shape[1])
    update_row(own_gain, gain, gain_mask, scale, their_scale, scale_mask, rho, row)


@njit(cache=True)
def settle(  # noqa: PLR0913, PLR0917
    halves: Words,
    starts: Words,
    own_gain: Words,
    gain: Words,
    own_scale: Words,
    scale: Words,
    theirs: Words,
    V: Words,
    h: Words,
    n: int,
    out: Words,
) -> None:
    """As ``CovarianceSide.settle``."""
    size = out.shape[1]
    gain_mask, scale_mask = _part(halves, starts[0], size), _part(halves, starts[1], 1)
    rho, mask = _part(halves, starts[2], size), _part(halves, starts[3], size)
    update_row(own_gain, gain, gain_mask, own_scale, scale, scale_mask, rho, out)
    append_row(out, theirs, mask, V, h, n)
