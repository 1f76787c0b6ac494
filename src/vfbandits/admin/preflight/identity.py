"""Preflight: keys, certificates and the clock."""

import stat
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from vfbandits.admin.preflight.report import Report
from vfbandits.errors import IdentityError
from vfbandits.pki.check import check_certificate, days_left
from vfbandits.pki.files import (
    certificate_path,
    is_open_to_others,
    key_path,
    read_certificate,
    read_sealing_key,
    sealing_key_path,
)
from vfbandits.protocol.identity import AUTHORITY, authority_of
from vfbandits.protocol.roster import SEALING_ROLES
from vfbandits.settings.services import ParticipantConfig

SOON = 30
CLOCKS_DIFFER = timedelta(minutes=5)


def check_identity(report: Report, place: ParticipantConfig, now: datetime) -> None:
    """Files of the identity: present, private, of the right name, signed, and in date."""
    folder = place.identity
    if not folder.is_dir():
        report.problem(
            "identity",
            f"wanted the folder {folder} with your keys, got none.  Create them with vfb pki "
            "request --dir, or correct 'identity' in the configuration",
        )
        return
    if stat.S_IMODE(folder.stat().st_mode) & 0o022:
        report.problem(
            "identity",
            f"other users can write to {folder} and replace your keys.  Run chmod 700 {folder}",
        )
    certificate = certificate_path(folder, place.name)
    authority = certificate_path(folder, AUTHORITY)
    problems = check_certificate(
        certificate,
        authority,
        now,
        name=place.name,
        role=place.role,
        federation=_federation(authority),
        key=key_path(folder, place.name),
    )
    for text in problems:
        report.problem("certificate", text)
    if not problems:
        _note_end(report, certificate, now)
        _note_end(report, authority, now)
    if place.role in SEALING_ROLES:
        _check_sealing_key(report, sealing_key_path(folder, place.name))


def _federation(authority: Path) -> str:
    """The authority's federation; empty if it cannot be read, which another check reports."""
    try:
        return authority_of(read_certificate(authority))
    except IdentityError:
        return ""


def _note_end(report: Report, path: Path, now: datetime) -> None:
    certificate = read_certificate(path)
    left, end = days_left(certificate, now), certificate.not_valid_after_utc
    says = f"{path.name} is valid until {end:%Y-%m-%d}, {left} days"
    if left >= SOON:
        report.ok("certificate", says)
    elif path.stem == AUTHORITY:
        report.warn("certificate", f"{says}.  The organiser must reissue all certificates")
    else:
        report.warn(
            "certificate",
            f"{says}.  Ask the organiser to renew it: vfb pki approve REQUEST --renew",
        )


def _check_sealing_key(report: Report, path: Path) -> None:
    with report.blaming("sealing key", "It is on the machine where vfb pki request was run"):
        read_sealing_key(path)
        if is_open_to_others(path):
            report.problem(
                "sealing key",
                f"{path} must be readable by its owner only, but other users can read it.  "
                f"Run chmod 600 {path}",
            )
        else:
            report.ok("sealing key", f"{path.name}, readable by its owner only")


def check_clock(report: Report, place: ParticipantConfig, config: Path, now: datetime) -> None:
    """Compare the clock with the dates of files; no other clock is asked.

    The clock is needed for certificates only.  TLS shows no clock of the other end; whether its
    certificate is in date by ours is checked when the active participant is dialled.
    """
    paths = [config, place.roster, *_files(place.identity), *_files(place.state)]
    late = [path for path in paths if path.is_file() and _written(path) > now + CLOCKS_DIFFER]
    shown = f"{now:%Y-%m-%d %H:%M} UTC"
    if late:
        newest = max(late, key=_written)
        report.problem(
            "clock",
            f"it is {shown} here, but {newest} was written at "
            f"{_written(newest):%Y-%m-%d %H:%M}.  Set the clock",
        )
    else:
        report.ok("clock", f"{shown}, later than all files; other clocks are not compared")


def _files(folder: Path) -> Iterable[Path]:
    return folder.iterdir() if folder.is_dir() else ()


def _written(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)
