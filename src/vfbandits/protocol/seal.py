"""Bytes that the mask generator signs and that one recipient can open.

::

    title | length of the label (2 bytes) | label | sealed bytes | Ed25519 signature

Sealed by HPKE (RFC 9180: X25519, HKDF-SHA256, AES-256-GCM, base mode) with title and label as
HPKE's ``info``: a seal opens under its own label and no other.  The signature covers all that
precedes it, and is checked before anything is read.
"""

from typing import NamedTuple

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from vfbandits.errors import EnvelopeError, IdentityError

SIGNATURE_BYTES = 64
SEAL_BYTES = 48  # the encapsulated key and the tag
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)


class Signed(NamedTuple):
    """The label and the sealed bytes of an envelope whose signature is right."""

    label: bytes
    sealed: memoryview


def seal(
    plain: bytes,
    *,
    title: bytes,
    label: bytes,
    recipient: X25519PublicKey,
    signing_key: Ed25519PrivateKey,
) -> bytes:
    """An envelope; ValueError if the recipient's key cannot be used."""
    sealed = _SUITE.encrypt(plain, recipient, info=title + label)
    signed = b"".join((title, len(label).to_bytes(2, "little"), label, sealed))
    return signed + signing_key.sign(signed)


def open_signed(data: bytes, *, title: bytes, generator_key: str) -> Signed:
    """The label and what is sealed, if the generator of that public key (hex) signed both."""
    if not data.startswith(title):
        raise EnvelopeError(
            f"wanted a {title.decode().strip()!r}, got {len(data)} bytes without this title"
        )
    start = len(title) + 2
    view = memoryview(data)
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(generator_key))
        key.verify(data[-SIGNATURE_BYTES:], view[:-SIGNATURE_BYTES])
    except (InvalidSignature, ValueError) as error:
        raise IdentityError(
            "the envelope must be signed by the generator that the roster names; another signed "
            "it, or it was changed since"
        ) from error
    end = start + int.from_bytes(view[start - 2 : start], "little")
    return Signed(data[start:end], view[end:-SIGNATURE_BYTES])


def unseal(signed: Signed, *, title: bytes, private_key: X25519PrivateKey, of: str) -> bytes:
    """What was sealed to ``private_key``, which is the one of the member ``of``."""
    try:
        return _SUITE.decrypt(signed.sealed, private_key, info=title + signed.label)
    except (InvalidTag, ValueError) as error:
        raise EnvelopeError(
            f"the share must be sealed to the key of {of!r} in the roster; it is not"
        ) from error
