"""Keys as a database stores them: a key is text for us, and text, a number or a UUID there."""

import uuid
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import sqlalchemy as sa

from vfbandits.errors import FeatureError
from vfbandits.features.base import Key, refuse_key

StoredPart: TypeAlias = str | int | uuid.UUID
StoredKey: TypeAlias = tuple[StoredPart, ...]
Convert: TypeAlias = Callable[[str], StoredPart | None]

LARGEST = 2**63


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The key columns of a table, and for each how a part of a key is spelt there."""

    columns: tuple[sa.Column[StoredPart], ...]
    converts: tuple[Convert, ...]

    @classmethod
    def of(cls, columns: Sequence[sa.Column[StoredPart]]) -> "KeyColumns":
        """Refuse columns whose values have more than one spelling."""
        return cls(tuple(columns), tuple(_converter(column) for column in columns))

    def stored(self, key: Key) -> StoredKey | None:
        """``key`` as the table would hold it, None if it cannot."""
        refuse_key(key, len(self.columns))
        parts = []
        for convert, part in zip(self.converts, key, strict=True):
            stored = convert(part)
            if stored is None:
                return None
            parts.append(stored)
        return tuple(parts)

    def among(self, keys: Sequence[StoredKey]) -> sa.ColumnElement[bool]:
        """The condition that a row's key is one of these.

        One term for each user: with the arms of one user it is what an index on (user, arm) is
        for, and every database understands it.
        """
        first, *rest = self.columns
        if not rest:
            return first.in_([key[0] for key in keys])
        groups = defaultdict(list)
        for head, tail in keys:
            groups[head].append(tail)
        return sa.or_(*(sa.and_(first == head, rest[0].in_(t)) for head, t in groups.items()))


def _converter(column: sa.Column[StoredPart]) -> Convert:
    if isinstance(column.type, sa.Enum):
        known = frozenset(column.type.enums)
        return lambda part: part if part in known else None
    kind = python_type(column)
    if kind is str and not isinstance(column.type, sa.CHAR):  # CHAR(n) pads what it holds
        return _as_text
    if kind is int:
        return _as_number
    if kind is uuid.UUID:
        return _as_uuid
    raise FeatureError(
        f"key column {column.name!r} must hold text, whole numbers or UUIDs, got {column.type}"
    )


def python_type(column: sa.Column[StoredPart]) -> type | None:
    """What the driver makes of a cell, None if the database does not say."""
    try:
        return column.type.python_type
    except NotImplementedError:
        return None


def _as_text(part: str) -> str | None:
    """A text column holds neither a NUL nor a lone surrogate; drivers would raise for them."""
    try:
        return None if b"\0" in part.encode() else part
    except UnicodeEncodeError:
        return None


def _as_number(part: str) -> int | None:
    digits = part.removeprefix("-")
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20):
        return None
    number = int(part)
    return number if str(number) == part and -LARGEST <= number < LARGEST else None


def _as_uuid(part: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(part)
    except ValueError:
        return None
