"""Preflight: what the HTTP interface needs, and the status port of a passive participant."""

import ssl
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509

from vfbandits.admin.preflight.report import Report
from vfbandits.extras import require
from vfbandits.pki.files import is_open_to_others, read_file
from vfbandits.settings.http import HttpSettings
from vfbandits.settings.status import StatusSettings

SOON = timedelta(days=30)
WHAT = "http"
STATUS = "status port"


def check_http(report: Report, http: HttpSettings, now: datetime) -> None:
    """Safe settings, a valid certificate, and keys that only the owner can read."""
    with report.blaming(WHAT, "Correct [http]; docs/serving.md has an example"):
        http.refuse_unless_safe()
        before = len(report.findings)
        if http.certificate is not None and http.private_key is not None:
            _check_certificate(report, WHAT, http.certificate, http.private_key, now)
        if http.keys is not None:
            _check_keys(report, http.keys)
        if len(report.findings) == before:
            report.ok(WHAT, f"{http.address} can be served")


def check_status(report: Report, status: StatusSettings, now: datetime) -> None:
    """The packages that the status port needs, and a valid certificate."""
    with report.blaming(STATUS, "Install it, or leave [status] out"):
        require("httptools", extra="http", to="[status]")
        before = len(report.findings)
        if status.certificate is not None and status.private_key is not None:
            _check_certificate(report, STATUS, status.certificate, status.private_key, now)
        if len(report.findings) == before:
            report.ok(STATUS, f"{status.address} can be served")


def _check_certificate(
    report: Report, what: str, path: Path, private_key: Path, now: datetime
) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path, private_key)
        certificate = x509.load_pem_x509_certificates(read_file(path, "a certificate"))[0]
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        report.problem(
            what,
            f"wanted a certificate and its private key in PEM, got {path} and {private_key} "
            f"({reason}).  Correct certificate and private_key",
        )
        return
    ends = certificate.not_valid_after_utc
    if certificate.not_valid_before_utc > now:
        begins = f"{certificate.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        report.problem(what, f"{path} is valid from {begins}.  Set the clock, or renew it")
    elif now > ends:
        report.problem(what, f"{path} is valid until {ends:%Y-%m-%d}.  Renew it")
    elif ends - now < SOON:
        report.warn(what, f"{path} is valid until {ends:%Y-%m-%d} only.  Renew it soon")
    if is_open_to_others(private_key):
        report.problem(what, f"other users can read {private_key}.  Run chmod 600 on it")


def _check_keys(report: Report, path: Path) -> None:
    if not path.is_file():
        report.problem(
            WHAT, f"wanted API keys in {path}, got no file.  Create one with vfb keys create"
        )
    elif is_open_to_others(path):
        report.problem(WHAT, f"other users can read {path}.  Run chmod 600 on it")
    elif not path.stat().st_size:
        report.problem(WHAT, f"{path} has no keys.  Create one with vfb keys create")
