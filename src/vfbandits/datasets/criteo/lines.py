"""Text in pieces of whole lines, and the lines that do not have 40 fields."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from vfbandits.datasets.criteo.columns import COLUMNS
from vfbandits.errors import DatasetError

ENDS_OF_A_LINE = b"\t" * (len(COLUMNS) - 1) + b"\n"
NO_ENDS = bytes(set(range(256)) - set(ENDS_OF_A_LINE))
GZIP = b"\x1f\x8b"


def pieces(path: Path, size_bytes: int) -> Iterator[bytes]:
    """The text of a plain or gzipped file, cut after line ends, about ``size_bytes`` a piece."""
    with path.open("rb") as plain:
        is_gzip = plain.read(2) == GZIP
    with gzip.open(path) if is_gzip else path.open("rb") as file:
        rest = b""
        while True:
            try:
                read = file.read(size_bytes)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise DatasetError(f"wanted a whole gzip file, got {path}: {error}") from error
            if not read:
                break
            end = read.rfind(b"\n") + 1
            if end:
                yield unix(b"".join([rest, memoryview(read)[:end]]))
                rest = read[end:]
            else:
                rest += read
        if rest:
            yield unix(rest + b"\n")


def unix(text: bytes) -> bytes:
    """Line ends as on Unix."""
    return text.replace(b"\r\n", b"\n") if b"\r" in text else text


def rectangular(text: bytes) -> tuple[bytes, NDArray[np.bool_]]:
    """The lines that have 40 fields, and for every line whether it is one of them."""
    ends = text.translate(None, delete=NO_ENDS)
    n_lines = ends.count(b"\n")
    if ends == ENDS_OF_A_LINE * n_lines:
        return text, np.ones(n_lines, dtype=np.bool_)
    width = len(ENDS_OF_A_LINE)
    keep = [len(tabs) + 1 == width for tabs in ends.split(b"\n")[:-1]]
    lines = text.split(b"\n")[:-1]
    kept = [line + b"\n" for line, good in zip(lines, keep, strict=True) if good]
    return b"".join(kept), np.array(keep)
