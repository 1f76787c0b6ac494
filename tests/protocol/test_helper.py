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
from vfbandits.protocol.change import plan_change
from vfbandits.protocol.dealt import DealSealer, PartySecrets, deal_secrets, secrets_name
from vfbandits.protocol.handshake import MAX_SLOT_STEP, SLOT_STEPS_PER_S
from vfbandits.protocol.helper import IndependentHelper
from vfbandits.protocol.instructions import (
    ChangeFailed,
    DropShares,
    Gathered,
    LogLine,
    Reply,
    Send,
    StoreShare,
)
from vfbandits.protocol.messages import (
    Abort,
    Answer,
    Ask,
    Commit,
    Declined,
    Help,
    Helped,
    Ping,
    Pong,
    Prepare,
    Refused,
    Welcome,
)
from vfbandits.protocol.passive import HeldShare, PassiveParticipant, Secrets
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
    with pytest.raises(ConfigError, match="helper 'notary' must have a width 0, got 3"):
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
    with pytest.raises(ConfigError, match="the secrets of 'notary' as a server, got those of "):
        read_secrets(tmp_path, "notary", ROSTER, epoch=1, key=KEY)


def test_a_helper_is_welcomed_helps_and_is_never_asked():
    helper, active = helper_of(), active_of()
    sent, joined = active.join("notary", helper.hello(), 0.0)
    assert joined.event == "participant_joined"
    assert not helper.is_welcome
    stored, dropped, note = helper.hear(sent.message)
    assert (stored.epoch, stored.share.columns.size, dropped) == (1, 0, DropShares(keep=1))
    assert (note, helper.is_welcome, helper.epoch) == (
        LogLine("epoch_entered", {"epoch": 1}),
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


def test_a_helper_refuses_what_is_for_participants():
    helper = helper_of()
    helper.hello()
    helper.hear(welcome())
    with pytest.raises(WireError, match="a helper without features, got Ask"):
        helper.hear(Ask(1, 0, 1, ("ann",), (("tea",),)))
    with pytest.raises(HandshakeError, match=r"is at 2, 'notary' has shares of \[1\]"):
        helper.hear(Commit(2))


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


# --- other secrets, and other members -------------------------------------------------------------

DEAL = "cd" * 16
NEXT = replace(
    ROSTER, number=2, members=tuple(member for member in ROSTER.members if member.name != "news")
)


def dealt(roster, name="notary", *, epoch=2, of=None):
    """The sealed secrets of a member, or of another one under its name."""
    secrets = deal_secrets(Dealer(roster.share_terms, epoch=epoch), roster, deal=DEAL)
    return DealSealer(roster, epoch, DEAL, SIGNING_KEY).secrets(name, secrets[of or name])


def prepare(roster=NEXT, *, envelope=None, number=1, epoch=2):
    envelope = dealt(roster, epoch=epoch) if envelope is None else envelope
    return Prepare(epoch, number, (), sign_roster(roster, CA), envelope)


def welcomed():
    helper = helper_of()
    helper.hello()
    helper.hear(welcome())
    return helper


def test_a_helper_agrees_to_a_change_with_a_part_without_rows_and_goes_over_with_the_commit():
    helper = welcomed()
    message = prepare()
    secrets, stored, reply = helper.hear(message)
    assert (secrets.epoch, secrets.envelope) == (2, message.envelope)
    assert (stored.epoch, stored.roster) == (2, message.roster)
    answer = reply.message
    assert (answer.round, answer.epoch, answer.n_rows, answer.n_columns) == (1, 2, 0, 0)
    assert answer.values == b""
    assert (helper.epoch, helper.roster) == (1, ROSTER)
    assert helper.hear(Commit(2)) == [DropShares(keep=2), LogLine("epoch_entered", {"epoch": 2})]
    assert (helper.epoch, helper.roster) == (2, NEXT)
    assert helper.hear(Commit(2)) == []
    hello = helper.hello()
    assert (hello.epochs, hello.roster) == ((2,), NEXT.digest)


def test_new_secrets_alone_keep_the_roster():
    helper = welcomed()
    *_, reply = helper.hear(Prepare(2, 1, (), b"", dealt(ROSTER)))
    assert isinstance(reply.message, Answer)
    helper.hear(Commit(2))
    assert (helper.epoch, helper.roster) == (2, ROSTER)


def test_a_change_that_is_given_up_leaves_all_as_it_was():
    helper = welcomed()
    helper.hear(prepare())
    (reply,) = helper.hear(prepare(epoch=3, number=2))
    assert reply.message.reason == "epoch: wanted the change to 2 to end first, got a change to 3"
    aborted = LogLine("mask_change_aborted", {"epoch": 2})
    assert helper.hear(Abort(2)) == [DropShares(keep=1), aborted]
    assert helper.hear(Abort(2)) == []
    assert helper.hello().epochs == (1,)
    helper.hear(welcome())
    assert isinstance(helper.hear(prepare())[-1].message, Answer)


def test_a_helper_that_was_cut_off_is_told_which_epoch_is_in_force():
    for epoch, roster in ((1, ROSTER), (2, NEXT)):
        helper = welcomed()
        stores = [one for one in helper.hear(prepare()) if isinstance(one, StoreShare)]
        held = {1: HeldShare(MaskShare(np.zeros((0, 0))), sign_roster(ROSTER, CA))}
        held |= {one.epoch: HeldShare(one.share, one.roster) for one in stores}
        again = IndependentHelper("notary", held[1].signed_roster, CA.public_key(), KEY, held=held)
        assert again.hello().epochs == (1, 2)
        again.hear(welcome(epoch))
        assert (again.epoch, again.roster) == (epoch, roster)


def without_notary():
    """A roster in which a participant helps."""
    terms = replace(NEXT.terms, shares=replace(NEXT.terms.shares, helper="bank"))
    return replace(NEXT, terms=terms, members=NEXT.members[:-1])


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (prepare(epoch=1), "epoch: wanted one after 1, got 1"),
        (prepare(number=0), "round: wanted one from 1, got 0"),
        (prepare(envelope=b""), "dealt"),
        (prepare(envelope=dealt(NEXT, "bank")), "another to: wanted 'notary', got 'bank'"),
        (prepare(envelope=dealt(ROSTER)), "another terms"),
        (prepare(envelope=dealt(NEXT, of="bank")), "secrets of 'notary' as a server, got those"),
        (prepare(replace(ROSTER, federation="other")), "wanted a roster of 'shops' from number 1"),
        (prepare(roster_with(notary(), max_arms=3)), "must have the digest"),
        (prepare(without_notary(), envelope=b"x"), "wanted 'notary' as the helper of the roster"),
    ],
)
def test_a_helper_declines_what_it_could_not_go_over_to(message, reason):
    helper = welcomed()
    (reply,) = helper.hear(message)
    assert isinstance(reply.message, Declined)
    assert reason in reply.message.reason
    assert helper.hello().epochs == (1,)


def change_of(before=ROSTER, after=NEXT):
    share = MaskShare(np.eye(2))
    active = ActiveParticipant(before, share, epoch=1)
    envelopes = {name: dealt(after, name) for name in after.dealt_to}
    change = plan_change(
        epoch=2,
        round_number=1,
        before=before,
        after=after,
        old_share=share,
        share=share,
        signed_roster=sign_roster(after, CA),
        envelopes=envelopes,
    )
    return active, change


def test_a_change_waits_for_the_helper_and_commits_it_too():
    active, change = change_of()
    helper = helper_of()
    with pytest.raises(HandshakeError, match="disconnected: bank, notary"):
        active.begin_change(change, 0.0)
    active.join("bank", hello_of("bank", 1), 0.0)
    helper.hear(active.join("notary", helper.hello(), 0.0)[0].message)
    sent = {one.to: one.message for one in active.begin_change(change, 0.0)[1:]}
    assert [*sent] == ["bank", "notary"]
    part = Answer(sent["bank"].round, 0, 2, change.gathering.digests["bank"], 3, 3,
                  np.eye(3).tobytes())  # fmt: skip
    assert active.hear("bank", part, 0.0) == []
    *_, reply = helper.hear(sent["notary"])
    (changed,) = active.hear("notary", reply.message, 0.0)
    assert changed.epoch == 2
    told = [one for one in active.finish_change() if isinstance(one, Send)]
    commits = [one.to for one in told if isinstance(one.message, Commit)]
    assert commits == ["bank", "notary"]
    helper.hear(Commit(2))
    assert isinstance(active.join("notary", helper.hello(), 0.0)[1].message, Welcome)


def test_a_change_without_the_helper_that_declines_is_given_up():
    active, change = change_of()
    active.join("bank", hello_of("bank", 1), 0.0)
    active.join("notary", helper_of().hello(), 0.0)
    active.begin_change(change, 0.0)
    number = change.gathering.round
    done = active.hear("notary", Declined(number, 0, "bad_request", "not mine"), 0.0)
    assert {one.to for one in done if isinstance(one, Send)} == {"bank", "notary"}
    assert ChangeFailed(2, "'notary' declined: not mine") in done


def test_a_live_federation_keeps_its_helper_without_features():
    member = replace(notary(), role="passive", width=2)
    after = replace(ROSTER, number=2, members=(*ROSTER.members[:-1], member))
    with pytest.raises(HandshakeError, match="helper without features: a live federation has"):
        change_of(after=after)


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
