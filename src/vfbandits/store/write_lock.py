"""The right to write a log: one process has it, and it notes how far the log was acknowledged.

The note is what makes a loss visible.  SQLite drops a damaged end of its write-ahead log without
a word, and a file can be cut or put back from a copy; then the log ends before the note.  The
note follows each commit and is not synced itself: it may lag behind the log after the machine
went down, and it never runs ahead.
"""

import fcntl
import os
import struct
import zlib
from pathlib import Path

from vfbandits.errors import JournalError

_POSITION = struct.Struct("<Q")
_NOTE = struct.Struct("<QI")


def lock_path(log: Path) -> Path:
    """The file of a log's lock and note."""
    return log.with_name(f"{log.name}.lock")


def noted_in(path: Path) -> int | None:
    """The position that was noted last; None if there is no note, or a damaged one."""
    try:
        return _position(path.read_bytes())
    except FileNotFoundError:
        return None


class WriteLock:
    """Holds the lock from when it is made until ``release``, or until the process ends."""

    __slots__ = ("_descriptor",)

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._descriptor)
            raise JournalError(
                f"a log has one writer, got a second: {path} is locked by another process"
            ) from error

    def noted(self) -> int | None:
        """The position noted last: 0 in a new file, None in a damaged one."""
        data = os.pread(self._descriptor, _NOTE.size + 1, 0)
        return _position(data) if data else 0

    def note(self, position: int) -> None:
        """Note that the log is acknowledged up to ``position``."""
        os.pwrite(self._descriptor, _NOTE.pack(position, zlib.crc32(_POSITION.pack(position))), 0)

    def release(self) -> None:
        """Let the next writer in; safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _position(note: bytes) -> int | None:
    if len(note) != _NOTE.size:
        return None
    position, checksum = _NOTE.unpack(note)
    return int(position) if zlib.crc32(_POSITION.pack(position)) == checksum else None
