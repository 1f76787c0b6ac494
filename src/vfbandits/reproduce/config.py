"""Values of a figure's settings, with their types checked as they are taken.

>>> whole({"dim": 100}, "dim"), numbers({"dims": [1, 2.5]}, "dims"), word({"mask": "dense"}, "mask")
(100, [1.0, 2.5], 'dense')
"""

from vfbandits.errors import SettingError
from vfbandits.reproduce.rows import Settings


def whole(config: Settings, key: str) -> int:
    """A whole number."""
    return _whole(config.get(key), config, key)


def number(config: Settings, key: str) -> float:
    """A number, whole or not."""
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong(config, key, "a number")
    return float(value)


def word(config: Settings, key: str) -> str:
    """Text."""
    value = config.get(key)
    if not isinstance(value, str):
        raise _wrong(config, key, "text")
    return value


def whole_numbers(config: Settings, key: str) -> list[int]:
    """A list of whole numbers."""
    return [_whole(item, config, key) for item in _items(config, key)]


def numbers(config: Settings, key: str) -> list[float]:
    """A list of numbers."""
    return [number({key: item}, key) for item in _items(config, key)]


def words(config: Settings, key: str) -> list[str]:
    """A list of text."""
    return [word({key: item}, key) for item in _items(config, key)]


def _items(config: Settings, key: str) -> list[object]:
    value = config.get(key)
    if not isinstance(value, list):
        raise _wrong(config, key, "a list")
    return value


def _whole(value: object, config: Settings, key: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(config, key, "a whole number")
    return value


def _wrong(config: Settings, key: str, wanted: str) -> SettingError:
    return SettingError(f"{key} of a figure must be {wanted}, got {config.get(key)!r}")
