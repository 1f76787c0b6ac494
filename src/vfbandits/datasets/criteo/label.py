"""From the categories of a row to one label, after Malekzadeh et al. (2020).

A category's ordinal code (its place among the column's values in sorted order, from 0) is hashed
by md5(code) mod 3.  The counts (a, b, c) of the three outcomes over a row's columns are paired,
after Cantor, into the label ⟨⟨a,b⟩, ⟨⟨a,b⟩, c⟩⟩.

What a label means is accidental: codes depend on which values the file happens to hold.
"""

import hashlib
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from vfbandits.datasets.lookup import Lookup

Triple: TypeAlias = tuple[int, int, int]
BITS = 5  # a count is at most 26
N_PACKED = 1 << (3 * BITS)
UNITS = np.array([1, 1 << BITS, 1 << (2 * BITS)], dtype=np.uint16)


def cantor(x: int, y: int) -> int:
    """The pairing function: every pair of whole numbers from 0 has a number of its own.

    >>> [cantor(0, 0), cantor(1, 0), cantor(0, 1), cantor(2, 0)]
    [0, 1, 2, 3]
    """
    return (x + y) * (x + y + 1) // 2 + y


def label_of(triple: Triple) -> int:
    """The label ⟨⟨a,b⟩, ⟨⟨a,b⟩, c⟩⟩.

    >>> label_of((1, 0, 2))
    53
    """
    a, b, c = triple
    pair = cantor(a, b)
    return cantor(pair, cantor(pair, c))


def bucket_of(code: int) -> int:
    """md5 of the code's decimal digits, mod 3.

    >>> [bucket_of(code) for code in range(5)]
    [1, 1, 0, 1, 2]
    """
    digest = hashlib.md5(str(code).encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest, "big") % 3


def unpack(packed: int) -> Triple:
    """The counts (a, b, c) in a packed number."""
    most = (1 << BITS) - 1
    return packed & most, (packed >> BITS) & most, packed >> (2 * BITS)


class Labeller:
    """Packs the counts (a, b, c) of each row into one number, a + 32·b + 1024·c.

    ``distinct`` holds the sorted values of each column that counts.
    """

    def __init__(self, distinct: Mapping[str, NDArray[np.uint32]]) -> None:
        most = max((len(values) for values in distinct.values()), default=0)
        # One table of buckets serves all columns: a bucket depends on the code alone.
        units = UNITS[np.fromiter((bucket_of(code) for code in range(most)), np.intp, most)]
        self._lookups = {n: Lookup(values, units[: len(values)]) for n, values in distinct.items()}

    def pack(self, frame: pl.DataFrame) -> NDArray[np.uint16]:
        """One number for each row of ``frame``, which must have no gaps in the columns known."""
        packed = np.zeros(frame.height, dtype=np.uint16)
        for name, lookup in self._lookups.items():
            packed += lookup.find(frame[name].to_numpy())
        return packed
