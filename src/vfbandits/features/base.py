"""What a feature store is: keys in, rows of one participant's block out.

A store holds *raw* columns, numbers and categories.  It is given the participant's scaling and
answers with scaled rows, so that callers see float64 and nothing else.  A store in memory
scales once, when it is filled; one behind a server scales each answer.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from vfbandits.core.arrays import PlainBlock
from vfbandits.errors import FeatureError

Key: TypeAlias = tuple[str, ...]
"""``(user,)`` in the layouts outer and disjoint, ``(user, arm)`` in layout per_arm."""


class Lookup(NamedTuple):
    """Scaled rows (n, width), C-ordered, one for each key asked for and in that order.

    Keys at the places ``absent`` were not found: their rows are zeros, which is the mean of a
    standardised column.  ``clipped`` rows were longer than the longest allowed and have been
    shortened.  Rows at the places ``refused`` are zeros as well: their users gave no consent.
    """

    values: PlainBlock
    absent: Sequence[int] = ()
    clipped: int = 0
    refused: Sequence[int] = ()

    def __repr__(self) -> str:
        """Sizes and places; the values stay inside."""
        return (
            f"Lookup({len(self.values)} rows, absent={self.absent}, clipped={self.clipped}, "
            f"refused={self.refused})"
        )

    @property
    def missing(self) -> int:
        """How many keys were not found."""
        return len(self.absent)


class FeatureStore(Protocol):
    """Where a participant keeps the features of its users.

    Safe to call from several threads.  Every refusal is a ``FeatureError``, and none holds a value
    or a password.
    """

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the raw columns: numbers first, then categories."""
        ...

    @property
    def width(self) -> int:
        """How many numbers a scaled row has."""
        ...

    def rows(self, keys: Sequence[Key]) -> Lookup:
        """The rows of these keys, in one batch; a key may come twice."""
        ...

    def users(self) -> Iterator[str]:
        """The first part of every key, as a lookup finds it; a user may come several times.

        A store that is asked at each lookup is read in pages.  Rows that change meanwhile may be
        left out.
        """
        ...

    def sample(self, count: int) -> PlainBlock:
        """Scaled rows of some keys, at most ``count`` of them; none without consent."""
        ...

    def check(self) -> None:
        """Refuse if a lookup could not be answered now."""
        ...

    def describe(self) -> dict[str, object]:
        """Facts fit for a log: the kind, the columns, how many rows if that is known."""
        ...

    def close(self) -> None:
        """Release memory and connections; a second call does nothing."""
        ...


def refuse_key(key: Key, n_parts: int) -> None:
    """Refuse a key of another shape than this store's: it would never be found.

    >>> refuse_key(("u7", "tea"), 1)
    Traceback (most recent call last):
    vfbandits.errors.FeatureError: a key of this store must have 1 part, got 2
    """
    if len(key) != n_parts:
        raise FeatureError(
            f"a key of this store must have {n_parts} part{'s' * (n_parts > 1)}, got {len(key)}"
        )
