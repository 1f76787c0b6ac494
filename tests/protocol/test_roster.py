"""Rosters: one document, one digest, and refusals of all that no round could be run with."""

import hashlib
import json
from dataclasses import asdict, replace

import pytest
from dealt import dense_federation
from hypothesis import given
from hypothesis import strategies as st

from vfbandits.errors import ConfigError
from vfbandits.protocol import roster as roster_module
from vfbandits.protocol.roster import (
    MAX_NAME_LENGTH,
    Member,
    Roster,
    SharesRules,
    Terms,
    is_name,
)

A, B, C = ("0" * 63 + digit for digit in "abc")
SHOP = Member("shop", "active", certificate=A, width=2, sealing_key=A)
BANK = Member("bank", "passive", certificate=B, width=3, sealing_key=B)
APP = Member("web", "application", certificate=C)
ROSTER = Roster("shops", 1, Terms(), (SHOP, BANK, APP))

names = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,20}\Z").filter(is_name)
digests = st.binary(min_size=32, max_size=32).map(bytes.hex)


@st.composite
def rosters(draw):
    n = draw(st.integers(2, 5))
    programs = draw(st.integers(0, 2))
    called = draw(st.lists(names, min_size=n + programs, max_size=n + programs, unique=True))
    certificates = draw(
        st.lists(digests, min_size=n + programs, max_size=n + programs, unique=True)
    )
    sealing_keys = draw(st.lists(digests, min_size=n, max_size=n, unique=True))
    members = []
    for place, (name, certificate) in enumerate(zip(called, certificates, strict=True)):
        if place < n:
            role = "passive" if place else "active"
            width, sealing = draw(st.integers(1, 50)), sealing_keys[place]
            members.append(Member(name, role, certificate, width, sealing, draw(digests)))
        else:
            members.append(Member(name, draw(st.sampled_from(["application", "operator"])),
                                  certificate))  # fmt: skip
    mask = draw(st.sampled_from(["blockwise", "dense"]))
    terms = Terms(mask=mask, bound=draw(st.floats(1.0, 1000.0)))
    return Roster(draw(names), draw(st.integers(1, 10**6)), terms, tuple(members), draw(digests))


@given(roster=rosters())
def test_a_roster_survives_its_document_and_keeps_its_digest(roster):
    again = Roster.from_bytes(roster.to_bytes())
    assert again == roster
    assert again.to_bytes() == roster.to_bytes()
    assert again.digest == roster.digest


@given(roster=rosters(), data=st.data())
def test_the_digest_does_not_depend_on_how_the_document_was_laid_out(roster, data):
    top = json.loads(roster.to_bytes())
    keys = data.draw(st.permutations(list(top)))
    spelt = json.dumps({key: top[key] for key in keys}, indent=3).encode()
    assert Roster.from_bytes(spelt).digest == roster.digest


@pytest.mark.parametrize(
    "other",
    [
        replace(ROSTER, federation="other"),
        replace(ROSTER, number=2),
        replace(ROSTER, terms=Terms(bound=32.0)),
        replace(ROSTER, members=(SHOP, BANK)),
        replace(ROSTER, members=(SHOP, APP, BANK)),
        replace(ROSTER, members=(SHOP, replace(BANK, width=4), APP)),
        replace(ROSTER, members=(SHOP, replace(BANK, scaling=A), APP)),
        replace(ROSTER, generator_key=A),
    ],
)
def test_any_other_roster_has_another_digest(other):
    assert other.digest != ROSTER.digest


def test_a_roster_finds_its_members():
    assert ROSTER.active == SHOP
    assert ROSTER.passive == (BANK,)
    assert ROSTER.find("bank") == BANK
    assert ROSTER.whose(C) == APP
    assert ROSTER.find("nobody") is None
    assert ROSTER.whose("d" * 64) is None
    assert ROSTER.split.widths == (2, 3)
    assert ROSTER.rows_width == {"shop": 2, "bank": 3}
    assert dense_federation().roster.rows_width == {"shop": 6, "bank": 6, "news": 6}
    assert ROSTER.terms.protection == "mask"
    assert Terms(mask="dense", aggregation="secure").protection == "sum"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "../bank"}, "a name has 1 to 64"),
        ({"name": ""}, "a name has 1 to 64"),
        ({"name": "b" * (MAX_NAME_LENGTH + 1)}, "a name has 1 to 64"),
        ({"role": "generator"}, "the role of 'bank' must be one of"),
        ({"width": 0}, "passive 'bank' must have a width from 1, got 0"),
        ({"role": "application"}, "application 'bank' must have a width 0, got 3"),
        ({"certificate": "ab"}, "certificate of 'bank' must be 32 bytes"),
        ({"certificate": B.upper()}, "certificate of 'bank' must be 32 bytes in lower-case hex"),
        ({"sealing_key": ""}, "sealing_key of 'bank' must be 32 bytes"),
    ],
)
def test_a_member_that_no_certificate_could_stand_for_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        replace(BANK, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mask": "none"}, "mask must be one of"),
        ({"aggregation": "none"}, "aggregation must be one of"),
        ({"layout": "none"}, "layout must be one of"),
        ({"layout": "outer"}, "arm_dim goes with layout 'outer'"),
        ({"arm_dim": 2}, "arm_dim goes with layout 'outer'"),
        ({"bound": 0.0}, "bound must be"),
        ({"bound": float("nan")}, "bound must be"),
        ({"bound": float("inf")}, "bound must be"),
    ],
)
def test_terms_that_mean_nothing_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        Terms(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"federation": "a b"}, "a federation's id is a name"),
        ({"number": 0}, "numbered from 1"),
        ({"members": (SHOP, BANK, replace(APP, name="bank"))}, "names must differ"),
        ({"members": (SHOP, BANK, replace(APP, certificate=B))}, "certificate of their own"),
        ({"members": (BANK, SHOP)}, "one active participant, named first"),
        ({"members": (SHOP, replace(BANK, role="active"))}, "one active participant"),
        ({"members": ()}, "one active participant"),
        ({"members": (SHOP, APP), "terms": Terms(mask="dense"), "generator_key": A}, "to hide"),
        ({"terms": Terms(mask="dense")}, "generator_key"),
        ({"terms": Terms(aggregation="secure")}, "dense"),
        ({"terms": Terms(mask="dense", aggregation="secure"), "generator_key": A}, "passive"),
    ],
)
def test_a_roster_with_which_no_round_could_be_run_is_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        replace(ROSTER, **changes)


def test_an_active_participant_alone_is_a_roster():
    alone = replace(ROSTER, members=(SHOP, APP))
    assert (alone.split.dim, alone.passive) == (SHOP.width, ())
    assert Roster.from_bytes(alone.to_bytes()) == alone


def change(**values):
    return json.dumps({**json.loads(ROSTER.to_bytes()), **values}).encode()


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"\xff\xfe\x00",
        b"[]",
        b"{}",
        b"[" * 100_000,
        change(format="other"),
        change(version=2),
        change(version=0),
        change(version=True),
        change(version=1.0),
        change(version=None),
        change(_read_digest="00" * 32),
        change(extra=1),
        change(members={}),
        change(members=[1]),
        change(members=[{**asdict(SHOP), "extra": 1}]),
        change(members=[{"name": "shop"}]),
        change(members=[{**asdict(SHOP), "width": True}, asdict(BANK)]),
        change(terms=None),
        change(terms={"bound": "64"}),
        change(number=True),
        change(number=1.0),
        change(federation=None),
    ],
)
def test_a_document_that_is_no_roster_is_refused(document):
    with pytest.raises(ConfigError):
        Roster.from_bytes(document)


def test_a_roster_of_a_future_version_names_both_versions():
    message = "a 'vfbandits roster' must have version 1, got 2: it was written by a newer vfbandits"
    with pytest.raises(ConfigError, match=message):
        Roster.from_bytes(change(version=2))


def test_a_roster_of_an_older_version_is_read_through_upcasters_and_keeps_its_digest(monkeypatch):
    """As if version 1 had called the session by another name; peers of version 1 hold it still."""
    older = json.loads(ROSTER.to_bytes())
    older["salt"] = older.pop("session")
    document = json.dumps(older).encode()

    def rename(top):
        return {**{key: value for key, value in top.items() if key != "salt"},
                "session": top["salt"]}  # fmt: skip

    monkeypatch.setattr(roster_module, "VERSION", 2)
    monkeypatch.setattr(roster_module, "UPCASTERS", {1: rename})
    read = Roster.from_bytes(document)
    assert read == replace(ROSTER)
    assert read.digest == hashlib.sha256(document).hexdigest()
    # A roster that is made of it is written in the newest version, and has the digest of that.
    after = replace(read, number=read.number + 1)
    assert json.loads(after.to_bytes())["version"] == 2
    assert after.digest == hashlib.sha256(after.to_bytes()).hexdigest() != read.digest
    assert Roster.from_bytes(after.to_bytes()) == after


@given(place=st.integers(0, len(ROSTER.to_bytes()) - 1), byte=st.integers(0, 255))
def test_a_damaged_document_is_refused_or_is_another_roster(place, byte):
    document = bytearray(ROSTER.to_bytes())
    same = document[place] == byte
    document[place] = byte
    try:
        came = Roster.from_bytes(bytes(document))
    except ConfigError:
        return
    assert (came.digest == ROSTER.digest) == (same or came == ROSTER)


@given(text=st.text(max_size=70))
def test_a_name_is_safe_in_a_path(text):
    if is_name(text):
        assert not set(text) & set("/\\\0 \n*?:'\"")
        assert text[0] not in ".-_"
        assert text.isascii()


def test_a_bound_has_one_digest_however_it_is_written():
    assert Terms(bound=64) == Terms(bound=64.0)
    assert repr(Terms(bound=64)) == repr(Terms(bound=64.0))


def test_a_number_of_thousands_of_digits_is_no_roster():
    with pytest.raises(ConfigError, match="JSON document"):
        Roster.from_bytes(b'{"number": ' + b"9" * 5_000 + b"}")


def test_keys_with_spaces_in_them_are_refused():
    with pytest.raises(ConfigError, match="lower-case hex"):
        Member("shop", "active", "ab " * 32, 1, "cd" * 32)


def test_two_members_cannot_share_a_sealing_key():
    members = (
        Member("shop", "active", "01" * 32, 1, "cd" * 32),
        Member("bank", "passive", "02" * 32, 1, "cd" * 32),
    )
    with pytest.raises(ConfigError, match="sealing_key of their own"):
        Roster("acme", 1, Terms(), members)


def test_secure_sums_need_a_session():
    members = tuple(
        Member(name, role, f"{place:02x}" * 32, 1, f"{place + 8:02x}" * 32)
        for place, (name, role) in enumerate(
            [("shop", "active"), ("bank", "passive"), ("news", "passive")]
        )
    )
    terms = Terms("dense", "secure")
    with pytest.raises(ConfigError, match="session, which secure sums need"):
        Roster("acme", 1, terms, members, "ab" * 32)
    assert Roster("acme", 1, terms, members, "ab" * 32, "5e" * 16).session == "5e" * 16


SHARED = Terms(bound=4.0, shares=SharesRules(helper="bank", posterior_scale=0.3))


def shared_roster(terms=SHARED):
    return replace(ROSTER, terms=terms, generator_key="cd" * 32)


def test_rules_of_secret_shares_survive_the_document_and_are_in_its_digest():
    first = shared_roster()
    again = Roster.from_bytes(first.to_bytes())
    assert (again, again.digest) == (first, first.digest)
    assert again.terms.protection == "shares"
    assert again.share_terms.posterior_scale == 0.3
    assert set(again.rows_width.values()) == {2 * width for width in again.split.widths}
    other = replace(SHARED, shares=replace(SHARED.shares, max_arms=8))
    assert shared_roster(other).digest != first.digest
    assert b"shares" not in ROSTER.to_bytes().replace(b'"shops"', b"")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"helper": "shop"}, "would hold both shares"),
        ({"helper": "nobody"}, "a member with the role helper, one of bank, got 'nobody'"),
        ({"max_arms": 65}, "max_arms must be at most 64"),
        ({"posterior_scale": 3.0}, "must be at most 4"),
        ({"release": "all"}, "release and reads must be one of"),
        (
            {"release": "statistics", "reads": "covariance", "posterior_scale": 0.0},
            "not built for services",
        ),
        (
            {"release": "statistics", "reads": "widths"},
            "posterior_scale is a term with release 'arm' only, .* got 0.3",
        ),
        (
            {"release": "statistics", "reads": "widths", "posterior_scale": 0.0, "beta": 0.5},
            "beta is a term with release 'arm' only, .* got 0.5",
        ),
    ],
)
def test_rules_that_no_words_can_be_dealt_for_are_refused(changes, reason):
    with pytest.raises(ConfigError, match=reason):
        shared_roster(replace(SHARED, shares=replace(SHARED.shares, **changes)))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"mask": "dense"}, "needs mask='blockwise'"),
        ({"intercept": True}, "intercept goes with"),
        ({"aggregation": "secure"}, "secure aggregation needs"),
        ({"bound": 64.0}, "scale the features"),
    ],
)
def test_terms_that_do_not_go_with_secret_shares_are_refused(changes, reason):
    with pytest.raises(ConfigError, match=reason):
        shared_roster(replace(SHARED, **changes))


def test_what_is_accepted_changes_for_newcomers_and_leavers_alone():
    post = Member("post", "passive", certificate="77" * 32, width=2, sealing_key="78" * 32)
    rules = replace(SHARED.shares, reads="widths", posterior_scale=0.0, beta=0.5, max_arms=1)

    def roster(*accepted, members=ROSTER.members):
        shares = replace(rules, accept_leak=accepted)
        terms = replace(SHARED, layout="disjoint", shares=shares)
        return replace(ROSTER, terms=terms, members=members, generator_key="cd" * 32)

    now = roster("bank")
    wider = roster("bank", "post", members=(*ROSTER.members[:2], post, *ROSTER.members[2:]))
    for before, after in ((now, wider), (wider, now)):
        kept, came = before.lasting_terms(after)
        assert kept == came
    for before, after in ((now, roster()), (roster(), wider)):
        kept, came = before.lasting_terms(after)
        assert kept != came


def test_secret_shares_need_a_dealer():
    with pytest.raises(ConfigError, match="generator_key, which secret shares need"):
        replace(ROSTER, terms=SHARED)
