"""A snapshot: a header of plain values and named arrays, from which an object is made again.

No file is touched here; ``vfbandits.journal`` writes and reads them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from vfbandits.errors import SnapshotError

T = TypeVar("T")
AnyArray: TypeAlias = NDArray[np.float64]

ROWS_PER_BATCH = 250


class LazyList(Sequence[T]):
    """A long list of a snapshot, whose items are made when they are read.

    ``make`` gives the items of a slice.  What it reads must not change later: to take a snapshot is
    then quick, and its writer makes the items.

    >>> squares = LazyList(4, lambda part: [k * k for k in range(4)[part]])
    >>> squares[1:3], squares == [0, 1, 4, 9]
    ([1, 4], True)
    """

    __slots__ = ("_length", "_make")

    def __init__(self, length: int, make: Callable[[slice], list[T]]) -> None:
        self._length = length
        self._make = make

    def __len__(self) -> int:
        """How many items there are."""
        return self._length

    @overload
    def __getitem__(self, place: int) -> T: ...

    @overload
    def __getitem__(self, place: slice) -> list[T]: ...

    def __getitem__(self, place: int | slice) -> T | list[T]:
        """An item, or a list of some."""
        if isinstance(place, slice):
            return self._make(place)
        place = range(self._length)[place]
        return self._make(slice(place, place + 1))[0]

    def __eq__(self, other: object) -> bool:
        """As lists are compared."""
        return isinstance(other, list | LazyList) and self[:] == other[:]

    __hash__ = None  # type: ignore[assignment]  # as of lists

    def __reduce__(self) -> tuple[type[list[T]], tuple[list[T]]]:
        """A copy or a pickle is a list."""
        return list, (self[:],)


Rows: TypeAlias = list[AnyArray] | LazyList[AnyArray]


@dataclass(frozen=True, slots=True)
class Record:
    """A header read back: every value is checked for its kind before it is believed.

    >>> Record({"dim": 3}).integer("dim")
    3
    >>> Record({"dim": "three"}).integer("dim")
    Traceback (most recent call last):
    vfbandits.errors.SnapshotError: wanted a whole number at 'dim', got str
    """

    values: Mapping[str, object] = field(repr=False)

    def _get(self, key: str, wanted: str) -> object:
        if key not in self.values:
            raise SnapshotError(f"wanted {wanted} at {key!r}, got nothing")
        return self.values[key]

    def _wrong(self, key: str, wanted: str, value: object) -> SnapshotError:
        return SnapshotError(f"wanted {wanted} at {key!r}, got {type(value).__name__}")

    def has(self, key: str) -> bool:
        """Whether there is a value other than null at ``key``."""
        return self.values.get(key) is not None

    def integer(self, key: str) -> int:
        """A whole number."""
        value = self._get(key, "a whole number")
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, "a whole number", value)
        return value

    def number(self, key: str) -> float:
        """A number."""
        value = self._get(key, "a number")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, "a number", value)
        try:
            return float(value)
        except OverflowError:
            raise self._wrong(key, "a number that a float holds", value) from None

    def text(self, key: str) -> str:
        """A string."""
        value = self._get(key, "text")
        if not isinstance(value, str):
            raise self._wrong(key, "text", value)
        return value

    def items(self, key: str) -> list[object]:
        """A list."""
        value = self._get(key, "a list")
        if isinstance(value, LazyList):
            return value[:]
        if not isinstance(value, list):
            raise self._wrong(key, "a list", value)
        return value

    def child(self, key: str) -> "Record":
        """A record inside this one."""
        value = self._get(key, "a record")
        if not isinstance(value, dict):
            raise self._wrong(key, "a record", value)
        return Record(value)

    def plain(self, key: str) -> dict[str, object]:
        """A record inside this one, as a dictionary."""
        return dict(self.child(key).values)


def stored(arrays: Mapping[str, AnyArray], name: str, shape: tuple[int, ...]) -> AnyArray:
    """A Fortran-ordered copy of the array ``name``, if it is there and has this shape."""
    if name not in arrays or arrays[name].shape != shape:
        came = arrays[name].shape if name in arrays else "nothing"
        raise SnapshotError(f"the snapshot needs an array {name!r} of shape {shape}, got {came}")
    return np.array(arrays[name], dtype=np.float64, order="F")


def stacked(rows: Rows) -> AnyArray:
    """One array of these rows.

    >>> stacked([np.zeros(2), np.ones(2)])
    array([[0., 0.],
           [1., 1.]])
    """
    return np.concatenate([*batches(rows)])


def batches(rows: Rows) -> Iterator[AnyArray]:
    """Arrays of some rows each: each call holds Python's lock.

    >>> [batch.shape for batch in batches([np.zeros(3)] * 251)]
    [(250, 3), (1, 3)]
    """
    for start in range(0, len(rows), ROWS_PER_BATCH):
        some = rows[start : start + ROWS_PER_BATCH]
        yield np.concatenate(some).reshape(len(some), -1)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Header and arrays of one object.  ``secret`` says that the arrays hold masks.

    An array may be held as its rows, and a list of the header as a ``LazyList``, which nobody
    changes: to take a snapshot is then quick, and its writer puts them together.
    """

    header: Mapping[str, object]
    held: Mapping[str, AnyArray | Rows] = field(repr=False)
    secret: bool = False

    @property
    def arrays(self) -> dict[str, AnyArray]:
        """The arrays, whole."""
        return {n: a if isinstance(a, np.ndarray) else stacked(a) for n, a in self.held.items()}

    @property
    def record(self) -> Record:
        """The header, for reading back."""
        return Record(self.header)

    def below(self, prefix: str) -> dict[str, AnyArray]:
        """Arrays whose names start with ``prefix``, without it."""
        return {
            name.removeprefix(prefix): array
            for name, array in self.arrays.items()
            if name.startswith(prefix)
        }
