"""Features in memory: one contiguous matrix, and a dictionary from key to row."""

from collections.abc import Sequence
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
    ) -> None:
        for key in keys:
            refuse_key(key, n_parts)
        self._index = {key: place for place, key in enumerate(keys)}
        if len(self._index) != len(keys):
            again = len(keys) - len(self._index)
            raise FeatureError(f"a store must hold each key once, got {again} rows of known keys")
        # The last row is what a missing key gets, so that a lookup is one gather.
        self._matrix = np.zeros((len(keys) + 1, scaling.width))
        self._matrix[:-1] = scaling.apply(raw)
        self._scaling = scaling
        self._n_parts = n_parts
        self._kind = kind

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
        missing = places.count(nowhere)
        if missing:
            for key in keys:
                refuse_key(key, self._n_parts)
        return Lookup(PlainBlock(self._matrix.take(places, axis=0)), missing)

    def check(self) -> None:
        """Nothing can be in the way."""

    def describe(self) -> dict[str, object]:
        """Kind, number of rows, columns."""
        return {"kind": self._kind, "rows": len(self._index), "columns": list(self.columns)}

    def close(self) -> None:
        """Forget the rows: every key is missing from now on."""
        self._index = {}
        self._matrix = np.zeros((1, self.width))
