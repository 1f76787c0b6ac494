"""Preflight of the HTTP interface: each fault has its line."""

from datetime import UTC, datetime, timedelta

import pytest
from preflights import check, copied, home, made, only_problem, says, states

from vfbandits.admin.preflight import preflight


@pytest.fixture(scope="module")
def made_once(tmp_path_factory):
    return made(tmp_path_factory.mktemp("http"))


@pytest.fixture
def federation(made_once, tmp_path):
    return copied(made_once, tmp_path)


def serve(federation, *lines, address="127.0.0.1:0"):
    path = federation.config("shop")
    table = "\n".join((f'\n[http]\naddress = "{address}"', *lines))
    path.write_text(f"{path.read_text()}\n{table}\n")


def keys(federation, text='{"id": "x"}\n', mode=0o600):
    path = home(federation, "shop", "keys.json")
    path.write_text(text)
    path.chmod(mode)


CERTIFIED = ('certificate = "identity/shop.crt"', 'private_key = "identity/shop.key"')


def test_keys_and_a_certificate_that_hold_are_ready(federation):
    keys(federation)
    serve(federation, 'keys = "keys.json"', *CERTIFIED, address="0.0.0.0:0")
    report = check(federation)
    assert report.is_ready, report.problems
    assert states(report, "http") == ["ok"]


@pytest.mark.parametrize(
    ("lines", "address", "said"),
    [
        ((), "127.0.0.1:0", "wanted keys"),
        (("insecure = true",), "0.0.0.0:0", "wanted a certificate and a private_key"),
        (('keys = "keys.json"',), "127.0.0.1:0", "got no file"),
        (('keys = "keys.json"', CERTIFIED[0]), "127.0.0.1:0", "go together"),
        (("insecure = true", 'clients = "identity/authority.crt"'), "127.0.0.1:0", "clients need"),
    ],
)
def test_what_is_missing_is_said(federation, lines, address, said):
    serve(federation, *lines, address=address)
    assert said in only_problem(check(federation), "http")


def test_keys_that_others_can_read_are_a_problem(federation):
    keys(federation, mode=0o644)
    serve(federation, 'keys = "keys.json"')
    assert "chmod 600" in only_problem(check(federation), "http")


def test_a_certificate_that_has_ended_or_ends_soon_is_noticed(federation):
    keys(federation)
    serve(federation, 'keys = "keys.json"', *CERTIFIED)
    path = federation.config("shop")
    in_a_while = datetime.now(UTC) + timedelta(days=10_000)
    report = preflight(path, now=in_a_while, timeout_s=3.0)
    assert "Renew it" in says(report, "http")


def test_a_key_of_another_certificate_is_a_problem(federation):
    keys(federation)
    other = home(federation, "bank", "identity", "bank.key")
    serve(federation, 'keys = "keys.json"', CERTIFIED[0], f'private_key = "{other}"')
    assert "and its private key" in only_problem(check(federation), "http")


def test_the_status_port_of_a_passive_participant_is_checked_as_well(federation):
    path = federation.config("bank")
    table = '\n[status]\naddress = "0.0.0.0:0"\ncertificate = "identity/bank.crt"\n'
    path.write_text(f'{path.read_text()}{table}private_key = "identity/bank.key"\n')
    assert states(preflight(path), "status port") == ["ok"]
    later = datetime.now(UTC) + timedelta(days=4_000)
    (found,) = [
        one.says for one in preflight(path, now=later).findings if one.what == "status port"
    ]
    assert "Renew it" in found
