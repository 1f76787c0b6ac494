"""The access record on the disk: written before an answer leaves, synced within a second.

Files are rotated by their size.  Each begins with the head of the chain before it, so the oldest
ones may be removed and the rest still verifies.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from time import time
from typing import Final

from vfbandits.errors import AccessRecordError
from vfbandits.files import sync_folder
from vfbandits.journal.witness import Head, Witness
from vfbandits.participant.access.chain import (
    SALT_BYTES,
    Chain,
    Content,
    files_in,
    read_entries,
    read_header,
    user_hash,
)
from vfbandits.pki.files import read_file, write_new

FOLDER: Final = "access"
KEY_FILE: Final = "users.key"
HEAD_FILE: Final = "head"
KEY_BYTES: Final = 32
SYNC_S: Final = 0.5
OVERDUE_S: Final = 10.0  # entries that are not synced for so long
SALT_BATCH_SIZE: Final = 256
MIN_FREE_BYTES: Final = 1 << 20
MAX_FILE_BYTES: Final = 16 << 20
_CHECK_BYTES: Final = 4
DAY_S: Final = 86_400.0


class AccessRecord:
    """The record of one participant; ``keep_days`` bounds how long files are kept.

    ``synced_at`` is when entries were made durable last, or when the record was opened.
    """

    def __init__(
        self,
        folder: Path,
        *,
        keep_days: float | None = None,
        max_file_bytes: int = MAX_FILE_BYTES,
        clock: Callable[[], float] = time,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder = folder
        self.key = _key_of(folder)
        self._keep_days = keep_days
        self._max_file_bytes = max_file_bytes
        self._clock = clock
        self._synced = -1  # entries that are durable
        self.synced_at = clock()
        self._waiting_since: float | None = None  # of the first entry that is not durable
        self._salts: list[bytes] = []
        self._failure = ""
        self._older_bytes = 0  # of all files but the last
        self._lock = Lock()  # a file is not closed while it is synced
        self._witness = Witness(folder / HEAD_FILE)
        self._descriptor = -1
        try:
            self.chain = self._go_on()
            self._refuse_loss()
            self._synced = self.chain.count
        except BaseException:
            self._witness.close()
            raise

    def user(self, name: str) -> str:
        """How the record names a user."""
        return user_hash(self.key, name)

    def append(self, contents: Sequence[Content]) -> None:
        """Write entries; once it returns they survive the end of this process.

        AccessRecordError if they cannot be written; then none of them counts.
        """
        chain = self.chain
        count, head = chain.count, chain.head
        if len(self._salts) < len(contents):
            self._draw_salts(len(contents))
        salts = self._salts
        lines = b"".join([chain.add(content, salts.pop()) for content in contents])
        try:
            is_full = self._size + len(lines) > self._max_file_bytes
            if is_full and count > self._first:
                self._rotate(Chain(count, head))
            self._write(lines)
            self._failure = ""
            if self._waiting_since is None:
                self._waiting_since = self._clock()
        except OSError as error:
            self.chain = Chain(count, head)
            self._failure = error.strerror or "the disk failed"
            os.ftruncate(self._descriptor, self._size)
            os.lseek(self._descriptor, self._size, os.SEEK_SET)
            raise AccessRecordError(
                f"the access record in {self.folder} cannot be written: {self._failure}"
            ) from error

    @property
    def unsynced(self) -> Head | None:
        """The last written entry; None if all entries are durable."""
        chain = self.chain
        return Head(chain.count, chain.head[:_CHECK_BYTES]) if chain.count > self._synced else None

    def sync(self, to: Head) -> None:
        """Make entries durable up to ``unsynced``, and store that position; may run in a thread."""
        with self._lock:
            os.fdatasync(self._descriptor)
            self._witness.ack(to)
        self.synced_at = self._clock()
        self._synced = to.position
        self._waiting_since = None if self.chain.count == to.position else self.synced_at

    @property
    def n_unsynced(self) -> int:
        """Entries that a power cut would lose."""
        return self.chain.count - self._synced

    @property
    def size_bytes(self) -> int:
        """Size of all files."""
        return self._older_bytes + self._size

    def problems(self) -> list[str]:
        """Why entries cannot be written or made durable; no text names a file."""
        if self._descriptor < 0:
            return ["the access record is closed"]
        found, disk = [], os.fstatvfs(self._descriptor)
        if self._failure:
            found.append(f"the access record cannot be written: {self._failure}")
        elif disk.f_bavail * disk.f_frsize < MIN_FREE_BYTES:
            found.append("the access record cannot be written: its disk is full")
        if not os.fstat(self._descriptor).st_nlink:
            found.append("the file of the access record was removed")
        since = self._waiting_since
        if since is not None and self._clock() - since > OVERDUE_S:
            found.append(f"the access record was not synced for more than {OVERDUE_S:g} s")
        return found

    def close(self) -> None:
        """Sync, and release the files; safe to call twice."""
        if self._descriptor >= 0:
            unsynced = self.unsynced
            if unsynced is not None:
                self.sync(unsynced)
            os.close(self._descriptor)
            self._descriptor = -1
            self._witness.close()

    def _draw_salts(self, count: int) -> None:
        """Random bytes for ``count`` entries and some more."""
        drawn = os.urandom(SALT_BYTES * (count + SALT_BATCH_SIZE))
        self._salts = [drawn[k : k + SALT_BYTES] for k in range(0, len(drawn), SALT_BYTES)]

    def _write(self, lines: bytes) -> None:
        written = os.write(self._descriptor, lines)
        while written < len(lines):  # a signal or a full disk may cut a write short
            written += os.write(self._descriptor, lines[written:])
        self._size += written

    def _go_on(self) -> Chain:
        """Open the newest file at the end of its last whole entry, or begin the first file."""
        files = files_in(self.folder)
        if not files:
            chain = Chain()
            self._begin(chain)
            return chain
        with files[-1].open("rb") as file:
            chain = read_header(file, files[-1])
            self._first = chain.count
            for _ in read_entries(file, files[-1], chain):
                pass
        self._open(files[-1])
        self._older_bytes = sum(path.stat().st_size for path in files[:-1])
        return chain

    def _open(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = _whole_bytes(self._descriptor)
        os.ftruncate(self._descriptor, self._size)
        os.lseek(self._descriptor, self._size, os.SEEK_SET)

    def _begin(self, chain: Chain) -> None:
        path = self.folder / f"access-{chain.count + 1:012d}.jsonl"
        path.unlink(missing_ok=True)  # a process was killed as it began this file
        self._open(path)
        try:
            self._write(chain.header)
        except OSError:
            os.close(self._descriptor)
            path.unlink()
            raise
        self._first = chain.count
        sync_folder(self.folder)

    def _rotate(self, chain: Chain) -> None:
        with self._lock:
            old, size = self._descriptor, self._size
            os.fdatasync(old)
            try:
                self._begin(chain)
            except OSError:
                self._descriptor, self._size = old, size
                raise
            os.close(old)
            self._older_bytes += size
        if self._keep_days is not None:
            oldest = self._clock() - self._keep_days * DAY_S
            for path in files_in(self.folder)[:-1]:
                status = path.stat()
                if status.st_mtime < oldest:
                    path.unlink()
                    self._older_bytes -= status.st_size

    def _refuse_loss(self) -> None:
        noted = self._witness.head
        if noted is None or noted.position > self.chain.count:
            known = "a damaged position" if noted is None else f"{noted.position} entries"
            raise AccessRecordError(
                f"the access record in {self.folder} must have all that was written, got "
                f"{self.chain.count} entries, while {HEAD_FILE} records {known}.  Restore the "
                "folder, or move it away to begin a new record"
            )


def _whole_bytes(descriptor: int) -> int:
    """The size of a file up to the end of its last whole line."""
    size = os.fstat(descriptor).st_size
    tail = os.pread(descriptor, 1 << 16, max(0, size - (1 << 16)))
    return size - len(tail) + tail.rfind(b"\n") + 1 if tail else 0


def _key_of(folder: Path) -> bytes:
    path = folder / KEY_FILE
    if not path.exists():
        if files_in(folder):
            raise AccessRecordError(
                f"{path} is not there, while the access record beside it names users by it: "
                "put it back, or move the folder away to begin a new record"
            )
        write_new({path: (os.urandom(KEY_BYTES), 0o600)})
    return read_key(folder)


def read_key(folder: Path) -> bytes:
    """The key by which the record in ``folder`` names users."""
    path = folder / KEY_FILE
    key = read_file(path, "the key of the access record")
    if len(key) != KEY_BYTES:
        raise AccessRecordError(f"{path} must have {KEY_BYTES} bytes, got {len(key)}")
    return key
