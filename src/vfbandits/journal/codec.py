"""Records and snapshots as a journal stores them: plain, or encrypted with AES-256-GCM.

An encrypted record is::

    128 u8 | kind u8 | zero u16 | salt, 16 bytes | the plain record, encrypted | CRC-32 u32

and an encrypted snapshot::

    VFBSEAL1 | salt, 16 bytes | pieces of the plain one, encrypted | CRC-32 u32

Each opening of a journal draws a salt, and with it a key that no other opening has; the nonce is
the position, and before a position is written a second time another salt is drawn.  A snapshot has
a salt of its own and counts its pieces.  Journal, position and kind are authenticated, so no record
can be swapped with another one, or moved to another journal.  The outer checksum distinguishes
damage from a wrong key.

Visible without the key: the number of records, their kinds and sizes, when they came, and which of
them belong to the same decision (``lookup.py``).
"""

import os
import secrets
import struct
import zlib
from collections.abc import Sequence
from hashlib import blake2b

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from vfbandits.campaign.events import Event
from vfbandits.core.snapshot import Snapshot
from vfbandits.errors import JournalError, RecordError, SnapshotError
from vfbandits.journal.crypto import KEY_BYTES, JournalKey
from vfbandits.journal.lookup import LookupHash
from vfbandits.journal.record import decode, is_whole
from vfbandits.journal.snapshot import open_sealed, seal_snapshot

IDENTITY_BYTES = 16
SEALED = 128  # above every record.VERSION
_SALT_BYTES = 16
_TAG_BYTES = 16
_HEAD = struct.Struct("<BBH")
_NONCE = struct.Struct("<QI")
_POSITION = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_MAGIC = b"VFBSEAL1"
_PIECE = 64 << 20
_MAX_CIPHERS = 1_000


class Codec:
    """Encodes and decodes the records of one journal; each opening makes one of its own.

    ``identity`` is drawn when a journal is created; the name follows if the journal has one.
    """

    def __init__(self, identity: bytes, key: JournalKey | None = None) -> None:
        self._identity = identity
        self._key = key
        self._salt = os.urandom(_SALT_BYTES)
        self._sealed_to = 0
        self._ciphers: dict[bytes, AESGCM] = {}
        self.names = LookupHash(
            blake2b(identity, digest_size=KEY_BYTES).digest()
            if key is None
            else key.name_secret(identity)
        )

    def seal(self, records: Sequence[bytes], *, after: int) -> list[bytes]:
        """Plain records as the journal stores them, at the positions after ``after``."""
        if self._key is None:
            return list(records)
        if after < self._sealed_to:  # positions are sealed again: no nonce may be used twice
            self._salt = os.urandom(_SALT_BYTES)
        self._sealed_to = after + len(records)
        cipher, salt = self._cipher(self._salt), self._salt
        sealed = []
        for position, record in enumerate(records, start=after + 1):
            head = _HEAD.pack(SEALED, record[1], 0)
            nonce, bound = _NONCE.pack(position, 0), self._bound(head, position)
            sealed.append(_checked(head + salt + cipher.encrypt(nonce, record, bound)))
        return sealed

    def open(self, record: object, position: int) -> Event:
        """The event of the record at ``position``."""
        if not isinstance(record, bytes) or not is_whole(record):
            return decode(record, position)  # which says what is wrong
        if self._key is None:
            if record[0] == SEALED:
                raise JournalError(f"record {position} of the journal must be plain, got encrypted")
            return decode(record, position)
        if record[0] != SEALED:
            raise JournalError(f"record {position} of the journal must be encrypted, got plain")
        return decode(self._decrypt(record, position), position)

    def seal_snapshot(self, position: int, snapshot: Snapshot) -> bytes:
        """A snapshot as the journal stores it."""
        data = seal_snapshot(snapshot)
        if self._key is None:
            return data
        salt = os.urandom(_SALT_BYTES)
        cipher, bound = self._key.cipher(self._identity, salt), self._bound(_MAGIC, position)
        pieces = [data[start : start + _PIECE] for start in range(0, len(data), _PIECE)]
        sealed = (
            cipher.encrypt(_NONCE.pack(number, number == len(pieces) - 1), piece, bound)
            for number, piece in enumerate(pieces)
        )
        return _checked(b"".join((_MAGIC, salt, *sealed)))

    def open_snapshot(self, data: bytes, position: int) -> Snapshot:
        """The snapshot of ``position``."""
        name, is_sealed = f"the snapshot of position {position}", data.startswith(_MAGIC)
        if self._key is None:
            if is_sealed:
                raise JournalError(f"{name} must be plain, got an encrypted one")
            return open_sealed(data, name=name)
        if (
            _CHECKSUM.pack(zlib.crc32(memoryview(data)[: -_CHECKSUM.size]))
            != data[-_CHECKSUM.size :]
        ):
            raise SnapshotError(f"{name} is not a whole snapshot: its checksum is wrong")
        if not is_sealed:
            raise JournalError(f"{name} must be encrypted, got a plain one")
        return open_sealed(self._decrypt_snapshot(self._key, data, position, name), name=name)

    def _decrypt(self, record: bytes, position: int) -> bytes:
        head, rest = record[: _HEAD.size], record[_HEAD.size : -_CHECKSUM.size]
        salt, secret = rest[:_SALT_BYTES], rest[_SALT_BYTES:]
        nonce, bound = _NONCE.pack(position, 0), self._bound(head, position)
        try:
            return self._cipher(salt).decrypt(nonce, secret, bound)
        except (InvalidTag, ValueError) as error:
            raise RecordError(
                f"record {position} of the journal must be the one that was encrypted there, "
                "got one that does not decrypt: it was changed, or moved",
                position,
            ) from error

    def _decrypt_snapshot(self, key: JournalKey, data: bytes, position: int, name: str) -> bytes:
        body = memoryview(data)[len(_MAGIC) : -_CHECKSUM.size]
        salt, secret = bytes(body[:_SALT_BYTES]), body[_SALT_BYTES:]
        cipher, bound = key.cipher(self._identity, salt), self._bound(_MAGIC, position)
        size = _PIECE + _TAG_BYTES
        pieces = [secret[start : start + size] for start in range(0, len(secret), size)]
        try:
            return b"".join(
                cipher.decrypt(_NONCE.pack(number, number == len(pieces) - 1), piece, bound)
                for number, piece in enumerate(pieces)
            )
        except (InvalidTag, ValueError) as error:
            raise SnapshotError(
                f"{name} must be the one that was encrypted there, got one that does not decrypt"
            ) from error

    def _bound(self, head: bytes, position: int) -> bytes:
        return b"".join((head, _POSITION.pack(position), self._identity))

    def _cipher(self, salt: bytes) -> AESGCM:
        if self._key is None:
            raise JournalError("the journal is not encrypted")
        cipher = self._ciphers.get(salt)
        if cipher is None:
            if len(self._ciphers) >= _MAX_CIPHERS:
                self._ciphers.clear()
            cipher = self._ciphers[salt] = self._key.cipher(self._identity, salt)
        return cipher


def refuse_other_key(
    key: JournalKey | None, *, identity: bytes, check: bytes | None, log: str
) -> None:
    """Raise unless an encrypted journal is opened with its own key, and a plain one without."""
    if key is None and check is not None:
        raise JournalError(f"the journal {log} is encrypted: wanted its key, got none")
    if key is not None and check is None:
        raise JournalError(
            f"the journal {log} is not encrypted: wanted no key, got one; "
            "start a new journal with it"
        )
    if key is None or check is None:
        return
    if not secrets.compare_digest(key.check(identity), check):
        raise JournalError(
            f"the journal {log}: wanted the key that it was created with, got a different key"
        )


def _checked(body: bytes) -> bytes:
    return body + _CHECKSUM.pack(zlib.crc32(body))
