"""The distinct values of a column too long for memory, as long as the values themselves fit."""

import numpy as np
from numpy.typing import NDArray

FEW = 1 << 18


class Distinct:
    """The distinct values seen so far, sorted.

    New ones wait until they are as many as the old, so that each value is merged a few times only.
    """

    def __init__(self) -> None:
        self._sorted = np.empty(0, dtype=np.uint32)
        self._waiting: list[NDArray[np.uint32]] = []
        self._n_waiting = 0

    def add(self, values: NDArray[np.uint32]) -> None:
        """Note values, in any order and number."""
        fresh = _sorted_once(values)
        self._waiting.append(fresh)
        self._n_waiting += len(fresh)
        if self._n_waiting > max(FEW, len(self._sorted)):
            self.values()

    def values(self) -> NDArray[np.uint32]:
        """All of them; position is the ordinal code."""
        if self._waiting:
            self._sorted = _sorted_once(np.concatenate([self._sorted, *self._waiting]))
            self._waiting, self._n_waiting = [], 0
        return self._sorted


def _sorted_once(values: NDArray[np.uint32]) -> NDArray[np.uint32]:
    ordered = np.sort(values)
    is_new = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_new[1:])
    return ordered[is_new]
