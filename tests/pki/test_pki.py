"""Authority, approvals, identities and rosters, as files and as the Python API gives them."""

import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from members import BANK, GENERATOR, SHOP, WEB, join, mode

from vfbandits.errors import ConfigError, IdentityError
from vfbandits.pki import (
    Authority,
    Grant,
    Identity,
    Request,
    approve,
    create_authority,
    create_request,
    days_left,
    load_approved,
    load_roster,
)
from vfbandits.pki.files import read_certificate
from vfbandits.pki.request import Keys
from vfbandits.protocol.identity import Subject, key_digest, subject_of
from vfbandits.protocol.roster import Roster, Terms
from vfbandits.protocol.signed_roster import sign_roster

NOW = datetime.now(UTC)


@pytest.fixture
def ca(tmp_path):
    create_authority(tmp_path / "ca", "shops")
    return tmp_path / "ca"


def test_an_authority_has_a_closed_folder_and_a_key_for_its_owner_only(ca):
    assert mode(ca) == 0o700
    assert mode(ca / "authority.key") == 0o600
    certificate = read_certificate(ca / "authority.crt")
    years = (certificate.not_valid_after_utc - NOW).days / 365.25
    assert 9.9 < years < 10.1


def test_an_authority_is_never_replaced(ca):
    before = (ca / "authority.key").read_bytes()
    with pytest.raises(IdentityError, match="an authority is never replaced"):
        create_authority(ca, "shops")
    assert (ca / "authority.key").read_bytes() == before


@pytest.mark.parametrize("federation", ["", "../x", "a b", "a..b", "x" * 65])
def test_a_federation_without_a_proper_name_makes_no_folder(tmp_path, federation):
    with pytest.raises(IdentityError, match="a federation's id has letters"):
        create_authority(tmp_path / "ca", federation)
    assert not (tmp_path / "ca").exists()


@pytest.mark.parametrize(
    ("terms", "secrets"),
    [
        (BANK, {"bank.key", "bank.sealing.key"}),
        (SHOP, {"shop.key", "shop.sealing.key"}),
        (WEB, {"web.key"}),
        (GENERATOR, {"pmg.key", "pmg.signing.key"}),
    ],
)
def test_each_role_gets_its_keys_and_only_its_owner_may_read_them(tmp_path, terms, secrets):
    path = create_request(tmp_path / "x", **terms)
    assert mode(tmp_path / "x") == 0o700
    files = {file.name: mode(file) for file in (tmp_path / "x").iterdir()}
    assert {name for name, bits in files.items() if bits == 0o600} == secrets
    assert set(files) == {*secrets, path.name}


def test_modes_hold_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        create_request(tmp_path / "bank", **BANK)
        assert mode(tmp_path / "bank") == 0o700
        assert mode(tmp_path / "bank" / "bank.key") == 0o600
    finally:
        os.umask(before)


def test_a_folder_that_others_may_write_to_is_refused(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(IdentityError, match="must not be writable by others"):
        create_request(tmp_path / "open", **BANK)
    with pytest.raises(IdentityError, match="must not be writable by others"):
        create_authority(tmp_path / "open", "shops")
    assert not list((tmp_path / "open").iterdir())


def test_keys_are_never_replaced(tmp_path):
    create_request(tmp_path, **BANK)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(IdentityError, match="'bank' has keys"):
        create_request(tmp_path, **BANK)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_request_that_cannot_be_written_leaves_no_key(tmp_path):
    (tmp_path / "bank.sealing.key").symlink_to(tmp_path / "nowhere")
    with pytest.raises(IdentityError, match=r"bank\.sealing\.key"):
        create_request(tmp_path, **BANK)
    assert [path.name for path in tmp_path.iterdir()] == ["bank.sealing.key"]


@pytest.mark.parametrize(
    "changes",
    [
        {"width": 0},
        {"role": "king"},
        {"name": "../bank"},
        {"name": "authority"},
        {"scaling": "abc"},
        {"role": "application"},
        {"role": "generator"},
        {"federation": ""},
    ],
)
def test_a_bad_request_makes_no_key(tmp_path, changes):
    with pytest.raises((ConfigError, IdentityError)):
        create_request(tmp_path / "x", **{**BANK, **changes})
    assert not (tmp_path / "x").exists()


def test_a_request_is_written_again_for_the_same_keys(tmp_path):
    one = Request.from_bytes(create_request(tmp_path, **BANK).read_bytes())
    again = create_request(tmp_path, **{**BANK, "width": 9, "scaling": "ab" * 32}, reuse_keys=True)
    two = Request.from_bytes(again.read_bytes())
    assert two.key_digest == one.key_digest
    assert two.claim == replace(one.claim, width=9, scaling="ab" * 32)
    with pytest.raises(IdentityError, match="wanted a private key"):
        create_request(tmp_path / "none", **BANK, reuse_keys=True)


def test_an_approved_member_has_certificate_line_and_authority(tmp_path, ca):
    request = create_request(tmp_path / "bank", **BANK)
    approval = approve(request, ca)
    assert subject_of(approval.certificate) == Subject("shops", "passive", "bank")
    assert approval.certificate_path == tmp_path / "bank" / "bank.crt"
    assert approval.authority_path.read_bytes() == (ca / "authority.crt").read_bytes()
    approved = load_approved(approval.member_path)
    assert approved == approval.approved
    assert approved.member.certificate == key_digest(approval.certificate.public_key())
    assert days_left(approval.certificate, datetime.now(UTC)) == 364


def test_a_generator_is_approved_with_its_signing_key_and_is_no_member(tmp_path, ca):
    approved = load_approved(join(tmp_path, ca, GENERATOR) / "pmg.member.json")
    identity = Identity.load(tmp_path / "pmg", "pmg")
    public = identity.signing_key.public_key().public_bytes_raw().hex()
    assert approved.claim.generator_key == public
    with pytest.raises(ConfigError, match="as generator_key"):
        assert approved.member


def test_the_certificate_goes_where_it_is_told(tmp_path, ca):
    request = create_request(tmp_path / "bank", **BANK)
    (tmp_path / "post").mkdir()
    approval = approve(request, ca, out=tmp_path / "post" / "b.crt")
    assert {path.name for path in (tmp_path / "post").iterdir()} == {
        "b.crt",
        "bank.member.json",
        "authority.crt",
    }
    assert approval.certificate_path.name == "b.crt"


@pytest.mark.parametrize("out", ["nowhere/b.crt", "ca/authority.crt"])
def test_a_bad_place_for_the_certificate_approves_nothing(tmp_path, ca, out):
    request = create_request(tmp_path / "bank", **BANK)
    before = (ca / "authority.crt").read_bytes()
    with pytest.raises(IdentityError):
        approve(request, ca, out=tmp_path / out)
    assert (ca / "authority.crt").read_bytes() == before
    assert approve(request, ca)


def test_a_name_is_approved_once_and_renewed_for_the_same_key_only(tmp_path, ca):
    request = create_request(tmp_path / "bank", **BANK)
    first = approve(request, ca)
    with pytest.raises(IdentityError, match="--renew gives it another certificate"):
        approve(request, ca, out=tmp_path)
    second = approve(request, ca, grant=Grant(days=9, renew=True))
    assert second.certificate.serial_number != first.certificate.serial_number
    assert second.certificate.public_key() == first.certificate.public_key()
    assert read_certificate(first.certificate_path) == second.certificate
    stranger = create_request(tmp_path / "stranger", **BANK)
    for renew in (False, True):
        with pytest.raises(
            IdentityError, match=f"approved for the key {first.approved.certificate}"
        ):
            approve(stranger, ca, grant=Grant(renew=renew))
    assert not (tmp_path / "stranger" / "bank.crt").exists()


def test_names_that_differ_in_capitals_only_are_one_name(tmp_path, ca):
    join(tmp_path, ca, BANK)
    other = create_request(tmp_path / "other", **{**BANK, "name": "Bank"})
    with pytest.raises(IdentityError, match="'bank' was approved for the key"):
        approve(other, ca)


def test_one_key_speaks_for_one_name_and_one_role(tmp_path, ca):
    join(tmp_path, ca, BANK)
    keys = Keys.load(tmp_path / "bank", "bank", "passive")
    for role, name in (("passive", "news"), ("active", "bank")):
        other = keys.request(Subject("shops", role, name), width=3, scaling="")
        (tmp_path / "other.json").write_bytes(other.to_bytes())
        with pytest.raises(IdentityError, match="this key speaks for vfb://shops/passive/bank"):
            approve(tmp_path / "other.json", ca, grant=Grant(renew=True))


def test_a_request_for_another_federation_is_refused(tmp_path, ca):
    request = create_request(tmp_path / "bank", **{**BANK, "federation": "trains"})
    with pytest.raises(
        IdentityError, match=r"wanted a request for 'shops', .* got one for 'trains'"
    ):
        approve(request, ca)


@pytest.mark.parametrize(
    "grant",
    [
        Grant(days=0),
        Grant(days=99_999),
        Grant(ips=("300.1.1.1",)),
        Grant(dns=("a b",)),
        Grant(dns=("shop.shops.vfb",)),
        Grant(dns=("SHOP.Shops.VFB",)),
        Grant(dns=("*.example",)),
    ],
)
def test_a_grant_that_cannot_be_is_refused_and_nothing_is_written(tmp_path, ca, grant):
    request = create_request(tmp_path / "bank", **BANK)
    with pytest.raises(IdentityError):
        approve(request, ca, grant=grant)
    assert not (tmp_path / "bank" / "bank.crt").exists()
    assert not (ca / "issued").exists()


def test_another_authority_s_certificate_in_the_folder_is_kept(tmp_path, ca):
    request = create_request(tmp_path / "bank", **BANK)
    create_authority(tmp_path / "other", "shops")
    shutil.copy(tmp_path / "other" / "authority.crt", tmp_path / "bank")
    with pytest.raises(IdentityError, match="got a different one"):
        approve(request, ca)
    assert not (tmp_path / "bank" / "bank.crt").exists()


def test_a_passphrase_locks_the_authority(tmp_path):
    create_authority(tmp_path / "ca", "shops", passphrase=b"open sesame")
    request = create_request(tmp_path / "bank", **BANK)
    with pytest.raises(IdentityError, match="needs a passphrase"):
        approve(request, tmp_path / "ca")
    with pytest.raises(IdentityError, match="the right passphrase") as caught:
        approve(request, tmp_path / "ca", passphrase=b"close sesame")
    assert "sesame" not in str(caught.value)
    assert approve(request, tmp_path / "ca", passphrase=b"open sesame")
    with pytest.raises(IdentityError, match="must not be empty"):
        create_authority(tmp_path / "two", "shops", passphrase=b"")


def test_an_authority_with_another_s_key_is_refused(tmp_path, ca):
    create_authority(tmp_path / "other", "shops")
    shutil.copy(tmp_path / "other" / "authority.key", ca)
    with pytest.raises(IdentityError, match="must be the key of the certificate beside it"):
        Authority.load(ca)


def test_an_identity_is_loaded_with_its_keys(tmp_path, ca):
    identity = Identity.load(join(tmp_path, ca, BANK), "bank")
    assert identity.subject == Subject("shops", "passive", "bank")
    assert identity.signing_key is None
    public = identity.sealing_key.public_key().public_bytes_raw().hex()
    member = load_approved(tmp_path / "bank" / "bank.member.json").member
    assert (identity.digest, public) == (member.certificate, member.sealing_key)
    web = Identity.load(join(tmp_path, ca, WEB), "web")
    assert web.sealing_key is None


def test_an_identity_that_does_not_fit_together_is_refused(tmp_path, ca):
    bank, shop = join(tmp_path, ca, BANK), join(tmp_path, ca, SHOP)
    with pytest.raises(IdentityError, match="wanted a certificate"):
        Identity.load(bank, "nobody")
    shutil.copy(shop / "shop.crt", bank / "bank.crt")
    with pytest.raises(IdentityError, match="wanted the certificate of 'bank', got one of 'shop'"):
        Identity.load(bank, "bank")
    shutil.copy(bank / "bank.key", shop / "shop.key")
    with pytest.raises(IdentityError, match="must be the private key of"):
        Identity.load(shop, "shop")
    create_authority(tmp_path / "other", "shops")
    shutil.copy(tmp_path / "other" / "authority.crt", shop)
    with pytest.raises(IdentityError, match="by a different key"):
        Identity.load(shop, "shop")


def test_a_roster_is_loaded_if_this_authority_signed_it(tmp_path, ca):
    members = [load_approved(join(tmp_path, ca, t) / f"{t['name']}.member.json").member
               for t in (SHOP, BANK)]  # fmt: skip
    authority = Authority.load(ca)
    roster = Roster("shops", 1, Terms(), tuple(members))
    path = tmp_path / "roster"
    path.write_bytes(sign_roster(roster, authority.private_key))
    assert load_roster(path, authority.certificate_path) == roster
    create_authority(tmp_path / "other", "shops")
    with pytest.raises(IdentityError, match="signed by this federation's authority"):
        load_roster(path, tmp_path / "other" / "authority.crt")
    with pytest.raises(IdentityError, match="wanted an authority"):
        load_roster(path, tmp_path / "bank" / "bank.crt")
    path.write_bytes(sign_roster(replace(roster, federation="trains"), authority.private_key))
    with pytest.raises(IdentityError, match="wanted a roster of 'shops'"):
        load_roster(path, authority.certificate_path)
