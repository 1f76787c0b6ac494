"""Rows: what cells give, as JSON between runs and as CSV for readers."""

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from vfbandits.errors import SettingError

Value: TypeAlias = str | int | float | bool | None
Row: TypeAlias = dict[str, Value]
Settings: TypeAlias = dict[str, object]


def through_json(rows: object, *, what: str) -> list[Row]:
    """Rows as they will be read from a file, so that a resumed run differs in nothing.

    >>> through_json([{"round": 1, "regret": 0.5}], what="a cell")
    [{'round': 1, 'regret': 0.5}]
    """
    try:
        plain = json.loads(json.dumps(rows, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise SettingError(f"{what} must give finite JSON values, but {error}") from error
    return as_rows(plain, what=what)


def as_rows(plain: object, *, what: str) -> list[Row]:
    """Refuse what is not a list of flat tables."""
    good = isinstance(plain, list) and all(isinstance(row, dict) for row in plain)
    if not isinstance(plain, list) or not good:
        raise SettingError(f"{what} must give a list of rows, got {type(plain).__name__}")
    for row in plain:
        for key, value in row.items():
            if not isinstance(value, Value):
                raise SettingError(f"{what}: {key} must be text or a number, got {value!r}")
    return plain


def write_csv(rows: Iterable[Row], path: Path) -> None:
    """All rows under one header: every key that any of them has, in order of appearance."""
    rows = list(rows)
    header = list(dict.fromkeys(key for row in rows for key in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, header)
        writer.writeheader()
        writer.writerows(rows)
