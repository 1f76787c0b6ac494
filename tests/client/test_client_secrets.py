"""The key goes to the server and nowhere else; TLS says who is who."""

import ipaddress
import logging
import ssl
import traceback
from datetime import UTC, datetime, timedelta

import pytest
from certificates import make_authority
from contract_server import Contract, Lost, Says, problem, running
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from ports import free_port
from web_clients import KINDS

from vfbandits.client.calls import ApiError, ApiUnreachable
from vfbandits.errors import SettingError

KEY = "vfb-Tr0ub4dor-and-3"
PEM = serialization.Encoding.PEM


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def kind(request):
    return request.param


def issue(folder, name, authority):
    """Certificate and key for 127.0.0.1, in two files."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(alternative, critical=False)
        .sign(authority.key, hashes.SHA256())
    )
    paths = folder / f"{name}.crt", folder / f"{name}.key"
    paths[0].write_bytes(certificate.public_bytes(PEM))
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    paths[1].write_bytes(key.private_bytes(PEM, *form))
    return paths


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """A server that shows a certificate and wants one; the folder has both sides' files."""
    folder, authority = tmp_path_factory.mktemp("tls"), make_authority()
    (folder / "ca.crt").write_bytes(authority.certificate.public_bytes(PEM))
    certificate, key = issue(folder, "server", authority)
    issue(folder, "shop", authority)
    tls = {
        "ssl_certfile": certificate,
        "ssl_keyfile": key,
        "ssl_ca_certs": folder / "ca.crt",
        "ssl_cert_reqs": ssl.CERT_REQUIRED,
    }
    with running(Contract().app, **tls) as port:
        yield f"https://127.0.0.1:{port}", folder


def test_the_key_is_sent_as_a_bearer_token(kind):
    contract = Contract()
    with running(contract.app) as port:
        with kind(f"http://127.0.0.1:{port}", key=KEY) as client:
            client.model()
        with kind(f"http://127.0.0.1:{port}") as client:
            client.model()
    first, second = contract.seen
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert "authorization" not in second.headers


def test_the_key_is_in_no_repr_error_or_log(kind, caplog):
    caplog.set_level(logging.DEBUG)
    contract, told = Contract(), []
    contract.faults.extend([Lost(), Says(503), Says(401, problem(401, "Who are you")), Says(200)])
    with running(contract.app) as port, kind(f"http://127.0.0.1:{port}", key=KEY) as client:
        told.append(repr(client))
        for error in (ApiError, ApiError):
            with pytest.raises(error) as caught:
                client.model()
            told.extend([repr(caught.value), *traceback.format_exception(caught.value)])
    address = f"http://127.0.0.1:{free_port()}"
    with kind(address, key=KEY, retries=0) as client:
        with pytest.raises(ApiUnreachable) as caught:
            client.model()
        told.extend([repr(client), repr(caught.value), *traceback.format_exception(caught.value)])
    logged = [record.getMessage() for record in caplog.records]
    assert len(contract.seen) == 4
    assert any("GET" in line for line in logged)
    assert not any(KEY in line for line in (*told, *logged))


@pytest.mark.parametrize("key", ["", "two words", "line\n", "schlüssel", "tab\t", "\x00"])
def test_a_key_that_no_header_can_hold_is_refused_without_being_quoted(kind, key):
    with pytest.raises(SettingError) as caught:
        kind("http://here", key=key)
    wanted = "a key must be printable ASCII without spaces"
    assert str(caught.value) == f"{wanted}, got {len(key)} characters that are not"


def test_with_the_right_certificates_both_sides_know_each_other(kind, secured):
    address, folder = secured
    mine = folder / "shop.crt", folder / "shop.key"
    with kind(address, key=KEY, verify=folder / "ca.crt", cert=mine) as client:
        assert client.rank("ann", ["tea"]).arm == "tea"
    context = ssl.create_default_context(cafile=folder / "ca.crt")
    with kind(address, verify=context, cert=mine) as client:
        assert client.ready().status == "ok"


def test_a_server_whose_authority_is_not_trusted_is_not_spoken_to(kind, secured):
    address, folder = secured
    mine = folder / "shop.crt", folder / "shop.key"
    with (
        kind(address, key=KEY, cert=mine, retries=0) as client,
        pytest.raises(ApiUnreachable) as caught,
    ):
        client.model()
    assert "CERTIFICATE_VERIFY_FAILED" in str(caught.value.__cause__)


def test_without_a_certificate_of_its_own_the_client_is_not_heard(kind, secured):
    address, folder = secured
    with (
        kind(address, key=KEY, verify=folder / "ca.crt", retries=0) as client,
        pytest.raises(ApiUnreachable),
    ):
        client.model()
