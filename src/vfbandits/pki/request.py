"""At the owner: keys that never leave, and a public request to certify them."""

from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from vfbandits.pki.documents import Claim, Request
from vfbandits.pki.files import (
    PUBLIC,
    SECRET,
    key_path,
    make_folder,
    private_pem,
    read_sealing_key,
    read_signing_key,
    read_tls_key,
    refuse_existing,
    replace_public,
    request_path,
    sealing_key_path,
    signing_key_path,
    write_new,
)
from vfbandits.protocol.identity import GENERATOR, Subject
from vfbandits.protocol.roster import SEALING_ROLES


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """The private keys of one member.

    All have a key for TLS.  Participants have one that opens mask shares and agrees on pads, and
    the mask generator has one that signs envelopes.
    """

    tls: EllipticCurvePrivateKey = field(repr=False)
    sealing: X25519PrivateKey | None = field(default=None, repr=False)
    signing: Ed25519PrivateKey | None = field(default=None, repr=False)

    @classmethod
    def generate(cls, role: str) -> "Keys":
        """New keys, from the operating system's entropy."""
        return cls(
            generate_private_key(SECP256R1()),
            X25519PrivateKey.generate() if role in SEALING_ROLES else None,
            Ed25519PrivateKey.generate() if role == GENERATOR else None,
        )

    @classmethod
    def load(cls, folder: Path, name: str, role: str) -> "Keys":
        """The keys in their owner's folder."""
        tls = read_tls_key(key_path(folder, name))
        sealing, signing = None, None
        if role in SEALING_ROLES:
            sealing = read_sealing_key(sealing_key_path(folder, name))
        if role == GENERATOR:
            signing = read_signing_key(signing_key_path(folder, name))
        return cls(tls, sealing, signing)

    def files(self, folder: Path, name: str) -> dict[Path, tuple[bytes, int]]:
        """The path, contents and mode of each key's file."""
        files = {key_path(folder, name): (private_pem(self.tls), SECRET)}
        if self.sealing is not None:
            files[sealing_key_path(folder, name)] = private_pem(self.sealing), SECRET
        if self.signing is not None:
            files[signing_key_path(folder, name)] = private_pem(self.signing), SECRET
        return files

    def request(self, subject: Subject, *, width: int, scaling: str) -> Request:
        """The public parts, under the signature of the TLS key."""
        sealing, signing = self.sealing, self.signing
        claim = Claim(
            federation=subject.federation,
            name=subject.name,
            role=subject.role,
            width=width,
            sealing_key="" if sealing is None else sealing.public_key().public_bytes_raw().hex(),
            scaling=scaling,
            generator_key="" if signing is None else signing.public_key().public_bytes_raw().hex(),
        )
        common_name = x509.NameAttribute(x509.NameOID.COMMON_NAME, subject.name)
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(subject.uri)])
        csr = (
            x509.CertificateSigningRequestBuilder()
            .subject_name(x509.Name([common_name]))
            .add_extension(names, critical=False)
            .sign(self.tls, SHA256())
        )
        return Request.sign(claim, csr.public_bytes(Encoding.PEM).decode(), self.tls)


def create_request(
    folder: Path,
    *,
    federation: str,
    name: str,
    role: str,
    width: int = 0,
    scaling: str = "",
    reuse_keys: bool = False,
) -> Path:
    """Make the keys of ``name`` in ``folder`` and a request beside them; returns its path.

    The private keys are readable by their owner only and go nowhere.  The request holds their
    public parts and may be sent over any channel.  ``scaling`` is the digest of a fitted scaling.
    With ``reuse_keys`` the request is written again for the existing keys, when ``width`` or
    ``scaling`` has changed.
    """
    subject = Subject(federation, role, name)
    keys = Keys.load(folder, name, role) if reuse_keys else Keys.generate(role)
    request = keys.request(subject, width=width, scaling=scaling).to_bytes()
    path = request_path(folder, name)
    if reuse_keys:
        replace_public(path, request)
        return path
    files = {**keys.files(folder, name), path: (request, PUBLIC)}
    refuse_existing(
        list(files), f"{name!r} has keys: use them (--reuse-keys), or take another folder or name"
    )
    make_folder(folder)
    write_new(files)
    return path
