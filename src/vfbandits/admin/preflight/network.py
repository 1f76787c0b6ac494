"""Preflight: the port of the active participant, and the others' way to it."""

import asyncio
import socket
import ssl
from pathlib import Path

from cryptography import x509

from vfbandits.admin.preflight.report import Report
from vfbandits.admin.session import InForce, connect
from vfbandits.errors import ConfigError, LinkError
from vfbandits.pki.files import certificate_path, key_path
from vfbandits.protocol.identity import AUTHORITY, GENERATOR, key_digest
from vfbandits.protocol.roster import APPLICATION, OPERATOR, Roster
from vfbandits.settings.address import is_loopback, split_address
from vfbandits.settings.services import ParticipantConfig
from vfbandits.transport.rpc.tls import host_name

# What a gRPC client sends first; a server that accepts our certificate answers it.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_VERIFY = {
    9: "its certificate is not valid yet by the clock of this machine.  Compare the clocks",
    10: "its certificate has expired by the clock of this machine.  Compare the clocks, or ask "
    "its owner to renew it",
    62: "its certificate has a different name.  Check 'address'",
}


def check_port(report: Report, place: ParticipantConfig) -> None:
    """The port of the active participant is free."""
    with report.blaming("port", "Correct 'address'"):
        host, port = split_address(place.address)
        _refuse_plain(place)
        family, address = _resolve(host, port)
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((address, port))
                probe.listen(1)
        except OSError as error:
            report.problem(
                "port",
                f"cannot listen on {place.address}: {error.strerror}.  Is vfb serve active "
                "already running?  Otherwise choose another port",
            )
            return
        report.ok("port", f"{place.address} is free")


def check_reach(
    report: Report, place: ParticipantConfig, roster: Roster | None, timeout_s: float
) -> bool:
    """The connection to the active participant, step by step; whether it works.

    No hello is sent: it would take the seat of a process that is running.
    """
    before = len(report.problems)
    with report.blaming("address", "Correct 'address'"):
        host, port = split_address(place.address)
        _refuse_plain(place)
        report.ok("address", f"{host} is {_resolve(host, port)[1]}")
        with report.blaming("connection"):
            _check_connection(report, place, roster, timeout_s)
    return len(report.problems) == before


def _resolve(host: str, port: int) -> tuple[int, str]:
    """Family and number of the host's first address."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        raise ConfigError(f"wanted a host name that resolves, got {host!r}") from error
    return found[0][0], str(found[0][4][0])


def _refuse_plain(place: ParticipantConfig) -> None:
    if place.insecure and not is_loopback(place.address):
        raise ConfigError(f"without TLS an address must be on loopback, got {place.address!r}")


def _check_connection(
    report: Report, place: ParticipantConfig, roster: Roster | None, timeout_s: float
) -> None:
    try:
        raw = socket.create_connection(split_address(place.address), timeout_s)
    except OSError as error:
        raise LinkError(
            f"cannot connect to {place.address}: {error.strerror or 'timed out'}.  Check that the "
            "active participant is running, and that no firewall blocks the connection"
        ) from error
    with raw:
        report.ok("connection", f"{place.address} accepts connections")
        if place.insecure:
            report.warn(
                "TLS", "switched off by 'insecure'.  Use that only for tests on one machine"
            )
        elif roster is not None:
            shown = _shake_hands(raw, place, roster)
            _compare_key(report, shown, roster)


def _shake_hands(raw: socket.socket, place: ParticipantConfig, roster: Roster) -> bytes:
    """The certificate that the other end shows, if both ends accept each other's."""
    name = host_name(roster.active.name, roster.federation)
    context = _tls_context(place)
    try:
        with context.wrap_socket(raw, server_hostname=name) as tls:
            shown = tls.getpeercert(binary_form=True) or b""
            tls.sendall(_PREFACE)
            said = tls.recv(1)
    except ssl.SSLCertVerificationError as error:
        reason = _VERIFY.get(
            error.verify_code,
            "its certificate is not signed by the authority of this federation "
            f"({error.verify_message}).  Check 'address'",
        )
        raise LinkError(f"{place.address} is not {name}: {reason}") from error
    except ssl.SSLError as error:
        raise LinkError(_refusal(place, error.reason or "no reason given")) from error
    except OSError as error:
        raise LinkError(_refusal(place, error.strerror or "timed out")) from error
    if not said:
        raise LinkError(_refusal(place, "it closed the connection"))
    return shown


def _tls_context(place: ParticipantConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    folder = place.identity
    try:
        context.load_verify_locations(certificate_path(folder, AUTHORITY))
        context.load_cert_chain(
            certificate_path(folder, place.name),
            key_path(folder, place.name),
            password="",  # or it would ask for one on the terminal
        )
    except OSError as error:
        raise LinkError(
            "TLS was not tested: the key or the certificate is missing.  See the identity above"
        ) from error
    return context


def _refusal(place: ParticipantConfig, reason: str) -> str:
    return (
        f"{place.address} refused a TLS 1.3 connection with our certificate ({reason}).  "
        "Compare the certificate above, and the clocks of both machines"
    )


def _compare_key(report: Report, shown: bytes, roster: Roster) -> None:
    digest = key_digest(x509.load_der_x509_certificate(shown).public_key())
    if digest == roster.active.certificate:
        report.ok(
            "TLS",
            f"1.3, both certificates accepted, the key of {roster.active.name!r} is in the roster",
        )
    else:
        report.problem(
            "TLS",
            f"{roster.active.name!r} has the key {roster.active.certificate[:12]}… in the roster, "
            f"got {digest[:12]}….  Ask the organiser whether it has new keys; do not start before "
            "you know",
        )


def check_answer(report: Report, config: Path, timeout_s: float) -> None:
    """For programs: the status of the active participant."""

    async def ask() -> tuple[Roster, InForce]:
        async with connect(config, roles=(APPLICATION, OPERATOR, GENERATOR)) as session:
            return session.roster, await session.in_force(timeout_s=timeout_s)

    with report.blaming("status", "See the log of the active participant"):
        ours, now = asyncio.run(ask())
        if now.digest == ours.digest:
            report.ok("status", f"roster number {now.number} and mask epoch {now.epoch} in force")
        else:
            report.warn(
                "status",
                f"roster number {now.number} ({now.digest[:12]}…) is in force, the file has "
                f"number {ours.number} ({ours.digest[:12]}…).  Get the one in force",
            )
