"""How far a journal was acknowledged, noted beside it: the witness that makes a loss visible.

SQLite drops a damaged end of its write-ahead log without a word, and a file or a database can be
put back from an older copy; then the journal ends before its witness.  The note is written after
each commit, so it never runs ahead of what is durable, and it is not synced then: a killed process
loses nothing of it, since the operating system has the bytes, and after a power cut it may be
older than the journal, which is no reason to refuse.  It is synced with each snapshot and when the
journal is closed.
"""

import fcntl
import os
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from vfbandits.errors import JournalError, JournalLossError
from vfbandits.journal.record import is_whole
from vfbandits.versions import upcast

VERSION = 1
UPCASTERS: Final[Mapping[int, Callable[[bytes], bytes]]] = {}
CHECK_BYTES = 4
MAX_NOTE_BYTES = 256
# A note is a head, a body and a checksum of both.  One of version 1 may come without a head: it is
# known by its size, which no other note has.
_HEAD = struct.Struct("<4sB")
_MAGIC = b"VFBW"
_BODY = struct.Struct("<Q4s")
_CHECKSUM = struct.Struct("<I")


class Head(NamedTuple):
    """The last position that was acknowledged, and the checksum of the record there.

    ``check`` is empty where it is not known.
    """

    position: int
    check: bytes = b""


@dataclass(frozen=True, slots=True)
class Loss:
    """Records were acknowledged up to ``expected``, and the journal ends at ``found``."""

    expected: int
    found: int
    why: str


def lock_path(log: Path) -> Path:
    """The file of an SQLite journal's lock, which is its witness, too."""
    return log.with_name(f"{log.name}.lock")


def check_of(record: bytes) -> bytes:
    """The checksum that a record ends with."""
    return record[-CHECK_BYTES:]


def pack(head: Head) -> bytes:
    """The bytes of a note."""
    note = _HEAD.pack(_MAGIC, VERSION) + _BODY.pack(head.position, head.check)
    return note + _CHECKSUM.pack(zlib.crc32(note))


def unpack(note: bytes, *, name: str = "a witness") -> Head | None:
    """What a note says; None if it is damaged.  JournalError if a newer version wrote it.

    >>> unpack(pack(Head(7, b"abcd")))
    Head(position=7, check=b'abcd')
    """
    body, checksum = note[: -_CHECKSUM.size], note[-_CHECKSUM.size :]
    if checksum != _CHECKSUM.pack(zlib.crc32(body)):
        return None
    if len(body) == _BODY.size:
        version = 1
    elif len(body) > _HEAD.size and body.startswith(_MAGIC):
        _, version = _HEAD.unpack_from(body)
        body = body[_HEAD.size :]
    else:
        return None
    body = upcast(body, version, newest=VERSION, upcasters=UPCASTERS, what=name, error=JournalError)
    if len(body) != _BODY.size:
        return None
    position, check = _BODY.unpack(body)
    return Head(position, check if any(check) else b"")


def noted_in(path: Path) -> Head | None:
    """What was noted last; None if there is no note, or a damaged one."""
    try:
        return unpack(path.read_bytes(), name=str(path))
    except FileNotFoundError:
        return None


class Witness:
    """A file with a note; ``head`` is None in a damaged one, and of position 0 in a new one."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def lock(self) -> None:
        """Keep every other process from writing; until it is closed."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise JournalError(
                f"a journal has one writer, got a second: {self.path} is locked by another process"
            ) from error

    @property
    def head(self) -> Head | None:
        """What was noted last."""
        data = os.pread(self._descriptor, MAX_NOTE_BYTES, 0)
        return unpack(data, name=str(self.path)) if data else Head(0)

    def ack(self, head: Head) -> None:
        """Acknowledge the journal up to ``head``."""
        os.pwrite(self._descriptor, pack(head), 0)

    def sync(self) -> None:
        """Make the note durable."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Give the file back; safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def loss_after(
    head: Head, *, last: int, compacted_to: int, record_at: Callable[[int], object]
) -> Loss | None:
    """What the witness saw and the journal, which ends at ``last``, has not."""
    if head.position > last:
        return Loss(head.position, last, f"{head.position - last} records are missing from its end")
    if not head.check or head.position <= compacted_to:
        return None
    record = record_at(head.position)
    # A damaged record is another matter: it is named when it is read.
    if not isinstance(record, bytes) or not is_whole(record) or check_of(record) == head.check:
        return None
    why = f"record {head.position} is another one than was acknowledged there"
    return Loss(head.position, last, why)


def lost(loss: Loss, *, log: str, advice: str) -> JournalLossError:
    """The error that refuses a journal that has lost records."""
    return JournalLossError(
        f"the journal {log} was acknowledged up to {loss.expected}, got an end at {loss.found}: "
        f"{loss.why}.  Nothing was changed.  {advice}, or start with --accept-loss to go on "
        "without them, which is recorded in the journal"
    )
