"""Pseudo-random pads that two participants share and nobody else can tell from noise.

Each pair agrees on a key by X25519 and HKDF.  For each message a fresh AES-256 key is derived by
HMAC from the pair's key, the message's stamp and shape, and a digest of its purpose: what was
asked, and of whom.  AES in counter mode gives the pad.  Two ends that were asked for different
things have unrelated pads, which do not cancel.
"""

import hmac
import struct
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from vfbandits.core.fixed_point import Ring

PURPOSE_SIZE = 32
_ZERO_NONCE = bytes(16)


class Stamp(NamedTuple):
    """Names one message of one participant.  A stamp is never used for two messages."""

    epoch: int
    round: int
    attempt: int = 0

    def to_bytes(self, shape: tuple[int, int]) -> bytes:
        """Stamp and shape, as the pad's key is bound to them."""
        return struct.pack("<5Q", self.epoch, self.round, self.attempt, *shape)


@dataclass(frozen=True, slots=True, eq=False)
class PairKey:
    """The secret of one pair of participants."""

    secret: bytes = field(repr=False)

    def pad(self, stamp: Stamp, shape: tuple[int, int], *, purpose: bytes) -> Ring:
        """The pad for a message: the same at both ends, fresh for each stamp, shape and purpose.

        ``purpose`` is a digest of ``PURPOSE_SIZE`` bytes.  Every key is used for one stream only,
        so the stream may start from a fixed counter.
        """
        key = hmac.digest(self.secret, stamp.to_bytes(shape) + purpose, "sha256")
        stream = Cipher(algorithms.AES256(key), modes.CTR(_ZERO_NONCE)).encryptor()
        zeros = bytes(8 * shape[0] * shape[1])
        return np.frombuffer(stream.update(zeros), dtype="<u8").reshape(shape)


def agree(mine: X25519PrivateKey, theirs: X25519PublicKey, *, label: str) -> PairKey:
    """The key of a pair; both ends must give the same ``label``."""
    shared = mine.exchange(theirs)
    info = b"vfbandits pads 2 " + label.encode()
    return PairKey(HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(shared))
