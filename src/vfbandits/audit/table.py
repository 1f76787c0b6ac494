"""From raw columns to the block that would be masked, and what was left out of it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from vfbandits.audit.view import refuse_few_rows
from vfbandits.core.arrays import Matrix, Vector
from vfbandits.errors import FeatureError

MAX_CATEGORIES = 50
ID_NAME = re.compile(r"(^|[_ .-])(id|ids|uid|uuid|guid|key|user|customer|account)$", re.IGNORECASE)

Texts: TypeAlias = Sequence[str | None]
RawColumn: TypeAlias = Vector | Texts
"""Numbers, where an empty cell is NaN; or texts, where it is None."""


@dataclass(frozen=True, slots=True, eq=False)
class AuditTable:
    """The block (n, width) of a participant, with the names of its columns.

    ``notes`` says in sentences what was left out, and how columns were scaled.
    """

    values: Matrix = field(repr=False)
    columns: tuple[str, ...]
    notes: tuple[str, ...] = ()


def prepare(
    raw: Mapping[str, RawColumn], *, chosen: Sequence[str] = (), rows: int, seed: int
) -> AuditTable:
    """The block that ``vfb features fit`` would make: standardised numbers, one-hot categories.

    Without ``chosen`` names, columns that look like ids, and those without a use, are left out.
    Rows with an empty cell are left out too, and at most ``rows`` are drawn.
    """
    missing = [name for name in chosen if name not in raw]
    if missing:
        raise FeatureError(f"the table must have the columns {', '.join(chosen)}, "
                           f"got none called {', '.join(missing)}")  # fmt: skip
    notes: list[str] = []
    used: dict[str, RawColumn] = {}
    for name in chosen or raw:
        reason = _useless(name, raw[name], is_chosen=bool(chosen))
        if reason and chosen:
            raise FeatureError(f"column {name!r} must hold numbers or categories, got {reason}")
        if reason:
            notes.append(f"column {name} was left out: {reason}")
        else:
            used[name] = raw[name]
    if not used:
        raise FeatureError(
            f"an audit needs columns of numbers or categories, got none among {len(raw)} columns"
        )
    is_whole = np.logical_and.reduce([_is_there(column) for column in used.values()])
    places = np.flatnonzero(is_whole)
    if len(places) < len(is_whole):
        notes.append(f"{len(is_whole) - len(places):,} rows with an empty cell were left out")
    refuse_few_rows(len(places), len(used))
    if len(places) > rows:
        notes.append(f"{rows:,} of {len(places):,} rows were drawn")
        places = np.sort(np.random.default_rng(seed).choice(places, rows, replace=False))
    blocks = [_block(name, column, places) for name, column in used.items()]
    values = np.hstack([values for values, _ in blocks])
    names = [name for _, names in blocks for name in names]
    notes.append("numbers were standardised, categories became one column of 0 and 1 each")
    return without_constants(values, names, notes=notes)


def without_constants(
    values: Matrix, columns: Sequence[str], *, notes: Sequence[str] = ()
) -> AuditTable:
    """A table without the columns that are the same in every row."""
    refuse_few_rows(len(values), values.shape[1])
    spreads = values.std(axis=0)
    keep = spreads > 1e-12 * np.maximum(np.abs(values).max(axis=0), 1e-300)
    more = [
        f"column {name} was left out: the same value in every row"
        for name, is_kept in zip(columns, keep, strict=True)
        if not is_kept
    ]
    if not keep.any():
        raise FeatureError(
            f"an audit needs a column that differs between rows, got none among {len(columns)}"
        )
    names = tuple(name for name, is_kept in zip(columns, keep, strict=True) if is_kept)
    return AuditTable(np.ascontiguousarray(values[:, keep]), names, (*notes, *more))


def _useless(name: str, column: RawColumn, *, is_chosen: bool) -> str:
    """Why a column is left out; empty if it is not."""
    is_there = _is_there(column)
    count = int(np.count_nonzero(is_there))
    if not count:
        return "no value in any row"
    if count < len(is_there) / 2 and not is_chosen:
        return f"empty in {len(is_there) - count:,} of {len(is_there):,} rows"
    if not isinstance(column, np.ndarray):
        kinds = len({text for text in column if text is not None})
        return f"text with {kinds:,} different values" if kinds > MAX_CATEGORIES else ""
    numbers = column[is_there]
    if not is_chosen and _looks_like_id(name, numbers):
        return "a different whole number in every row, like an id"
    return ""


def _looks_like_id(name: str, numbers: Vector) -> bool:
    if len(numbers) < 2 or not np.array_equal(numbers, np.round(numbers)):
        return False
    if len(np.unique(numbers)) < len(numbers):
        return False
    is_counted = float(np.ptp(numbers)) < 2.0 * len(numbers)
    return is_counted or ID_NAME.search(name) is not None


def _is_there(column: RawColumn) -> NDArray[np.bool_]:
    if isinstance(column, np.ndarray):
        return np.isfinite(column)
    return np.array([text is not None for text in column], dtype=bool)


def _block(
    name: str, column: RawColumn, places: NDArray[np.intp]
) -> tuple[Matrix, tuple[str, ...]]:
    if isinstance(column, np.ndarray):
        numbers = column[places]
        centred = numbers - numbers.mean()
        spread = float(centred.std())
        return (centred / (spread if spread > 0.0 else 1.0))[:, None], (name,)
    texts = [column[place] for place in places]
    kinds = sorted({text for text in texts if text is not None})
    values = np.array([[text == kind for kind in kinds] for text in texts], dtype=np.float64)
    return values, tuple(f"{name}={kind}" for kind in kinds)
