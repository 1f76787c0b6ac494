"""Features from a file, read whole into memory: Parquet, CSV or gzipped CSV.

Keys are text or whole numbers, and are compared as text.  CSV has no types: a key keeps its
leading zeros there.  Nothing is guessed and nothing is filled in.
"""

from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from vfbandits.core.arrays import Matrix
from vfbandits.errors import FeatureError
from vfbandits.features.base import Key
from vfbandits.features.consent import NO, YES, spelt
from vfbandits.features.memory import MemoryStore
from vfbandits.features.scaling import RawRows, Scaling

ENDINGS = (".csv", ".csv.gz", ".parquet")
_RENAMED = "_duplicated_"  # what Polars adds to a name that comes again
SEPARATORS = {";": "semicolons", "\t": "tabs"}  # that spreadsheets write


@dataclass(frozen=True, slots=True, eq=False)
class FeatureTable:
    """A file's keys, their rows, and whether the user gave consent, if that is asked."""

    keys: list[Key] = field(repr=False)
    raw: RawRows = field(repr=False)
    consents: list[bool] | None = field(default=None, repr=False)


def open_file(
    path: Path, *, key: Sequence[str], scaling: Scaling, consent: str | None = None
) -> MemoryStore:
    """A store of what is in the file now; later changes of the file are not seen."""
    table = read_table(
        path,
        key=key,
        numbers=scaling.numbers,
        categories=scaling.text_columns,
        consent=consent,
    )
    return MemoryStore(
        table.keys,
        table.raw,
        scaling=scaling,
        n_parts=len(key),
        kind="file",
        consents=table.consents,
    )


def read_table(
    path: Path,
    *,
    key: Sequence[str],
    numbers: Sequence[str],
    categories: Sequence[str] = (),
    consent: str | None = None,
) -> FeatureTable:
    """The named columns of a file; all rows, or one error that names column and count."""
    table = read_rows(path, key=key, numbers=numbers, categories=categories, consent=consent)
    again = len(table.keys) - len(set(table.keys))
    if again:
        raise FeatureError(
            f"{path.name} must have each key of {', '.join(map(repr, key))} once, "
            f"got {_rows(again)} with a key of another"
        )
    return table


def read_rows(
    path: Path,
    *,
    key: Sequence[str],
    numbers: Sequence[str],
    categories: Sequence[str] = (),
    consent: str | None = None,
) -> FeatureTable:
    """As ``read_table``, for a file in which a key may come more than once, such as a log."""
    if not key:
        raise FeatureError("a feature file needs at least one key column, got none")
    frame = _read(path, (*key, *numbers, *categories, *filter(None, [consent])))
    keys = list(zip(*(_texts(frame, name, path) for name in key), strict=True))
    texts = tuple(_texts(frame, name, path) for name in categories)
    consents = None if consent is None else _consents(frame[consent], path)
    return FeatureTable(keys, RawRows(_numbers(frame, numbers, path), texts), consents)


def keep_latest_rows(
    source: Path, target: Path, *, key: Sequence[str], columns: Sequence[str]
) -> None:
    """Write these columns of a file, and of several rows with one key the last."""
    frame = _read(source, (*key, *columns)).unique(key, keep="last", maintain_order=True)
    if target.suffix == ".parquet":
        frame.write_parquet(target)
    else:
        frame.write_csv(target)


def scan_file(path: Path) -> pl.LazyFrame:
    """A file of one of ``ENDINGS``, not read yet; cells of a CSV file are text."""
    if not path.name.endswith(ENDINGS):
        raise FeatureError(f"a feature file ends in {', '.join(ENDINGS)}, got {path.name!r}")
    if not path.is_file():
        raise FeatureError(f"a feature file must exist, got none at {path}")
    if path.suffix == ".parquet":
        return pl.scan_parquet(path)
    with path.open("rb") as file:
        if file.read(2) in (BOM_UTF16_LE, BOM_UTF16_BE):
            raise FeatureError(f"{path.name} must be in UTF-8, got UTF-16")
    scan = pl.scan_csv(path, infer_schema=False)
    names = scan.collect_schema().names()
    for name in names:
        first, renamed, _ = name.partition(_RENAMED)
        if renamed and first in names:
            raise FeatureError(f"columns of {path.name} must be named once, got {first!r} twice")
    for separator, called in SEPARATORS.items():
        if len(names) == 1 and separator in names[0]:
            raise FeatureError(
                f"columns of {path.name} must be separated by commas, got {called}; numbers must "
                "have a decimal point"
            )
    return scan


@contextmanager
def naming_unreadable(path: Path) -> Iterator[None]:
    """Turn an error of the file or of its format into one that quotes no cell."""
    try:
        yield
    except pl.exceptions.NoDataError:
        raise FeatureError(f"{path.name} must be a table to read, got an empty file") from None
    except (OSError, pl.exceptions.PolarsError) as error:
        kind = type(error).__name__
        hint = "" if path.suffix == ".parquet" else ": are rows as long as the first, in UTF-8?"
        raise FeatureError(f"{path.name} must be a table to read, got {kind}{hint}") from None


def _read(path: Path, names: Sequence[str]) -> pl.DataFrame:
    if len(set(names)) != len(names):
        raise FeatureError(f"columns must be named once, got {', '.join(names)}")
    with naming_unreadable(path):
        scan = scan_file(path)
        there = scan.collect_schema().names()
        missing = [name for name in names if name not in there]
        if not missing:
            return scan.select(names).collect()
    raise FeatureError(
        f"{path.name} must have the columns {', '.join(names)}, "
        f"got none called {', '.join(missing)}"
    )


def _texts(frame: pl.DataFrame, name: str, path: Path) -> list[str]:
    column = frame[name]
    kind = column.dtype
    if not (kind.is_integer() or kind in (pl.String, pl.Categorical, pl.Enum)):
        raise FeatureError(
            f"column {name!r} of {path.name} must hold text or whole numbers, "
            f"got {kind} in {_rows(len(column))}"
        )
    if column.null_count():
        raise FeatureError(
            f"column {name!r} of {path.name} must have no empty cell, "
            f"got {_rows(column.null_count())} with one"
        )
    return column.cast(pl.String).to_list()


def _consents(column: pl.Series, path: Path) -> list[bool]:
    cells = [spelt(cell) for cell in column]
    odd = sum(cell not in YES | NO for cell in cells)
    if odd:
        raise FeatureError(
            f"column {column.name!r} of {path.name} must hold true or false for consent, "
            f"got {_rows(odd)} with something else"
        )
    return [cell in YES for cell in cells]


def _numbers(frame: pl.DataFrame, names: Sequence[str], path: Path) -> Matrix:
    matrix = np.empty((len(frame), len(names)))
    for place, name in enumerate(names):
        column = frame[name]
        is_text = path.suffix != ".parquet"
        if not (column.dtype.is_numeric() or column.dtype == pl.Boolean or is_text):
            raise FeatureError(
                f"column {name!r} of {path.name} must hold numbers, "
                f"got {column.dtype} in {_rows(len(column))}"
            )
        matrix[:, place] = column.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
        bad = int(np.count_nonzero(~np.isfinite(matrix[:, place])))
        if bad:
            raise FeatureError(
                f"column {name!r} of {path.name} must hold finite numbers, "
                f"got {_rows(bad)} with an empty cell, text, NaN or infinity; "
                "fill them in, or leave the column out"
            )
    return matrix


def _rows(count: int) -> str:
    return f"{count} row{'s' * (count != 1)}"
