"""The facts of a public file of the federation, for people."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509

from vfbandits.errors import IdentityError
from vfbandits.pki.check import days_left
from vfbandits.pki.documents import MEMBER, REQUEST, Approved, Claim, Request, format_of
from vfbandits.pki.files import read_certificate, read_file
from vfbandits.protocol import roster as roster_document
from vfbandits.protocol import signed_roster
from vfbandits.protocol.identity import authority_of, key_digest, spell_digest, subject_of
from vfbandits.protocol.roster import Roster


@dataclass(frozen=True, slots=True)
class Facts:
    """The kind of a file, and its facts in order."""

    kind: str
    rows: tuple[tuple[str, str], ...]


def describe(path: Path, now: datetime) -> Facts:
    """The facts of a certificate, request, member or roster file; IdentityError for others.

    Signatures of requests are checked.  Those of certificates and rosters are not: that needs the
    authority's certificate.
    """
    data = read_file(path, "a certificate, request, member or roster")
    if b"PRIVATE KEY-----" in data:
        raise IdentityError(f"wanted a public file, got {path}, a private key: keep it where it is")
    if b"-----BEGIN CERTIFICATE-----" in data:
        return _certificate(read_certificate(path), now)
    if data.startswith(signed_roster.TITLE):
        document = data[len(signed_roster.TITLE) :].partition(b"\n")[2]
        return _roster("signed roster (signature not checked here)", Roster.from_bytes(document))
    kind = format_of(data)
    if kind == roster_document.FORMAT:
        return _roster("roster without a signature", Roster.from_bytes(data))
    if kind == REQUEST:
        request = Request.from_bytes(data)
        return Facts("request", (*_claim(request.claim), *_key(request.key_digest)))
    if kind == MEMBER:
        approved = Approved.from_bytes(data)
        return Facts("member", (*_claim(approved.claim), *_key(approved.certificate)))
    raise IdentityError(
        f"wanted a certificate, request, member or roster file, got {path}, which is none"
    )


def _certificate(certificate: x509.Certificate, now: datetime) -> Facts:
    rest = (*_key(key_digest(certificate.public_key())), *_validity(certificate, now))
    try:
        federation = authority_of(certificate)
    except IdentityError:
        subject = subject_of(certificate)
        who = (("name", subject.name), ("role", subject.role), ("federation", subject.federation))
        return Facts("certificate", (*who, *_hosts(certificate), *rest))
    return Facts("authority", (("role", "authority"), ("federation", federation), *rest))


def _validity(certificate: x509.Certificate, now: datetime) -> tuple[tuple[str, str], ...]:
    left = days_left(certificate, now)
    state = f"{left} days left" if left >= 0 else f"expired {-left} days ago"
    issuers = certificate.issuer.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return (
        ("valid from", f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"),
        ("valid until", f"{certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC, {state}"),
        ("issuer", ", ".join(str(issuer.value) for issuer in issuers)),
        ("serial", f"{certificate.serial_number:x}"),
    )


def _hosts(certificate: x509.Certificate) -> tuple[tuple[str, str], ...]:
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    dns = names.get_values_for_type(x509.DNSName)
    ips = names.get_values_for_type(x509.IPAddress)
    return (("hosts", ", ".join([*dns, *map(str, ips)])),)


def _claim(claim: Claim) -> tuple[tuple[str, str], ...]:
    rows = (
        ("name", claim.name),
        ("role", claim.role),
        ("federation", claim.federation),
        ("width", str(claim.width or "")),
        ("scaling", claim.scaling),
        ("sealing key", claim.sealing_key),
        ("generator key", claim.generator_key),
    )
    return tuple((what, value) for what, value in rows if value)


def _key(digest: str) -> tuple[tuple[str, str], ...]:
    return (("fingerprint", spell_digest(digest)),)


def _roster(kind: str, roster: Roster) -> Facts:
    terms = roster.terms
    rows = [
        ("federation", roster.federation),
        ("number", str(roster.number)),
        ("fingerprint", spell_digest(roster.digest)),
        ("terms", f"{terms.mask} masks, {terms.aggregation} sums, layout {terms.layout}"),
    ]
    if roster.generator_key:
        rows.append(("generator key", roster.generator_key))
    rows += [
        (f"{member.role} {member.name}", f"width {member.width}" if member.width else "no block")
        for member in roster
    ]
    return Facts(kind, tuple(rows))
