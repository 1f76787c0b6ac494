"""API keys at rest: a file of JSON lines for its owner only: a head, then one key a line.

The head has the version of the file; one without a head is of version 1.  A key that was revoked
keeps its line, which says when and by whom, and opens nothing.

It holds no key, only the SHA-256 of each key's secret.  A plain hash is right here: a slow one, or
one with salt, protects secrets that can be guessed, and these are 32 random bytes.

The file is replaced as a whole.  Writers take turns by a lock on a file beside it.
"""

import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from vfbandits.errors import IdentityError
from vfbandits.files import write_whole
from vfbandits.http.access.caller import Caller, Right
from vfbandits.versions import upcast

MAX_BYTES = 16 << 20
FORMAT: Final = "vfbandits API keys"
VERSION: Final = 1
UPCASTERS: Final[Mapping[int, Callable[[tuple[bytes, ...]], tuple[bytes, ...]]]] = {}  # of lines

Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]
# Not "$", which lets a line's end through.
Name: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f\ud800-\udfff]+\Z")
]


class KeyRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The record of a key.

    ``sha256`` is that of its secret, in hexadecimal digits; without ``expires`` it is valid until
    it is revoked, and without ``campaigns`` in all of them.  ``by`` and ``revoked_by`` say who ran
    the command.
    """

    id: Annotated[str, Meta(pattern=r"^[a-z2-7]{8}\Z")]
    name: Name
    scopes: Annotated[tuple[Right, ...], Meta(min_length=1)]
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    created: Moment
    expires: Moment | None = None
    campaigns: Annotated[tuple[Name, ...], Meta(min_length=1)] | None = None
    by: str = ""
    revoked: Moment | None = None
    revoked_by: str = ""

    def has_expired(self, now: datetime) -> bool:
        """Whether the key is no longer valid at ``now``."""
        return self.expires is not None and self.expires <= now

    def caller(self) -> Caller:
        """The caller that presents this key."""
        campaigns = None if self.campaigns is None else frozenset(self.campaigns)
        return Caller(self.name, frozenset(self.scopes), campaigns)


class _Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first line of a file."""

    format: str
    version: int


# Differs when a file has changed: device, inode, size, and the times of contents and mode.
Stamp: TypeAlias = tuple[int, int, int, int, int]


def stamp_of(facts: os.stat_result) -> Stamp:
    """The stamp of a file at this time."""
    return (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)


def read_keys(path: Path) -> tuple[KeyRecord, ...]:
    """The keys in a file that nobody but its owner may read."""
    return read_stamped(path)[0]


def read_stamped(path: Path) -> tuple[tuple[KeyRecord, ...], Stamp]:
    """The keys, and the stamp of the file that they were read from."""
    records, stamp = _read(path)
    return tuple(record for record in records if record.revoked is None), stamp


def read_history(path: Path) -> tuple[KeyRecord, ...]:
    """All keys that a file has had, including revoked ones."""
    return _read(path)[0]


def _read(path: Path) -> tuple[tuple[KeyRecord, ...], Stamp]:
    try:
        with path.open("rb") as file:
            facts = os.fstat(file.fileno())
            _refuse_open(path, facts)
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise IdentityError(
            f"wanted a file of API keys (vfb keys create makes one), got {path}: {error.strerror}"
        ) from error
    if len(data) > MAX_BYTES:
        raise IdentityError(f"a file of API keys has at most {MAX_BYTES} bytes, {path} has more")
    return _records(path, data), stamp_of(facts)


def add_key(path: Path, record: KeyRecord) -> None:
    """Write one more key; the file is created if there is none."""

    def added(records: tuple[KeyRecord, ...]) -> tuple[KeyRecord, ...]:
        if any(known.id == record.id for known in records):
            raise IdentityError(f"wanted a new id, got {record.id}, which {path} has; try again")
        return (*records, record)

    _change(path, added, may_make=True)


def revoke_key(path: Path, key_id: str, *, by: str = "") -> None:
    """Revoke the key of this id; its line stays, and says that ``by`` did so."""

    def revoked(records: tuple[KeyRecord, ...]) -> tuple[KeyRecord, ...]:
        if not any(record.id == key_id and record.revoked is None for record in records):
            raise IdentityError(f"wanted the id of a key in {path}, got {key_id[:100]!r}")
        return tuple(
            msgspec.structs.replace(record, revoked=now(), revoked_by=by)
            if record.id == key_id
            else record
            for record in records
        )

    _change(path, revoked, may_make=False)


def now() -> datetime:
    """The current time, to the second, as the file has it."""
    return datetime.now(UTC).replace(microsecond=0)


def _change(
    path: Path,
    change: Callable[[tuple[KeyRecord, ...]], tuple[KeyRecord, ...]],
    *,
    may_make: bool,
) -> None:
    target = path.resolve()  # a link is left in its place
    with _turn(target):
        records = () if may_make and not target.exists() else read_history(target)
        changed = change(records)

        def write(file: IO[bytes]) -> None:
            lines = (_Head(FORMAT, VERSION), *changed)
            file.writelines(msgspec.json.encode(line) + b"\n" for line in lines)

        try:
            write_whole(target, write, mode=0o600)
        except OSError as error:
            raise IdentityError(f"wanted a file to write, got {path}: {error.strerror}") from error


@contextmanager
def _turn(target: Path) -> Iterator[None]:
    """Hold the lock: no other process changes the file meanwhile."""
    lock = target.with_name(f".{target.name}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise IdentityError(
            f"wanted a folder to write API keys to, got {target.parent}: {error.strerror}"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _refuse_open(path: Path, facts: os.stat_result) -> None:
    mode = stat.S_IMODE(facts.st_mode)
    if mode & 0o077:
        raise IdentityError(
            f"a file of API keys must be for its owner only, got {path} with mode {mode:04o}: "
            "chmod 600 it"
        )


def _records(path: Path, data: bytes) -> tuple[KeyRecord, ...]:
    decoder = msgspec.json.Decoder(KeyRecord)
    records: dict[str, KeyRecord] = {}
    lines = _upcast(path, tuple(data.splitlines()))
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            why = str(error) if isinstance(error, msgspec.DecodeError) else "it is not UTF-8"
            raise IdentityError(f"wanted an API key in line {number} of {path}: {why}") from None
        if record.id in records:
            raise IdentityError(f"ids of API keys differ, got {record.id} twice in {path}")
        records[record.id] = record
    return tuple(records.values())


def _upcast(path: Path, lines: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """The lines of the newest version, an empty one in the place of the head."""
    try:
        head = msgspec.json.decode(lines[0] if lines else b"", type=_Head)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return lines  # of version 1, without a head
    if head.format != FORMAT:
        raise IdentityError(f"wanted a file of {FORMAT}, got {path} of {head.format[:100]!r}")
    what = f"the file of API keys {path}"
    return upcast(
        (b"", *lines[1:]),
        head.version,
        newest=VERSION,
        upcasters=UPCASTERS,
        what=what,
        error=IdentityError,
    )
