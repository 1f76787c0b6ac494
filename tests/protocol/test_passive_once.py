"""Whatever a passive participant is asked, and however often it starts, it says a thing once."""

from pure_federation import PureFederation, features

from vfbandits.core.arrays import PlainBlock
from vfbandits.core.pads import Stamp
from vfbandits.protocol.instructions import Fetch, Reply, Resend
from vfbandits.protocol.messages import Ask, Declined
from vfbandits.protocol.rows import rows_digest

BOTH = ("bank", "news")
ASK = Ask(1, 0, 1, ("ann", "bob"), (("a", "b"), ("b",)), BOTH)


def secure_bank():
    federation = PureFederation(mask="dense", aggregation="secure")
    return federation.passive["bank"], federation


def rows_of(ask):
    return features("bank", ask.keys(), 2)


def declined(instructions):
    (reply,) = instructions
    assert isinstance(reply, Reply)
    assert isinstance(reply.message, Declined)
    return reply.message


def test_an_ask_that_came_again_while_rows_were_looked_up_gets_the_same_bytes():
    bank, _ = secure_bank()
    ask = ASK
    assert bank.hear(ask) == [Fetch(ask)]
    assert bank.hear(ask) == [Fetch(ask)]
    keep, _ = bank.answer(ask, rows_of(ask))
    changed = PlainBlock(rows_of(ask) + 1.0)
    assert bank.answer(ask, changed) == [Resend(keep.stamp, ask, keep.asked)]
    assert bank.hear(ask) == [Resend(keep.stamp, ask, keep.asked)]


def test_rows_that_are_found_out_of_order_are_not_sent_under_pads():
    bank, _ = secure_bank()
    ask = ASK
    later = ask._replace(round=2)
    bank.hear(ask)
    bank.hear(later)
    bank.answer(later, rows_of(later))
    assert bank.answer(ask, rows_of(ask)) == [Resend(Stamp(1, 1), ask, rows_digest(ask))]


def test_the_same_round_with_other_participants_is_declined():
    federation = PureFederation(
        {"shop": 3, "bank": 2, "news": 4, "post": 1}, mask="dense", aggregation="secure"
    )
    bank = federation.passive["bank"]
    ask = ASK._replace(senders=("bank", "news", "post"))
    bank.answer(ask, rows_of(ask))
    fewer = ask._replace(attempt=1, senders=BOTH)
    assert declined(bank.hear(fewer)).code == "bad_request"
    assert declined(bank.answer(fewer, rows_of(ask))).code == "bad_request"


def test_what_was_sent_before_a_restart_is_not_made_anew():
    bank, federation = secure_bank()
    ask = ASK
    federation.obey("bank", bank.hear(ask))
    federation.start("bank")
    assert federation.passive["bank"].hear(ask) == [Resend(Stamp(1, 1), ask, rows_digest(ask))]
