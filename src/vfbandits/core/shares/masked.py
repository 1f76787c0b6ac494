"""A masked number as the dealer has it, and as server B has it; and products of such numbers.

Server A has T = v + λ_B, and needs no type for it: its part of a product is the product.
"""

from collections.abc import Callable
from typing import NamedTuple

from vfbandits.core.ring import (
    Sheet,
    Words,
    add,
    minus_cross,
    minus_cross_rows,
    reopened_mask,
    subtract,
)

Product = Callable[[Words, Words], Words]


class Mask(NamedTuple):
    """λ = λ_A + λ_B of a masked value."""

    A: Words
    B: Words

    @property
    def whole(self) -> Words:
        """λ."""
        return add(self.A, self.B)

    def rows(self, stop: int) -> "Mask":
        """The first rows."""
        return Mask(self.A[:, :stop], self.B[:, :stop])


def cross(v: Mask, w: Mask, product: Product) -> Words:
    """λ_vB·λ_w + λ_vA·λ_wB: the dealer's term of a product."""
    return add(product(v.B, w.whole), product(v.A, w.B))


def row_of(sheet: Sheet, part: str) -> Words:
    """A part of a sheet, as a matrix with one row."""
    return sheet.take(part)[:, None]


def fresh_matrix(term: Words, A: Sheet, B: Sheet, name: str) -> Mask:
    """The mask that a product has after its parts were exchanged under ρ_A and ρ_B and reopened."""
    rho = add(A.take(f"rho_{name}"), B.take(f"rho_{name}"))
    helper = B.take(f"mask_{name}")
    return Mask(subtract(reopened_mask(subtract(rho, term)), helper), helper)


def fresh(term: Words, A: Sheet, B: Sheet, name: str, n: int | None = None) -> Mask:
    """As ``fresh_matrix`` for one row, of which the first ``n`` words are used."""
    rho = add(A.take(f"rho_{name}")[:, None, :n], B.take(f"rho_{name}")[:, None, :n])
    helper = B.take(f"mask_{name}")[:, None, :n]
    return Mask(subtract(reopened_mask(subtract(rho, term)), helper), helper)


class Known(NamedTuple):
    """A masked value as B has it: m, and its part λ_B of the mask."""

    m: Words
    part: Words

    def rows(self, stop: int) -> "Known":
        """The first rows."""
        return Known(self.m[:, :stop], self.part[:, :stop])

    def plus(self, other: "Known") -> "Known":
        """The sum, masked by the sum of the masks."""
        return Known(add(self.m, other.m), add(self.part, other.part))

    def minus(self, other: "Known") -> "Known":
        """The difference."""
        return Known(subtract(self.m, other.m), subtract(self.part, other.part))


def product_share(v: Known, w: Known) -> Words:
    """B's part of the product v w: −(m_v·λ_wB + λ_vB·m_w)."""
    return minus_cross(v.m, v.part, w.m, w.part)


def rows_share(v: Known, w: Known) -> Words:
    """B's part of the inner products of the rows of v with those of w."""
    return minus_cross_rows(v.m, v.part, w.m, w.part)
