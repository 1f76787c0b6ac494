"""Preflight on the wire: what stands at the address, and whether the two accept each other."""

import shutil
import socket
import ssl
import threading
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from live_world import LiveWorld
from members import join

from vfbandits.admin.preflight import preflight
from vfbandits.pki import Grant, approve, create_authority, create_request

WIDTHS = {"shop": 1, "bank": 1}


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    folder = tmp_path_factory.mktemp("network")
    return LiveWorld(folder, widths=WIDTHS, n_users=1, n_arms=1).federation()


@contextmanager
def standing_in(federation, serve):
    """Somebody at the active participant's address, for one connection."""

    def run():
        try:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(5.0)
                serve(connection)
        except OSError:
            return  # the visitor left, as it may

    with socket.create_server(
        ("127.0.0.1", int(federation.address.rpartition(":")[2]))
    ) as listener:
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            listener.close()
            thread.join(10.0)


def tls(folder, name, *, clients=None, version=None, silent=False):
    """Serve TLS as ``name``, to clients of the authority in ``clients``."""

    def serve(connection):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
        context.load_verify_locations((clients or folder) / "authority.crt")
        context.verify_mode = ssl.CERT_REQUIRED
        if version is not None:
            context.maximum_version = version
        with context.wrap_socket(connection, server_side=True) as wrapped:
            wrapped.recv(64)
            if silent:
                wrapped.unwrap()
                return
            wrapped.sendall(b"\0\0\0\4\0\0\0\0\0")
            wrapped.recv(64)

    return serve


def found(federation, serve, name="bank"):
    with standing_in(federation, serve):
        return preflight(federation.config(name), timeout_s=3.0)


def problem(federation, serve, name="bank"):
    report = found(federation, serve, name)
    (only,) = report.problems
    return only.says


def identity(federation, name):
    return federation.folder / name / "identity"


def test_the_right_participant_is_recognised_by_its_key(federation):
    report = found(federation, tls(identity(federation, "shop"), "shop"))
    assert report.is_ready, report.problems
    (last,) = [finding for finding in report.findings if finding.what == "TLS"]
    assert last.says == "1.3, both certificates accepted, the key of 'shop' is in the roster"


def test_another_member_at_the_address_is_told(federation):
    text = problem(federation, tls(identity(federation, "bank"), "bank"))
    assert "is not shop.local.vfb: its certificate has a different name" in text


@pytest.fixture
def other(tmp_path):
    create_authority(tmp_path / "ca", "local")
    terms = {"federation": "local", "name": "shop", "role": "active", "width": 1}
    return join(tmp_path, tmp_path / "ca", terms)


def test_somebody_with_another_authority_is_told(federation, other):
    assert "not signed by the authority of this federation" in problem(
        federation, tls(other, "shop")
    )


def test_somebody_that_does_not_accept_our_certificate_is_told(federation, other):
    serve = tls(identity(federation, "shop"), "shop", clients=other)
    assert "refused a TLS 1.3 connection with our certificate" in problem(federation, serve)


def test_somebody_that_hangs_up_is_told(federation):
    serve = tls(identity(federation, "shop"), "shop", silent=True)
    assert "(it closed the connection)" in problem(federation, serve)


def test_an_older_tls_is_told(federation):
    serve = tls(identity(federation, "shop"), "shop", version=ssl.TLSVersion.TLSv1_2)
    assert "refused a TLS 1.3 connection" in problem(federation, serve)


def test_somebody_that_does_not_speak_tls_is_told(federation):
    serve = lambda connection: connection.sendall(b"hello, who is there?")  # noqa: E731
    assert "refused a TLS 1.3 connection" in problem(federation, serve)


def test_somebody_that_says_nothing_is_told(federation):
    assert "timed out" in problem(
        federation, lambda connection: connection.recv(9_999) and connection.recv(1)
    )


def made_again(federation, folder, now):
    """A certificate for the name of the active participant, made at another time."""
    ca = folder / "ca"
    shutil.copytree(federation.authority.folder, ca)
    shutil.rmtree(ca / "issued")
    terms = {"federation": "local", "name": "shop", "role": "active", "width": 1}
    approve(create_request(folder / "shop", **terms), ca, grant=Grant(days=1), now=now)
    return folder / "shop"


@pytest.mark.parametrize(("days", "says"), [(-3, "has expired"), (3, "is not valid yet")])
def test_a_certificate_that_is_not_in_date_there_is_told(federation, tmp_path, days, says):
    folder = made_again(federation, tmp_path, datetime.now(UTC) + timedelta(days=days))
    text = problem(federation, tls(folder, "shop"))
    assert says in text
    assert "ompare the clocks" in text


def test_another_key_than_the_rosters_is_told(federation, tmp_path):
    folder = made_again(federation, tmp_path, datetime.now(UTC))
    assert "has the key " in problem(federation, tls(folder, "shop"))


def test_without_a_key_of_ones_own_tls_is_not_tried(federation, tmp_path):
    folder = identity(federation, "bank")
    shutil.move(folder / "bank.key", tmp_path / "bank.key")
    try:
        report = found(federation, tls(identity(federation, "shop"), "shop"))
    finally:
        shutil.move(tmp_path / "bank.key", folder / "bank.key")
    assert "TLS was not tested" in report.problems[-1].says


def test_without_tls_only_the_connection_is_tried(federation):
    path = federation.config("bank")
    text = path.read_text()
    path.write_text(text.replace("insecure = false", "insecure = true"))
    try:
        report = found(federation, lambda connection: connection.recv(1))
    finally:
        path.write_text(text)
    assert report.is_ready
    assert [f.state for f in report.findings if f.what == "TLS"] == ["warning"]


def test_a_program_is_told_if_the_active_participant_does_not_answer_its_question(federation):
    report = found(federation, tls(identity(federation, "shop"), "shop"), "app")
    (only,) = report.problems
    assert only.what == "status"
    assert "See the log of the active participant" in only.says
