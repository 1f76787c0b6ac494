"""Participants that do not mean the same federation part at once, and both values are said."""

import re
from dataclasses import replace

import pytest
from fingerprint import fingerprint
from pure_federation import WIDTHS, PureFederation

from vfbandits.errors import HandshakeError, IdentityError
from vfbandits.protocol.handshake import (
    MAX_ROUND_STEP,
    envelope_for,
    refuse_unless_agreed,
    refuse_unless_allowed,
)
from vfbandits.protocol.instructions import Close, LogLine, Send
from vfbandits.protocol.messages import Refused, Welcome

OTHER = {
    "federation": "acne",
    "roster": "00" * 32,
    "width": 7,
    "dim": 10,
    "layout": "outer",
    "mask": "dense",
    "aggregation": "secure",
    "users": "pseudonyms",
    "protection": "shares",
    "scaling": "ab" * 32,
    "dtype": ">f8",
}


@pytest.fixture
def federation():
    return PureFederation(start=False)


def hello_of(federation, name="bank"):
    """The hello that a participant would say with nothing on its disk."""
    federation.runs_by_itself = False
    federation.start(name)
    federation.streams.clear()
    return federation.up.pop()[2]


@pytest.mark.parametrize("what", OTHER)
def test_a_hello_with_other_terms_is_refused_with_both_values(federation, what):
    hello = hello_of(federation)
    ours, theirs = getattr(hello, what), OTHER[what]
    before = fingerprint(federation.active)
    refused, close, note = federation.active.join("bank", replace(hello, **{what: theirs}), 0.0)
    assert isinstance(refused.message, Refused)
    assert refused.message.code == "handshake"
    wanted = f"{what}: the active participant has {ours!r}, 'bank' has {theirs!r}"
    assert refused.message.reason == wanted == note.facts["reason"]
    assert close == Close("bank")
    assert note.event == "handshake_refused"
    assert fingerprint(federation.active) == before


def test_the_most_telling_difference_is_said_first(federation):
    hello = replace(hello_of(federation), **OTHER)
    with pytest.raises(HandshakeError, match=r"^federation: "):
        refuse_unless_agreed(hello, federation.roster, sender="bank", epoch=1)


def test_every_term_of_a_hello_is_compared(federation):
    fields = set(hello_of(federation).__dataclass_fields__)
    assert fields - set(OTHER) == {
        "lowest_protocol",
        "highest_protocol",
        "name",
        "epochs",
        "next_round",
        "noise",  # it is each participant's own affair, and nobody can check it
    }


def test_nobody_speaks_for_another(federation):
    refused, *_ = federation.active.join("news", hello_of(federation), 0.0)
    assert refused.message.reason == "wanted the hello of 'news', got one that says 'bank'"


@pytest.mark.parametrize("name", ["shop", "mall"])
def test_only_passive_participants_of_the_roster_join(federation, name):
    hello = replace(hello_of(federation), name=name)
    refused, *_ = federation.active.join(name, hello, 0.0)
    assert (
        refused.message.reason
        == f"wanted a passive participant of the roster, or its helper, got {name!r}"
    )


def test_an_empty_roster_digest_is_not_a_roster(federation):
    refused, *_ = federation.active.join("bank", replace(hello_of(federation), roster=""), 0.0)
    assert isinstance(refused.message, Refused)


def test_a_hello_that_agrees_is_welcomed(federation):
    welcome, note = federation.active.join("bank", hello_of(federation), 0.0)
    assert welcome == Send("bank", Welcome(1))
    assert note == LogLine("participant_joined", {"participant": "bank", "epoch": 1, "protocol": 1})
    assert list(federation.active.seats) == ["bank"]


def test_the_next_round_comes_after_all_that_anybody_has_sent(federation):
    federation.active.join("bank", replace(hello_of(federation), next_round=70), 0.0)
    federation.active.join("news", replace(hello_of(federation, "news"), next_round=50), 0.0)
    assert federation.active.next_round == 70


@pytest.mark.parametrize("far", [MAX_ROUND_STEP + 2, 1 << 48, (1 << 63) - 1])
def test_a_round_far_above_our_own_is_refused_and_moves_it_by_one_step(federation, far):
    active = federation.active
    hello = replace(hello_of(federation), next_round=far)
    for _ in range(3):
        (sent,) = [todo for todo in active.join("bank", hello, 0.0) if isinstance(todo, Send)]
        assert isinstance(sent.message, Refused)
        assert f"has {1 + MAX_ROUND_STEP}, 'bank' has {far}" in sent.message.reason
        assert active.next_round == 1 + MAX_ROUND_STEP
    assert "bank" not in active.seats


def test_a_hello_that_is_refused_for_another_reason_moves_nothing(federation):
    for wrong in ({"name": "news"}, {"dim": 99}, {"roster": ""}):
        hello = replace(hello_of(federation), next_round=70, **wrong)
        federation.active.join("bank", hello, 0.0)
        assert federation.active.next_round == 1


def test_one_participant_moves_the_round_by_one_step_however_often_it_says_hello(federation):
    active = federation.active
    for number in range(1, 10):
        hello = replace(hello_of(federation), next_round=active.next_round + MAX_ROUND_STEP // 4)
        (sent,) = [todo for todo in active.join("bank", hello, 0.0) if isinstance(todo, Send)]
        assert isinstance(sent.message, Welcome if number <= 4 else Refused)
    assert active.next_round == 1 + MAX_ROUND_STEP
    # The others are let in where the round is now, and with what they reserve above it.
    hello = replace(hello_of(federation, "news"), next_round=active.next_round + 1_001)
    assert active.join("news", hello, 0.0)[0] == Send("news", Welcome(1))
    assert active.next_round == 1 + MAX_ROUND_STEP + 1_001


def test_one_that_moved_the_round_as_far_as_it_may_is_still_let_in(federation):
    active = federation.active
    far = replace(hello_of(federation), next_round=1 + MAX_ROUND_STEP)
    for _ in range(3):
        assert Send("bank", Welcome(1)) in active.join("bank", far, 0.0)
    assert active.next_round == 1 + MAX_ROUND_STEP


def test_one_that_was_cut_off_in_a_change_may_come_with_the_roster_before(federation):
    """It has shares of both epochs; with the later one it holds the roster that goes with it."""
    hello = hello_of(federation)
    after = federation.make_roster({**WIDTHS, "post": 2}, number=2)
    with pytest.raises(HandshakeError, match="dim: the active participant has 11, 'bank' has 9"):
        refuse_unless_agreed(replace(hello, epochs=(2,)), after, sender="bank", epoch=2)
    both = replace(hello, epochs=(1, 2))
    refuse_unless_agreed(both, after, sender="bank", epoch=2)
    for what in ("federation", "width", "layout", "mask", "aggregation", "dtype"):
        wrong = replace(both, **{what: OTHER[what]})
        with pytest.raises(HandshakeError, match=f"^{what}: "):
            refuse_unless_agreed(wrong, after, sender="bank", epoch=2)


def test_a_share_that_was_learnt_behind_and_is_lost_cannot_be_replaced(federation):
    hello = hello_of(federation)
    with pytest.raises(HandshakeError) as caught:
        envelope_for(hello, epoch=3, has_share=True, envelope=b"sealed", needs_envelope=True)
    assert str(caught.value) == (
        "epoch: the active participant learns behind masks of epoch 3, 'bank' has shares of [] "
        "and has had one of 3 before; restore it from a backup, or remove 'bank' and add it again"
    )


def test_a_newcomer_gets_its_envelope_and_others_get_none(federation):
    hello = hello_of(federation)
    settings = {"epoch": 3, "has_share": False, "needs_envelope": True}
    assert envelope_for(hello, **settings, envelope=b"sealed") == b"sealed"
    there = replace(hello, epochs=(3,))
    assert envelope_for(there, **{**settings, "has_share": True}, envelope=b"sealed") == b""
    assert envelope_for(hello, **{**settings, "needs_envelope": False}, envelope=None) == b""
    message = r"is at 3, 'bank' has shares of \[\], and no envelope for it came"
    with pytest.raises(HandshakeError, match=message):
        envelope_for(hello, **settings, envelope=None)


def certificate_of(federation, name):
    return federation.roster.find(name).certificate


def test_a_certificate_stands_for_its_member(federation):
    for certificate in (certificate_of(federation, "bank"), ""):  # without TLS: the name
        member = refuse_unless_allowed(
            federation.roster,
            name="bank",
            role="passive",
            certificate=certificate,
            wanted=("passive", "active"),
        )
        assert member.name == "bank"


@pytest.mark.parametrize(
    ("name", "role", "owner", "wanted", "message"),
    [
        ("bank", "passive", None, "passive", "member of the roster, got 'bank', who is not in it"),
        ("bank", "passive", "news", "passive", "certificate of 'bank', got that of 'news'"),
        ("bank", "passive", "bank", "operator", "wanted role operator, got 'bank', whose role is"),
        ("bank", "operator", "bank", "passive", "'passive' in the roster and 'operator' in its"),
    ],
)
def test_a_certificate_that_may_not_is_refused_and_says_which(
    federation, name, role, owner, wanted, message
):
    certificate = certificate_of(federation, owner) if owner else "11" * 32
    with pytest.raises(IdentityError, match=re.escape(message)):
        refuse_unless_allowed(
            federation.roster, name=name, role=role, certificate=certificate, wanted=(wanted,)
        )
