"""The problems of a certificate, and how to solve them."""

from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from vfbandits.errors import IdentityError
from vfbandits.pki.files import is_open_to_others, read_certificate, read_tls_key
from vfbandits.protocol.identity import authority_of, subject_of


def check_certificate(
    path: Path,
    authority: Path,
    now: datetime,
    *,
    name: str = "",
    role: str = "",
    federation: str = "",
    key: Path | None = None,
) -> list[str]:
    """Problems of the certificate in ``path``, each with advice; empty if there is none.

    It must be signed by the certificate in ``authority`` and valid at ``now``.  It must have the
    name, role, federation and private key, as far as these are given.
    """
    problems: list[str] = []
    try:
        certificate = read_certificate(path)
    except IdentityError as error:
        return [f"{error}.  Ask the organiser for it: vfb pki approve"]
    try:
        problems += _authority_problems(path, certificate, authority, now)
    except IdentityError as error:
        problems.append(f"{error}.  Ask the organiser for the authority's certificate")
    problems += _date_problems(path, certificate, now)
    wanted = {"name": name, "role": role, "federation": federation}
    problems += _subject_problems(path, certificate, wanted)
    if key is not None:
        problems += _key_problems(path, certificate, key)
    return problems


def days_left(certificate: x509.Certificate, now: datetime) -> int:
    """Whole days until a certificate ends; negative when it has ended."""
    return (certificate.not_valid_after_utc - now).days


def refuse_other_authority(path: Path, certificate: x509.Certificate, authority: Path) -> None:
    """IdentityError unless the certificate in ``path`` was signed by that authority."""
    ca = read_certificate(authority)
    authority_of(ca)
    try:
        certificate.verify_directly_issued_by(ca)
    except (ValueError, TypeError, InvalidSignature) as error:
        came = certificate.issuer.rfc4514_string()[:100]
        raise IdentityError(
            f"{path} must be signed by the authority in {authority}, got a signature "
            f"of {came} by a different key"
        ) from error


def _authority_problems(
    path: Path, certificate: x509.Certificate, authority: Path, now: datetime
) -> list[str]:
    ca = read_certificate(authority)
    federation = authority_of(ca)
    try:
        refuse_other_authority(path, certificate, authority)
    except IdentityError as error:
        return [f"{error}.  Get the certificates of both from the organiser of {federation!r}"]
    return [
        f"{problem}  The organiser must reissue all certificates"
        for problem in _dates(authority, ca, now)
    ]


def _date_problems(path: Path, certificate: x509.Certificate, now: datetime) -> list[str]:
    return [
        f"{problem}  Check this machine's clock; then ask the organiser to renew it: "
        "vfb pki approve REQUEST --renew"
        for problem in _dates(path, certificate, now)
    ]


def _dates(path: Path, certificate: x509.Certificate, now: datetime) -> list[str]:
    start, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now < start:
        return [
            f"{path} is not valid before {start:%Y-%m-%d %H:%M} UTC, it is {now:%Y-%m-%d %H:%M}."
        ]
    if now > end:
        return [f"{path} expired on {end:%Y-%m-%d %H:%M} UTC, it is {now:%Y-%m-%d %H:%M}."]
    return []


def _subject_problems(
    path: Path, certificate: x509.Certificate, wanted: dict[str, str]
) -> list[str]:
    try:
        subject = subject_of(certificate)
    except IdentityError as error:
        return [f"{path} names no member: {error}.  Ask the organiser for another: vfb pki approve"]
    return [
        f"{path} has a different {what}: wanted {value!r}, got {getattr(subject, what)!r}.  Check "
        "that it is the right file; correct the configuration, or request another: vfb pki request"
        for what, value in wanted.items()
        if value and getattr(subject, what) != value
    ]


def _key_problems(path: Path, certificate: x509.Certificate, key: Path) -> list[str]:
    try:
        private_key = read_tls_key(key)
    except IdentityError as error:
        return [f"{error}.  It is on the machine where vfb pki request was run, and was never sent"]
    problems = []
    if private_key.public_key() != certificate.public_key():
        problems.append(
            f"{key} must be the private key of {path}, got a different key.  Use the key that "
            "vfb pki request wrote beside the request of this certificate"
        )
    if is_open_to_others(key):
        problems.append(
            f"{key} must be readable by its owner only, but other users can read it.  "
            f"Run chmod 600 {key}"
        )
    return problems
