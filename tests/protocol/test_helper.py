"""A helper without features: a member of the roster that is never asked, and helps."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from dealt_words import SIGNING_KEY, key_of, shares_roster

from vfbandits.core.arrays import PlainBlock
from vfbandits.core.mask import MaskShare
from vfbandits.core.shares.dealer import Dealer
from vfbandits.core.shares.messages import Place
from vfbandits.errors import ConfigError, HandshakeError, IdentityError, WireError
from vfbandits.journal.shares.secrets import read_secrets
from vfbandits.protocol import handshake
from vfbandits.protocol.active import ActiveParticipant
from vfbandits.protocol.dealt import DealSealer, PartySecrets, deal_secrets, secrets_name
from vfbandits.protocol.handshake import MAX_SLOT_STEP, SLOT_STEPS_PER_S
from vfbandits.protocol.helper import IndependentHelper
from vfbandits.protocol.instructions import Gathered, Note, Reply, Send
from vfbandits.protocol.messages import (
    Ask,
    Commit,
    Help,
    Helped,
    Ping,
    Pong,
    Refused,
    Welcome,
)
from vfbandits.protocol.passive import PassiveParticipant, Secrets
from vfbandits.protocol.roster import Member, Roster, Terms
from vfbandits.protocol.signed_roster import sign_roster
from vfbandits.protocol.version import SPOKEN

CA = ec.generate_private_key(ec.SECP256R1())
KEY = key_of(9)


def notary(name="notary", **changes):
    values = {
        "certificate": hashlib.sha256(name.encode()).hexdigest(),
        "sealing_key": KEY.public_key().public_bytes_raw().hex(),
    }
    return Member(name, "helper", **{**values, **changes})


def roster_with(*members, **rules):
    """The roster of ``shares_roster`` with further members; the helper is "notary"."""
    roster = shares_roster()
    terms = replace(roster.terms, shares=replace(roster.terms.shares, helper="notary", **rules))
    return replace(roster, terms=terms, members=(*roster.members, *members))


ROSTER = roster_with(notary())


def helper_of(roster=ROSTER, key=KEY):
    return IndependentHelper("notary", sign_roster(roster, CA), CA.public_key(), key)


def welcome(epoch=1, envelope=b"", protocol=SPOKEN.highest):
    return Welcome(epoch, envelope, protocol)


def active_of(roster=ROSTER):
    return ActiveParticipant(roster, MaskShare(np.eye(2)), epoch=1)


def test_a_helper_is_a_member_without_features_and_no_participant():
    again = Roster.from_bytes(ROSTER.to_bytes())
    assert (again, again.digest) == (ROSTER, ROSTER.digest)
    assert again.split.names == ("shop", "bank", "news")
    assert [member.name for member in again.passive] == ["bank", "news"]
    assert again.stream_members == ("bank", "news", "notary")
    assert "notary" not in again.rows_width


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([], "a member with the role helper, one of bank, news, got 'notary'"),
        (
            [notary(), notary("clerk", sealing_key="ab" * 32)],
            "'clerk' has the role helper, so the terms must name it as helper, got 'notary'",
        ),
    ],
)
def test_the_terms_name_the_one_member_that_is_a_helper(members, reason):
    with pytest.raises(ConfigError, match=reason):
        roster_with(*members)


def test_a_helper_beside_another_protection_level_is_refused():
    with pytest.raises(ConfigError, match="which only protection 'shares' has, got 'mask'"):
        replace(ROSTER, terms=Terms())


def test_a_helper_has_a_sealing_key_and_no_width():
    with pytest.raises(ConfigError, match="helper 'notary' cannot have width 3"):
        notary(width=3)
    with pytest.raises(ConfigError, match="sealing_key of 'notary'"):
        notary(sealing_key="")


def test_the_dealer_gives_a_helper_the_secrets_of_a_server_and_of_no_block(tmp_path):
    dealer = Dealer(ROSTER.share_terms, epoch=1)
    dealt = deal_secrets(dealer, ROSTER, deal="ab" * 16)
    assert [*dealt] == ["shop", "bank", "news", "notary"]
    assert dealt["notary"].participant is None
    assert dealt["notary"].server is not None
    assert dealt["bank"].server is None
    sealer = DealSealer(ROSTER, 1, "ab" * 16, SIGNING_KEY)
    path = tmp_path / secrets_name("notary", 1)
    path.write_bytes(sealer.secrets("notary", dealt["notary"]))
    assert read_secrets(tmp_path, "notary", ROSTER, epoch=1, key=KEY).participant is None
    path.write_bytes(sealer.secrets("notary", PartySecrets("ab" * 16, dealt["bank"].participant)))
    with pytest.raises(ConfigError, match="the secrets of 'notary' as a server, got other roles"):
        read_secrets(tmp_path, "notary", ROSTER, epoch=1, key=KEY)


def test_a_helper_is_welcomed_helps_and_is_never_asked():
    helper, active = helper_of(), active_of()
    sent, joined = active.join("notary", helper.hello(), 0.0)
    assert joined.event == "participant_joined"
    assert not helper.is_welcome
    (note,) = helper.hear(sent.message)
    assert (note, helper.is_welcome, helper.epoch) == (
        Note("epoch_entered", {"epoch": 1}),
        True,
        1,
    )
    assert active.askable() == ()
    own = PlainBlock(np.zeros((1, 2)))
    _, todo = active.ask(("ann",), (("tea",),), own, 0.0, place=Place(1, 0, 0, 0))
    (gathered,) = todo
    assert isinstance(gathered, Gathered)
    assert gathered.contributors == ("shop",)
    message = Help(1, b"words")
    assert helper.hear(message) == [message]
    assert active.hear("notary", Helped(1, b"more words"), 0.0) == [Helped(1, b"more words")]
    assert helper.hear(Ping(4)) == [Reply(Pong(4))]


def test_a_helper_moves_no_round_on():
    active = active_of()
    hello = replace(helper_of().hello(), next_round=1 + MAX_SLOT_STEP)
    assert isinstance(active.join("notary", hello, 0.0)[0].message, Welcome)
    assert active.next_round == 1


def test_the_handshake_pins_who_the_helper_is():
    active = active_of()
    other = helper_of(roster_with(notary(), max_arms=3)).hello()
    refused, *_ = active.join("notary", other, 0.0)
    assert isinstance(refused, Send)
    assert isinstance(refused.message, Refused)
    assert refused.message.reason.startswith("roster: ")


@pytest.mark.parametrize("message", [Ask(1, 0, 1, ("ann",), (("tea",),)), Commit(2)])
def test_a_helper_refuses_what_is_for_participants(message):
    helper = helper_of()
    helper.hello()
    helper.hear(welcome())
    with pytest.raises(WireError, match=f"a helper without features, got {type(message).__name__}"):
        helper.hear(message)


def test_nothing_is_answered_before_the_welcome_nor_after_a_new_hello():
    helper = helper_of()
    for _ in range(2):
        helper.hello()
        with pytest.raises(WireError, match="wanted a welcome first, got Help"):
            helper.hear(Help(1, b""))
        helper.hear(welcome())


@pytest.mark.parametrize(
    ("message", "error", "reason"),
    [
        (Refused("busy", "not now"), HandshakeError, "refused: not now"),
        (welcome(epoch=0), HandshakeError, "epoch: wanted a number from 1, got 0"),
        (welcome(protocol=99), HandshakeError, "the active participant chose 99"),
        (welcome(envelope=b"share"), HandshakeError, "without a share of a mask"),
    ],
)
def test_a_welcome_that_is_none_is_refused(message, error, reason):
    helper = helper_of()
    helper.hello()
    with pytest.raises(error, match=reason):
        helper.hear(message)
    assert not helper.is_welcome


def test_a_helper_is_in_the_roster_with_its_key():
    with pytest.raises(IdentityError, match="wanted 'notary' as the helper of the roster, got no"):
        helper_of(shares_roster())
    with pytest.raises(IdentityError, match="the sealing key of 'notary' must be"):
        helper_of(key=key_of(8))
    with pytest.raises(IdentityError, match="as a passive participant of the roster, got helper"):
        PassiveParticipant("notary", sign_roster(ROSTER, CA), CA.public_key(), Secrets(KEY))


def test_a_helper_shows_no_key():
    assert repr(helper_of()) == "IndependentHelper('notary', epoch=0)"


def hello_of(name, next_round):
    member = ROSTER.find(name)
    return handshake.hello_of(member, ROSTER, epochs=(1,), next_round=next_round)


def test_a_participant_that_comes_back_again_and_again_uses_few_slots_up():
    active, now = active_of(), 0.0
    for _ in range(1_000):
        active.join("bank", hello_of("bank", active.next_round + MAX_SLOT_STEP), now)
        now += 1.0
    assert active.next_round <= 1 + MAX_SLOT_STEP + now * SLOT_STEPS_PER_S
    done = active.join("bank", hello_of("bank", active.next_round + MAX_SLOT_STEP), now)
    assert "bank" not in active.seats
    assert "slots" in done[0].message.reason
    # The others are let in, and so is the same one if it goes on from where the others are.
    assert "news" in {active.join("news", hello_of("news", active.next_round + 8), now)[0].to}
    assert isinstance(
        active.join("bank", hello_of("bank", active.next_round), now)[0].message, Welcome
    )


def test_a_hello_that_is_refused_uses_no_slot_up():
    active = active_of()
    active.join("bank", hello_of("bank", 2 + MAX_SLOT_STEP), 0.0)
    assert ("bank" in active.seats, active.next_round) == (False, 1)


def test_an_honest_participant_may_be_restarted_many_times():
    active, now = active_of(), 0.0
    for _ in range(100):
        active.join("bank", hello_of("bank", active.next_round + 8), now)
        assert "bank" in active.seats
        now += 8 / SLOT_STEPS_PER_S
    skipped = active.join("bank", hello_of("bank", active.next_round + 3), now)
    facts = next(one.facts for one in skipped if getattr(one, "event", "") == "slots_skipped")
    assert facts == {"participant": "bank", "slots": 3}
