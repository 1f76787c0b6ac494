"""Preflight: the roster, and what it says of this member."""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from vfbandits.admin.preflight.report import Report
from vfbandits.errors import IdentityError, VFBanditsError
from vfbandits.journal.mask_shares import ShareFiles
from vfbandits.participant.generator import find_generator
from vfbandits.pki import load_roster
from vfbandits.pki.files import (
    certificate_path,
    read_certificate,
    read_file,
    read_sealing_key,
    sealing_key_path,
)
from vfbandits.protocol.identity import (
    AUTHORITY,
    GENERATOR,
    key_digest,
    spell_digest,
)
from vfbandits.protocol.roster import ACTIVE, SEALING_ROLES, Member, Roster
from vfbandits.protocol.signed_roster import open_roster
from vfbandits.settings.services import ParticipantConfig


def check_roster(report: Report, place: ParticipantConfig) -> Roster | None:
    """The roster that the process would use: the one in its state, or else in its file."""
    authority = certificate_path(place.identity, AUTHORITY)
    advice = "Get the signed roster, and authority.crt, from the organiser"
    kept = None
    with report.blaming("roster", advice):
        kept = _kept(place, authority)
    try:
        written = load_roster(place.roster, authority)
    except VFBanditsError as error:
        if kept is None:
            report.problem("roster", f"{str(error).rstrip('.')}.  {advice}")
        else:
            report.warn("roster", f"{error}; number {kept.number} in {place.state} is used")
        return kept
    if kept is None or kept.digest == written.digest:
        report.ok("roster", f"number {written.number} of {written.federation!r}, signature valid")
        return written
    report.ok(
        "roster",
        f"number {kept.number} in {place.state} is used, {place.roster} is number {written.number}",
    )
    return kept


def _kept(place: ParticipantConfig, authority: Path) -> Roster | None:
    """The roster in the state folder, None before the first start."""
    shares = place.state / "shares"
    held = ShareFiles(shares).load() if shares.is_dir() else {}
    first = place.state / "first-roster.signed"
    if held:
        signed = held[min(held)].signed_roster
    elif place.role == ACTIVE and first.is_file():
        signed = read_file(first, "the signed roster")
    else:
        return None
    key = read_certificate(authority).public_key()
    if not isinstance(key, EllipticCurvePublicKey):
        raise IdentityError(f"wanted an authority with an ECDSA key, got {authority}")
    return open_roster(signed, key)


def check_own_entry(report: Report, place: ParticipantConfig, roster: Roster) -> Member | None:
    """Name, role and keys in the roster are those of this member."""
    if place.role == GENERATOR:  # which is no member: the roster has its signing key
        with report.blaming("own entry", "Use the keys of the approved request"):
            find_generator(place.identity, roster)
            report.ok("own entry", "generator, with the signing key of this folder")
        return None
    member = roster.find(place.name)
    if member is None:
        report.problem(
            "own entry",
            f"roster number {roster.number} has no {place.name!r}.  The operator adds members: "
            "vfb federation add",
        )
        return None
    if member.role != place.role:
        report.problem(
            "own entry",
            f"{place.name!r} is {member.role} in the roster, {place.role} in the configuration.  "
            "Correct 'role', or ask the organiser",
        )
        return None
    before = len(report.findings)
    with report.blaming("own entry", "See above"):
        _compare_keys(report, place, member)
    if len(report.findings) == before:
        report.ok("own entry", f"{member.role} {member.name!r}, with the keys of this folder")
    return member


def _compare_keys(report: Report, place: ParticipantConfig, member: Member) -> None:
    shown = key_digest(read_certificate(certificate_path(place.identity, place.name)).public_key())
    if shown != member.certificate:
        report.problem(
            "own entry",
            f"the roster has a different key of {place.name!r}: "
            f"{spell_digest(member.certificate)}, the certificate has {spell_digest(shown)}.  "
            "Use the keys of the approved request, or ask the operator to remove and add you",
        )
    if member.role not in SEALING_ROLES:
        return
    sealing = read_sealing_key(sealing_key_path(place.identity, place.name)).public_key()
    if sealing.public_bytes_raw().hex() != member.sealing_key:
        report.problem(
            "own entry",
            f"the sealing key of {place.name!r} in the roster differs from the one in the folder.  "
            "Use the keys of the approved request, or ask the operator to remove and add you",
        )
