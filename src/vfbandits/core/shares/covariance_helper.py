"""Server B's part of the covariance form."""

from vfbandits.core.ring import Sheet, Words, add, cut, open_short, rounded, zeros
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
from vfbandits.core.shares.covariance_side import CovarianceSide
from vfbandits.core.shares.sides import PRODUCT_BITS
from vfbandits.core.shares.terms import ShareTerms
from vfbandits.errors import SharesError


class _Update:
    """What B keeps of a reward from one step to the next."""

    def __init__(self, sheet: Sheet, x: Words, overlaps: Words) -> None:
        self.sheet = sheet
        self.x = x
        self.overlaps = overlaps
        self.is_projected = False
        self.own_gain = self.gain = self.own_scale = zeros(0)


class HelperCovariance:
    """B's side of the state, and its answers."""

    def __init__(self, terms: ShareTerms) -> None:
        self.terms = terms
        self.side = CovarianceSide(terms, lift=0)
        self._updates: dict[int, _Update] = {}

    def shapes(
        self, message: Score | Project | Scale | Shrink, n: int
    ) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """What the fields of a message must be, after ``n`` rows of the window."""
        d = self.terms.dim
        if isinstance(message, Score):
            n_arms = message.contexts.shape[1]
            shape = (2, 1, d) if self.terms.reads == "means" else (2, n_arms, d + n)
            return (("products", shape),)
        if isinstance(message, Shrink):
            return ("inverse", (2, d * (d + 1) // 2)), ("theta", (2, d))
        self._update(message)
        if isinstance(message, Project):
            return ("overlaps", (2, d + n)), ("gain", (2, d + 1)), ("square", (1,))
        return ("scale", (2, 1)), ("row", (2, d + 1))

    def _update(self, message: Project | Scale) -> _Update:
        slot = message.place.slot
        update = self._updates.get(slot)
        if update is None or isinstance(message, Scale) is not update.is_projected:
            raise SharesError(f"no context was recalled in slot {slot}")
        return update

    def score(self, message: Score, sheet: Sheet, masks: Words) -> Scored:
        """B's shares of the statistics of the arms."""
        terms, form, n = self.terms, self.side, message.n_rows
        X = form.input_side(message.contexts, masks)
        reads_means = terms.reads == "means"
        rows = sheet.take("blind_rows") if reads_means else _NOTHING
        own = form.products(X, n, sheet.take("rho_products"), rows)
        forms, means = form.statistics(
            own,
            message.products,
            sheet.take("mask_products"),
            X,
            _NOTHING if reads_means else sheet.take("blind_forms"),
            sheet.take("blind_means"),
        )
        released, scores = zeros(0), zeros(0)
        if terms.release == "arm":
            scores = add(means, sheet.take("rho_scores")[:, : X.shape[1]])
        else:
            released = rounded(means, bits=PRODUCT_BITS)
        return Scored(message.place, own, rounded(forms, bits=PRODUCT_BITS), released, scores)

    def recall(self, slot: int, sheet: Sheet, x: Words) -> Words:
        """B's shares of [xS | xV'], for a context that was masked again."""
        overlaps = self.side.overlaps(x, slot, sheet.take("rho_overlaps"))
        self._updates[slot] = _Update(sheet, x, overlaps)
        return overlaps

    def project(self, message: Project) -> Projected:
        """B's shares of v, of r − x·theta, of q and of s."""
        update = self._update(message)
        sheet = update.sheet
        gain, square = self.side.gain(
            (update.overlaps, message.overlaps, sheet.take("mask_overlaps")),
            update.x,
            sheet.take("rho_gain"),
            sheet.take("rho_square"),
        )
        opened = open_short(square, message.square, bits=PRODUCT_BITS)
        coefficients = sheet.take("coefficients")[:, None]
        scale = self.terms.scale_table.share(opened, coefficients, bits=PRODUCT_BITS)[:, 0]
        update.own_scale = cut(add(scale, sheet.take("rho_scale")))
        update.own_gain, update.gain = gain, message.gain
        update.is_projected = True
        return Projected(message.place, gain, square, update.own_scale)

    def scale(self, message: Scale) -> Scaled:
        """B's shares of the new row of the window, which is complete then."""
        update = self._update(message)
        sheet, n = update.sheet, message.place.slot
        row = self.side.row(
            (update.own_gain, update.gain, sheet.take("mask_gain")),
            (update.own_scale, message.scale, sheet.take("mask_scale")),
            sheet.take("rho_row"),
        )
        self.side.append(n, (row, message.row, sheet.take("mask_row")))
        del self._updates[n]
        return Scaled(message.place, row)

    def fold(self, message: Shrink, sheet: Sheet) -> Shrunk:
        """Bring the rows of a full window into S and theta."""
        inverse, theta = self.side.changes(sheet.take("rho_inverse"), sheet.take("rho_theta"))
        self.side.fold(
            (inverse, message.inverse, sheet.take("mask_inverse")),
            (theta, message.theta, sheet.take("mask_theta")),
        )
        return Shrunk(message.place, inverse, theta)


_NOTHING = zeros(0, 0)
