"""Certificates as participants have them, for tests: an authority, and leaves that it signed."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

FEDERATION = "fair"
DAY = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Authority:
    """Signs; ``certificate`` is what all members hold."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class Leaf:
    """Three files of one member."""

    certificate: Path
    key: Path
    authority: Path
    name: str


def make_authority(common_name: str = "test authority") -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = _builder(subject, subject, key.public_key(), -DAY, 30 * DAY)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    return Authority(builder.sign(key, hashes.SHA256()), key)


def make_leaf(  # noqa: PLR0913  each is wrong in some test
    folder: Path,
    name: str,
    role: str,
    *,
    authority: Authority,
    federation: str = FEDERATION,
    not_before: timedelta = -DAY,
    not_after: timedelta = 30 * DAY,
    uris: Sequence[str] | None = None,
    common_name: str | None = None,
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | None = None,
) -> Leaf:
    """Write ``<name>.crt``, ``<name>.key``, ``authority.crt`` into ``folder``; times from now."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name or name)])
    issuer = authority.certificate.subject
    builder = _builder(subject, issuer, key.public_key(), not_before, not_after)
    addresses = (f"vfb://{federation}/{role}/{name}",) if uris is None else uris
    names = [
        *map(x509.UniformResourceIdentifier, addresses),
        x509.DNSName(f"{name}.{federation}.vfb"),
    ]
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )
    certificate = builder.sign(authority.key, hashes.SHA256())
    return _write(folder, name, certificate, key, authority)


def _builder(subject, issuer, public_key, not_before, not_after) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + not_before)
        .not_valid_after(now + not_after)
    )


def _write(folder, name, certificate, key, authority) -> Leaf:
    folder.mkdir(parents=True, exist_ok=True)
    leaf = Leaf(folder / f"{name}.crt", folder / f"{name}.key", folder / "authority.crt", name)
    pem = serialization.Encoding.PEM
    leaf.certificate.write_bytes(certificate.public_bytes(pem))
    leaf.key.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    leaf.authority.write_bytes(authority.certificate.public_bytes(pem))
    return leaf
