"""The request of an owner for a certificate, and the organiser's approval: public JSON files."""

import json
import re
from dataclasses import asdict, dataclass, field, fields

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.hashes import SHA256

from vfbandits.errors import ConfigError, IdentityError
from vfbandits.protocol.identity import GENERATOR, Subject, key_digest, subject_of
from vfbandits.protocol.roster import Member

REQUEST = "vfbandits request"
MEMBER = "vfbandits member"
VERSION = 1
_HEX_32 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Claim:
    """All that a member says of itself; public.

    ``width``, ``sealing_key`` and ``scaling`` are for participants, as in ``Member``.
    ``generator_key`` is the Ed25519 public key of a mask generator, in hex.
    """

    federation: str
    name: str
    role: str
    width: int = 0
    sealing_key: str = ""
    scaling: str = ""
    generator_key: str = ""

    def __post_init__(self) -> None:
        """Refuse what no roster accepts."""
        Subject(self.federation, self.role, self.name)
        is_generator = self.role == GENERATOR
        if is_generator != bool(self.generator_key):
            came = "one" if self.generator_key else "none"
            raise ConfigError(
                f"the role generator must have a generator_key, other roles must not, got {came} "
                f"for role {self.role!r}"
            )
        for what in ("sealing_key", "scaling", "generator_key"):
            value = getattr(self, what)
            if value and not _HEX_32.fullmatch(value):
                raise ConfigError(
                    f"{what} of {self.name!r} must be 64 digits of lower-case hex, got "
                    f"{value[:70]!r}"
                )
        if not is_generator:
            self.as_member("0" * 64)
        elif self.width or self.sealing_key or self.scaling:
            given = [name for name in ("width", "sealing_key", "scaling") if getattr(self, name)]
            raise ConfigError(
                "a generator has no block: wanted neither width, sealing_key nor scaling, got "
                f"{' and '.join(given)}"
            )

    @property
    def subject(self) -> Subject:
        """The subject of its certificate."""
        return Subject(self.federation, self.role, self.name)

    def as_member(self, certificate: str) -> Member:
        """Its entry in a roster; of a mask generator a roster has only the key."""
        if self.role == GENERATOR:
            raise ConfigError(f"generator {self.name!r} goes into a roster as generator_key only")
        return Member(
            name=self.name,
            role=self.role,
            certificate=certificate,
            width=self.width,
            sealing_key=self.sealing_key,
            scaling=self.scaling,
        )


@dataclass(frozen=True, slots=True)
class Request:
    """A claim with a certificate request, signed by the TLS key that the certificate is for."""

    claim: Claim
    csr: str = field(repr=False)
    signature: str = field(repr=False)

    @classmethod
    def sign(cls, claim: Claim, csr: str, key: EllipticCurvePrivateKey) -> "Request":
        """A request that shows that the requester holds ``key``."""
        return cls(claim, csr, key.sign(_signed(claim, csr), ECDSA(SHA256())).hex())

    @property
    def public_key(self) -> EllipticCurvePublicKey:
        """The TLS key."""
        return _key_of(_load_csr(self.csr))

    @property
    def key_digest(self) -> str:
        """SHA-256 of the TLS key: the fingerprint to compare on the telephone."""
        return key_digest(self.public_key)

    def to_bytes(self) -> bytes:
        """The file."""
        more = {"csr": self.csr, "signature": self.signature}
        return _spell(REQUEST, {**asdict(self.claim), **more})

    @classmethod
    def from_bytes(cls, data: bytes) -> "Request":
        """Read a request; refuses one that its own key did not sign, every field of it."""
        claim, (csr, signature) = _read(data, REQUEST, ("csr", "signature"))
        asked = _load_csr(csr)
        key = _key_of(asked)
        try:
            key.verify(bytes.fromhex(signature), _signed(claim, csr), ECDSA(SHA256()))
        except (InvalidSignature, ValueError) as error:
            raise IdentityError(
                f"the request of {claim.name!r} must be signed by its own key, got a wrong "
                "signature: it was changed since, or made by somebody else"
            ) from error
        if not asked.is_signature_valid or (subject := subject_of(asked)) != claim.subject:
            came = subject.uri if asked.is_signature_valid else "one with a wrong signature"
            raise IdentityError(f"wanted a certificate request for {claim.subject.uri}, got {came}")
        return cls(claim, csr, signature)


@dataclass(frozen=True, slots=True)
class Approved:
    """A claim that the organiser approved: ``certificate`` is the digest of its TLS key."""

    claim: Claim
    certificate: str

    @property
    def member(self) -> Member:
        """The roster's line; ConfigError for a mask generator, see ``claim.generator_key``."""
        return self.claim.as_member(self.certificate)

    def to_bytes(self) -> bytes:
        """The file."""
        return _spell(MEMBER, {**asdict(self.claim), "certificate": self.certificate})

    @classmethod
    def from_bytes(cls, data: bytes) -> "Approved":
        """Read an approval."""
        claim, (certificate,) = _read(data, MEMBER, ("certificate",))
        if not _HEX_32.fullmatch(certificate):
            raise ConfigError(
                f"certificate of {claim.name!r} must be 64 digits of lower-case hex, got "
                f"{certificate[:70]!r}"
            )
        return cls(claim, certificate)


def format_of(data: bytes) -> str:
    """The ``format`` of a JSON document; empty if it has none, or is none."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return ""
    return str(document.get("format", "")) if isinstance(document, dict) else ""


def _signed(claim: Claim, csr: str) -> bytes:
    """What a request's signature covers."""
    return _spell(REQUEST, {**asdict(claim), "csr": csr})


def _spell(kind: str, values: dict[str, str | int]) -> bytes:
    document = {"format": kind, "version": VERSION, **values}
    return json.dumps(document, indent=1).encode() + b"\n"


def _read(data: bytes, kind: str, more: tuple[str, ...]) -> tuple[Claim, list[str]]:
    """A claim and its further texts: each of its type, none missing and none unknown."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise IdentityError(f"wanted a {kind!r} in JSON, got {len(data)} other bytes") from error
    came = document.pop("format", None) if isinstance(document, dict) else type(document).__name__
    if came != kind:
        raise IdentityError(f"wanted a {kind!r}, got {str(came)[:64]!r}")
    version = document.pop("version", None)
    if version != VERSION:
        raise IdentityError(f"wanted a {kind!r} of version {VERSION}, got {str(version)[:16]!r}")
    known = {**{f.name: f.type for f in fields(Claim)}, **dict.fromkeys(more, str)}
    if set(document) != set(known):
        odd = ", ".join(sorted(key[:64] for key in set(document) ^ set(known)))
        raise IdentityError(f"a {kind!r} has {', '.join(known)}; missing or unknown: {odd}")
    for key, value in document.items():
        if type(value) is not known[key]:
            wanted = "a whole number" if known[key] is int else "text"
            raise IdentityError(
                f"{key} of a {kind!r} must be {wanted}, got a {type(value).__name__}"
            )
    rest = [document.pop(key) for key in more]
    return Claim(**document), rest


def _load_csr(text: str) -> x509.CertificateSigningRequest:
    try:
        return x509.load_pem_x509_csr(text.encode())
    except ValueError as error:
        raise IdentityError(
            f"wanted a certificate request in PEM, got {len(text)} characters that are none"
        ) from error


def _key_of(csr: x509.CertificateSigningRequest) -> EllipticCurvePublicKey:
    try:
        key = csr.public_key()
    except (ValueError, UnsupportedAlgorithm) as error:
        raise IdentityError(f"wanted an ECDSA P-256 key, but {error}") from error
    if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP256R1):
        raise IdentityError(f"wanted an ECDSA P-256 key, got a {type(key).__name__}")
    return key
