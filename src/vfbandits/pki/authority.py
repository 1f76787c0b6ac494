"""At the organiser: the authority of one federation, and what it approves.

The authority's folder holds its private key, its certificate, and under ``issued`` the last
approval and certificate of every name.
"""

import ipaddress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from vfbandits.errors import IdentityError
from vfbandits.pki.documents import Approved, Request
from vfbandits.pki.files import (
    PUBLIC,
    SECRET,
    certificate_path,
    key_path,
    make_folder,
    private_pem,
    read_certificate,
    read_file,
    read_tls_key,
    refuse_existing,
    write_new,
)
from vfbandits.protocol.identity import AUTHORITY, authority_of, authority_uri, refuse_unless_label

AUTHORITY_DAYS = 3653
MAX_CLOCK_SKEW = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Grant:
    """What the organiser adds to a request.

    ``dns`` and ``ips`` are names of the host on which the member listens, beside its own.
    ``renew`` issues another certificate for a name that was approved before, with the same key.
    """

    days: int = 365
    dns: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()
    renew: bool = False


A_YEAR = Grant()


@dataclass(frozen=True, slots=True, eq=False)
class Authority:
    """The organiser's key and certificate; its key signs certificates and rosters."""

    folder: Path
    federation: str
    certificate: x509.Certificate
    private_key: EllipticCurvePrivateKey = field(repr=False)

    @classmethod
    def load(cls, folder: Path, *, passphrase: bytes | None = None) -> "Authority":
        """The authority in a folder that ``create_authority`` made."""
        certificate = read_certificate(certificate_path(folder, AUTHORITY))
        path = key_path(folder, AUTHORITY)
        key = read_tls_key(path, passphrase=passphrase)
        if certificate.public_key() != key.public_key():
            raise IdentityError(
                f"{path} must be the key of the certificate beside it, got a different key"
            )
        return cls(folder, authority_of(certificate), certificate, key)

    @property
    def certificate_path(self) -> Path:
        """The certificate that all members have a copy of."""
        return certificate_path(self.folder, AUTHORITY)

    @property
    def issued(self) -> Path:
        """Folder of what was approved."""
        return self.folder / "issued"

    def certify(self, request: Request, grant: Grant, now: datetime) -> x509.Certificate:
        """A certificate for a request; the caller decides whether it may have one."""
        claim = request.claim
        if claim.federation != self.federation:
            raise IdentityError(
                f"wanted a request for {self.federation!r}, the authority's federation, got one "
                f"for {claim.federation!r}"
            )
        public_key = request.public_key
        usage = [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH, x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]
        builder = (
            _builder(_name(claim.name), now, self._last_day(grant, now))
            .issuer_name(self.certificate.subject)
            .public_key(public_key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
            .add_extension(self._names(request, grant), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(_issuer_key(self.private_key), critical=False)
        )
        return builder.sign(self.private_key, SHA256())

    def _last_day(self, grant: Grant, now: datetime) -> datetime:
        most = (self.certificate.not_valid_after_utc - now).days
        if not 1 <= grant.days <= most:
            raise IdentityError(
                f"a certificate may last 1 to {most} days (the authority's own ends then), "
                f"got {grant.days}"
            )
        return now + timedelta(days=grant.days)

    def _names(self, request: Request, grant: Grant) -> x509.SubjectAlternativeName:
        subject = request.claim.subject
        ours = f".{self.federation}.vfb".lower()
        for name in grant.dns:
            refuse_unless_label(name, "a DNS name")
            if f".{name}".lower().endswith(ours):
                raise IdentityError(f"names under {ours[1:]!r} belong to members, got {name!r}")
        return x509.SubjectAlternativeName(
            [
                x509.UniformResourceIdentifier(subject.uri),
                x509.DNSName(subject.dns),
                *(x509.DNSName(name) for name in grant.dns),
                *(x509.IPAddress(_address(text)) for text in grant.ips),
            ]
        )

    def refuse_taken(self, request: Request, *, renew: bool) -> None:
        """Refuse a name with another key, a key with another name, and a second approval."""
        claim, digest = request.claim, request.key_digest
        for path in sorted(self.issued.glob("*.member.json")):
            other = Approved.from_bytes(read_file(path, "a member"))
            same_name = other.claim.name.lower() == claim.name.lower()
            same_key = other.certificate == digest
            if same_key and other.claim.subject != claim.subject:
                raise IdentityError(
                    f"this key speaks for {other.claim.subject.uri} already; make new keys for "
                    f"{claim.subject.uri}"
                )
            if same_name and not same_key:
                raise IdentityError(
                    f"{other.claim.name!r} was approved for the key {other.certificate}, got a "
                    f"request with {digest}.  If the old key is lost, take it out of the roster, "
                    f"delete {path} and approve again"
                )
            if same_name and not renew:
                raise IdentityError(
                    f"{claim.name!r} was approved for this key before; --renew gives it another "
                    "certificate"
                )


def create_authority(
    folder: Path,
    federation: str,
    *,
    passphrase: bytes | None = None,
    now: datetime | None = None,
) -> Authority:
    """Make the authority of a federation in ``folder``; never replaces one."""
    refuse_unless_label(federation, "a federation's id")
    if passphrase == b"":
        raise IdentityError("a passphrase must not be empty, got an empty one")
    key = generate_private_key(SECP256R1())
    certificate = _self_signed(federation, key, now or datetime.now(UTC))
    files = {
        key_path(folder, AUTHORITY): (private_pem(key, passphrase=passphrase), SECRET),
        certificate_path(folder, AUTHORITY): (certificate.public_bytes(Encoding.PEM), PUBLIC),
    }
    refuse_existing(list(files), "an authority is never replaced; choose another folder")
    make_folder(folder)
    write_new(files)
    return Authority(folder, federation, certificate, key)


def _self_signed(federation: str, key: EllipticCurvePrivateKey, now: datetime) -> x509.Certificate:
    public_key = key.public_key()
    name = _name(federation, organisation="vfbandits authority")
    uri = x509.UniformResourceIdentifier(authority_uri(federation))
    builder = (
        _builder(name, now, now + timedelta(days=AUTHORITY_DAYS))
        .issuer_name(name)
        .public_key(public_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectAlternativeName([uri]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(_issuer_key(key), critical=False)
    )
    return builder.sign(key, SHA256())


def _builder(subject: x509.Name, now: datetime, end: datetime) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - MAX_CLOCK_SKEW)
        .not_valid_after(end)
    )


def _name(text: str, *, organisation: str = "") -> x509.Name:
    """A distinguished name: with its organisation an authority differs from every member."""
    parts = [x509.NameAttribute(x509.NameOID.COMMON_NAME, text)]
    if organisation:
        parts.insert(0, x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, organisation))
    return x509.Name(parts)


def _issuer_key(key: EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(text)
    except ValueError as error:
        raise IdentityError(f"wanted an IP address, got {text[:64]!r}") from error
