"""Columns of a table in memory: pandas, Polars, a mapping of columns, or a NumPy matrix."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vfbandits.core.arrays import Matrix
from vfbandits.errors import FeatureError
from vfbandits.features.scaling import RawRows

Name: TypeAlias = str | int
"""Name of a column; a number in a NumPy matrix."""
NUMBER_KINDS: Final = "biuf"
MAX_CATEGORIES: Final = 1_000


class Columns:
    """Any of the tables above, by column.

    >>> columns = Columns({"age": [31, 45], "city": ["Bern", "Rome"]})
    >>> len(columns), columns.is_number("age"), columns.is_number("city")
    (2, True, False)
    """

    def __init__(self, table: Any) -> None:  # noqa: ANN401  (pandas is no dependency of ours)
        self._table = table
        self._is_matrix = isinstance(table, np.ndarray)
        if self._is_matrix and table.ndim != 2:
            raise FeatureError(f"a table of numbers must be a matrix, got shape {table.shape}")
        if not self._is_matrix and not hasattr(table, "__getitem__"):
            raise FeatureError(
                "a table must be a DataFrame of pandas or Polars, a mapping of columns or a NumPy "
                f"matrix, got a {type(table).__name__}"
            )
        names = range(table.shape[1]) if self._is_matrix else getattr(table, "columns", table)
        self.names: tuple[Name, ...] = tuple(names)
        twice = [name for name, count in Counter(self.names).items() if count > 1]
        if twice:
            raise FeatureError(f"columns of a table must be named once, got {twice[0]!r} twice")
        self._length = len(self.column(self.names[0])) if self.names else 0

    def __len__(self) -> int:
        """How many rows."""
        return self._length

    def column(self, name: Name) -> NDArray[Any]:
        """One column; refuses a name that the table does not have."""
        if name not in self.names:
            known = ", ".join(map(str, self.names[:20]))
            raise FeatureError(f"a column must be one of {known}; got {name!r}")
        if self._is_matrix:
            return np.asarray(self._table[:, name])
        column = self._table[name]
        if type(column).__module__.startswith("pandas.") and column.dtype.kind in NUMBER_KINDS:
            # Its own kinds of numbers become objects otherwise, and missing ones an NA.
            return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
        return np.asarray(column)

    def is_number(self, name: Name) -> bool:
        """Whether a column is taken as it is, and not as a category."""
        return self.column(name).dtype.kind in NUMBER_KINDS

    def raw(self, names: Sequence[Name]) -> tuple[RawRows, list[str], list[str]]:
        """Columns as a scaling takes them, with the names of numbers and of categories."""
        numbers = [name for name in names if self.is_number(name)]
        texts = [name for name in names if not self.is_number(name)]
        matrix = np.empty((len(self), len(numbers)))
        for place, name in enumerate(numbers):
            matrix[:, place] = self.column(name)
        self._refuse_missing(matrix, numbers)
        rows = RawRows(matrix, tuple(self.texts(name) for name in texts))
        return rows, [str(name) for name in numbers], [str(name) for name in texts]

    def texts(self, name: Name) -> list[str]:
        """A column of categories; refuses empty cells."""
        cells = self.column(name).tolist()
        missing = sum(map(_is_missing, cells))
        if missing:
            raise FeatureError(
                f"column {name!r} must have no missing values, got {missing} in {len(cells)} rows"
            )
        texts = [str(cell) for cell in cells]
        if len(set(texts)) > MAX_CATEGORIES:
            raise FeatureError(
                f"column {name!r} must have at most {MAX_CATEGORIES} categories, "
                f"got {len(set(texts))}: is it an id, or numbers as text?"
            )
        return texts

    def _refuse_missing(self, matrix: Matrix, names: Sequence[Name]) -> None:
        for name, bad in zip(names, (~np.isfinite(matrix)).sum(axis=0), strict=True):
            if bad:
                raise FeatureError(
                    f"column {name!r} must hold finite numbers, got {bad} of {len(self)} rows with "
                    "NaN or infinity"
                )


def _is_missing(cell: object) -> bool:
    """None, NaN, or what pandas has for them."""
    is_nan = isinstance(cell, float) and math.isnan(cell)
    return cell is None or is_nan or type(cell).__name__ in ("NAType", "NaTType")
