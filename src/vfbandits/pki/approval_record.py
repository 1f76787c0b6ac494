"""Who approved which member, and when: an append-only file beside the authority.

One JSON object per line, each with a hash of itself and of the line before it.  A process that may
write to the folder can replace the whole file.  A change or a removal of single entries is
detected, except at the end of the file.
"""

import fcntl
import os
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from vfbandits.errors import IdentityError
from vfbandits.files import sync_folder

FILE: Final = "approvals.jsonl"


class ApprovalEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A certificate was issued: for whom, for which key, until when, and who did it."""

    at: datetime
    by: str
    what: str
    name: str
    role: str
    key: str
    serial: str
    until: datetime


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    entry: ApprovalEntry
    chain: str


def append_approval(folder: Path, entry: ApprovalEntry) -> None:
    """Put an entry on record; it is on the disk when this returns."""
    path = folder / FILE
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            before, is_torn = _last_chain(file.read())
            line = msgspec.json.encode(_Line(entry, _chained(before, entry))) + b"\n"
            file.write(b"\n" + line if is_torn else line)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(folder)
    except OSError as error:
        raise IdentityError(
            f"an approval must be recorded before it is given, got {path}: {error.strerror}"
        ) from error


def read_approvals(folder: Path) -> tuple[list[ApprovalEntry], str]:
    """All entries in their order, and the first problem of the record; empty if there is none.

    >>> import tempfile
    >>> read_approvals(Path(tempfile.mkdtemp()))
    ([], '')
    """
    path = folder / FILE
    if not folder.is_dir():
        raise IdentityError(f"wanted the folder of an authority, got {folder}: it is not there")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], ""
    except OSError as error:
        raise IdentityError(f"wanted the approvals in {path}, got: {error.strerror}") from error
    entries: list[ApprovalEntry] = []
    chain, problem = "", ""
    for number, text in enumerate(data.split(b"\n"), start=1):
        if not text:
            continue
        try:
            line = msgspec.json.decode(text, type=_Line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            problem = problem or f"line {number} of {path} is no entry: a write was interrupted"
            continue
        chain = _chained(chain, line.entry)
        if chain != line.chain:
            problem = f"line {number} of {path} does not follow the one before it"
            chain = line.chain
        entries.append(line.entry)
    return entries, problem


def _chained(before: str, entry: ApprovalEntry) -> str:
    return sha256(before.encode() + b"\n" + msgspec.json.encode(entry)).hexdigest()


def _last_chain(data: bytes) -> tuple[str, bool]:
    """The hash of the last whole entry, and whether the file ends in the middle of another."""
    for text in reversed(data.split(b"\n")):
        try:
            return msgspec.json.decode(text, type=_Line).chain, not data.endswith(b"\n")
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
    return "", bool(data) and not data.endswith(b"\n")
