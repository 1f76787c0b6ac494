"""What the widths of shown contexts would tell about features, and what the masked ones tell.

Run as ``python -m benchmarks.shares_leak``.  The active participant follows the protocol, but some
users are planted: it knows their features at every participant.  It knows Lambda before the reward
of another user (at first Lambda is ridge·I, which is public), and gives the planted users' rewards
next.  From all q = x'Lambda⁻¹x it then fits that user's unknown features by least squares.

The attack runs twice.  With ``sees="widths"`` it is given every q, as in a protocol that opens
them.  With ``sees="messages"`` it has what this protocol shows the active participant: q under a
mask, from the messages that it sent and received.  Errors are in standard deviations of the
features: 0 is exact, guessing the mean has 1, and the features of another user drawn at random have
1.41.
"""

import argparse
import sys
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from vfbandits.core.arrays import Matrix, PlainBlock, Vector
from vfbandits.core.mask import deal_blockwise
from vfbandits.core.ring import FRACTION, open_short
from vfbandits.core.shares.local import LocalShares
from vfbandits.core.shares.messages import Learn, Message, Whitened
from vfbandits.core.shares.terms import ShareTerms

_STARTS = 20
_FOUND = 1e-14


Sight = Literal["widths", "messages"]


def error_of_attack(
    *, sees: Sight, own: int, unknown: int, planted: int, victims: int = 10, seed: int = 0
) -> float:
    """Root of the median squared error of a victim's unknown features, in deviations.

    >>> error_of_attack(sees="widths", own=2, unknown=2, planted=4, victims=3) < 1e-3
    True
    >>> error_of_attack(sees="messages", own=2, unknown=2, planted=4, victims=9) > 0.5
    True
    """
    rng = np.random.default_rng(seed)
    terms = ShareTerms(widths=(own, unknown), max_arms=1, ridge=1.0, posterior_scale=0.1)
    view = _View(terms)
    rotations = deal_blockwise(terms.widths, entropy=rng.bytes)
    local = LocalShares(terms, rotations=rotations, on_message=view)
    inverse = np.eye(terms.dim)
    errors = []
    for _ in range(victims):
        rows = _rows(rng, 1 + planted, terms)
        seen = np.array([_masked_width(local, view, row) for row in rows])
        if sees == "widths":
            seen = _widths(inverse, rows)[0]
        found = _fitted(rng, inverse, seen, rows[0, :own], rows[1:])
        errors.append(np.mean((found - rows[0, own:]) ** 2) / _variance(unknown))
        inverse = _widths(inverse, rows)[1]  # given to the attacker; from a good fit it follows
    return float(np.sqrt(np.median(errors)))


def _variance(width: int) -> float:
    return 0.2 / width


def _rows(rng: np.random.Generator, n: int, terms: ShareTerms) -> Matrix:
    """Contexts of n users; each block is at most 1 long."""
    blocks = []
    for width in terms.widths:
        block = rng.standard_normal((n, width)) * np.sqrt(_variance(width))
        blocks.append(block / np.maximum(1.0, np.linalg.norm(block, axis=1, keepdims=True)))
    return np.concatenate(blocks, axis=1)


class _View:
    """What the active participant has of q at the last reward: its share, and the helper's."""

    def __init__(self, terms: ShareTerms) -> None:
        self._limit = terms.max_length**2
        self._shares: dict[type[Message], NDArray[np.uint64]] = {}

    def __call__(self, sender: str, receiver: str, message: Message) -> None:
        del sender, receiver
        if isinstance(message, Learn | Whitened):
            self._shares[type(message)] = message.square

    def masked_width(self) -> float:
        """The opened number, brought to where q can be."""
        opened = open_short(self._shares[Whitened], self._shares[Learn])
        return float(opened[0]) * 2.0**-FRACTION % self._limit


def _masked_width(local: LocalShares, view: _View, row: Vector) -> float:
    cut = local.terms.widths[0]
    blocks = [PlainBlock(part[None]) for part in (row[:cut], row[cut:])]
    local.learn(local.pick(local.decide(blocks), 0), 0.0)
    return view.masked_width()


def _widths(inverse: Matrix, rows: Matrix) -> tuple[Vector, Matrix]:
    """The q of each row, learnt one after the other, and Lambda⁻¹ after the last."""
    widths = []
    for row in rows:
        gain = inverse @ row
        widths.append(gain @ row)
        inverse = inverse - np.outer(gain, gain) / (1.0 + widths[-1])
    return np.array(widths), inverse


def _fitted(
    rng: np.random.Generator, inverse: Matrix, seen: Vector, own: Vector, planted: Matrix
) -> Vector:
    """Features of a victim with which all q are those that were seen, as nearly as found."""
    width = len(inverse) - len(own)

    def gap(unknown: Vector) -> Vector:
        rows = np.vstack((np.concatenate((own, unknown)), planted))
        return 1e3 * (_widths(inverse, rows)[0] - seen)

    best, least = np.zeros(width), np.inf
    for _ in range(_STARTS):
        start = rng.standard_normal(width) * np.sqrt(_variance(width))
        fit = least_squares(gap, start, xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=100)
        if fit.cost < least:
            best, least = fit.x, fit.cost
        if least < _FOUND:
            break
    return best


def main() -> None:
    """Print the error for some numbers of planted users."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shares_leak", description=__doc__)
    parser.add_argument("--own", type=int, default=4, help="features of the active participant")
    parser.add_argument("--unknown", type=int, default=10, help="features that it does not know")
    parser.add_argument("--victims", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    unknown = given.unknown
    for planted in (0, unknown // 2, unknown, 2 * unknown):
        size = {"own": given.own, "unknown": unknown, "planted": planted}
        opened, masked = (
            error_of_attack(sees=sees, victims=given.victims, seed=given.seed, **size)
            for sees in ("widths", "messages")
        )
        sys.stdout.write(
            f"{unknown} unknown features, {planted:3} planted rewards after a victim's: median "
            f"error {opened:.2f} deviations with widths, {masked:.2f} with what is sent\n"
        )


if __name__ == "__main__":
    main()
