"""The witness of a journal: a file with its last acknowledged position, which reveals a loss.

SQLite silently drops a damaged end of its write-ahead log, and a file or a database can be restored
from an older copy; then the journal ends before its witness.  The acknowledgement is written after
each commit, so it is never ahead of what is durable.  It is not synced then: a killed process loses
nothing of it, since the operating system has the bytes, and after a power failure it may be older
than the journal, which is no reason to refuse.  It is synced with each snapshot and when the
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
MAX_ACK_BYTES = 256
# An acknowledgement is a head, a body and a checksum of both.  One of version 1 may lack the head:
# its size, which no other one has, identifies it.
_HEAD = struct.Struct("<4sB")
_MAGIC = b"VFBW"
_BODY = struct.Struct("<Q4s")
_CHECKSUM = struct.Struct("<I")


class Head(NamedTuple):
    """The last position that was acknowledged, and the checksum of the record there.

    ``check`` is empty if it is not known.
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
    """The lock file of an SQLite journal, which is also its witness."""
    return log.with_name(f"{log.name}.lock")


def check_of(record: bytes) -> bytes:
    """The checksum that a record ends with."""
    return record[-CHECK_BYTES:]


def pack(head: Head) -> bytes:
    """The bytes of an acknowledgement."""
    ack = _HEAD.pack(_MAGIC, VERSION) + _BODY.pack(head.position, head.check)
    return ack + _CHECKSUM.pack(zlib.crc32(ack))


def unpack(ack: bytes, *, name: str = "a witness") -> Head | None:
    """Read an acknowledgement: None if it is damaged, JournalError if a newer version wrote it.

    >>> unpack(pack(Head(7, b"abcd")))
    Head(position=7, check=b'abcd')
    """
    body, checksum = ack[: -_CHECKSUM.size], ack[-_CHECKSUM.size :]
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


def read_ack(path: Path) -> Head | None:
    """The acknowledgement in a file; None if there is no file, or it is damaged."""
    try:
        return unpack(path.read_bytes(), name=str(path))
    except FileNotFoundError:
        return None


class Witness:
    """The file of the acknowledgement; ``head`` is None if damaged, of position 0 in a new file."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def lock(self) -> None:
        """Lock out every other writer until the file is closed."""
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise JournalError(
                f"a journal has one writer, got a second: {self.path} is locked by another process"
            ) from error

    @property
    def head(self) -> Head | None:
        """The last acknowledgement."""
        data = os.pread(self._descriptor, MAX_ACK_BYTES, 0)
        return unpack(data, name=str(self.path)) if data else Head(0)

    def ack(self, head: Head) -> None:
        """Acknowledge the journal up to ``head``."""
        os.pwrite(self._descriptor, pack(head), 0)

    def sync(self) -> None:
        """Make the acknowledgement durable."""
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the file, which releases the lock; safe to call twice."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def loss_after(
    head: Head, *, last: int, compacted_to: int, record_at: Callable[[int], object]
) -> Loss | None:
    """The loss of a journal that ends at ``last``, by its witness; None if nothing is lost."""
    if head.position > last:
        return Loss(head.position, last, f"{head.position - last} records are missing from its end")
    if not head.check or head.position <= compacted_to:
        return None
    record = record_at(head.position)
    # A damaged record is not a loss: it raises an error of its own when it is read.
    if not isinstance(record, bytes) or not is_whole(record) or check_of(record) == head.check:
        return None
    why = f"record {head.position} differs from the record that was acknowledged there"
    return Loss(head.position, last, why)


def lost(loss: Loss, *, log: str, advice: str) -> JournalLossError:
    """The error that refuses a journal that has lost records."""
    return JournalLossError(
        f"the journal {log} was acknowledged up to {loss.expected}, got an end at {loss.found}: "
        f"{loss.why}.  Nothing was changed.  {advice}, or start with --accept-loss to go on "
        "without them, which is recorded in the journal"
    )
