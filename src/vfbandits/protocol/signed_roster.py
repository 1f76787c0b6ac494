"""A roster under the organiser's signature, as it travels and lies in files.

Three parts: a title line, a line with the signature in hex, and the roster's own
document.  The signature (ECDSA, SHA-256) covers the first and the last.  The first line has the
version of this envelope; the document has one of its own.
"""

import re

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.hashes import SHA256

from vfbandits.errors import IdentityError
from vfbandits.protocol.roster import Roster

TITLE = b"vfbandits signed roster 1\n"
MAX_BYTES = 4 << 20
_ANY_TITLE = re.compile(rb"vfbandits signed roster [0-9]{1,9}")
_MAX_SIGNATURE_LENGTH = 2 * 80  # hex digits; P-256 needs at most 144


def sign_roster(roster: Roster, ca_private_key: EllipticCurvePrivateKey) -> bytes:
    """The roster, signed by the federation's authority.

    >>> from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    >>> from vfbandits.protocol.roster import Member, Terms
    >>> shop = Member("shop", "active", certificate="01" * 32, width=2, sealing_key="03" * 32)
    >>> bank = Member("bank", "passive", certificate="02" * 32, width=3, sealing_key="04" * 32)
    >>> roster = Roster("shops", 1, Terms(), (shop, bank))
    >>> key = generate_private_key(SECP256R1())
    >>> open_roster(sign_roster(roster, key), key.public_key()) == roster
    True
    """
    document = roster.to_bytes()
    signature = ca_private_key.sign(TITLE + document, ECDSA(SHA256()))
    return TITLE + signature.hex().encode() + b"\n" + document


def open_roster(data: bytes, ca_certificate_public_key: EllipticCurvePublicKey) -> Roster:
    """The roster in ``data``; IdentityError unless that authority signed it, every byte.

    ConfigError if it did, and the document is still no roster that this version can read.
    """
    if len(data) > MAX_BYTES:
        raise IdentityError(f"a signed roster has at most {MAX_BYTES} bytes, got {len(data)}")
    if not data.startswith(TITLE):
        other = _ANY_TITLE.match(data)
        # Other bytes are not quoted: the file may be that of a private key.
        came = repr(other[0].decode()) if other else f"{len(data)} bytes without a title"
        raise IdentityError(f"wanted a {TITLE.decode().strip()!r}, got {came}")
    text, newline, document = data[len(TITLE) :].partition(b"\n")
    signature = _from_hex(text)
    if not newline or signature is None:
        raise IdentityError(
            "wanted a signature in hex in line 2 of a signed roster, got "
            f"{text[:60].decode('latin-1')!r}"
        )
    try:
        ca_certificate_public_key.verify(signature, TITLE + document, ECDSA(SHA256()))
    except InvalidSignature as error:
        raise IdentityError(
            "the roster must be signed by this federation's authority; it was signed by another, "
            "or changed since"
        ) from error
    return Roster.from_bytes(document)


def _from_hex(text: bytes) -> bytes | None:
    """The signature, or None; hex has one spelling here, so that no byte may change."""
    if len(text) > _MAX_SIGNATURE_LENGTH:
        return None
    try:
        signature = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        return None
    return signature if signature.hex().encode() == text else None
