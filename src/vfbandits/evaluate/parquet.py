"""A Parquet file of many frames, of which one is in memory at a time."""

import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from vfbandits.files import PART, put_in_place

if TYPE_CHECKING:
    import polars as pl

ROWS_PER_GROUP = 10_000  # of the file: one group is in memory while it is written


def write_frames(
    frames: "Iterable[pl.DataFrame]",
    out: Path,
    *,
    select: "Callable[[pl.LazyFrame], pl.LazyFrame]" = lambda rows: rows,
) -> None:
    """Write frames as one file, whole or not at all, for its owner only.

    ``select`` is called after the last frame, and chooses rows and columns.  Errors are those of
    the file system and of Polars.
    """
    import polars as pl  # noqa: PLC0415  (an extra)

    whole = out.with_name(f".{out.name}.{os.getpid()}{PART}")
    try:
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as folder:
            names = []
            for number, frame in enumerate(frames):
                names.append(Path(folder) / f"{number}.parquet")
                frame.write_parquet(names[-1])
            os.close(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
            select(pl.scan_parquet(names)).sink_parquet(
                whole, row_group_size=ROWS_PER_GROUP, sync_on_close="all"
            )
        put_in_place(whole, out)
    finally:
        whole.unlink(missing_ok=True)
