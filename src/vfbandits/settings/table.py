"""A table of settings, read key by key, so that every error can name its key."""

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path

from vfbandits.errors import SettingError


class Table:
    """Values under text keys, as TOML gives them, each taken once; ``close`` refuses the rest.

    >>> table = Table({"rounds": 5, "armz": 3})
    >>> table.whole("rounds", 1), table.whole("arms", 10)
    (5, 10)
    >>> table.close()
    Traceback (most recent call last):
    vfbandits.errors.SettingError: keys must be some of rounds, arms; got 'armz'
    """

    def __init__(self, values: Mapping[str, object], *, where: str = "") -> None:
        self._values = dict(values)
        self._where = f"{where}: " if where else ""
        self._asked: list[str] = []

    def has(self, key: str) -> bool:
        """Whether ``key`` is there and not taken yet."""
        return key in self._values

    def keys(self) -> list[str]:
        """Those that were not taken yet."""
        return list(self._values)

    def take(self, key: str, default: object) -> object:
        """Whatever stands under ``key``."""
        self._asked.append(key)
        return self._values.pop(key, default)

    def whole(self, key: str, default: int) -> int:
        """A whole number."""
        value = self.take(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, "a whole number", value)
        return value

    def number(self, key: str, default: float) -> float:
        """A finite number, whole or not."""
        value = self.take(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.wrong(key, "a number", value)
        if not math.isfinite(value):
            raise self.wrong(key, "a finite number", value)
        return float(value)

    def text(self, key: str, default: str) -> str:
        """Text."""
        value = self.take(key, default)
        if not isinstance(value, str):
            raise self.wrong(key, "text", value)
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self.take(key, default)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false", value)
        return value

    def child(self, key: str) -> "Table":
        """The table under ``key``, empty if there is none."""
        value = self.take(key, {})
        if not isinstance(value, dict):
            raise self.wrong(key, "a table", type(value).__name__)
        return Table(value, where=f"{self._where}[{key}]")

    def rest(self, keys: tuple[str, ...]) -> dict[str, object]:
        """Those of ``keys`` that are there, with their values."""
        self._asked.extend(keys)
        return {key: self._values.pop(key) for key in keys if key in self._values}

    def wrong(self, key: str, wanted: str, got: object) -> SettingError:
        """The error to raise for the value under ``key``."""
        return SettingError(f"{self._where}{key} must be {wanted}, got {got!r}")

    def close(self) -> None:
        """Refuse keys that nobody asked for."""
        if self._values:
            unknown = ", ".join(repr(key) for key in self._values)
            wanted = ", ".join(self._asked)
            raise SettingError(f"{self._where}keys must be some of {wanted}; got {unknown}")


def load_document(path: Path) -> dict[str, object]:
    """The keys of a TOML file, unchecked."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{path} must be a TOML file, but {error}") from error
    except OSError as error:
        raise SettingError(f"{path} must be a file to read, got: {error.strerror}") from error
