"""On secret shares a participant answers a slot once, and then only by the same bytes."""

import numpy as np
import pytest
from shares_world import small_terms

from vfbandits.core.mask import MaskShare
from vfbandits.core.ring import decode, subtract
from vfbandits.core.shares.dealer import Dealer, InputMasks
from vfbandits.core.shares.messages import Absent, Place
from vfbandits.core.shares.participant import SharingParticipant
from vfbandits.errors import SharesError
from vfbandits.protocol.instructions import Fetch, Keep, Reply, Resend
from vfbandits.protocol.messages import Answer, Ask, Declined
from vfbandits.protocol.slots import Slots, from_rows

TERMS = small_terms()
BLOCK = np.full((2, 3), 0.25)


def slots_of(dealer, *, next_round=1):
    secrets = dealer.participant_secrets(1)
    sharing = SharingParticipant(1, terms=TERMS, secrets=secrets, rotation=MaskShare(np.eye(3)))
    return Slots("bank", sharing, next_round=next_round)


def ask_in(window, slot, *, absent=(), user="ann", arms=("tea", "milk")):
    place = Place(1, window, 0, slot)
    number = TERMS.round_of(place)
    return Ask(number, 0, 1, (user,), (arms,), place=place, absent=absent)


@pytest.fixture
def dealer():
    return Dealer(TERMS, epoch=1)


def test_a_first_ask_of_a_slot_gets_words_that_both_servers_masks_open(dealer):
    slots, ask = slots_of(dealer), ask_in(0, 2)
    assert slots.first_or_again(ask) == Fetch(ask)
    keep, reply = slots.answer(ask, BLOCK, missing=0)
    assert isinstance(keep, Keep)
    assert isinstance(reply, Reply)
    assert isinstance(reply.message, Answer)
    assert reply.message.n_columns == 2 * 3
    words = from_rows(reply.message.values, n_rows=2)
    for secrets in (dealer.active_secrets(), dealer.helper_secrets()):
        words = subtract(words, InputMasks(secrets, TERMS).take(ask.place)[:, :2, 2:])
    assert np.allclose(decode(words) * np.sqrt(TERMS.ridge), BLOCK, atol=1e-10)


def test_a_used_slot_is_answered_by_what_was_kept(dealer):
    slots, ask = slots_of(dealer), ask_in(0, 2)
    keep, _ = slots.answer(ask, BLOCK, missing=0)
    again = slots.first_or_again(ask)
    assert isinstance(again, Resend)
    assert (again.stamp, again.asked) == (keep.stamp, keep.asked)
    assert [*slots.answer(ask, 2 * BLOCK, missing=0)] == [again]
    # For another user, in a slot before it, or after a restart: the outbox has to say.
    other = slots.first_or_again(ask_in(0, 2, user="bob"))
    assert isinstance(other, Resend)
    assert other.asked != keep.asked
    assert isinstance(slots.first_or_again(ask_in(0, 1)), Resend)
    assert isinstance(slots_of(dealer, next_round=9).first_or_again(ask_in(1, 3)), Resend)


def test_one_that_is_named_absent_keeps_a_refusal_and_sends_nothing(dealer):
    slots = slots_of(dealer)
    kept = slots.first_or_again(ask_in(0, 0, absent=("bank",)))
    assert isinstance(kept, Keep)
    assert isinstance(kept.answer, Declined)
    assert isinstance(slots.first_or_again(ask_in(0, 0)), Resend)
    assert slots.next_round == 2


def opening_of(ask, *names):
    """Server A's wish that the masks of these participants be opened in the slot of an ask."""
    flags = np.array([name in names for name in ("shop", "bank")], np.uint8)
    return Absent(ask.place, 2, flags).to_bytes()


def test_one_that_helps_opens_its_own_masks_only_where_it_was_named_absent(dealer):
    slots, ask = slots_of(dealer), ask_in(0, 2)
    assert "masks stay closed" in slots.problem_with_opening(opening_of(ask, "bank"))
    slots.answer(ask, BLOCK, missing=0)
    opening = opening_of(ask, "bank")
    # The answer is under those masks: opened, they would show its rows to server A.
    assert "masks stay closed" in slots.problem_with_opening(opening)
    slots.first_or_again(ask_in(0, 2, absent=("bank",)))  # too late
    assert "masks stay closed" in slots.problem_with_opening(opening)
    assert not slots.problem_with_opening(opening_of(ask, "shop"))

    absent = ask_in(0, 3, absent=("bank",))
    slots.first_or_again(absent)
    assert not slots.problem_with_opening(opening_of(absent, "bank"))
    assert "masks stay closed" in slots.problem_with_opening(opening)
    assert isinstance(slots.first_or_again(ask_in(0, 3)), Resend)


@pytest.mark.parametrize(
    ("ask", "problem"),
    [
        (ask_in(0, 1)._replace(place=None), "names a slot"),
        (ask_in(0, 1)._replace(trial=3), "no trial"),
        (ask_in(0, 1)._replace(epoch=2), "a slot of its epoch"),
        (ask_in(0, 1)._replace(round=7), "the round of this slot is 2, got 7"),
        (ask_in(0, 1)._replace(place=Place(1, 0, 0, 4), round=5), "the round of this slot"),
        (ask_in(0, 1)._replace(users=("a", "b")), "one user, got 2"),
        (ask_in(0, 1, arms=tuple("abcde")), "at most max_arms=4 arms, got 5"),
    ],
)
def test_an_ask_that_fits_no_slot_is_refused(dealer, ask, problem):
    assert problem in slots_of(dealer).problem_with(ask)


def test_a_row_beyond_the_bound_uses_no_slot(dealer):
    slots = slots_of(dealer)
    with pytest.raises(SharesError, match="at most 1 long"):
        slots.answer(ask_in(0, 0), 3.0 * np.ones((2, 3)), missing=0)
    assert slots.next_round == 1
