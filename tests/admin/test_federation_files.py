"""Rosters that follow one another, and files that are never overwritten by mistake."""

import pytest
from members import BANK, SHOP, WEB, join

from vfbandits.admin.federation_files import (
    find_approved,
    make_roster,
    put_roster,
    with_member,
    without_member,
    write_folder,
)
from vfbandits.errors import ConfigError, IdentityError
from vfbandits.pki import Authority, create_authority
from vfbandits.protocol.roster import Member, Terms

GYM = Member("gym", "passive", certificate="0f" * 32, width=5, sealing_key="0e" * 32)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    folder = tmp_path_factory.mktemp("members")
    create_authority(folder / "ca", "shops")
    for terms in (WEB, BANK, SHOP):
        join(folder, folder / "ca", terms)
    return Authority.load(folder / "ca")


@pytest.fixture(scope="module")
def roster(authority):
    return make_roster(find_approved(authority), Terms(), federation="shops")


def names(roster):
    return [member.name for member in roster]


def test_the_active_participant_stands_first_and_programs_last(roster):
    assert names(roster) == ["shop", "bank", "web"]


def test_a_newcomer_stands_behind_the_participants_and_the_number_grows(roster):
    after = with_member(roster, GYM)
    assert names(after) == ["shop", "bank", "gym", "web"]
    assert (after.number, after.terms, after.split.dim) == (2, roster.terms, 10)
    again = without_member(after, "bank")
    assert names(again) == ["shop", "gym", "web"]
    assert again.number == 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda roster: with_member(roster, roster.passive[0]), "'bank' is in the roster already"),
        (
            lambda roster: with_member(roster, Member("x", "operator", certificate="0d" * 32)),
            "wanted a passive participant, got operator 'x'",
        ),
        (
            lambda roster: with_member(roster, GYM, accept_leak=True),
            "--accept-leak goes with protection shares in layouts disjoint and outer, got mask in",
        ),
        (lambda roster: without_member(roster, "shop"), "passive participants bank, got 'shop'"),
    ],
)
def test_what_no_roster_could_be_is_refused(roster, change, says):
    with pytest.raises(ConfigError, match=says):
        change(roster)


def test_the_last_passive_participant_may_leave(roster):
    assert names(without_member(roster, "bank")) == ["shop", "web"]


def test_members_of_another_federation_are_refused(authority):
    with pytest.raises(ConfigError, match="was approved for 'shops', wanted 'fair'"):
        make_roster(find_approved(authority), Terms(), federation="fair")


def test_a_member_counts_only_as_the_authority_recorded_it(authority, tmp_path):
    record = authority.issued / "bank.member.json"
    copy = tmp_path / "bank.member.json"
    copy.write_bytes(record.read_bytes())
    assert find_approved(authority, [copy])[0].member.width == 3
    copy.write_bytes(record.read_bytes().replace(b'"width": 3', b'"width": 9'))
    with pytest.raises(IdentityError, match="must say what was approved"):
        find_approved(authority, [copy])
    copy.write_bytes(record.read_bytes().replace(b'"name": "bank"', b'"name": "spy"'))
    with pytest.raises(IdentityError, match=r"wanted a member that .* approved"):
        find_approved(authority, [copy])


def test_a_place_that_cannot_be_written_is_told(authority, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="wanted a file to write"):
        put_roster(b"", tmp_path / "file" / "roster.signed")
    with pytest.raises(ConfigError, match="wanted a file to write"):
        write_folder("shop", "", b"", authority, tmp_path / "file")


def test_a_configuration_is_never_overwritten(authority, tmp_path):
    write_folder("shop", "before", b"roster", authority, tmp_path)
    with pytest.raises(ConfigError, match="is there already"):
        write_folder("shop", "after", b"roster", authority, tmp_path)
    assert (tmp_path / "shop" / "shop.toml").read_text() == "before"
