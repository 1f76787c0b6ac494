"""Server B's part of the covariance form."""

import numpy as np

from vfbandits.core.ring import (
    Sheet,
    Words,
    add,
    cut,
    lifted,
    minus_cross_gram,
    minus_cross_triangle,
    negative,
    open_short,
    reopen,
    rounded,
    short,
    subtract,
    symmetric,
    total,
    zeros,
)
from vfbandits.core.shares.covariance import HeldCovariance, identity, joined, row_share
from vfbandits.core.shares.covariance_messages import (
    Project,
    Projected,
    Scale,
    Scaled,
    Score,
    Scored,
    Shrink,
    Shrunk,
)
from vfbandits.core.shares.masked import Known, product_share, rows_share
from vfbandits.core.shares.terms import ShareTerms
from vfbandits.errors import SharesError


class _Update:
    """What B keeps of a reward from one step to the next."""

    def __init__(self, sheet: Sheet, x: Known, own_overlaps: Words) -> None:
        self.sheet = sheet
        self.x = x
        self.own_overlaps = own_overlaps
        self.is_projected = False
        self.gain = x
        self.own_scale = zeros(1)


class HelperCovariance:
    """B's side of theta, S and the window's rows."""

    def __init__(self, terms: ShareTerms) -> None:
        n, d = terms.window, terms.dim
        self.terms = terms
        self._S = Known(identity(d), zeros(d, d))
        self._theta = Known(zeros(1, d), zeros(1, d))
        self._V = Known(zeros(n, d), zeros(n, d))
        self._h = Known(zeros(1, n), zeros(1, n))
        self._updates: dict[int, _Update] = {}

    def held(self, n: int) -> HeldCovariance:
        """B's side of the state, with the first ``n`` rows of the window."""
        S, theta, V, h = self._S.part, self._theta.part, self._V.part, self._h.part
        return HeldCovariance(S, theta, V[:, :n], h[:, :, :n])

    def shapes(
        self, message: Score | Project | Scale | Shrink, n: int
    ) -> dict[str, tuple[int, ...]]:
        """What the fields of a message must be, after ``n`` rows of the window."""
        d = self.terms.dim
        if isinstance(message, Score):
            n_arms = message.contexts.shape[1]
            return {"products": (1, d) if self.terms.reads == "means" else (n_arms, d + n)}
        if isinstance(message, Shrink):
            return {"inverse": (d * (d + 1) // 2,), "theta": (d,)}
        self._update(message)
        if isinstance(message, Project):
            return {"overlaps": (d + n,), "gain": (d + 1,), "square": (1,)}
        return {"scale": (1,), "row": (d + 1,)}

    def _update(self, message: Project | Scale) -> _Update:
        slot = message.place.slot
        update = self._updates.get(slot)
        if update is None or isinstance(message, Scale) is not update.is_projected:
            raise SharesError(f"no context was recalled in slot {slot}")
        return update

    def score(self, message: Score, sheet: Sheet, X: Known) -> Scored:
        """B's shares of the statistics of the arms."""
        terms, d, n = self.terms, self.terms.dim, message.n_rows
        n_arms = X.m.shape[1]
        V, h = self._V.rows(n), _columns(self._h, n)
        if terms.reads == "means":
            share = add(product_share(h, V), total(sheet.take("blind_rows")[:, :n])[:, None])
            own = cut(add(share, sheet.take("rho_products")))
            opened = reopen(own, message.products)
            w = self._theta.plus(Known(opened, sheet.take("mask_products")))
            forms = zeros(0)
            means = add(rows_share(X, w)[:, :, 0], sheet.take("blind_means")[:, 0, :n_arms])
        else:
            used = (slice(None), slice(n_arms), slice(d + n))
            triangle = minus_cross_triangle(X.m, X.part, self._S.m, self._S.part)
            share = np.dstack((triangle, rows_share(X, V)))
            own = cut(add(share, sheet.take("rho_products")[used]))
            opened = reopen(own, message.products)
            part = sheet.take("mask_products")[used]
            W, G = Known(opened[:, :, :d], part[:, :, :d]), Known(opened[:, :, d:], part[:, :, d:])
            forms = self._forms(W, X, G)
            forms = add(forms, total(sheet.take("blind_forms")[:, : n + 1, : forms.shape[1]]))
            means = add(rows_share(X, self._theta), rows_share(G, h))[:, :, 0]
            means = add(means, total(sheet.take("blind_means")[:, : n + 1, :n_arms]))
        released, scores = zeros(0), zeros(0)
        if terms.release == "arm":
            scores = add(means, sheet.take("rho_scores")[:, :n_arms])
        else:
            released = rounded(means)
        return Scored(message.place, own, rounded(forms), released, scores)

    def _forms(self, W: Known, X: Known, G: Known) -> Words:
        if self.terms.reads == "covariance":
            return joined(subtract(rows_share(W, X), rows_share(G, G)))
        return subtract(row_share(W, X), row_share(G, G))

    def recall(self, slot: int, sheet: Sheet, x: Known) -> Words:
        """B's shares of [xS | xV'], for a context that was masked again."""
        d, n = self.terms.dim, slot
        share = np.dstack((rows_share(x, self._S), rows_share(x, self._V.rows(n))))[:, 0]
        own = cut(add(share, sheet.take("rho_overlaps")[:, : d + n]))
        self._updates[slot] = _Update(sheet, x, own)
        return own

    def project(self, message: Project) -> Projected:
        """B's shares of v, of r − x·theta, of q and of s."""
        d, n = self.terms.dim, message.place.slot
        update = self._update(message)
        sheet, x = update.sheet, update.x
        V, h = self._V.rows(n), _columns(self._h, n)
        opened = reopen(update.own_overlaps, message.overlaps)[:, None]
        part = sheet.take("mask_overlaps")[:, None, : d + n]
        y, u = Known(opened[:, :, :d], part[:, :, :d]), Known(opened[:, :, d:], part[:, :, d:])
        mean = add(rows_share(x, self._theta), rows_share(h, u))
        gain = np.dstack((subtract(negative(lifted(y.part)), product_share(u, V)), negative(mean)))
        own_gain = cut(add(gain[:, 0], sheet.take("rho_gain")))
        update.gain = Known(
            reopen(own_gain, message.gain)[:, None], sheet.take("mask_gain")[:, None]
        )
        square = subtract(rows_share(x, y), rows_share(u, u))[:, 0]
        own_square = short(add(square, sheet.take("rho_square")))
        opened_square = open_short(own_square, message.square)
        coefficients = sheet.take("coefficients")[:, None]
        scale = self.terms.scale_table.share(opened_square, coefficients)[:, 0]
        update.own_scale = cut(add(scale, sheet.take("rho_scale")))
        update.is_projected = True
        return Projected(message.place, own_gain, own_square, update.own_scale)

    def scale(self, message: Scale) -> Scaled:
        """B's shares of the new row of the window, which is complete then."""
        d, n = self.terms.dim, message.place.slot
        update = self._update(message)
        sheet = update.sheet
        s = Known(
            reopen(update.own_scale, message.scale)[:, None], sheet.take("mask_scale")[:, None]
        )
        own = cut(add(product_share(s, update.gain)[:, 0], sheet.take("rho_row")))
        opened, part = reopen(own, message.row), sheet.take("mask_row")
        for V, h, row in zip(self._V, self._h, (opened, part), strict=True):
            V[:, n], h[:, 0, n] = row[:, :d], row[:, d]
        del self._updates[n]
        return Scaled(message.place, own)

    def fold(self, message: Shrink, sheet: Sheet) -> Shrunk:
        """Bring the rows of a full window into S and theta."""
        d = self.terms.dim
        share = minus_cross_gram(self._V.m, self._V.part)
        inverse = cut(add(share, sheet.take("rho_inverse")))
        theta = cut(add(product_share(self._h, self._V)[:, 0], sheet.take("rho_theta")))
        change = Known(
            symmetric(reopen(inverse, message.inverse), d),
            symmetric(sheet.take("mask_inverse"), d),
        )
        shift = Known(reopen(theta, message.theta)[:, None], sheet.take("mask_theta")[:, None])
        self._S, self._theta = self._S.minus(change), self._theta.plus(shift)
        return Shrunk(message.place, inverse, theta)


def _columns(known: Known, stop: int) -> Known:
    """The first columns of one row."""
    return Known(known.m[:, :, :stop], known.part[:, :, :stop])
