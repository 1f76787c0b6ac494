"""Identities of a federation's members.

The organiser makes an authority, every owner makes keys and a request, the organiser approves it,
and the owner's process loads its identity.

>>> import tempfile
>>> terms = {"federation": "shops", "name": "bank", "role": "passive", "width": 3}
>>> with tempfile.TemporaryDirectory() as folder:
...     organiser, bank = Path(folder, "organiser"), Path(folder, "bank")
...     _ = create_authority(organiser, "shops")
...     _ = approve(create_request(bank, **terms), organiser)
...     Identity.load(bank, "bank").subject.uri
'vfb://shops/passive/bank'
"""

from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from vfbandits.errors import IdentityError
from vfbandits.pki.approve import Approval, approve
from vfbandits.pki.authority import Authority, Grant, create_authority
from vfbandits.pki.check import check_certificate, days_left, refuse_other_authority
from vfbandits.pki.documents import Approved, Claim, Request
from vfbandits.pki.files import (
    certificate_path,
    key_path,
    read_certificate,
    read_file,
)
from vfbandits.pki.request import Keys, create_request
from vfbandits.pki.show import Facts, describe
from vfbandits.protocol.identity import AUTHORITY, Subject, authority_of, key_digest, subject_of
from vfbandits.protocol.roster import Roster
from vfbandits.protocol.signed_roster import MAX_BYTES, open_roster

__all__ = [
    "Approval",
    "Approved",
    "Authority",
    "Claim",
    "Facts",
    "Grant",
    "Identity",
    "Request",
    "approve",
    "check_certificate",
    "create_authority",
    "create_request",
    "days_left",
    "describe",
    "load_approved",
    "load_roster",
]


@dataclass(frozen=True, slots=True, eq=False)
class Identity:
    """One member, as its own process knows it.

    TLS reads its key from ``key_path``.  Participants have a ``sealing_key``, and mask generators
    have a ``signing_key``; all others have None.
    """

    subject: Subject
    certificate: x509.Certificate = field(repr=False)
    certificate_path: Path
    key_path: Path
    authority_path: Path
    sealing_key: X25519PrivateKey | None = field(default=None, repr=False)
    signing_key: Ed25519PrivateKey | None = field(default=None, repr=False)

    @classmethod
    def load(cls, folder: Path, name: str) -> "Identity":
        """The identity of ``name`` in its owner's folder.

        Its certificate must name it, be signed by the ``authority.crt`` beside it and fit the
        private key.  Dates are not checked: see ``check_certificate``.
        """
        path = certificate_path(folder, name)
        authority = certificate_path(folder, AUTHORITY)
        certificate = read_certificate(path)
        refuse_other_authority(path, certificate, authority)
        subject = subject_of(certificate)
        if subject.name != name:
            raise IdentityError(f"wanted the certificate of {name!r}, got one of {subject.name!r}")
        keys = Keys.load(folder, name, subject.role)
        if keys.tls.public_key() != certificate.public_key():
            raise IdentityError(
                f"{key_path(folder, name)} must be the private key of {path}, got a different key"
            )
        return cls(
            subject=subject,
            certificate=certificate,
            certificate_path=path,
            key_path=key_path(folder, name),
            authority_path=authority,
            sealing_key=keys.sealing,
            signing_key=keys.signing,
        )

    @property
    def digest(self) -> str:
        """SHA-256 of its public key, as in a roster."""
        return key_digest(self.certificate.public_key())


def load_roster(path: Path, authority: Path) -> Roster:
    """The signed roster in a file, if the authority in the other file signed it."""
    ca = read_certificate(authority)
    federation = authority_of(ca)
    key = ca.public_key()
    if not isinstance(key, EllipticCurvePublicKey):
        raise IdentityError(f"wanted an authority with an ECDSA key, got {authority}")
    roster = open_roster(read_file(path, "a signed roster", most=MAX_BYTES), key)
    if roster.federation != federation:
        raise IdentityError(
            f"wanted a roster of {federation!r}, as the authority, got {roster.federation!r}"
        )
    return roster


def load_approved(path: Path) -> Approved:
    """The ``<name>.member.json`` that an approval wrote."""
    return Approved.from_bytes(read_file(path, "a member"))
