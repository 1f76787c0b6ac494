"""Who a certificate identifies: federation, role and name, and the digest that a roster pins.

All three are in one URI of the certificate, ``vfb://<federation>/<role>/<name>``.  What that
identity *may do* is not in the certificate: it comes from the roster.
"""

import hashlib
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.types import (
    CertificateIssuerPublicKeyTypes,
    CertificatePublicKeyTypes,
)
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from vfbandits.errors import IdentityError
from vfbandits.protocol.roster import ROLES, is_name

GENERATOR = "generator"
AUTHORITY = "authority"
CERTIFIED_ROLES = (*ROLES, GENERATOR)
SCHEME = "vfb://"
MAX_LABEL_LENGTH = 63


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a certificate names.

    >>> subject = Subject("shops", "passive", "bank")
    >>> subject.uri, subject.dns
    ('vfb://shops/passive/bank', 'bank.shops.vfb')
    >>> Subject.from_uri(subject.uri) == subject
    True
    """

    federation: str
    role: str
    name: str

    def __post_init__(self) -> None:
        """Refuse what cannot be spelt in a certificate."""
        refuse_unless_label(self.federation, "a federation's id")
        refuse_unless_label(self.name, "a name")
        if self.name.lower() == AUTHORITY:
            raise IdentityError(f"{self.name!r} is the organiser's own name, choose another")
        if self.role not in CERTIFIED_ROLES:
            raise IdentityError(
                f"a role is one of {', '.join(CERTIFIED_ROLES)}, got {self.role[:64]!r}"
            )

    @property
    def uri(self) -> str:
        """The one URI by which its certificate names it."""
        return f"{SCHEME}{self.federation}/{self.role}/{self.name}"

    @property
    def dns(self) -> str:
        """The host name that TLS checks; it need not resolve."""
        return f"{self.name}.{self.federation}.vfb"

    @classmethod
    def from_uri(cls, uri: str) -> "Subject":
        """Read the URI of a certificate."""
        parts = uri.removeprefix(SCHEME).split("/")
        if not uri.startswith(SCHEME) or len(parts) != 3:
            raise IdentityError(
                f"wanted a URI as {SCHEME}<federation>/<role>/<name>, got {uri[:256]!r}"
            )
        return cls(*parts)


def subject_of(certificate: x509.Certificate | x509.CertificateSigningRequest) -> Subject:
    """Whom a certificate, or a request for one, names; the signature is not checked."""
    subject = Subject.from_uri(_only_uri(certificate))
    try:
        names = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    except ValueError as error:
        raise IdentityError("wanted a certificate with one common name, got none") from error
    if [name.value for name in names] != [subject.name]:
        came = [name.value for name in names]
        raise IdentityError(
            f"wanted a certificate with the common name {subject.name!r} only, got {came!r:.200}"
        )
    return subject


def authority_of(certificate: x509.Certificate) -> str:
    """The federation whose authority this certificate is; refuses a member's certificate."""
    uri = _only_uri(certificate)
    federation = uri.removeprefix(SCHEME).removesuffix(f"/{AUTHORITY}")
    if uri != authority_uri(federation) or not is_name(federation):
        raise IdentityError(
            f"wanted an authority, {authority_uri('<federation>')}, got {uri[:256]!r}"
        )
    return federation


def authority_uri(federation: str) -> str:
    """The URI in the certificate of a federation's authority."""
    return f"{SCHEME}{federation}/{AUTHORITY}"


def key_digest(key: CertificatePublicKeyTypes | CertificateIssuerPublicKeyTypes) -> str:
    """SHA-256 of a public key (its SubjectPublicKeyInfo), hex: ``Member.certificate``."""
    spki = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(spki).hexdigest()


def spell_digest(digest: str) -> str:
    """A digest in groups of four, to be read aloud.

    >>> spell_digest("00ff12ab")
    '00ff 12ab'
    """
    return " ".join(digest[at : at + 4] for at in range(0, len(digest), 4))


def refuse_unless_label(text: str, what: str) -> None:
    """Refuse a name that a roster would not take, or that no host name can hold."""
    labels = text.split(".")
    if not is_name(text) or not all(0 < len(label) <= MAX_LABEL_LENGTH for label in labels):
        raise IdentityError(
            f"{what} has letters, digits, '-', '_' or '.', at most {MAX_LABEL_LENGTH} between two "
            f"dots and none empty, got {text[:128]!r}"
        )


def _only_uri(certificate: x509.Certificate | x509.CertificateSigningRequest) -> str:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except (ValueError, x509.ExtensionNotFound, x509.DuplicateExtension) as error:
        raise IdentityError(f"wanted a certificate with a {SCHEME} URI, got none") from error
    ours = [uri for uri in uris if uri.startswith(SCHEME)]
    if len(ours) != 1:
        raise IdentityError(f"wanted a certificate with one {SCHEME} URI, got {len(ours)}")
    return ours[0]
