"""Features in memory: one contiguous matrix, and a dictionary from key to row."""

from collections.abc import Iterator, Sequence
from itertools import repeat

import numpy as np

from vfbandits.core.arrays import PlainBlock
from vfbandits.errors import FeatureError
from vfbandits.features.base import Key, Lookup, refuse_key
from vfbandits.features.scaling import RawRows, Scaling


class MemoryStore:
    """Rows that were scaled once, when the store was filled; a lookup only copies.

    >>> scaling = Scaling.identity(["age", "income"])
    >>> raw = RawRows(np.array([[40.0, 2.5], [30.0, 1.0]]))
    >>> store = MemoryStore([("ann",), ("bob",)], raw, scaling=scaling)
    >>> answer = store.rows([("bob",), ("eve",)])
    >>> answer.values, answer.missing
    (array([[30.,  1.],
           [ 0.,  0.]]), 1)
    """

    def __init__(
        self,
        keys: Sequence[Key],
        raw: RawRows,
        *,
        scaling: Scaling,
        n_parts: int = 1,
        kind: str = "memory",
        consents: Sequence[bool] | None = None,
    ) -> None:
        for key in keys:
            refuse_key(key, n_parts)
        self._index = {key: place for place, key in enumerate(keys)}
        if len(self._index) != len(keys):
            again = len(keys) - len(self._index)
            raise FeatureError(f"a store must hold each key once, got {again} repeated keys")
        self._refused: frozenset[Key] = frozenset()
        if consents is not None:
            keys, raw = self._keep_given(keys, raw, consents)
        # The last row is what a missing key gets, so that a lookup is one gather.
        self._matrix = np.zeros((len(keys) + 1, scaling.width))
        self._matrix[:-1] = scaling.apply(raw)
        self._scaling = scaling
        self._n_parts = n_parts
        self._kind = kind

    def _keep_given(
        self, keys: Sequence[Key], raw: RawRows, consents: Sequence[bool]
    ) -> tuple[Sequence[Key], RawRows]:
        """Rows with consent; of the others nothing is kept but their keys."""
        places = [place for place, given in enumerate(consents) if given]
        kept = [keys[place] for place in places]
        self._index = {key: place for place, key in enumerate(kept)}
        self._refused = frozenset(
            key for key, given in zip(keys, consents, strict=True) if not given
        )
        texts = tuple([column[place] for place in places] for column in raw.texts)
        return kept, RawRows(raw.numbers[places], texts)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the raw columns: numbers first, then categories."""
        return self._scaling.columns

    @property
    def width(self) -> int:
        """How many numbers a scaled row has."""
        return self._scaling.width

    def rows(self, keys: Sequence[Key]) -> Lookup:
        """The rows of these keys; a key may come twice."""
        nowhere = len(self._matrix) - 1
        places: list[int] = list(map(self._index.get, keys, repeat(nowhere)))
        absent: list[int] = []
        refused: list[int] = []
        if nowhere in places:
            absent = [row for row, place in enumerate(places) if place == nowhere]
            for key in keys:
                refuse_key(key, self._n_parts)
            refused = [row for row in absent if keys[row] in self._refused]
            absent = [row for row in absent if keys[row] not in self._refused]
        return Lookup(PlainBlock(self._matrix.take(places, axis=0)), absent, refused=refused)

    def users(self) -> Iterator[str]:
        """The first part of every key."""
        return (key[0] for key in self._index)

    def sample(self, count: int) -> PlainBlock:
        """Rows from all over the table."""
        step = max(1, -(-len(self._index) // count))
        return PlainBlock(self._matrix[:-1:step].copy())

    def check(self) -> None:
        """Nothing can fail."""

    def describe(self) -> dict[str, object]:
        """Kind, number of rows, columns."""
        return {"kind": self._kind, "rows": len(self._index), "columns": list(self.columns)}

    def close(self) -> None:
        """Forget the rows: every key is missing from now on."""
        self._index = {}
        self._matrix = np.zeros((1, self.width))
