"""The format of the access record: lines that are committed to, and a chain over the commitments.

A line has a commitment, the running head of the chain, a salt and a content.  The commitment is the
hash of salt and content, and the chain covers commitments only.  So an entry can be erased: without
its salt the commitment reveals nothing, and the chain verifies as before.

The chain has no secret: a process that can write to the folder can replace it by another one that
verifies.  A head that was stored elsewhere shows whether it is still the same chain.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
from msgspec import Raw

from vfbandits.errors import AccessRecordError
from vfbandits.versions import refuse_unknown_version

VERSION: Final = 1
UPCASTERS: Final[dict[int, Callable[[bytes], bytes]]] = {}
PATTERN: Final = "access-*.jsonl"
START: Final = bytes(32)  # the head of a chain without entries
SALT_BYTES: Final = 16
SHOWN: Final = 16  # hex digits of the running head in a line
USER_BYTES: Final = 16
HASH_BYTES: Final = 32

# The same hash function as for users' names: the code of a second one would not be in the
# processor's caches at each decision, and fetching it took longer than hashing.
_hash: Final = partial(blake2b, digest_size=HASH_BYTES)
_encode: Final = msgspec.json.Encoder().encode


class Content(msgspec.Struct, array_like=True, frozen=True):
    """What was answered about one user in one round.

    ``user`` is a keyed hash, empty in a trial; ``at`` in seconds since 1970;
    ``outcome`` is "answered", "unknown", "trial", or the limit by which it was declined;
    ``campaign`` is the one that the active participant named, and empty in a trial.
    """

    at: float
    user: str
    round: int
    purpose: str
    outcome: str
    rows: int
    campaign: str = ""


class Line(msgspec.Struct, array_like=True, frozen=True):
    """A line of the record; salt and content are null in an erased one."""

    commitment: str
    head: str
    salt: str | None = None
    content: Raw = Raw(b"null")


class Header(msgspec.Struct, frozen=True):
    """The first line of a file: the number of entries before it, and the head of the chain."""

    version: int
    before: int
    head: str


_header: Final = msgspec.json.Decoder(Header).decode
_line: Final = msgspec.json.Decoder(Line).decode
_content: Final = msgspec.json.Decoder(Content).decode


@dataclass(slots=True)
class Chain:
    """The present end of a chain: its length and its head."""

    count: int = 0
    head: bytes = START

    def add(self, content: Content, salt: bytes) -> bytes:
        """The line of one more entry."""
        body = _encode(content)
        commitment = _hash(salt + body).digest()
        # ``extend`` and a ``Line``, written out: every answer waits for this code.
        self.head = head = _hash(self.head + commitment).digest()
        self.count += 1
        shown = head[: SHOWN // 2].hex()
        return f'["{commitment.hex()}","{shown}","{salt.hex()}",'.encode() + body + b"]\n"

    def extend(self, commitment: bytes) -> None:
        """Append a commitment."""
        self.head = _hash(self.head + commitment).digest()
        self.count += 1

    @property
    def shown(self) -> str:
        """The beginning of the head, as lines have it."""
        return self.head[: SHOWN // 2].hex()

    @property
    def header(self) -> bytes:
        """The first line of a file that goes on from here."""
        return _encode(Header(VERSION, self.count, self.head.hex())) + b"\n"


def user_hash(key: bytes, user: str) -> str:
    """How the record names a user.

    >>> user_hash(bytes(32), "ann") == user_hash(bytes(32), "ann") != user_hash(bytes(32), "bob")
    True
    """
    return blake2b(user.encode(), key=key, digest_size=USER_BYTES).hexdigest()


def files_in(folder: Path) -> list[Path]:
    """The files of a record, oldest first, without a last one whose header is incomplete."""
    files = sorted(folder.glob(PATTERN))
    return files[:-1] if files and not has_header(files[-1]) else files


def has_header(path: Path) -> bool:
    """Whether the first line of a file is whole; the process that began it may have been killed."""
    with path.open("rb") as file:
        return file.readline().endswith(b"\n")


def read_header(file: BinaryIO, path: Path) -> Chain:
    """The chain before the entries of this file."""
    try:
        header = _header(file.readline())
        head = bytes.fromhex(header.head)
    except (msgspec.DecodeError, ValueError) as error:
        raise AccessRecordError(f"{path} must begin with a header, got a damaged line") from error
    refuse_unknown_version(
        header.version,
        newest=VERSION,
        upcasters=UPCASTERS,
        what=str(path),
        error=AccessRecordError,
    )
    return Chain(header.before, head)


@dataclass(frozen=True, slots=True)
class Read:
    """An entry as read from a file; ``content`` is None if it was erased."""

    number: int
    line: Line
    content: Content | None


def read_entries(file: BinaryIO, path: Path, chain: Chain) -> Iterator[Read]:
    """The entries after the header, each checked; ``chain`` advances with them.

    AccessRecordError at the first entry that was altered.  A last line without its end is left out:
    it was never acknowledged.
    """
    for entry, _ in _with_text(file, path, chain):
        yield entry


def _with_text(file: BinaryIO, path: Path, chain: Chain) -> Iterator[tuple[Read, bytes]]:
    for text in file:
        if not text.endswith(b"\n"):
            return
        number = chain.count + 1
        what = f"{path}, entry {number}"
        try:
            line = _line(text)
            commitment = bytes.fromhex(line.commitment)
            content = _opened(line, commitment)
        except (msgspec.DecodeError, ValueError) as error:
            raise AccessRecordError(f"{what}: wanted an entry, got a damaged line") from error
        chain.extend(commitment)
        if line.head != chain.shown:
            raise AccessRecordError(
                f"{what}: wanted the head {chain.shown}, got {line.head[:SHOWN]!r}: "
                "an entry was changed, added or taken out"
            )
        yield Read(number, line, content), text


def _opened(line: Line, commitment: bytes) -> Content | None:
    """The content, if it is what was committed to; None if it was erased."""
    if line.salt is None:
        return None
    body = bytes(line.content)
    if _hash(bytes.fromhex(line.salt) + body).digest() != commitment:
        raise ValueError("the content differs from its commitment")
    return _content(body)


@dataclass(slots=True)
class Verification:
    """What ``verify`` found; ``has_head`` is None unless a head was looked for."""

    entries: int = 0
    erased: int = 0
    first: int = 1
    head: str = START.hex()
    has_head: bool | None = None
    problems: list[str] = field(default_factory=list)


def verify(
    folder: Path, *, head: str | None = None, on_step: Callable[[int], None] = lambda _: None
) -> Verification:
    """Read everything and follow the chain; ``head`` is one that was stored before."""
    found = Verification(has_head=None if head is None else head == START.hex())
    chain: Chain | None = None
    for path in files_in(folder):
        with path.open("rb") as file:
            try:
                begins = read_header(file, path)
                if chain is None:
                    chain, found.first = begins, begins.count + 1
                elif (begins.count, begins.head) != (chain.count, chain.head):
                    raise AccessRecordError(
                        f"{path}: wanted it to go on after entry {chain.count}, got after "
                        f"{begins.count}: a file is missing or was changed"
                    )
                for entry in read_entries(file, path, chain):
                    found.entries += 1
                    found.erased += entry.content is None
                    if head is not None and chain.head.hex() == head.lower():
                        found.has_head = True
                    if found.entries % 1_000 == 0:
                        on_step(found.entries)
            except AccessRecordError as error:
                found.problems.append(str(error))
                break
    on_step(found.entries)
    if chain is not None:
        found.head = chain.head.hex()
    if found.has_head is False:
        found.problems.append(f"the chain must hold the head {head}, got one without it")
    return found


def entries_in(folder: Path) -> Iterator[Content]:
    """What the record holds, oldest first, without what was erased."""
    for path in files_in(folder):
        with path.open("rb") as file:
            chain = read_header(file, path)
            for entry in read_entries(file, path, chain):
                if entry.content is not None:
                    yield entry.content


def forget(folder: Path, users: frozenset[str]) -> int:
    """Overwrite salt and content of all entries about these users; returns how many there were.

    The writer may go on meanwhile: it only adds lines, and a line keeps its length.
    """
    erased = 0
    for path in files_in(folder):
        with path.open("r+b") as file:
            chain = read_header(file, path)
            start = file.tell()
            for entry, text in _with_text(file, path, chain):
                if entry.content is not None and entry.content.user in users:
                    bare = _encode(Line(entry.line.commitment, entry.line.head))[:-1]
                    os.pwrite(file.fileno(), bare.ljust(len(text) - 2) + b"]\n", start)
                    erased += 1
                start += len(text)
            os.fsync(file.fileno())
    return erased
