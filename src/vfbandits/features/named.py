"""Features by name, as requests have them: an object becomes a row of the scaling's columns.

The row is, bit for bit, the one that a feature store would give for the same cells.  A name that is
left out, or is null, counts as zero after scaling, which is the mean of a standardised column.
A name that is in no column is refused, unless the scaling has a part for the ``rest``.

Features without any schema are flattened first: ``{"device": {"os": "iOS"}}`` is the feature
``device.os``.  Nothing in them is refused.  What does not fit a column is hashed into the rest.
"""

import difflib
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from vfbandits.core.arrays import Matrix, PlainBlock
from vfbandits.core.noise import clip_rows
from vfbandits.errors import ContextError, FeatureError
from vfbandits.features.scaling import RawRows, Scaling

Value: TypeAlias = float | str | bool | None
Pair: TypeAlias = tuple[str, float | str]

LARGEST: Final = 1e100
MAX_LISTED: Final = 30
MAX_NAME_LENGTH: Final = 256
MAX_SPREADS: Final = 1e6  # a free-form number that is farther from the centre is hashed


@dataclass(slots=True)
class _Row:
    """The cells of one row, by their columns' places, and what is in no column."""

    numbers: list[float]
    texts: list[str | None]
    others: list[Pair]


class NamedRows:
    """Makes rows of one scaling; those longer than ``clip_norm`` are shortened to it.

    >>> cities = {"city": ("Bern", "Rome")}
    >>> names = NamedRows(Scaling("none", ("age",), np.zeros(1), np.ones(1), cities))
    >>> names.rows([{"age": 31, "city": "Rome"}, {}], of="the user")
    array([[31.,  0.,  1.],
           [ 0.,  0.,  0.]])
    >>> names.rows([{"agee": 31}], of="the user")
    Traceback (most recent call last):
    vfbandits.errors.ContextError: features of the user: 'agee' is not a feature, but 'age' is; \
features are age, city
    """

    def __init__(self, scaling: Scaling, *, clip_norm: float | None = None) -> None:
        self.scaling = scaling
        self.clip_norm = clip_norm
        self._numbers = {name: place for place, name in enumerate(scaling.numbers)}
        self._texts = {name: place for place, name in enumerate(scaling.text_columns)}
        self._centres: list[float] = scaling.centres.tolist()

    def rows(self, objects: Sequence[Mapping[str, Value]], *, of: str) -> Matrix:
        """One row for each object, (n, width); ``of`` says whose they are, for errors."""
        return self._scaled([self._row(each, of) for each in objects], self.clip_norm)

    def free_rows(self, objects: Sequence[Iterable[Pair]], *, longest: float) -> Matrix:
        """Rows of flattened features, which are never refused; none is longer than ``longest``."""
        limit = longest if self.clip_norm is None else min(longest, self.clip_norm)
        return self._scaled([self._free_row(each) for each in objects], limit)

    def _scaled(self, rows: Sequence[_Row], longest: float | None) -> Matrix:
        numbers = np.array([row.numbers for row in rows], dtype=np.float64)
        texts = tuple([row.texts[place] for row in rows] for place in range(len(self._texts)))
        raw = RawRows(
            numbers.reshape(len(rows), len(self._numbers)), texts, [row.others for row in rows]
        )
        try:
            block: PlainBlock = self.scaling.apply(raw)
        except FeatureError as error:
            raise ContextError(f"features by name: {error}") from None
        return block if longest is None else clip_rows(block, longest)[0]

    def _empty(self) -> _Row:
        """What is missing: the centre of a number, which becomes zero, and no text."""
        return _Row(self._centres.copy(), [None] * len(self._texts), [])

    def _row(self, features: Mapping[str, Value], of: str) -> _Row:
        row = self._empty()
        for name, value in features.items():
            place = self._numbers.get(name)
            if place is not None:
                if value is not None:
                    row.numbers[place] = _number(value, name, of)
                continue
            place = self._texts.get(name)
            if place is not None:
                if value is not None:
                    row.texts[place] = _text(value, name, of)
            elif not self.scaling.rest:
                raise ContextError(f"features of {of}: {self._unknown(name)}")
            elif value is not None:
                is_text = isinstance(value, str)
                row.others.append((name, value if is_text else _number(value, name, of)))
        return row

    def _free_row(self, pairs: Iterable[Pair]) -> _Row:
        row = self._empty()
        seen: set[str] = set()
        for name, value in pairs:
            is_first = name not in seen
            seen.add(name)
            if is_first and isinstance(value, str) and name in self._texts:
                row.texts[self._texts[name]] = value
            elif is_first and not isinstance(value, str) and self._fits(name, value):
                row.numbers[self._numbers[name]] = value
            else:
                row.others.append((name, value))
        return row

    def _fits(self, name: str, value: float) -> bool:
        """Whether a number belongs to its column, by a generous limit."""
        place = self._numbers.get(name)
        if place is None:
            return False
        spread = float(self.scaling.spreads[place])
        return abs(value - self._centres[place]) <= MAX_SPREADS * spread

    def _unknown(self, name: str) -> str:
        known = self.scaling.columns
        near = difflib.get_close_matches(name, known, n=1)
        hint = f", but {near[0]!r} is" if near else ""
        listed = ", ".join(known[:MAX_LISTED]) + ", …" * (len(known) > MAX_LISTED)
        return f"{name[:60]!r} is not a feature{hint}; features are {listed}"


@dataclass(frozen=True, slots=True)
class FeatureNames:
    """How features by name become rows: the active participant's own, and those of arms.

    ``own`` is None where no scaling is configured, and ``arms`` where arms have none (only layout
    "outer" has features of arms).
    """

    own: NamedRows | None = None
    arms: NamedRows | None = None


def flatten(features: object) -> Iterator[Pair]:
    """Names and values of free-form features, in the order in which they come.

    Objects within objects give dotted names, and lists are walked through: their objects and texts
    count under the list's own name, their numbers under their position.  Names that begin with
    ``_`` are left out, as in services that take such features, and so is null.

    >>> [*flatten([{"age": 3, "device": {"os": "iOS", "_id": 7}}, {"tags": ["a", "b"]}])]
    [('age', 3), ('device.os', 'iOS'), ('tags', 'a'), ('tags', 'b')]
    """
    waiting: list[tuple[str, object]] = [("", features)]  # no recursion: JSON may be deep
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, Mapping):
            named = [(str(key), each) for key, each in value.items()]
            items = [(_joined(name, key), each) for key, each in named if key[:1] != "_"]
            waiting.extend(reversed(items))
        elif isinstance(value, list | tuple):
            waiting.extend(reversed([*_items(name, value)]))
        elif isinstance(value, str):
            yield name, value
        elif isinstance(value, int | float):
            yield name, _within(value)


def _items(name: str, values: Sequence[object]) -> Iterator[tuple[str, object]]:
    for place, each in enumerate(values):
        yield _joined(name, str(place)) if isinstance(each, int | float) else name, each


def _joined(name: str, key: str) -> str:
    """The name of what is within ``name``.

    A long one becomes its digest: a name of a million characters, once for each of ten thousand
    features below it, would be a small request that fills the memory.
    """
    joined = f"{name}.{key}" if name else key
    if len(joined) <= MAX_NAME_LENGTH:
        return joined
    return hashlib.blake2b(joined.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def _within(value: float) -> float:
    """A finite number; JSON may have integers that no float holds.  Whole numbers stay whole."""
    if isinstance(value, bool) or value != value:  # noqa: PLR0124  (NaN)
        return 1.0 if value is True else 0.0
    return max(-LARGEST, min(LARGEST, value))


def _number(value: float | str, name: str, of: str) -> float:
    if isinstance(value, str):
        raise ContextError(f"features of {of}: {name!r} must be a number, got text")
    if not -LARGEST <= value <= LARGEST:
        raise ContextError(f"features of {of}: {name!r} must be within ±{LARGEST:g}")
    return float(value)


def _text(value: float | str, name: str, of: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)  # as the stores read a category that is a whole number
    came = "true or false" if isinstance(value, bool) else "a float"
    raise ContextError(f"features of {of}: {name!r} must be text or a whole number, got {came}")
