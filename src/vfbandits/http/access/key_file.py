"""API keys at rest: a file of JSON lines, one key a line, for its owner only.

It holds no key, only the SHA-256 of each key's secret.  A plain hash is right here: a slow one, or
one with salt, protects secrets that can be guessed, and these are 32 random bytes.

The file is replaced as a whole.  Those who change it take turns by a lock on a file beside it.
"""

import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Annotated, TypeAlias

import msgspec
from msgspec import Meta

from vfbandits.errors import IdentityError
from vfbandits.files import write_whole
from vfbandits.http.access.caller import Caller, Right

MAX_BYTES = 16 << 20

Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]
# Not "$", which lets a line's end through.
Name: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f\ud800-\udfff]+\Z")
]


class KeyRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is kept of a key.

    ``sha256`` is that of its secret, in hexadecimal digits; without ``expires`` it is valid until
    it is revoked, and without ``campaigns`` in all of them.
    """

    id: Annotated[str, Meta(pattern=r"^[a-z2-7]{8}\Z")]
    name: Name
    scopes: Annotated[tuple[Right, ...], Meta(min_length=1)]
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
    created: Moment
    expires: Moment | None = None
    campaigns: Annotated[tuple[Name, ...], Meta(min_length=1)] | None = None

    def has_expired(self, now: datetime) -> bool:
        """Whether its time is over."""
        return self.expires is not None and self.expires <= now

    def caller(self) -> Caller:
        """Who shows this key."""
        campaigns = None if self.campaigns is None else frozenset(self.campaigns)
        return Caller(self.name, frozenset(self.scopes), campaigns)


# By what a changed file is known: device, inode, size, and the times of contents and mode.
Stamp: TypeAlias = tuple[int, int, int, int, int]


def stamp_of(facts: os.stat_result) -> Stamp:
    """The stamp of a file as it stands."""
    return (facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)


def read_keys(path: Path) -> tuple[KeyRecord, ...]:
    """The keys in a file that nobody but its owner may read."""
    return read_stamped(path)[0]


def read_stamped(path: Path) -> tuple[tuple[KeyRecord, ...], Stamp]:
    """The keys, and the stamp of the file that they were read from."""
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
    """Write one more key; the file is made if there is none."""

    def added(records: tuple[KeyRecord, ...]) -> tuple[KeyRecord, ...]:
        if any(known.id == record.id for known in records):
            raise IdentityError(f"wanted a new id, got {record.id}, which {path} has; try again")
        return (*records, record)

    _change(path, added, may_make=True)


def remove_key(path: Path, key_id: str) -> None:
    """Revoke the key of this id."""

    def removed(records: tuple[KeyRecord, ...]) -> tuple[KeyRecord, ...]:
        kept = tuple(record for record in records if record.id != key_id)
        if len(kept) == len(records):
            raise IdentityError(f"wanted the id of a key in {path}, got {key_id[:100]!r}")
        return kept

    _change(path, removed, may_make=False)


def now() -> datetime:
    """The moment, to the second, as the file has it."""
    return datetime.now(UTC).replace(microsecond=0)


def _change(
    path: Path,
    change: Callable[[tuple[KeyRecord, ...]], tuple[KeyRecord, ...]],
    *,
    may_make: bool,
) -> None:
    target = path.resolve()  # a link is left in its place
    with _turn(target):
        records = () if may_make and not target.exists() else read_keys(target)
        changed = change(records)

        def write(file: IO[bytes]) -> None:
            file.writelines(msgspec.json.encode(record) + b"\n" for record in changed)

        try:
            write_whole(target, write, mode=0o600)
        except OSError as error:
            raise IdentityError(f"wanted a file to write, got {path}: {error.strerror}") from error


@contextmanager
def _turn(target: Path) -> Iterator[None]:
    """Nobody else changes the file in here."""
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
    for number, line in enumerate(data.splitlines(), start=1):
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
