import hashlib
import os
import socket
import ssl
import subprocess
import sys

import link_peers
import pytest
from certificates import DAY, FEDERATION, make_authority, make_leaf
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from networks import files

from vfbandits.errors import ConfigError, IdentityError
from vfbandits.transport.rpc import SUITES, SUITES_VARIABLE, tls
from vfbandits.transport.rpc.tls import (
    channel_credentials,
    host_name,
    identity_from_certificate,
    own_fault,
    peer_from_certificate,
    server_credentials,
)


@pytest.fixture(scope="module")
def authority():
    return make_authority()


def test_a_peer_is_who_its_certificate_names(tmp_path, authority):
    leaf = make_leaf(tmp_path, "bank", "passive", authority=authority)
    pem = leaf.certificate.read_bytes()
    key = x509.load_pem_x509_certificate(pem).public_key()
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    peer = peer_from_certificate(pem, address="ipv4:127.0.0.1:7")
    assert (peer.name, peer.role, peer.address) == ("bank", "passive", "ipv4:127.0.0.1:7")
    assert peer.certificate == hashlib.sha256(der).hexdigest()
    assert identity_from_certificate(pem).federation == FEDERATION


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"uris": ()}, "got 0 such names"),
        ({"uris": ("https://fair/passive/bank",)}, "got 0 such names"),
        ({"uris": ("vfb://fair/passive/bank", "vfb://fair/passive/shop")}, "got 2 such names"),
        ({"uris": ("vfb://fair/king/bank",)}, "names one member as"),
        ({"uris": ("vfb://fair/passive",)}, "names one member as"),
        ({"uris": ("vfb://fair/passive/bank/x",)}, "names one member as"),
        ({"uris": ("vfb:///passive/bank",)}, "names one member as"),
        ({"common_name": "news"}, "must have that common name"),
    ],
)
def test_a_certificate_that_does_not_name_one_member_is_refused(tmp_path, authority, changes, says):
    leaf = make_leaf(tmp_path, "bank", "passive", authority=authority, **changes)
    with pytest.raises(IdentityError, match=says):
        peer_from_certificate(leaf.certificate.read_bytes())


@pytest.mark.parametrize("pem", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n"])
def test_what_is_not_a_certificate_is_refused(pem):
    with pytest.raises(IdentityError, match=r"X\.509 certificate in PEM form"):
        peer_from_certificate(pem)


def test_files_that_do_not_fit_are_refused_with_their_path(tmp_path, authority):
    make_leaf(tmp_path, "bank", "passive", authority=authority)
    make_leaf(tmp_path, "news", "passive", authority=authority)
    bank, news = files(tmp_path, "bank"), files(tmp_path, "news")
    mixed = tls.TlsFiles(bank.certificate, news.key, bank.authority)
    with pytest.raises(IdentityError, match=r"news.key is not the key of .*bank.crt"):
        channel_credentials(mixed)
    with pytest.raises(IdentityError, match=r"cannot read .*nobody.crt: No such file"):
        server_credentials(files(tmp_path, "nobody"))
    swapped = tls.TlsFiles(bank.certificate, bank.certificate, bank.authority)
    with pytest.raises(IdentityError, match=r"bank.crt must hold a private key"):
        channel_credentials(swapped)
    with pytest.raises(IdentityError, match=r"bank.key must be an X.509"):
        channel_credentials(tls.TlsFiles(bank.certificate, bank.key, bank.key))


def test_an_rsa_certificate_is_refused_as_it_would_let_tls_1_2_in(tmp_path, authority):
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    make_leaf(tmp_path, "bank", "passive", authority=authority, key=key)
    with pytest.raises(IdentityError, match="needs an elliptic-curve key"):
        server_credentials(files(tmp_path, "bank"))


@pytest.mark.parametrize(
    ("dates", "says"),
    [
        ({"not_before": -9 * DAY, "not_after": -DAY}, "our own certificate expired on 20"),
        ({"not_before": DAY, "not_after": 9 * DAY}, "our own certificate is not valid before 20"),
        ({}, ""),
    ],
)
def test_the_dates_of_our_own_certificate_are_known(tmp_path, authority, dates, says):
    make_leaf(tmp_path, "bank", "passive", authority=authority, **dates)
    found = own_fault(files(tmp_path, "bank"))
    assert says in found if says else not found


def test_an_own_certificate_of_another_authority_is_known(tmp_path, authority):
    make_leaf(tmp_path, "bank", "passive", authority=authority)
    for other in ("another", "test authority"):
        make_leaf(tmp_path / "other", "bank", "passive", authority=make_authority(other))
        held = files(tmp_path / "other", "bank")
        mixed = tls.TlsFiles(held.certificate, held.key, files(tmp_path, "bank").authority)
        assert not own_fault(held)
        assert "was not issued by the authority in" in own_fault(mixed)


def test_no_key_shows_in_a_repr(tmp_path, authority):
    make_leaf(tmp_path, "bank", "passive", authority=authority)
    held = files(tmp_path, "bank")
    assert "PRIVATE" not in repr(held)
    assert held.key.read_text().splitlines()[1] not in repr(held)


def test_only_tls_1_3_gets_through_the_handshake(tmp_path, authority):
    """The very same client, certificate and server: the version alone makes the difference."""
    for name, role in (("shop", "active"), ("bank", "passive")):
        make_leaf(tmp_path, name, role, authority=authority)
    process = link_peers.start("listen", "127.0.0.1:0", tmp_path, "shop")
    try:
        port = int(process.stdout.readline())
        assert shake_hands(port, tmp_path, ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
        with pytest.raises((ssl.SSLError, ConnectionError)):
            shake_hands(port, tmp_path, ssl.TLSVersion.TLSv1_2)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def shake_hands(port, folder, version):
    held = files(folder, "bank")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.maximum_version = version
    context.load_verify_locations(held.authority)
    context.load_cert_chain(held.certificate, held.key)
    context.set_alpn_protocols(["h2"])
    name = host_name("shop", FEDERATION)
    with (
        socket.create_connection(("127.0.0.1", port), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=name) as secured,
    ):
        return secured.version()


def run_python(*lines, **environment):
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GRPC")}
    return subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_listener_does_not_start_when_grpc_was_imported_too_early(monkeypatch, tmp_path):
    lines = ("import grpc", "from vfbandits.transport.rpc import TOO_LATE", "print(TOO_LATE)")
    assert run_python(*lines).stdout == "True\n"
    assert run_python(*lines, **{SUITES_VARIABLE: SUITES}).stdout == "False\n"
    assert run_python(*lines[1:]).stdout == "False\n"
    monkeypatch.setattr(tls, "TOO_LATE", True)
    with pytest.raises(ConfigError, match="before grpc is imported"):
        server_credentials(files(tmp_path, "bank"))
