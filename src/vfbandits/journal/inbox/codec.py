"""Events of an inbox as bytes, and their keys.

A key is a keyed hash of the decision's id, followed by one of the event's kind (for a reward, of
its reward id): so the keys of a decision's events are adjacent, and the same event gets the same
key in every process.  An encrypted record is::

    129 u8 | salt, 16 bytes | number u64 | the plain record, encrypted | CRC-32 u32

Each opening draws a salt, and with it a cipher key that no other opening has; the nonce is the
number, which is never used again.  The record's key in the inbox is authenticated, so no record can
be moved to another key.
"""

import os
import struct
import threading
import zlib
from hashlib import blake2b
from itertools import count
from typing import cast

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from vfbandits.campaign.events import Activated, Configured, Decided, Reported
from vfbandits.core.decision import EventId
from vfbandits.errors import JournalError
from vfbandits.journal.crypto import KEY_BYTES, JournalKey
from vfbandits.journal.inbox.base import Arrival
from vfbandits.journal.record import decode, encode

PART_BYTES = 16
SEALED = 129  # above every record.VERSION, and not the mark of a journal's record
_PURPOSE = b"inbox"
_HEAD = struct.Struct("<B16sQ")
_NONCE = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")
_MAX_CIPHERS = 1_000


class InboxCodec:
    """Encodes and decodes the events of one inbox; ``identity`` is that of its journal.

    >>> codec = InboxCodec(b"of this log")
    >>> first, again = Reported("a", 1.0, "r", "queued"), Reported("a", 0.0, "r", "queued")
    >>> codec.key_of(first) == codec.key_of(again)
    True
    >>> codec.key_of(first).startswith(codec.place_of("a"))
    True
    """

    def __init__(self, identity: bytes, key: JournalKey | None = None) -> None:
        self._identity = identity + _PURPOSE
        self._key = key
        self._secret = (
            blake2b(self._identity, digest_size=KEY_BYTES).digest()
            if key is None
            else key.name_secret(self._identity)
        )
        self._salt = os.urandom(PART_BYTES)
        self._numbers = count()
        self._guard = threading.Lock()
        self._ciphers: dict[bytes, AESGCM] = {}

    def place_of(self, event_id: EventId) -> bytes:
        """The prefix of the keys of a decision's events."""
        if isinstance(event_id, str):
            return self._hash(b"text", event_id.encode("utf-8", "surrogatepass"))
        return self._hash(b"number", b"%x" % event_id)

    def key_of(self, event: Arrival) -> bytes:
        """The key of an event."""
        if isinstance(event, Configured):  # one change of settings does not replace another
            return self._hash(b"settings", b"") + os.urandom(PART_BYTES)
        place = self.place_of(event.event_id)
        if isinstance(event, Reported):
            name = event.reward_id.encode("utf-8", "surrogatepass")
            return place + self._hash(b"reward", name)
        kind = b"decided" if isinstance(event, Decided) else b"activated"
        return place + self._hash(kind, b"")

    def seal(self, event: Arrival, key: bytes) -> bytes:
        """An event as the inbox stores it under ``key``."""
        record = encode(event)
        if self._key is None:
            return record
        with self._guard:
            number = next(self._numbers)
        head = _HEAD.pack(SEALED, self._salt, number)
        nonce = _NONCE.pack(number, 0)
        body = head + self._cipher(self._key, self._salt).encrypt(nonce, record, head + key)
        return body + _CHECKSUM.pack(zlib.crc32(body))

    def open(self, record: bytes, key: bytes) -> Arrival:
        """The event that was sealed under ``key``."""
        if self._key is None and record[:1] == bytes([SEALED]):
            raise JournalError("a record of the inbox must be plain, got an encrypted one")
        plain = record if self._key is None else self._decrypt(self._key, record, key)
        event = decode(plain, 0)
        if not isinstance(event, Decided | Reported | Activated | Configured):
            kind = type(event).__name__
            raise JournalError(
                "a record of the inbox must be a decision, an activation, a reward or a change of "
                f"settings, got a {kind}"
            )
        return event

    def _decrypt(self, secret: JournalKey, record: bytes, key: bytes) -> bytes:
        body, checksum = record[: -_CHECKSUM.size], record[-_CHECKSUM.size :]
        if len(body) < _HEAD.size or _CHECKSUM.pack(zlib.crc32(body)) != checksum:
            raise JournalError("a record of the inbox is damaged: its checksum is wrong")
        version, salt, number = cast("tuple[int, bytes, int]", _HEAD.unpack_from(body))
        if version != SEALED:
            raise JournalError("a record of the inbox must be encrypted, got a plain one")
        head, sealed = body[: _HEAD.size], body[_HEAD.size :]
        try:
            return self._cipher(secret, salt).decrypt(_NONCE.pack(number, 0), sealed, head + key)
        except InvalidTag as error:
            raise JournalError(
                "a record of the inbox must be the one that was encrypted there, "
                "got one that does not decrypt"
            ) from error

    def _cipher(self, secret: JournalKey, salt: bytes) -> AESGCM:
        with self._guard:
            cipher = self._ciphers.get(salt)
            if cipher is None:
                if len(self._ciphers) >= _MAX_CIPHERS:
                    self._ciphers.clear()
                cipher = self._ciphers[salt] = secret.cipher(self._identity, salt)
            return cipher

    def _hash(self, kind: bytes, data: bytes) -> bytes:
        return blake2b(data, key=self._secret, digest_size=PART_BYTES, person=kind).digest()
