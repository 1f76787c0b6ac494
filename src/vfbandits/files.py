"""Files that are written whole or not at all, and are on the disk when a call returns."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

PART = ".part"  # how the name of a file ends while it is being written
BYTES_PER_BATCH = 4 << 20


def write_whole(target: Path, write: Callable[[IO[bytes]], object], *, mode: int) -> Path:
    """Let ``write`` fill a file; when this returns it is on the disk, under its whole name."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}{PART}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(target.parent)
    return target


def write_in_pieces(file: IO[bytes], data: bytes) -> None:
    """Write ``data``, a piece to the disk before the next: what others write need not wait long."""
    with memoryview(data) as view:
        for start in range(0, len(data), BYTES_PER_BATCH):
            file.write(view[start : start + BYTES_PER_BATCH])
            file.flush()
            os.fdatasync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
