"""A file with columns, scanned lazily: CSV, gzipped CSV or Parquet."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vfbandits.core.arrays import Vector
from vfbandits.errors import ContextError, SettingError, VFBanditsError
from vfbandits.extras import require

if TYPE_CHECKING:
    import polars as pl

ENDINGS = (".csv", ".csv.gz", ".parquet")


class Table:
    """A file, not read yet."""

    def __init__(self, path: Path) -> None:
        require("polars", extra="experiments", to="reading logs")
        import polars as pl  # noqa: PLC0415

        self.path = path
        if not path.name.endswith(ENDINGS):
            hint = "; vfb journal export writes one" if path.suffix == ".db" else ""
            raise SettingError(f"a table must end in {', '.join(ENDINGS)}, got {path.name!r}{hint}")
        try:
            if path.suffix == ".parquet":
                self.scan = pl.scan_parquet(path)
            else:
                self.scan = pl.scan_csv(path, infer_schema=False)
            self.names = self.scan.collect_schema().names()
        except (OSError, pl.exceptions.PolarsError) as error:
            raise SettingError(f"{path} must be a table to read, got: {error}") from error

    def collect(self, frame: "pl.LazyFrame") -> "pl.DataFrame":
        """Collect ``frame``, which was made from this file's scan."""
        import polars as pl  # noqa: PLC0415

        try:
            return frame.collect(engine="streaming")
        except (OSError, pl.exceptions.PolarsError) as error:
            raise SettingError(f"{self.path} must be a table to read, got: {error}") from error

    def need(self, names: Sequence[str]) -> None:
        """Refuse a file without these columns."""
        missing = [name for name in names if name not in self.names]
        if missing:
            raise SettingError(
                f"{self.path.name} must have the columns {', '.join(names)}; "
                f"got none called {', '.join(missing)}"
            )

    def names_but(self, key: str) -> list[str]:
        """All columns but ``key``, which must be there."""
        self.need([key])
        return [name for name in self.names if name != key]

    def features(self, key: str, owner: str, names: list[str]) -> "pl.LazyFrame":
        """Numbers with the key as ``owner/``; ``owner//found`` is null without a row."""
        import polars as pl  # noqa: PLC0415

        keys = self.collect(self.scan.select(pl.col(key).cast(pl.String)))[key]
        if keys.is_duplicated().any():
            row = int(keys.is_duplicated().arg_max() or 0)
            raise ContextError(
                f"column {key!r} of {self.path.name} must hold every key once, "
                f"got that of row {row + 1} again"
            )
        return self.scan.select(
            pl.col(key).cast(pl.String).alias(f"{owner}/"),
            pl.lit(value=True).alias(f"{owner}//found"),
            *as_numbers(owner, names),
        )

    def numbers(
        self, data: "pl.DataFrame", name: str, column: str, error: type[VFBanditsError]
    ) -> Vector:
        """Column ``name`` of what was read, which is ``column`` here; refuses what is no number."""
        values: Vector = data[name].to_numpy().astype(np.float64)
        if (bad := first_bad(values)) is not None:
            raw = self.collect(self.scan.select(column).slice(bad, 1))[column][0]
            raise error(
                f"column {column!r} of {self.path.name} must hold finite numbers, "
                f"got {raw!r} in row {bad + 1}"
            )
        return values


def as_numbers(owner: str, names: list[str]) -> "list[pl.Expr]":
    """Columns as ``owner/name``, null where a cell is no number."""
    import polars as pl  # noqa: PLC0415

    return [pl.col(n).cast(pl.Float64, strict=False).alias(f"{owner}/{n}") for n in names]


def first_bad(values: Vector) -> int | None:
    """Position of the first entry that is not finite."""
    is_bad = ~np.isfinite(values)
    return int(is_bad.argmax()) if is_bad.any() else None
