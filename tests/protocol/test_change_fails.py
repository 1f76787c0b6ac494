"""A change of masks that fails leaves everything as it was, at everybody."""

from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
from cryptography.hazmat.primitives.hashes import SHA256
from fingerprint import fingerprint
from pure_federation import MODES, WIDTHS, PureFederation

from vfbandits.protocol.messages import Abort, Answer, Declined, Prepare
from vfbandits.protocol.signed_roster import TITLE, sign_roster

FOUR = {**WIDTHS, "post": 2}


def federation_of(mode, widths=FOUR, **settings):
    mask, aggregation = mode
    return PureFederation(widths, mask=mask, aggregation=aggregation, **settings)


def untouched(federation, before):
    """The active participant is as it was, but for the numbers of rounds."""
    federation.run()
    assert federation.active.change is None
    assert (federation.active.epoch, federation.active.roster, federation.active.share) == before
    assert {role.epoch for role in federation.passive.values()} == {1}
    assert all(set(disk.held) == {1} for disk in federation.disks.values())
    assert [role.hello().epochs for role in federation.passive.values()] == [(1,)] * 3
    for name in federation.passive:
        federation.hang_up(name)
        federation.dial(name)
    federation.runs_by_itself = True
    federation.run()
    federation.check_all()
    federation.change()
    federation.check_all()


def failing(mode, widths=None):
    federation = federation_of(mode)
    active = federation.active
    before = (active.epoch, active.roster, active.share)
    federation.runs_by_itself = False
    federation.begin_change(widths)
    federation.run_down()
    return federation, before


@pytest.mark.parametrize("mode", MODES)
def test_a_part_that_does_not_come_in_time_fails_the_change(mode):
    federation, before = failing(mode)
    federation.up = type(federation.up)(entry for entry in federation.up if entry[0] != "news")
    federation.run()
    federation.wait(29.9)
    assert not federation.failures
    federation.wait(0.1)
    (failed,) = federation.failures
    assert (failed.epoch, failed.reason) == (2, "no part came in time from news")
    untouched(federation, before)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"epoch": 1}, "epoch: wanted 2, got 1"),
        ({"digest": b""}, "digest of the rows in their order: wanted"),
        ({"attempt": 1}, "attempt: wanted 0, got 1"),
        ({"n_rows": 1}, "rows: wanted"),
        ({"values": b""}, "bytes: wanted"),
    ],
)
def test_a_part_that_is_not_right_fails_the_change(mode, other, reason):
    federation, before = failing(mode)
    wrong = next(m for name, _, m in federation.up if name == "news")
    wrong = wrong._replace(**other)
    federation.hear("news", wrong)
    (failed,) = federation.failures
    assert failed.reason.startswith("with the part of 'news': ")
    assert reason in failed.reason
    untouched(federation, before)


@pytest.mark.parametrize("mode", MODES)
def test_parts_that_do_not_fit_together_fail_the_change(mode):
    federation, before = failing(mode)
    entries = list(federation.up)
    federation.up.clear()
    for name, _, answer in entries:
        values = np.frombuffer(answer.values, dtype="<f8").copy()
        if name == "news":  # right in every respect but what it says
            values = values.view("<u8") + 2**50 if mode[1] == "secure" else 0.5 * values
        wrong = answer._replace(values=values.tobytes())
        federation.hear(name, wrong)
    assert "a participant's part is missing or wrong" in federation.failures[0].reason
    assert not federation.changes
    untouched(federation, before)


@pytest.mark.parametrize("mode", MODES)
def test_one_that_declines_fails_the_change(mode):
    federation, before = failing(mode)
    number = federation.active.change.gathering.round
    no = Declined(number, 0, "bad_request", "not today")
    federation.hear("news", no)
    assert federation.failures[0].reason == "'news' declined: not today"
    untouched(federation, before)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sent", [False, True])
def test_one_that_leaves_before_all_parts_have_come_fails_the_change(mode, sent):
    federation, before = failing(mode)
    if sent:
        entry = next(entry for entry in federation.up if entry[0] == "news")
        federation.deliver_up(*entry)
    federation.hang_up("news")
    assert federation.failures[0].reason == "'news' left"
    federation.dial("news")
    untouched(federation, before)


@pytest.mark.parametrize("mode", MODES)
def test_one_that_comes_again_in_the_middle_fails_the_change(mode):
    """Its first stream may not have ended yet; welcomed again, it throws its new share away."""
    federation, before = failing(mode)
    federation.dial("news")
    federation.run()
    assert federation.failures[0].reason == "'news' left"
    untouched(federation, before)


def bad_prepares(federation):
    roster = federation.active.roster
    other = sign_roster(replace(roster, federation="acne"), federation.ca)
    older = sign_roster(federation.make_roster(FOUR, number=1), federation.ca)
    twin = sign_roster(federation.make_roster({**FOUR, "rail": 1}, number=3), federation.ca)
    terms = replace(roster, number=9, terms=replace(roster.terms, bound=32.0))
    session = replace(roster, number=9, session="ab" * 16)
    wider = federation.make_roster({**FOUR, "bank": 3}, number=9)
    without = federation.make_roster({"shop": 3, "news": 4, "post": 2}, number=9)
    document = roster.to_bytes().replace(b'"version":1', b'"version":2')
    signature = federation.ca.sign(TITLE + document, ECDSA(SHA256())).hex().encode()
    return {
        "federation": (other, "of 'acne'"),
        "older": (older, "from number 3, got number 1"),
        "twin": (twin, "roster number 3 must have the digest "),
        "terms": (sign_roster(terms, federation.ca), "terms: a live federation"),
        "session": (sign_roster(session, federation.ca), "session: a live federation"),
        "wider": (sign_roster(wider, federation.ca), ""),
        "without": (sign_roster(without, federation.ca), "wanted 'bank' as a passive participant"),
        "unsigned": (b"a roster", "signed roster"),
        "unreadable": (
            TITLE + signature + b"\n" + document,
            "must have version 1, got 2: it was written by a newer",
        ),
    }


@pytest.mark.parametrize("mode", MODES)
def test_a_roster_that_does_not_follow_on_is_declined_and_changes_nothing(mode):
    federation = federation_of(mode)
    federation.change({**FOUR, "rail": 3})
    federation.change(FOUR)
    federation.runs_by_itself = False
    bank = federation.passive["bank"]
    senders = ("bank", "news", "post") if mode[1] == "secure" else ()
    for what, (signed, reason) in bad_prepares(federation).items():
        before = fingerprint(bank)
        envelope = b""
        if mode[0] == "dense" and what == "wider":
            wider = federation.make_roster({**FOUR, "bank": 3}, number=9)
            envelope = federation.deal(wider, 4)[1]["bank"]
        number = federation.active.next_round
        (reply,) = bank.hear(Prepare(4, number, senders, signed, envelope))
        assert reply.message.code == "bad_request", what
        assert reason in reply.message.reason, what
        assert fingerprint(bank) == before, what


@pytest.mark.parametrize("mode", MODES)
def test_a_prepare_that_is_stale_is_declined_and_changes_nothing(mode):
    federation = federation_of(mode)
    federation.ask()
    bank = federation.passive["bank"]
    envelope = federation.deal(federation.roster, 2)[1].get("bank", b"")
    senders = ("bank", "news", "post") if mode[1] == "secure" else ()
    right = Prepare(2, 8, senders, b"", envelope)
    wrongs = {
        "stale_epoch": [replace(right, epoch=1), replace(right, epoch=0)],
        "stale_round": [replace(right, round=0), replace(right, round=1 << 63)],
        "bad_request": [replace(right, senders=("bank", "mall"))],
    }
    if mode[1] == "secure":
        wrongs["stale_round"].append(replace(right, round=1))  # it has sent this round
        wrongs["bad_request"].append(replace(right, senders=("bank",)))
    if mode[0] == "dense":
        wrongs["bad_request"].append(replace(right, envelope=b""))
    before = fingerprint(bank)
    if mode[1] == "plain":
        wrongs["stale_round"].pop(0)
    for code, messages in wrongs.items():
        for wrong in messages:
            (reply,) = bank.hear(wrong)
            assert (reply.message.code, reply.message.round) == (code, wrong.round)
            assert fingerprint(bank) == before
    assert isinstance(bank.hear(right)[-1].message, Answer)


@pytest.mark.parametrize("mode", MODES)
def test_a_share_whose_part_was_sent_is_never_drawn_anew(mode):
    """Else the active participant would go by one share and the participant by another."""
    federation, _ = failing(mode)
    held = fingerprint(federation.passive["bank"])
    prepare = next(iter(federation.active.change.prepares()))[1]
    for again in (prepare, replace(prepare, round=prepare.round + 1)):
        (reply,) = federation.passive["bank"].hear(again)
        assert reply.message.code == "stale_epoch"
    assert fingerprint(federation.passive["bank"]) == held
    federation.hear("bank", federation.up[0][2])
    federation.hear("bank", replace(reply.message, round=prepare.round))
    federation.run()
    assert not federation.failures
    federation.finish_change()
    federation.runs_by_itself = True
    federation.check_all()


def test_another_attempt_after_an_abort_draws_new_shares():
    federation, _ = failing(("blockwise", "plain"))
    first = federation.disks["bank"].held[2].share
    federation.carry_out(
        federation.active.hear(
            "news", Declined(federation.active.change.gathering.round, 0, "", ""), 0
        )
    )
    federation.run()
    federation.begin_change()
    federation.run()
    assert federation.disks["bank"].held[2].share is not first
    federation.finish_change()
    federation.runs_by_itself = True
    federation.run()
    federation.check_all()


@pytest.mark.parametrize("mode", MODES)
def test_a_change_starts_from_the_epoch_that_everybody_has_entered(mode):
    """One that has not heard how the last change ended would start from the share before."""
    federation, _ = failing(mode)
    federation.run()
    federation.finish_change()
    federation.down = type(federation.down)(e for e in federation.down if e[0] != "bank")
    federation.run()  # the commit to the bank was lost
    bank, before = federation.passive["bank"], federation.disks["bank"].held.copy()
    federation.begin_change()
    federation.run()
    assert federation.failures[0].reason == (
        "'bank' declined: epoch: wanted the change to 2 to end first, got a change to 3"
    )
    assert federation.disks["bank"].held == before
    assert bank.epoch == 1
    federation.runs_by_itself = True
    federation.check_all()  # with the first ask it hears of the epoch
    federation.change()
    federation.check_all()


@pytest.mark.parametrize("mode", MODES)
def test_what_was_aborted_is_not_prepared_again_by_an_old_message(mode):
    federation, _ = failing(mode)
    bank = federation.passive["bank"]
    old = next(iter(federation.active.change.prepares()))[1]
    federation.obey("bank", bank.hear(Abort(2)))
    (reply,) = bank.hear(old)
    assert reply.message.code == "stale_round"
    assert set(federation.disks["bank"].held) == {1}


def test_an_abort_of_something_else_changes_nothing():
    federation, _ = failing(("blockwise", "plain"))
    bank = federation.passive["bank"]
    before = fingerprint(bank)
    for epoch in (1, 3):
        assert bank.hear(Abort(epoch)) == []
    assert fingerprint(bank) == before
