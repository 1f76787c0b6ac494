"""What is wrong with a certificate, and what a public file says."""

from datetime import UTC, datetime, timedelta

import pytest
from members import BANK, SHOP, WEB, join

from vfbandits.errors import IdentityError
from vfbandits.pki import (
    Authority,
    check_certificate,
    create_authority,
    describe,
    load_approved,
)
from vfbandits.protocol.roster import Roster, Terms
from vfbandits.protocol.signed_roster import sign_roster

NOW = datetime.now(UTC)


@pytest.fixture
def ca(tmp_path):
    create_authority(tmp_path / "ca", "shops")
    return tmp_path / "ca"


def problems(folder, *, now=None, authority=None, path=None, **wanted):
    return check_certificate(
        path or folder / "bank.crt",
        authority or folder / "authority.crt",
        now or datetime.now(UTC),
        **wanted,
    )


def test_a_good_certificate_has_no_problem(tmp_path, ca):
    folder = join(tmp_path, ca, BANK)
    assert problems(folder) == []
    wanted = {"name": "bank", "role": "passive", "federation": "shops"}
    assert problems(folder, **wanted, key=folder / "bank.key") == []


@pytest.mark.parametrize(
    ("days", "message"),
    [
        (366, "expired on"),
        (-1, "is not valid before"),
        (4000, "authority.crt expired on"),
    ],
)
def test_dates_are_checked(tmp_path, ca, days, message):
    folder = join(tmp_path, ca, BANK)
    came = problems(folder, now=datetime.now(UTC) + timedelta(days=days))
    assert any(message in problem for problem in came)
    assert any("vfb pki approve REQUEST --renew" in problem for problem in came)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"name": "shop"}, "a different name: wanted 'shop', got 'bank'"),
        ({"role": "active"}, "a different role: wanted 'active', got 'passive'"),
        ({"federation": "trains"}, "a different federation: wanted 'trains', got 'shops'"),
    ],
)
def test_whom_it_names_is_checked(tmp_path, ca, wanted, message):
    (problem,) = problems(join(tmp_path, ca, BANK), **wanted)
    assert message in problem
    assert "vfb pki request" in problem


def test_the_authority_is_checked(tmp_path, ca):
    folder = join(tmp_path, ca, BANK)
    create_authority(tmp_path / "other", "shops")
    (problem,) = problems(folder, authority=tmp_path / "other" / "authority.crt")
    assert "by a different key" in problem
    assert "from the organiser" in problem
    (problem,) = problems(folder, authority=tmp_path / "none.crt")
    assert "Ask the organiser" in problem
    (problem,) = problems(folder, authority=folder / "bank.crt")
    assert "wanted an authority" in problem


def test_the_private_key_is_checked(tmp_path, ca):
    folder, other = join(tmp_path, ca, BANK), join(tmp_path, ca, SHOP)
    (problem,) = problems(folder, key=other / "shop.key")
    assert ", got a different key" in problem
    (folder / "bank.key").chmod(0o644)
    (problem,) = problems(folder, key=folder / "bank.key")
    assert f"chmod 600 {folder / 'bank.key'}" in problem
    (problem,) = problems(folder, key=folder / "bank.crt")
    assert "where vfb pki request was run" in problem
    (problem,) = problems(folder, key=folder / "bank.sealing.key")
    assert "wanted an ECDSA key, got X25519" in problem


def test_what_is_no_certificate_is_one_problem(tmp_path, ca):
    (problem,) = problems(ca, path=ca / "nothing.crt")
    assert "vfb pki approve" in problem
    (problem,) = problems(ca, path=ca / "authority.key")
    assert "wanted a certificate in PEM" in problem
    both = tmp_path / "both.crt"
    both.write_bytes(2 * (ca / "authority.crt").read_bytes())
    (problem,) = problems(ca, path=both)
    assert "wanted one certificate, got 2" in problem
    came = problems(ca, path=ca / "authority.crt")
    assert any("names no member" in problem for problem in came)


def test_public_files_tell_their_facts(tmp_path, ca):
    folder = join(tmp_path, ca, BANK, days=30, ips=("10.0.0.1",))
    now = datetime.now(UTC)
    member = load_approved(folder / "bank.member.json").member
    for path, kind in (
        ("bank.crt", "certificate"),
        ("bank.request.json", "request"),
        ("bank.member.json", "member"),
    ):
        facts = describe(folder / path, now)
        rows = dict(facts.rows)
        assert facts.kind == kind
        assert (rows["name"], rows["role"], rows["federation"]) == ("bank", "passive", "shops")
        assert rows["fingerprint"].replace(" ", "") == member.certificate
    rows = dict(describe(folder / "bank.crt", now).rows)
    assert rows["valid until"].endswith("29 days left")
    assert rows["issuer"] == "shops"
    assert rows["hosts"] == "bank.shops.vfb, 10.0.0.1"
    late = dict(describe(folder / "bank.crt", now + timedelta(days=33)).rows)
    assert late["valid until"].endswith("expired 4 days ago")
    assert describe(folder / "authority.crt", now).kind == "authority"


@pytest.mark.parametrize("signed", [True, False])
def test_a_roster_tells_its_facts(tmp_path, ca, signed):
    members = [load_approved(join(tmp_path, ca, t) / f"{t['name']}.member.json").member
               for t in (SHOP, BANK, WEB)]  # fmt: skip
    generator_key = "ab" * 32 if signed else ""
    roster = Roster("shops", 4, Terms(), tuple(members), generator_key)
    path = tmp_path / "roster"
    key = Authority.load(ca).private_key
    path.write_bytes(sign_roster(roster, key) if signed else roster.to_bytes())
    facts = describe(path, NOW)
    rows = dict(facts.rows)
    assert facts.kind.startswith("signed roster" if signed else "roster without")
    assert rows["number"] == "4"
    assert rows["fingerprint"].replace(" ", "") == roster.digest
    assert rows["passive bank"] == "width 3"
    assert rows["application web"] == "no block"
    assert rows.get("generator key", "") == generator_key


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff" * 9, b"-----BEGIN CERTIFICATE-----"])
def test_any_other_file_is_refused(tmp_path, data):
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(IdentityError, match="wanted a certificate"):
        describe(tmp_path / "file", NOW)
    with pytest.raises(IdentityError, match="wanted a certificate"):
        describe(tmp_path / "none", NOW)
    with pytest.raises(IdentityError, match="wanted a certificate"):
        describe(tmp_path, NOW)
