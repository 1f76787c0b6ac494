"""An SQLite file with the state of one server of secret shares.

One process writes to it.  A batch of changes is one transaction that ends with an fsync.  The lock
file beside it records how far the file was acknowledged, which reveals a lost end.  The files are
for their owner only, and blobs are encrypted if there is a key.
"""

import hashlib
import hmac
import os
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Generic, Protocol, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from vfbandits.errors import JournalError, RollbackError
from vfbandits.files import sync_folder
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.sqlite.journal import connect_writer, prepare
from vfbandits.journal.witness import Head, Witness, lock_path
from vfbandits.versions import refuse_unknown_version

VERSION = 1
UPCASTERS: dict[int, str] = {}
CHECK_BYTES = 4
_SALT_BYTES, _NONCE_BYTES = 16, 12

_ABOUT = """
CREATE TABLE about (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    identity BLOB NOT NULL, key_check BLOB,
    epoch INTEGER NOT NULL, deal TEXT NOT NULL, terms TEXT NOT NULL,
    position INTEGER NOT NULL, digest BLOB NOT NULL,
    state BLOB
) STRICT;
"""


@dataclass(frozen=True, slots=True)
class Dealt:
    """The deal of a state, which cannot be continued with the words of another deal."""

    epoch: int
    deal: str
    terms: str


class BlobSealer:
    """Seals blobs with a checksum, or with a cipher key that is another one at each opening."""

    def __init__(self, identity: bytes, key: JournalKey | None) -> None:
        self._identity = identity
        self._key = key
        self._salt = os.urandom(_SALT_BYTES)
        self._ciphers: dict[bytes, AESGCM] = {}
        self._names = None if key is None else key.name_secret(identity)

    def name(self, ref: str) -> str:
        """The reference by which an event is found; keyed if blobs are encrypted."""
        if self._names is None:
            return ref
        return hmac.digest(self._names, ref.encode(), "sha256").hex()

    def seal(self, plain: bytes, *, bound: str) -> bytes:
        """A blob that can be opened with the same ``bound`` only."""
        if self._key is None:
            return plain + zlib.crc32(plain, zlib.crc32(bound.encode())).to_bytes(4, "little")
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._cipher(self._key, self._salt).encrypt(nonce, plain, bound.encode())
        return self._salt + nonce + sealed

    def open(self, blob: bytes, *, bound: str) -> bytes:
        """The plain bytes of a blob that was sealed with ``bound``."""
        if self._key is None:
            plain = blob[:-4]
            if self.seal(plain, bound=bound) == blob:
                return plain
        else:
            salt, rest = blob[:_SALT_BYTES], blob[_SALT_BYTES:]
            try:
                return self._cipher(self._key, salt).decrypt(
                    rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], bound.encode()
                )
            except (InvalidTag, ValueError):
                pass
        raise JournalError(f"the state of secret shares is damaged at {bound}: restore its files")

    def _cipher(self, key: JournalKey, salt: bytes) -> AESGCM:
        if salt not in self._ciphers:
            self._ciphers[salt] = key.cipher(self._identity, salt)
        return self._ciphers[salt]


def set_deal(db: sqlite3.Connection, dealt: Dealt) -> None:
    """Write the deal that the state belongs to from now on."""
    db.execute(
        "UPDATE about SET epoch = ?, deal = ?, terms = ?", (dealt.epoch, dealt.deal, dealt.terms)
    )


def epoch_of(path: Path) -> int | None:
    """The epoch of the state in a file, to be read before it is opened; None if there is none."""
    if not path.is_file():
        return None
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
            row = db.execute("SELECT epoch FROM about").fetchone()
    except sqlite3.Error:
        return None  # opening the file raises the error
    return None if row is None else int(row[0])


class Change(Protocol):
    """One change of a store; those of a batch are durable together."""

    def write(self, db: sqlite3.Connection, blobs: BlobSealer, position: int) -> bytes | None:
        """Execute statements; returns the digest up to here if there is a new one."""
        ...


C = TypeVar("C", bound=Change)


class ShareStore(Generic[C]):
    """Base of the two stores: opening, locking, and writing in batches."""

    APPLICATION: ClassVar[int]
    TABLES: ClassVar[str]
    WHAT: ClassVar[str]
    is_quick = False

    def __init__(self, path: Path, *, dealt: Dealt, key: JournalKey | None = None) -> None:
        self.path = path
        self._has_failed = False
        with ExitStack() as stack, self._translated("opened"):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._witness = Witness(lock_path(path))
            stack.callback(self._witness.close)
            self._witness.lock()
            self._db = connect_writer(path)
            stack.callback(self._db.close)
            prepare(self._db, path)
            self._make_tables(dealt, key)
            row = self._db.execute(
                "SELECT identity, key_check, epoch, deal, terms, position, digest, state FROM about"
            ).fetchone()
            identity, check, epoch, deal, terms, position, digest, state = row
            self._refuse_other_key(identity, check, key)
            self._refuse_other_deal(Dealt(epoch, deal, terms), dealt)
            self.identity = bytes(identity)
            self.blobs = BlobSealer(identity, key)
            self._position, self._digest = int(position), bytes(digest)
            self._refuse_old_copy()
            self.state = None if state is None else self.blobs.open(state, bound="state")
            self._closing = stack.pop_all()

    @property
    def last_position(self) -> int:
        """How many changes are durable."""
        return self._position

    @property
    def digest(self) -> bytes:
        """The digest of the last change that had one."""
        return self._digest

    def append(self, changes: Sequence[C], /) -> int:
        """Write changes in one transaction; returns the position of the last."""
        if self._has_failed:
            raise JournalError(
                f"a write to {self.path} has failed before; close it and open it again"
            )
        with self._translated("written"), self._transaction():
            self._has_failed = True
            position, digest = self._position, self._digest
            for change in changes:
                position += 1
                digest = change.write(self._db, self.blobs, position) or digest
            self._db.execute("UPDATE about SET position = ?, digest = ?", (position, digest))
        self._position, self._digest = position, digest
        self._witness.ack(Head(position, digest[:CHECK_BYTES]))
        self._has_failed = False
        return position

    def close(self) -> None:
        """Checkpoint the write-ahead log into the file, and release the lock."""
        with self._translated("closed"):
            self._witness.sync()
            self._closing.close()

    def _make_tables(self, dealt: Dealt, key: JournalKey | None) -> None:
        pragmas = ("application_id", "user_version", "schema_version")
        application, version, schema = (
            int(self._db.execute(f"PRAGMA {name}").fetchone()[0]) for name in pragmas
        )
        if schema and application != self.APPLICATION:
            raise JournalError(f"wanted {self.WHAT}, got {self.path}, which is something else")
        if schema:
            refuse_unknown_version(
                version,
                newest=VERSION,
                upcasters=UPCASTERS,
                what=f"{self.path}, {self.WHAT},",
                error=JournalError,
            )
            return
        self._refuse_lost()
        identity = os.urandom(16)
        with self._transaction():
            for statement in (_ABOUT + self.TABLES).strip().split(";\n"):
                self._db.execute(statement)
            self._db.execute(f"PRAGMA application_id = {self.APPLICATION}")
            self._db.execute(f"PRAGMA user_version = {VERSION}")
            self._db.execute(
                "INSERT INTO about VALUES (1, ?, ?, ?, ?, ?, 0, ?, NULL)",
                (
                    identity,
                    None if key is None else key.check(identity),
                    dealt.epoch,
                    dealt.deal,
                    dealt.terms,
                    bytes(hashlib.sha256().digest_size),
                ),
            )
        sync_folder(self.path.parent)

    def _refuse_lost(self) -> None:
        head = self._witness.head
        if head is None or head.position:
            raise RollbackError(
                f"{self.path}, {self.WHAT}, was written before, got an empty one: restore its "
                "newest files.  If they are lost, start again with a new roster and a new deal: a "
                "slot must not be used a second time"
            )

    def _refuse_old_copy(self) -> None:
        head = self._witness.head
        check = self._digest[:CHECK_BYTES]
        if head is None or head.position < self._position:
            return  # written by a process that was killed before it acknowledged this
        if head.position > self._position or (head.check and head.check != check):
            raise RollbackError(
                f"{self.path}, {self.WHAT}, was acknowledged up to change {head.position}, got an "
                f"end at {self._position}: it is an older copy.  Restore its newest files; if "
                "they are lost, start again with a new roster and a new deal"
            )

    def _refuse_other_key(
        self, identity: bytes, check: bytes | None, key: JournalKey | None
    ) -> None:
        if (key is None) != (check is None):
            wanted, came = ("no key", "one") if check is None else ("its key", "none")
            raise JournalError(f"{self.path}, {self.WHAT}, opens with {wanted}, got {came}")
        if key is not None and key.check(identity) != check:
            raise JournalError(
                f"{self.path}, {self.WHAT}, opens with the key that it was created with, got a "
                "different key"
            )

    def _refuse_other_deal(self, kept: Dealt, wanted: Dealt) -> None:
        if kept != wanted:
            raise JournalError(
                f"{self.path}, {self.WHAT}, is of epoch {kept.epoch}, deal {kept.deal[:12]}…, "
                f"terms {kept.terms[:12]}…; got words of epoch {wanted.epoch}, deal "
                f"{wanted.deal[:12]}…, terms {wanted.terms[:12]}…: each deal needs a file of its "
                "own"
            )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    @contextmanager
    def _translated(self, done: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise JournalError(f"{self.path}, {self.WHAT}, cannot be {done}: {error}") from error
