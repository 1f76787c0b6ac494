"""The user's own copy of Criteo's train file, read piece by piece.

TSV, gzipped TSV or Parquet, recognised by the first bytes and not by the name.  A line that does
not fit is left out and its number noted; only a file without a good line is an error.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from vfbandits.datasets.criteo.columns import COLUMNS
from vfbandits.datasets.criteo.lines import pieces, rectangular
from vfbandits.datasets.criteo.schema import AS_KEPT, AS_TEXT, AS_WRITTEN, from_text, from_written
from vfbandits.errors import DatasetError

PIECE_BYTES = 8 << 20
BYTES_A_ROW = 250
PARQUET = b"PAR1"


@dataclass(frozen=True, slots=True)
class CriteoPiece:
    """Consecutive rows of a file.

    Attributes
    ----------
    frame
        The good rows: ``label`` 0 or 1, ``I1`` … as Int64, ``C1`` … as UInt32; null is missing.
    n_lines
        How many lines were read for it, good and bad.
    bad_lines
        Numbers of the bad ones in the whole file, from 1; in Parquet, of rows.
    """

    frame: pl.DataFrame = field(repr=False)
    n_lines: int
    bad_lines: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CriteoFile:
    """A file on disk; ``pieces`` may be called any number of times.

    ``piece_bytes`` bounds the memory of a pass, about six times as much, and changes no result.
    """

    path: Path
    piece_bytes: int = PIECE_BYTES

    def __post_init__(self) -> None:
        """Refuse a missing file."""
        if not self.path.is_file():
            raise DatasetError(f"wanted Criteo's train file (TSV, gz or Parquet), got {self.path}")
        if self.piece_bytes < 1:
            raise DatasetError(f"piece_bytes must be at least 1, got {self.piece_bytes}")

    def pieces(self) -> Iterator[CriteoPiece]:
        """All rows in the file's order, one piece in memory at a time."""
        with self.path.open("rb") as file:
            is_parquet = file.read(4) == PARQUET
        n_lines = n_good = 0
        for frame, is_good in self._from_parquet() if is_parquet else self._from_text():
            bad = np.flatnonzero(~is_good) + n_lines + 1
            n_lines += len(is_good)
            n_good += frame.height
            yield CriteoPiece(frame, len(is_good), bad)
        if not n_good:
            raise DatasetError(
                f"wanted lines of {len(COLUMNS)} fields (label 0 or 1, 13 integers, 26 categories "
                f"of 8 hexadecimal digits), got {n_lines} lines and none of that form: {self.path}"
            )

    def _from_text(self) -> Iterator[tuple[pl.DataFrame, NDArray[np.bool_]]]:
        for text in pieces(self.path, self.piece_bytes):
            lines, is_good = rectangular(text)
            if not lines:
                yield pl.DataFrame(schema=AS_KEPT), is_good
                continue
            typed, is_typed = _typed(lines)
            if is_typed is not None:
                is_good[is_good] = is_typed.to_numpy()
                typed = typed.filter(is_typed)
            yield typed, is_good

    def _from_parquet(self) -> Iterator[tuple[pl.DataFrame, NDArray[np.bool_]]]:
        lazy = pl.scan_parquet(self.path)
        names = lazy.collect_schema().names()
        if len(names) != len(COLUMNS):
            raise DatasetError(
                f"wanted {len(COLUMNS)} columns, got {len(names)} in the Parquet file {self.path}"
            )
        # Copies of the data name the columns in several ways, but all keep their order.
        if set(names) != set(COLUMNS):
            lazy = lazy.rename(dict(zip(names, COLUMNS, strict=True)))
        rows = max(1, self.piece_bytes // BYTES_A_ROW)
        for frame in lazy.select(COLUMNS).collect_batches(chunk_size=rows, maintain_order=True):
            typed, is_typed = from_text(frame)
            yield typed.filter(is_typed), is_typed.to_numpy()


def _typed(lines: bytes) -> tuple[pl.DataFrame, pl.Series | None]:
    """Fast if every integer is one, which is nearly always; otherwise field by field."""
    try:
        return from_written(_read(lines, AS_WRITTEN))
    except pl.exceptions.ComputeError:
        # What is not UTF-8 makes one line bad, not the file.
        return from_text(_read(lines, AS_TEXT, encoding="utf8-lossy"))


def _read(
    lines: bytes, schema: pl.Schema, encoding: Literal["utf8", "utf8-lossy"] = "utf8"
) -> pl.DataFrame:
    return pl.read_csv(
        lines, schema=schema, separator="\t", has_header=False, quote_char=None, encoding=encoding
    )
