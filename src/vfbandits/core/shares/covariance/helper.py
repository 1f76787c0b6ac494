"""Server B's part of the covariance form."""

from vfbandits.core.ring import RELEASED, Sheet, Words, add, shifted_down, zeros
from vfbandits.core.shares.blocks import covariance_side
from vfbandits.core.shares.covariance.form import FORM_BITS, MEAN_BITS
from vfbandits.core.shares.covariance.messages import (
    Project,
    Projected,
    Scale,
    Scaled,
    Score,
    Scored,
    Shrink,
    Shrunk,
)
from vfbandits.core.shares.covariance.side import Inputs
from vfbandits.core.shares.covariance.words import n_triangles
from vfbandits.core.shares.messages import Message
from vfbandits.core.shares.terms import ShareTerms
from vfbandits.errors import SharesError

Shapes = tuple[tuple[str, tuple[int, ...] | int], ...]
"""Names of fields, and the shape that each must have.

A number k means words (k + n,), where n is the number of rows of the window.
"""


class _Update:
    """What B keeps of a reward from one step to the next."""

    def __init__(self, sheet: Sheet, x: Words, overlaps: Words) -> None:
        self.sheet = sheet
        self.x = x
        self.overlaps = overlaps
        self.is_projected = False
        self.own_gain = self.gain = self.own_scale = _NO_WORDS


class HelperCovariance:
    """B's side of the state, and its answers."""

    def __init__(self, terms: ShareTerms) -> None:
        self.terms = terms
        self.side = covariance_side(terms, lift=0, down=FORM_BITS - RELEASED)
        self._updates: dict[int, _Update] = {}
        self._reads_means = terms.reads == "means"
        self._is_arm = terms.release == "arm"
        d = terms.dim
        self._row_dim = terms.row_dim
        self._dim = d

    def shapes(self) -> dict[type[Message], Shapes]:
        """What the fields of messages must be."""
        d, scalar = self._dim, ("square", (1,))
        return {
            **({Score: (("products", (2, 1, d)),)} if self._reads_means else {}),
            Project: (("overlaps", d), ("gain", (2, d + 1)), scalar),
            Scale: (("scale", (2, 1)), ("row", (2, d + 1))),
            Shrink: (("inverse", (2, n_triangles(self.terms))), ("theta", (2, d))),
        }

    def refuse_other_products(self, message: Score, n: int) -> None:
        """Products of a decision after n rows of the window."""
        wanted = (2, message.n_arms, self._row_dim + n)
        if message.products.shape != wanted and not self._reads_means:
            raise SharesError(
                f"wanted products of shape {wanted} in a Score message, got "
                f"{message.products.shape}"
            )

    def check(self, message: Project | Scale) -> int:
        """Refuse a step out of turn; the number of rows of the window."""
        self._update(message)
        return message.place.slot

    def _update(self, message: Project | Scale) -> _Update:
        slot = message.place.slot
        update = self._updates.get(slot)
        if update is None or isinstance(message, Scale) is not update.is_projected:
            raise SharesError(f"no context was recalled in slot {slot}")
        return update

    def score(self, message: Score, sheet: Sheet, inputs: Inputs) -> Scored:
        """B's shares of the statistics of the arms."""
        form, n, theirs = self.side, message.n_rows, message.products
        down = 0 if self._is_arm else MEAN_BITS - RELEASED
        if self._reads_means:
            rho, rows = sheet.take("rho_products"), sheet.take("blind_rows")
            _, own = form.products(inputs, n, rho, rows)
            exchanged = own, theirs, sheet.take("mask_products")
            forms, means = _NO_WORDS, form.means(exchanged, inputs, sheet.take("blind_means"))
            means = shifted_down(means, down) if down else means
        else:
            own, forms, means = form.answer_score(sheet, inputs, n, theirs, down)
        if self._is_arm:
            scores = add(means, sheet.take("rho_scores")[:, : means.shape[1]])
            return Scored(message.place, own, forms, _NO_WORDS, scores)
        return Scored(message.place, own, forms, means, _NO_WORDS)

    def recall(self, slot: int, sheet: Sheet, share: Words, theirs: Words) -> tuple[Words, Words]:
        """B's share of a context, masked again, and its shares of [xS | xV']."""
        own, x, overlaps = self.side.mask_context(sheet, share, theirs, slot)
        self._updates[slot] = _Update(sheet, x, overlaps)
        return own, overlaps

    def project(self, message: Project) -> Projected:
        """B's shares of v, of r − x·theta, of q and of s."""
        update = self._update(message)
        gain, square, scale = self.side.gain_and_scale(
            update.sheet, update.x, update.overlaps, message.overlaps, message.square
        )
        update.own_gain, update.gain, update.own_scale = gain, message.gain, scale
        update.is_projected = True
        return Projected(message.place, gain, square, scale)

    def scale(self, message: Scale) -> Scaled:
        """B's shares of the new row of the window, which is complete then."""
        update, n = self._update(message), message.place.slot
        gain, scale = (update.own_gain, update.gain), (update.own_scale, message.scale)
        row = self.side.settle(n, update.sheet, gain, scale, message.row)
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


_NO_WORDS = zeros(0)
