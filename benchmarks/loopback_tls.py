"""Certificates for one benchmark, and the two ends of mutual TLS 1.3 made from them.

One authority and one P-256 key serve every process of a run: who is who does not matter here,
what a handshake and a record cost does.  Nothing outlives the folder they are written to.
"""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

HOST = "127.0.0.1"
LIFETIME = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class LoopbackCertificates:
    """A folder with the authority's certificate, and one certificate and key that it signed."""

    directory: Path

    @property
    def authority(self) -> Path:
        """Where the authority's certificate is."""
        return self.directory / "authority.pem"

    @property
    def certificate(self) -> Path:
        """Where the certificate of both ends is."""
        return self.directory / "certificate.pem"

    @property
    def key(self) -> Path:
        """Where the private key of both ends is."""
        return self.directory / "key.pem"

    def listener(self) -> ssl.SSLContext:
        """Accept TLS 1.3 from whoever shows a certificate of the authority."""
        return self._context(ssl.PROTOCOL_TLS_SERVER)

    def dialler(self) -> ssl.SSLContext:
        """Show a certificate, and expect one of the authority for the loopback address."""
        return self._context(ssl.PROTOCOL_TLS_CLIENT)

    def _context(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(self.authority)
        context.load_cert_chain(self.certificate, self.key)
        return context


def issue_certificates(directory: Path) -> LoopbackCertificates:
    """Write a fresh authority and a fresh key for both ends into a folder."""
    made = LoopbackCertificates(directory)
    authority_key, key = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "benchmark authority")])
    root = (
        _unsigned(authority, authority, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    leaf = (
        _unsigned(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "benchmark")]),
            authority,
            key.public_key(),
        )
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address(HOST))]), critical=False
        )
        .sign(authority_key, hashes.SHA256())
    )
    made.authority.write_bytes(root.public_bytes(Encoding.PEM))
    made.certificate.write_bytes(leaf.public_bytes(Encoding.PEM))
    made.key.touch(mode=0o600)
    made.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return made


def _unsigned(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
    )
