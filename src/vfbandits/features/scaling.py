"""Scaling: from raw columns to the block that a participant masks, the same way every time.

Numbers become (x - centre) / spread:

* ``standard``: centre is the mean and spread the standard deviation, so that zero is the mean.
* ``unit``: ``standard``, and then every column, flags too, divided by the root of the number of raw
  columns.  Rows have a mean squared length of about 1, so that no participant outweighs another by
  the number of its columns, and a ridge means the same for few and for many.
* ``minmax``: the fitted range becomes [-1, 1], so that zero is its middle.  As in scikit-learn a
  constant column becomes -1, and values outside the fitted range fall outside [-1, 1].
* ``none``: as they are.  Zero is the mean only if the columns came centred.

A user who is not in the store gets zeros, whatever the method.  Categories become one column of 0
and 1 for each category seen when fitting; an unknown category becomes zeros, as a missing user
does.  One-hot columns and flags are what an attacker reads back first from masked data.

Columns of open vocabularies are *hashed*: each has a width of its own, and a text adds +1 or -1 at
one place of it.  Place and sign come from BLAKE2b, keyed by the column's name, so that they are the
same in every process and version.  Two texts may share a place; their signs make such collisions
cancel on average.  ``rest`` is the width of one more such part, for features that are in no column:
there the name is hashed too, and a number x adds ±sign(x)·ln(1 + |x|), since nothing is known of
its range.

A fitted scaling tells facts about private data, so its file is its owner's alone.  Others receive
its digest; a random salt keeps them from guessing at what it covers.
"""

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from vfbandits.core.arrays import Matrix, PlainBlock, Vector
from vfbandits.errors import FeatureError
from vfbandits.files import write_whole
from vfbandits.settings.decode import decode
from vfbandits.settings.values import AtLeastOne, Count, Settings, Text

FORMAT = "vfbandits scaling"
VERSION = 1
METHODS = ("standard", "unit", "minmax", "none")
MAX_HASHED = 65_536  # places of one hashed part; a model of as many columns fits no memory
_NUMBER = "\0number"  # is hashed where a feature in no column has a number: no text is like it


@dataclass(frozen=True, slots=True, eq=False)
class RawRows:
    """Rows before scaling, as private as the store that they come from.

    ``numbers`` has shape (n, number columns); ``texts`` has n texts for each column of text, with
    None where there is none.  ``others`` has the features of each row that are in no column, or is
    empty where no row has any.
    """

    numbers: Matrix = field(repr=False)
    texts: tuple[Sequence[str | None], ...] = field(default=(), repr=False)
    others: Sequence[Sequence[tuple[str, float | str]]] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """A fitted transformer.

    Attributes
    ----------
    method
        One of ``METHODS``.
    numbers
        Names of the number columns, which come first in a scaled row.
    centres, spreads
        One for each number column.
    one_hot
        Names of the category columns, each with its categories; they follow the numbers.
    fitted_rows
        How many rows it was fitted on; 0 if it was not fitted.
    salt
        Random text, so that the digest of a fitted scaling tells nothing.
    hashed
        Names of the hashed columns, each with its width; they follow the categories.
    rest
        Width of the part that all other features are hashed to, the last; 0 for none.
    width
        How many numbers a scaled row has.
    digest
        SHA-256 over all of the above, as hexadecimal text.
    """

    method: str
    numbers: tuple[str, ...]
    centres: Vector = field(repr=False)
    spreads: Vector = field(repr=False)
    one_hot: Mapping[str, tuple[str, ...]] = field(repr=False)
    fitted_rows: int = 0
    salt: str = field(default="", repr=False)
    hashed: Mapping[str, int] = field(default_factory=dict)
    rest: int = 0
    width: int = field(init=False)
    digest: str = field(init=False)
    _places: tuple[Mapping[str, int], ...] = field(init=False, repr=False)
    _hashes: tuple["_Hash", ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what could not scale; keep at hand what each row needs."""
        _refuse_faults(self)
        places, start = [], len(self.numbers)
        for categories in self.one_hot.values():
            places.append({category: start + i for i, category in enumerate(categories)})
            start += len(categories)
        hashes = []
        for name, width in self.hashed.items():
            hashes.append(_Hash(_key_of(name), start, width))
            start += width
        object.__setattr__(self, "_places", tuple(places))
        object.__setattr__(self, "_hashes", tuple(hashes))
        object.__setattr__(self, "width", start + self.rest)
        object.__setattr__(self, "digest", _digest(_as_document(self)))

    @classmethod
    def identity(cls, columns: Sequence[str]) -> "Scaling":
        """Number columns as they are.

        >>> Scaling.identity(["age", "income"]).apply(RawRows(np.array([[40.0, 2.5]])))
        array([[40. ,  2.5]])
        """
        n = len(columns)
        return cls("none", tuple(columns), np.zeros(n), np.ones(n), {})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Scaling":
        """The scaling in a file that ``save`` wrote."""
        try:
            document = json.loads(Path(path).read_bytes())
        except OSError as error:
            raise FeatureError(f"cannot read the scaling {path}: {error.strerror}") from error
        except ValueError as error:
            raise FeatureError(f"{path} must be a scaling in JSON, got: {error}") from error
        return _from_document(document, str(path))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the raw columns: numbers first, then categories, then hashed columns."""
        return (*self.numbers, *self.one_hot, *self.hashed)

    @property
    def text_columns(self) -> tuple[str, ...]:
        """Names of the raw columns that hold text, in the order of ``RawRows.texts``."""
        return (*self.one_hot, *self.hashed)

    @property
    def scaled_columns(self) -> tuple[str, ...]:
        """Names of the columns of a scaled row: ``column=category``, or ``column#place``.

        >>> cities = {"city": ("Bern", "Rome")}
        >>> scaling = Scaling(
        ...     "none", ("age",), np.zeros(1), np.ones(1), cities, hashed={"page": 2}, rest=1
        ... )
        >>> scaling.scaled_columns
        ('age', 'city=Bern', 'city=Rome', 'page#0', 'page#1', '#0')
        """
        flags = (f"{name}={kind}" for name, kinds in self.one_hot.items() for kind in kinds)
        hashed = (f"{name}#{i}" for name, n in self.hashed.items() for i in range(n))
        return (*self.numbers, *flags, *hashed, *(f"#{i}" for i in range(self.rest)))

    @property
    def column_of_each(self) -> tuple[str, ...]:
        """The raw column behind each column of a scaled row.

        >>> cities = {"city": ("Bern", "Rome")}
        >>> Scaling("none", ("age",), np.zeros(1), np.ones(1), cities).column_of_each
        ('age', 'city', 'city')
        """
        flags = (name for name, kinds in self.one_hot.items() for _ in kinds)
        hashed = (name for name, n in self.hashed.items() for _ in range(n))
        return (*self.numbers, *flags, *hashed, *("#" for _ in range(self.rest)))

    @property
    def fitted_variances(self) -> Vector:
        """The variance of each column of a scaled row about a mean of 0; NaN where none is fitted.

        >>> Scaling("unit", ("age", "income"), np.zeros(2), np.ones(2), {}, 50).fitted_variances
        array([0.5, 0.5])
        """
        variances = np.full(self.width, np.nan)
        if self.fitted_rows and self.method in ("standard", "unit"):
            per_column = 1.0 if self.method == "standard" else 1.0 / len(self.columns)
            variances[: len(self.numbers)] = per_column
        return variances

    def apply(self, raw: RawRows) -> PlainBlock:
        """Raw rows, scaled: (n, width), C-ordered.

        >>> cities = {"city": ("Bern", "Rome")}
        >>> scaling = Scaling("standard", ("age",), np.array([40.0]), np.array([10.0]), cities)
        >>> scaling.apply(RawRows(np.array([[50.0], [40.0]]), (["Rome", "Oslo"],)))
        array([[1., 0., 1.],
               [0., 0., 0.]])
        """
        scaled = np.zeros((len(raw.numbers), self.width))
        with np.errstate(over="ignore", invalid="ignore"):
            scaled[:, : len(self.numbers)] = (raw.numbers - self.centres) / self.spreads
        n_categories = len(self._places)
        for places, texts in zip(self._places, raw.texts[:n_categories], strict=True):
            found = np.array(
                [-1 if text is None else places.get(text, -1) for text in texts], dtype=np.intp
            )
            known = np.flatnonzero(found >= 0)
            scaled[known, found[known]] = 1.0
        for hashing, texts in zip(self._hashes, raw.texts[n_categories:], strict=True):
            for row, text in enumerate(texts):
                if text is not None:
                    place, sign = hashing.of(text)
                    scaled[row, place] = sign
        if self.rest:
            self._add_others(scaled, raw.others)
        if self.method == "unit":
            scaled /= math.sqrt(len(self.columns) + bool(self.rest))
        if not np.isfinite(scaled).all():
            bad = int((~np.isfinite(scaled)).any(axis=1).sum())
            raise FeatureError(f"scaled rows must be finite, got {bad} that are not")
        return PlainBlock(scaled)

    def _add_others(
        self, scaled: Matrix, others: Sequence[Sequence[tuple[str, float | str]]]
    ) -> None:
        """Hash features that are in no column, (name, value), into the last part of each row."""
        start = self.width - self.rest
        for row, pairs in zip(scaled, others, strict=False):
            for name, value in pairs:
                hashing = _Hash(_key_of(name), start, self.rest)
                if isinstance(value, str):
                    place, sign = hashing.of(value)
                    row[place] += sign
                else:
                    place, sign = hashing.of(_NUMBER)
                    row[place] += sign * math.copysign(math.log1p(abs(value)), value)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it for its owner only; an older file is replaced in one step."""
        target = Path(path)
        document = {**_as_document(self), "digest": self.digest}
        data = json.dumps(document, indent=1).encode()
        try:
            return write_whole(target, lambda file: file.write(data), mode=0o600)
        except OSError as error:
            raise FeatureError(f"cannot write the scaling {target}: {error.strerror}") from error


def _refuse_faults(scaling: Scaling) -> None:
    if scaling.method not in METHODS:
        raise FeatureError(f"scaling is one of {', '.join(METHODS)}, got {scaling.method!r}")
    names = scaling.columns
    if not (names or scaling.rest) or len(set(names)) != len(names):
        raise FeatureError(f"a scaling needs columns, each once, got {', '.join(names) or 'none'}")
    shape = (len(scaling.numbers),)
    if scaling.centres.shape != shape or scaling.spreads.shape != shape:
        raise FeatureError(
            f"a scaling needs {shape[0]} centres and spreads, got shapes "
            f"{scaling.centres.shape} and {scaling.spreads.shape}"
        )
    for name, centre, spread in zip(scaling.numbers, scaling.centres, scaling.spreads, strict=True):
        if not math.isfinite(centre):
            raise FeatureError(f"the centre of column {name!r} must be finite, got {centre:g}")
        if not (math.isfinite(spread) and spread > 0.0):
            raise FeatureError(
                f"the spread of column {name!r} must be finite and above 0, got {spread:g}"
            )
    for name, categories in scaling.one_hot.items():
        if not categories or len(set(categories)) != len(categories):
            raise FeatureError(
                f"column {name!r} needs categories, each once, got "
                f"{len(categories)}, of which {len(set(categories))} differ"
            )
    for name, width in scaling.hashed.items():
        if not 1 <= width <= MAX_HASHED:
            raise FeatureError(
                f"the hashed column {name!r} needs a width from 1 to {MAX_HASHED}, got {width}"
            )
    if not 0 <= scaling.rest <= MAX_HASHED:
        raise FeatureError(f"rest needs a width from 0 to {MAX_HASHED}, got {scaling.rest}")


@dataclass(frozen=True, slots=True)
class _Hash:
    """Where the texts of one name go: ``width`` places from ``start`` on."""

    key: bytes
    start: int
    width: int

    def of(self, text: str) -> tuple[int, float]:
        """Place and sign of a text."""
        data = text.encode(errors="surrogatepass")
        number = int.from_bytes(hashlib.blake2b(data, digest_size=8, key=self.key).digest())
        return self.start + (number >> 1) % self.width, 1.0 if number & 1 else -1.0


def _key_of(name: str) -> bytes:
    """A name of any length as a key of BLAKE2b, which has 64 bytes at most."""
    return hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=32).digest()


def _as_document(scaling: Scaling) -> dict[str, object]:
    document: dict[str, object] = {
        "format": FORMAT,
        "version": VERSION,
        "method": scaling.method,
        "fitted_rows": scaling.fitted_rows,
        "salt": scaling.salt,
        "numbers": [
            {"name": name, "centre": centre, "spread": spread}
            for name, centre, spread in zip(
                scaling.numbers, scaling.centres.tolist(), scaling.spreads.tolist(), strict=True
            )
        ],
        "one_hot": [
            {"name": name, "categories": list(categories)}
            for name, categories in scaling.one_hot.items()
        ],
    }
    # Left out where there is nothing, so that a scaling without hashing keeps its digest.
    if scaling.hashed:
        document["hashed"] = [
            {"name": name, "width": width} for name, width in scaling.hashed.items()
        ]
    if scaling.rest:
        document["rest"] = scaling.rest
    return document


class NumberColumn(Settings, frozen=True):
    """A number column, as a file has it."""

    name: Text
    centre: float
    spread: float


class CategoryColumn(Settings, frozen=True):
    """A category column, as a file has it."""

    name: Text
    categories: tuple[str, ...]


class HashedColumn(Settings, frozen=True):
    """A hashed column, as a file has it."""

    name: Text
    width: AtLeastOne


class ScalingFile(Settings, frozen=True, kw_only=True):
    """What ``save`` writes."""

    format: str
    version: int
    method: str
    fitted_rows: int
    salt: str
    numbers: tuple[NumberColumn, ...]
    one_hot: tuple[CategoryColumn, ...]
    digest: str
    hashed: tuple[HashedColumn, ...] = ()
    rest: Count = 0


def _from_document(document: object, where: str) -> Scaling:
    head = document if isinstance(document, dict) else {}
    came = head.get("format"), head.get("version")
    if came != (FORMAT, VERSION):
        raise FeatureError(
            f"{where} must be a {FORMAT} of version {VERSION}, "
            f"got {came[0]!r:.40} of version {came[1]!r:.40}"
        )
    file = decode(document, ScalingFile, where=where, error=FeatureError)
    scaling = Scaling(
        method=file.method,
        numbers=tuple(column.name for column in file.numbers),
        centres=np.array([column.centre for column in file.numbers], dtype=np.float64),
        spreads=np.array([column.spread for column in file.numbers], dtype=np.float64),
        one_hot={column.name: column.categories for column in file.one_hot},
        fitted_rows=file.fitted_rows,
        salt=file.salt,
        hashed={column.name: column.width for column in file.hashed},
        rest=file.rest,
    )
    if scaling.digest != file.digest:
        raise FeatureError(
            f"{where} must have the digest of its content, {scaling.digest[:12]}…, got "
            f"{file.digest[:12]}…: it was changed"
        )
    return scaling


def _digest(document: Mapping[str, object]) -> str:
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
