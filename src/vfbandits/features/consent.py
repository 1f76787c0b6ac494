"""Consent, as a cell of a feature table gives it: it is no feature and never leaves."""

from typing import Final

from vfbandits.errors import ConfigError
from vfbandits.features.scaling import Scaling

YES: Final = frozenset({"true", "1"})
NO: Final = frozenset({"false", "0", ""})


def is_given(cell: object) -> bool:
    """Whether a cell gives consent: true or 1, as such or as text; nothing else does.

    >>> [is_given(cell) for cell in (True, 1, "True", b"1", 0, "no", "", None, 2, 1.0)]
    [True, True, True, True, False, False, False, False, False, True]
    """
    return spelt(cell) in YES


def spelt(cell: object) -> str:
    """A cell as text; empty for one that is empty."""
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "replace").strip().lower()
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return "" if cell is None else str(cell).strip().lower()


def refuse_as_feature(column: str, scaling: Scaling, key: tuple[str, ...]) -> None:
    """Refuse a column of consent that is a feature or a key as well."""
    if column in (*scaling.columns, *key):
        raise ConfigError(
            f"access.consent must be a column that is neither a feature nor a key, got {column!r}"
        )
