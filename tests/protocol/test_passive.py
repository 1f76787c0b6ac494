"""A passive participant masks its rows when asked, and only then."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from fingerprint import fingerprint
from numpy.testing import assert_allclose, assert_array_equal
from pure_federation import MODES, PureFederation, features

from vfbandits.core.arrays import PlainBlock
from vfbandits.core.pads import Stamp
from vfbandits.errors import (
    EnvelopeError,
    HandshakeError,
    IdentityError,
    WireError,
)
from vfbandits.protocol.instructions import (
    DropShares,
    Fetch,
    Keep,
    LogLine,
    Reply,
    StoreShare,
)
from vfbandits.protocol.messages import (
    MAX_BYTES,
    Abort,
    Answer,
    Ask,
    Commit,
    Declined,
    Ping,
    Pong,
    Prepare,
    Refused,
    Welcome,
)
from vfbandits.protocol.passive import PassiveParticipant, Secrets
from vfbandits.protocol.rows import digest_for

ASK = Ask(1, 0, 1, ("ann", "bob"), (("a", "b"), ("b",)))
BOTH = ("bank", "news")


def federation_of(mode, **settings):
    mask, aggregation = mode
    return PureFederation(mask=mask, aggregation=aggregation, **settings)


def bank_of(mode, **settings):
    """A participant that was welcomed, its federation, and an ask that it should answer."""
    federation = federation_of(mode, **settings)
    ask = ASK._replace(senders=BOTH) if mode[1] == "secure" else ASK
    return federation.passive["bank"], federation, ask


def newcomer(mode, **settings):
    federation = federation_of(mode, start=False, **settings)
    federation.runs_by_itself = False
    federation.start("bank")
    return federation.passive["bank"], federation


def rows_of(ask, width=2):
    return features("bank", ask.keys(), width)


def declined(instructions):
    (reply,) = instructions
    assert isinstance(reply, Reply)
    assert isinstance(reply.message, Declined)
    return reply.message


# --- joining


def test_a_hello_has_its_terms_and_what_it_holds():
    federation = federation_of(("dense", "secure"))
    federation.ask()
    hello = federation.passive["bank"].hello()
    roster = federation.roster
    assert (hello.name, hello.width, hello.dim) == ("bank", 2, 9)
    assert (hello.federation, hello.roster) == ("acme", roster.digest)
    assert (hello.mask, hello.aggregation, hello.layout) == ("dense", "secure", "per_arm")
    assert (hello.epochs, hello.next_round) == ((1,), 2)
    assert not federation.passive["bank"].is_welcome


@pytest.mark.parametrize(
    "message", [ASK, Ping(1), Prepare(2, 1), Commit(1), Abort(1), Pong(1), Declined(1, 0, "", "")]
)
def test_before_a_welcome_nothing_else_is_heard(message):
    bank, federation, _ = bank_of(("blockwise", "plain"))
    hello = bank.hello()
    before = fingerprint(bank)
    with pytest.raises(WireError, match=f"wanted a welcome first, got {type(message).__name__}"):
        bank.hear(message)
    assert fingerprint(bank) == before
    assert federation.active.join("bank", hello, 0.0)


def test_a_refusal_ends_the_link_with_its_reason():
    bank, _, _ = bank_of(("blockwise", "plain"))
    with pytest.raises(HandshakeError, match="the active participant refused: you are late"):
        bank.hear(Refused("handshake", "you are late"))


def test_a_newcomer_draws_a_rotation_of_its_own_and_writes_it_down_first():
    bank, federation = newcomer(("blockwise", "plain"))
    stored, dropped, note = bank.hear(Welcome(4))
    assert isinstance(stored, StoreShare)
    assert (stored.epoch, stored.roster) == (4, federation.signed)
    S = stored.share.columns
    assert S.shape == (2, 2)
    assert_allclose(S @ S.T, np.eye(2), atol=1e-12)
    assert dropped == DropShares(keep=4)
    assert note == LogLine("epoch_entered", {"epoch": 4})
    assert (bank.epoch, bank.is_welcome) == (4, True)


def test_a_newcomer_puts_a_rotation_of_its_own_under_the_share_it_is_dealt():
    """The mask generator knows the span of its columns, and not them."""
    shares = []
    _, federation = newcomer(("dense", "plain"))
    for _ in range(2):
        federation.disks.clear()
        federation.start("bank")
        stored, *_ = federation.passive["bank"].hear(
            Welcome(1, federation.active.envelopes["bank"])
        )
        shares.append(stored.share.columns)
    first, second = shares
    assert first.shape == (9, 2)
    assert_allclose(first.T @ first, np.eye(2), atol=1e-12)
    assert_allclose(first @ first.T, second @ second.T, atol=1e-12)
    assert np.abs(first - second).max() > 1e-6


def test_a_tampered_stale_or_misaddressed_share_is_refused():
    bank, federation = newcomer(("dense", "plain"))
    right = federation.active.envelopes["bank"]
    before = fingerprint(bank)
    for wrong, error in (
        (right[:-1], IdentityError),
        (right[:200] + b"!" + right[201:], IdentityError),
        (b"", EnvelopeError),
        (federation.active.envelopes["news"], EnvelopeError),
        (federation.deal(federation.roster, 2)[1]["bank"], EnvelopeError),
    ):
        with pytest.raises(error):
            bank.hear(Welcome(1, wrong))
        assert fingerprint(bank) == before
    assert bank.hear(Welcome(1, right))


@pytest.mark.parametrize("epoch", [0, -1, 1 << 63])
def test_a_welcome_to_no_epoch_is_refused(epoch):
    bank, _ = newcomer(("blockwise", "plain"))
    with pytest.raises(HandshakeError, match=f"epoch: wanted a number from 1, got {epoch}"):
        bank.hear(Welcome(epoch))
    assert not bank.is_welcome


@pytest.mark.parametrize("message", [Welcome(7), Commit(7)])
def test_an_epoch_without_a_share_is_refused_with_the_way_out(message):
    bank, _, _ = bank_of(("blockwise", "plain"))
    before = fingerprint(bank)
    wanted = (
        r"epoch: the active participant is at 7, 'bank' has shares of \[1\]; "
        "if it was removed and added again, delete these first"
    )
    with pytest.raises(HandshakeError, match=wanted):
        bank.hear(message)
    assert fingerprint(bank) == before


@pytest.mark.parametrize("message", [Welcome(1), Commit(1)])
def test_hearing_of_the_epoch_in_force_again_changes_nothing(message):
    bank, _, _ = bank_of(("blockwise", "plain"))
    before = fingerprint(bank)
    assert bank.hear(message) == []
    assert fingerprint(bank) == before


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["mall", "shop"])
def test_one_that_is_no_passive_participant_of_the_roster_does_not_start(mode, name):
    federation = federation_of(mode)
    secrets = Secrets(X25519PrivateKey.generate())
    with pytest.raises(IdentityError, match=f"wanted '{name}' as a passive participant"):
        PassiveParticipant(name, federation.signed, federation.ca.public_key(), secrets)


def test_one_whose_sealing_key_is_not_in_the_roster_does_not_start():
    federation = federation_of(("dense", "secure"))
    secrets = Secrets(X25519PrivateKey.generate())
    with pytest.raises(
        IdentityError, match=r"the sealing key of 'bank' must be [0-9a-f]{64}, as in the"
    ):
        PassiveParticipant("bank", federation.signed, federation.ca.public_key(), secrets)


def test_nothing_secret_is_shown():
    bank, federation, _ = bank_of(("dense", "secure"))
    assert repr(bank) == "PassiveParticipant('bank', epoch=1)"
    held = federation.disks["bank"].held[1]
    assert repr(held) == "HeldShare()"
    assert repr(Secrets(federation.sealing["bank"])) == "Secrets()"


# --- asks


@pytest.mark.parametrize("mode", MODES)
def test_an_ask_is_answered_with_masked_rows_in_its_order(mode):
    bank, federation, ask = bank_of(mode)
    assert bank.hear(ask) == [Fetch(ask)]
    *kept, reply = bank.answer(ask, rows_of(ask), absent=[0])
    answer = reply.message
    n_columns = 9 if mode[0] == "dense" else 2
    assert (answer.round, answer.attempt, answer.epoch, answer.missing) == (1, 0, 1, 1)
    assert answer.digest == digest_for(ask)
    assert (answer.n_rows, answer.n_columns, len(answer.values)) == (3, n_columns, 24 * n_columns)
    masked = federation.disks["bank"].held[1].share.mask(rows_of(ask))
    sent = np.frombuffer(answer.values, dtype="<f8").reshape(masked.shape)
    if mode[1] == "plain":
        assert kept == []
        assert_array_equal(sent, masked)
    else:
        (keep,) = kept
        assert isinstance(keep, Keep)
        assert (keep.stamp, keep.senders, keep.answer) == (Stamp(1, 1), BOTH, answer)
        assert not (sent == masked).any()


@pytest.mark.parametrize(
    ("other", "problem"),
    [
        ({"users": ()}, "needs arms for each user, got 2 lists of arms for 0 users"),
        ({"users": (), "arms": ()}, "needs arms for each user"),
        ({"arms": ()}, "needs arms for each user"),
        ({"arms": ((), ())}, "needs arms for each user"),
        ({"arms": (("a",),)}, "needs arms for each user, got 1 lists of arms for 2 users"),
        ({"users": ("ann",)}, "needs arms for each user, got 2 lists of arms for 1 users"),
        ({"round": 1 << 63}, "numbers below 2^63"),
        ({"round": -1}, "numbers below 2^63"),
        ({"attempt": 1 << 64}, "numbers below 2^63"),
        ({"users": ("ann",), "arms": (("a",) * (MAX_BYTES // 16 + 1),)}, "bytes, wanted"),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_an_ask_that_cannot_be_answered_is_declined_and_changes_nothing(mode, other, problem):
    bank, _, ask = bank_of(mode)
    before = fingerprint(bank)
    wrong = ask._replace(**other)
    for instructions in (bank.hear(wrong), bank.answer(wrong, rows_of(ask))):
        message = declined(instructions)
        assert (message.round, message.attempt) == (wrong.round, wrong.attempt)
        assert message.code == "bad_request"
        assert problem in message.reason
    assert fingerprint(bank) == before


@pytest.mark.parametrize("layout", ["outer", "disjoint"])
def test_layouts_without_rows_for_arms_take_no_arms(layout):
    bank, _, _ = bank_of(("blockwise", "plain"), layout=layout)
    problem = f"layout '{layout}' needs users and no arms, got 2 users and 2 lists of arms"
    assert declined(bank.hear(ASK)).reason == problem
    assert bank.hear(ASK._replace(arms=())) == [Fetch(ASK._replace(arms=()))]


@pytest.mark.parametrize("senders", [("bank",), ("news",), (), ("bank", "mall"), ("bank", "bank")])
def test_a_secure_sum_that_would_hide_nothing_is_declined(senders):
    bank, _, ask = bank_of(("dense", "secure"))
    before = fingerprint(bank)
    assert declined(bank.hear(ask._replace(senders=senders))).code == "bad_request"
    assert fingerprint(bank) == before


def test_a_plain_federation_names_no_senders():
    bank, _, _ = bank_of(("dense", "plain"))
    message = declined(bank.hear(ASK._replace(senders=BOTH)))
    assert message.reason == "senders are named for secure sums only"


@pytest.mark.parametrize("epoch", [0, 2, 9])
def test_an_ask_of_another_epoch_is_declined_with_both(epoch):
    bank, _, ask = bank_of(("dense", "secure"))
    stale = ask._replace(epoch=epoch)
    message = declined(bank.hear(stale))
    assert (message.code, message.reason) == (
        "stale_epoch",
        f"epoch: the ask has {epoch}, 'bank' is at 1",
    )
    assert declined(bank.answer(stale, rows_of(ask))).code == "stale_epoch"


def test_rows_that_are_found_when_the_stream_is_gone_are_not_sent():
    bank, _, ask = bank_of(("dense", "secure"))
    bank.hear(ask)
    bank.hello()
    assert declined(bank.answer(ask, rows_of(ask))).code == "stale_epoch"
    bank.hear(Welcome(1))
    assert bank.hear(ask) == [Fetch(ask)]  # the stamp was not used up


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (np.zeros((2, 2)), "rows: wanted 3, got 2"),
        (np.zeros((3, 3)), "2 features"),
        (np.zeros(3), "2 features"),
        (np.full((3, 2), 1234.5), "finite values of at most 64, got NaN"),
        (np.full((3, 2), np.nan), "finite features, got NaN"),
        (np.full((3, 2), np.inf), "finite features, got NaN"),
        (np.full((3, 2), 1e200), "finite features, got NaN"),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_features_that_do_not_fit_are_declined_and_not_shown(mode, block, message):
    bank, _, ask = bank_of(mode)
    before = fingerprint(bank)
    refused = declined(bank.answer(ask, PlainBlock(block)))
    assert refused.code == "features"
    assert message in refused.reason
    assert "1234" not in refused.reason
    assert fingerprint(bank) == before
    assert isinstance(bank.answer(ask, rows_of(ask))[-1].message, Answer)  # the stamp is not used


def test_a_store_that_fails_declines():
    bank, _, ask = bank_of(("dense", "plain"))
    assert bank.no_features(ask, "no store") == [Reply(Declined(1, 0, "features", "no store"))]


def test_blocks_of_any_order_and_size_are_sent_row_after_row():
    bank, federation, _ = bank_of(("blockwise", "plain"))
    many = 60_000  # large enough for the other BLAS
    for block in (
        np.asfortranarray(np.arange(6.0).reshape(3, 2)),
        np.arange(12.0).reshape(3, 4)[:, ::2],
        np.arange(2.0 * many).reshape(many, 2) / many,
    ):
        ask = Ask(1, 0, 1, tuple(map(str, range(len(block)))), (("a",),) * len(block))
        (reply,) = bank.answer(ask, PlainBlock(block))
        sent = np.frombuffer(reply.message.values, dtype="<f8").reshape(-1, 2)
        turn = federation.disks["bank"].held[1].share.columns
        assert_allclose(sent, block @ turn.T, atol=1e-12)


def test_a_ping_is_answered_with_its_number():
    bank, _, _ = bank_of(("dense", "plain"))
    assert bank.hear(Ping(17)) == [Reply(Pong(17))]


def test_messages_of_the_other_role_are_refused():
    bank, federation, ask = bank_of(("dense", "plain"))
    *_, reply = bank.answer(ask, rows_of(ask))
    hello = federation.passive["news"].hello()
    before = fingerprint(bank)
    for wrong in (reply.message, hello, Pong(1), Declined(1, 0, "features", "")):
        message = f"wanted a message to a passive participant, got {type(wrong).__name__}"
        with pytest.raises(WireError, match=message):
            bank.hear(wrong)
    assert fingerprint(bank) == before
