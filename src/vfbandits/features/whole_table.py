"""All columns of a participant's file, as they are, to choose columns from."""

from pathlib import Path

import numpy as np
import polars as pl

from vfbandits.core.arrays import Vector
from vfbandits.errors import FeatureError
from vfbandits.features.table_file import naming_unreadable, scan_file


def read_whole_table(path: Path) -> dict[str, Vector | list[str | None]]:
    """Columns by name: numbers and flags as float64 with NaN for empty cells, others as texts.

    Types of a CSV file are guessed from all its rows.  Lists and other nested columns are refused.
    """
    with naming_unreadable(path):
        scan = scan_file(path)
        if path.suffix == ".parquet":
            frame = scan.collect()
        else:
            frame = pl.read_csv(path, infer_schema_length=None)
    return {column.name: _plain(column, path) for column in frame.iter_columns()}


def flags_in_words(path: Path) -> frozenset[str]:
    """CSV columns with true and false: numbers in ``read_whole_table``, and text in a store."""
    if path.suffix == ".parquet":
        return frozenset()
    schema = pl.scan_csv(path, infer_schema_length=None).collect_schema()
    return frozenset(name for name, kind in schema.items() if kind == pl.Boolean)


def _plain(column: pl.Series, path: Path) -> Vector | list[str | None]:
    kind = column.dtype
    if kind.is_nested():
        raise FeatureError(
            f"column {column.name!r} of {path.name} must hold numbers or text, got {kind}"
        )
    if kind.is_numeric() or kind == pl.Boolean:
        numbers = column.cast(pl.Float64, strict=False).fill_null(np.nan)
        return np.array(numbers.to_numpy(), dtype=np.float64)
    if kind == pl.Null:
        return np.full(len(column), np.nan)
    if kind == pl.Binary:
        raise FeatureError(
            f"column {column.name!r} of {path.name} must hold numbers or text, got bytes"
        )
    return column.cast(pl.String).to_list()
