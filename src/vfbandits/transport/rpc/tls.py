"""Certificates: which one a process shows, which it accepts, and whom one identifies.

Identity is in the certificate's alternative names: the URI ``vfb://<federation>/<role>/<name>``
and the host ``<name>.<federation>.vfb``, which a dialling process checks wherever it dials.
"""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from vfbandits.errors import ConfigError, IdentityError
from vfbandits.protocol.identity import CERTIFIED_ROLES
from vfbandits.protocol.roster import is_name
from vfbandits.transport.channel import Peer
from vfbandits.transport.rpc import SUITES, SUITES_VARIABLE, TOO_LATE

SCHEME = "vfb://"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where a process keeps its certificate, its private key, and the authority's certificate."""

    certificate: Path
    key: Path
    authority: Path


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a certificate identifies; ``certificate`` is the SHA-256 of its public key, hex."""

    federation: str
    role: str
    name: str
    certificate: str


def host_name(name: str, federation: str) -> str:
    """The host in the certificate of a member.

    >>> host_name("shop", "fair")
    'shop.fair.vfb'
    """
    return f"{name}.{federation}.vfb"


@lru_cache(maxsize=1024)
def identity_from_certificate(pem: bytes) -> Identity:
    """Whom the certificate identifies.  TLS checks its signature and dates."""
    certificate = _parse(pem, "a peer's certificate")
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    except (x509.ExtensionNotFound, ValueError) as error:
        raise IdentityError("a certificate needs alternative names, got none") from error
    uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    ours = [uri for uri in uris if uri.startswith(SCHEME)]
    parts = ours[0].removeprefix(SCHEME).split("/") if len(ours) == 1 else []
    if (
        len(parts) != 3
        or parts[1] not in CERTIFIED_ROLES
        or not (is_name(parts[0]) and is_name(parts[2]))
    ):
        raise IdentityError(
            f"a certificate names one member as {SCHEME}<federation>/<role>/<name>, "
            f"got {len(ours)} such names"
        )
    federation, role, name = parts
    if [attribute.value for attribute in common] != [name]:
        came = [attribute.value for attribute in common]
        raise IdentityError(
            f"the certificate of {name!r} must have that common name too, got {came!r:.200}"
        )
    return Identity(federation, role, name, _fingerprint(certificate))


def peer_from_certificate(pem: bytes, *, address: str = "") -> Peer:
    """The peer that showed the certificate."""
    who = identity_from_certificate(pem)
    return Peer(who.name, who.role, who.certificate, address)


def own_identity(files: TlsFiles) -> Identity:
    """Our identity, by our own certificate."""
    return identity_from_certificate(_read(files.certificate))


def own_fault(files: TlsFiles) -> str:
    """Why a server of our authority would refuse our certificate; empty if nothing is wrong here.

    In TLS 1.3 the end that dials has finished before the server refuses it, and gRPC does not pass
    on the server's reason, so a failed dial looks for the reason in our own files.
    """
    certificate = _parse(_read(files.certificate), str(files.certificate))
    authority = _parse(_read(files.authority), str(files.authority))
    now = datetime.now(UTC)
    if now > certificate.not_valid_after_utc:
        return f"our own certificate expired on {certificate.not_valid_after_utc:%Y-%m-%d}"
    if now < certificate.not_valid_before_utc:
        return (
            f"our own certificate is not valid before {certificate.not_valid_before_utc:%Y-%m-%d}"
        )
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return (
            f"our own certificate {files.certificate} was not issued by the authority in "
            f"{files.authority}"
        )
    return ""


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Show our certificate, and require one of our authority from every client."""
    if TOO_LATE:
        raise ConfigError(
            "TLS 1.2 must be ruled out before grpc is imported: import vfbandits.transport.rpc "
            f"first, or set {SUITES_VARIABLE}={SUITES}"
        )
    certificate, key, authority = _load(files)
    return grpc.ssl_server_credentials(
        [(key, certificate)], root_certificates=authority, require_client_auth=True
    )


def channel_credentials(files: TlsFiles) -> grpc.ChannelCredentials:
    """Show our certificate to a server that has one of our authority."""
    certificate, key, authority = _load(files)
    return grpc.ssl_channel_credentials(authority, key, certificate)


def _load(files: TlsFiles) -> tuple[bytes, bytes, bytes]:
    certificate, key, authority = (
        _read(path) for path in (files.certificate, files.key, files.authority)
    )
    public = _parse(certificate, str(files.certificate)).public_key()
    _parse(authority, str(files.authority))
    if not isinstance(public, EllipticCurvePublicKey):
        raise IdentityError(
            f"{files.certificate} needs an elliptic-curve key, got {type(public).__name__}: "
            "otherwise TLS 1.2 could be negotiated"
        )
    try:
        private = load_pem_private_key(key, password=None)
    except (TypeError, ValueError):
        raise IdentityError(f"{files.key} must hold a private key without a password") from None
    if private.public_key() != public:
        raise IdentityError(f"{files.key} is not the key of {files.certificate}")
    return certificate, key, authority


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise IdentityError(f"cannot read {path}: {error.strerror}") from error


def _parse(pem: bytes, what: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise IdentityError(f"{what} must be an X.509 certificate in PEM form") from None


def _fingerprint(certificate: x509.Certificate) -> str:
    form = PublicFormat.SubjectPublicKeyInfo
    return hashlib.sha256(certificate.public_key().public_bytes(Encoding.DER, form)).hexdigest()
