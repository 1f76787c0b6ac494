"""Other people's programs accept the certificates, and refuse what they should."""

import shutil
import ssl
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
from members import BANK, SHOP, join

from vfbandits.pki import (
    Grant,
    approve,
    create_authority,
)
from vfbandits.pki.files import read_certificate

OPENSSL = shutil.which("openssl")
UNTRUSTED = r"unable to get|signature|self.signed"


@pytest.fixture
def ca(tmp_path):
    create_authority(tmp_path / "ca", "shops")
    return tmp_path / "ca"


@pytest.mark.skipif(OPENSSL is None, reason="no openssl here")
def test_openssl_verifies_the_chain_strictly(tmp_path, ca):
    folder = join(tmp_path, ca, BANK)
    create_authority(tmp_path / "other", "shops")
    for purpose in ("sslclient", "sslserver"):
        for authority, right in ((ca, True), (tmp_path / "other", False)):
            done = subprocess.run(
                [OPENSSL, "verify", "-x509_strict", "-purpose", purpose,
                 "-CAfile", authority / "authority.crt", folder / "bank.crt"],
                capture_output=True, check=False,
            )  # fmt: skip
            assert (done.returncode == 0) == right, done.stderr


def side(folder, name, *, server, authority=None):
    purpose = ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT
    context = ssl.SSLContext(purpose)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
    context.load_verify_locations(authority or folder / "authority.crt")
    return context


def handshake(server, client, host):
    """Shake hands in memory; returns both ends."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(down, up, server_hostname=host),
        server.wrap_bio(up, down, server_side=True),
    ]
    waiting = list(ends)
    for _ in range(10):
        for end in list(waiting):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(end)
    assert not waiting
    return ends


def test_both_ends_accept_each_other_in_mutual_tls_1_3(tmp_path, ca):
    shop, bank = (
        join(tmp_path, ca, SHOP, dns=("ap.example",), ips=("127.0.0.1",)),
        join(tmp_path, ca, BANK),
    )
    for host in ("shop.shops.vfb", "ap.example", "127.0.0.1"):
        client, server = handshake(
            side(shop, "shop", server=True), side(bank, "bank", server=False), host
        )
        assert client.version() == server.version() == "TLSv1.3"
        assert ("URI", "vfb://shops/passive/bank") in server.getpeercert()["subjectAltName"]
        assert ("URI", "vfb://shops/active/shop") in client.getpeercert()["subjectAltName"]


def test_a_member_may_have_the_name_of_its_federation(tmp_path, ca):
    folder = join(tmp_path, ca, {**SHOP, "name": "shops"})
    end = side(folder, "shops", server=True), side(folder, "shops", server=False)
    assert handshake(*end, "shops.shops.vfb")
    certificate = read_certificate(folder / "shops.crt")
    assert certificate.issuer != certificate.subject  # it must not look self-signed


def test_tls_refuses_another_authority_another_host_and_an_expired_certificate(tmp_path, ca):
    shop, bank = join(tmp_path, ca, SHOP), join(tmp_path, ca, BANK)
    other = tmp_path / "other"
    create_authority(other, "shops")
    server = side(shop, "shop", server=True)
    untrusting = side(bank, "bank", server=False, authority=other / "authority.crt")
    with pytest.raises(ssl.SSLCertVerificationError, match=UNTRUSTED):
        handshake(server, untrusting, "shop.shops.vfb")
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(server, side(bank, "bank", server=False), "bank.shops.vfb")
    theirs = join(tmp_path / "theirs", other, {**BANK, "name": "mallory"})
    mallory = side(theirs, "mallory", server=False, authority=ca / "authority.crt")
    with pytest.raises(ssl.SSLCertVerificationError, match=UNTRUSTED):
        handshake(server, mallory, "shop.shops.vfb")
    past = datetime.now(UTC) - timedelta(days=400)
    approve(bank / "bank.request.json", ca, grant=Grant(renew=True), now=past)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        handshake(server, side(bank, "bank", server=False), "shop.shops.vfb")
