"""A table from a JSON or TOML file, read key by key: every value is checked for its kind."""

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from vfbandits.errors import VFBanditsError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fields:
    """Values under their keys; ``where`` names the file, ``error`` is what a refusal raises.

    A refusal names the key and the kind of what came, never the value: it may be a password.

    >>> from vfbandits.errors import ConfigError
    >>> Fields({"width": "three"}, "shop.toml", ConfigError).integer("width")
    Traceback (most recent call last):
    vfbandits.errors.ConfigError: shop.toml must have a whole number at 'width', got str
    """

    values: Mapping[str, object] = field(repr=False)
    where: str
    error: type[VFBanditsError]

    def maybe(self, key: str, read: Callable[[str], T]) -> T | None:
        """What ``read`` makes of ``key``, None if there is nothing."""
        return read(key) if key in self.values else None

    def text(self, key: str) -> str:
        """Text, not empty."""
        value = self.values.get(key)
        if not isinstance(value, str) or not value:
            raise self._wrong(key, "text")
        return value

    def integer(self, key: str) -> int:
        """A whole number."""
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, "a whole number")
        return value

    def number(self, key: str) -> float:
        """A finite number."""
        value = self.values.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, "a finite number")
        if not abs(value) <= sys.float_info.max:
            raise self._wrong(key, "a finite number")
        return float(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts."""
        value = self.values.get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._wrong(key, "a list of texts")
        return tuple(value)

    def tables(self, key: str) -> list["Fields"]:
        """A list of tables."""
        value = self.values.get(key)
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self._wrong(key, "a list of tables")
        return [Fields(item, f"{self.where}, {key}", self.error) for item in value]

    def only(self, known: Collection[str]) -> None:
        """Refuse keys that nobody would read: most likely one is misspelt."""
        others = sorted(set(self.values) - set(known))
        if others:
            raise self.error(
                f"{self.where} may have the keys {', '.join(sorted(known))}, "
                f"got {', '.join(map(repr, others))}"
            )

    def _wrong(self, key: str, wanted: str) -> VFBanditsError:
        value = self.values.get(key)
        came = "nothing" if value is None else "none" if value == "" else type(value).__name__
        return self.error(f"{self.where} must have {wanted} at {key!r}, got {came}")
