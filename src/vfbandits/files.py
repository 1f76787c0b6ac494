"""Files that are written whole or not at all, and are on the disk when a call returns."""

import errno
import os
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

PART = ".part"  # how the name of a file ends while it is being written
BYTES_PER_BATCH = 4 << 20


def write_whole(target: Path, write: Callable[[IO[bytes]], object], *, mode: int) -> Path:
    """Let ``write`` fill a file; when this returns it is on the disk, under its whole name."""
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}{PART}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        put_in_place(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
    return target


def put_in_place(temporary: Path, target: Path) -> None:
    """Give a file that is on the disk its whole name, in place of an older file.

    A device, a pipe or a socket is refused: as root this would replace ``/dev/stdout`` by a file.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(target.stat().st_mode):
            raise OSError(errno.EEXIST, "it exists and is not a regular file", str(target))
    temporary.replace(target)
    sync_folder(target.parent)


def write_in_pieces(file: IO[bytes], data: bytes) -> None:
    """Write ``data`` and sync it piece by piece, so that other writers do not wait long."""
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
