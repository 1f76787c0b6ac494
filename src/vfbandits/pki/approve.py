"""The organiser's answer to a request: a certificate and a roster's line, written as files."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from vfbandits.errors import IdentityError
from vfbandits.pki.approval_record import ApprovalEntry, append_approval
from vfbandits.pki.authority import A_YEAR, Authority, Grant
from vfbandits.pki.documents import Approved, Request
from vfbandits.pki.files import (
    certificate_path,
    make_folder,
    member_path,
    read_file,
    refuse_existing,
    replace_public,
)
from vfbandits.protocol.identity import AUTHORITY


@dataclass(frozen=True, slots=True)
class Approval:
    """What was approved, and the three public files that go back to the owner."""

    approved: Approved
    certificate: x509.Certificate
    certificate_path: Path
    member_path: Path
    authority_path: Path


def approve(
    request: Path,
    ca_dir: Path,
    *,
    out: Path | None = None,
    grant: Grant = A_YEAR,
    passphrase: bytes | None = None,
    by: str = "",
    now: datetime | None = None,
) -> Approval:
    """Certify the request in a file, if its name is free or, to renew, if it has the same key.

    ``out`` is the certificate's file, or a folder to put ``<name>.crt`` in; the request's own
    folder if None.  ``<name>.member.json`` and a copy of the authority's certificate go beside it.
    ``by`` is who approves, for the record beside the authority.
    """
    authority = Authority.load(ca_dir, passphrase=passphrase)
    return approve_with(authority, request, out=out, grant=grant, by=by, now=now)


def approve_with(
    authority: Authority,
    request: Path,
    *,
    out: Path | None = None,
    grant: Grant = A_YEAR,
    by: str = "",
    now: datetime | None = None,
) -> Approval:
    """The same, by a loaded authority."""
    now = now or datetime.now(UTC)
    asked = Request.from_bytes(read_file(request, "a request"))
    path = _target(request.parent if out is None else out, asked.claim.name)
    approval = Approval(
        Approved(asked.claim, asked.key_digest),
        authority.certify(asked, grant, now),
        path,
        member_path(path.parent, asked.claim.name),
        certificate_path(path.parent, AUTHORITY),
    )
    authority.refuse_taken(asked, renew=grant.renew)
    if not grant.renew:
        refuse_existing([path, approval.member_path], "choose another --out")
    claim = asked.claim
    entry = ApprovalEntry(
        at=now,
        by=by,
        what="renewed" if grant.renew else "approved",
        name=claim.name,
        role=claim.role,
        key=asked.key_digest,
        serial=f"{approval.certificate.serial_number:x}",
        until=approval.certificate.not_valid_after_utc,
    )
    append_approval(authority.folder, entry)
    _write(approval, authority)
    return approval


def _target(out: Path, name: str) -> Path:
    path = certificate_path(out, name) if out.is_dir() else out
    if path.name == f"{AUTHORITY}.crt":
        raise IdentityError(
            f"wanted a file for a member's certificate, got the authority's, {path}"
        )
    if not path.parent.is_dir():
        raise IdentityError(f"wanted a file in a folder that exists, got {path}")
    return path


def _write(approval: Approval, authority: Authority) -> None:
    """The organiser's own record first: there is never a certificate without one."""
    pem = approval.certificate.public_bytes(Encoding.PEM)
    ca_pem = authority.certificate.public_bytes(Encoding.PEM)
    member = approval.approved.to_bytes()
    copy = approval.authority_path
    if copy.exists() and read_file(copy, "a certificate") != ca_pem:
        raise IdentityError(
            f"{copy} must be the certificate of {authority.folder}, got a different one"
        )
    name = approval.approved.claim.name
    make_folder(authority.issued)
    replace_public(member_path(authority.issued, name), member)
    replace_public(certificate_path(authority.issued, name), pem)
    replace_public(approval.certificate_path, pem)
    replace_public(approval.member_path, member)
    if not copy.exists():
        replace_public(copy, ca_pem)
