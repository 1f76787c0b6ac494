"""What all tables of a settings file share: the base of their structs, and kinds of values."""

import re
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from vfbandits.errors import ConfigError

_UNITS_S = {"s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
_DURATION = re.compile(rf"(\d{{1,9}}(?:\.\d{{1,9}})?) ?({'|'.join(_UNITS_S)})", re.ASCII)

Text: TypeAlias = Annotated[str, Meta(min_length=1)]
Positive: TypeAlias = Annotated[float, Meta(gt=0.0)]
Fraction: TypeAlias = Annotated[float, Meta(ge=0.0, le=1.0)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
AtLeastOne: TypeAlias = Annotated[int, Meta(ge=1)]


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table of a settings file.

    Its docstring describes the keys, under ``Attributes``: editors show that text.
    """


class Secret(str):
    """Text that may hold a password: it is left out of a ``repr``.

    >>> Secret("postgresql://me:hidden@host/shop")
    '…'
    """

    __slots__ = ()

    def __repr__(self) -> str:
        """A placeholder instead of the text."""
        return "'…'"


def duration_s(text: str, what: str) -> float:
    """The seconds of a duration with a unit.

    >>> duration_s("24h", "access.changed_after"), duration_s("1.5 min", "a wait")
    (86400.0, 90.0)
    """
    match = _DURATION.fullmatch(text)
    if match is None or not float(match[1]):
        raise ConfigError(f'{what} must be a time such as "24h" (units s, min, h, d), got {text!r}')
    return float(match[1]) * _UNITS_S[match[2]]


def from_text(kind: type, value: Any) -> object:  # noqa: ANN401  (what a file holds)
    """A path or a secret: the hook of ``msgspec`` for types that it does not know."""
    if kind not in (Path, Secret):
        raise NotImplementedError(f"settings have no values of type {kind.__name__}")
    if not isinstance(value, str) or not value:
        raise TypeError
    return kind(value)
