"""Under pads a round is sent once; after that only the very same bytes, or none."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st
from pure_federation import PureFederation
from worlds import MORE

from vfbandits.core.arrays import MaskedBlock
from vfbandits.core.pads import Stamp
from vfbandits.errors import SecureSumError
from vfbandits.protocol.instructions import Fetch, Reply, Resend
from vfbandits.protocol.messages import Ask
from vfbandits.protocol.once import OnceOnly
from vfbandits.protocol.rows import rows_digest

ALL = ("bank", "news", "post")
ROSTER = PureFederation(
    {"shop": 1, "bank": 1, "news": 1, "post": 1}, mask="dense", aggregation="secure", start=False
)
WRONG = "the senders of a secure sum are bank, news, post, each named once"
ROWS = MaskedBlock(np.ones((1, 4)))


def once_only(next_round=1):
    return OnceOnly("bank", ROSTER.roster, ROSTER.sealing["bank"], next_round=next_round)


def ask(number, attempt=0, senders=ALL):
    return Ask(number, attempt, 1, ("ann",), (("a",),), senders)


def send(once, number, attempt=0, senders=ALL):
    asked = rows_digest(ask(number, attempt, senders))
    return once.cover(ROWS, Stamp(1, number, attempt), senders, asked=asked)


def again(which):
    return Resend(Stamp(1, which.round, which.attempt), which, rows_digest(which))


@pytest.mark.parametrize(
    ("senders", "problem"),
    [
        (ALL, ""),
        (ALL[::-1], ""),
        (("bank",), WRONG),
        (("post", "bank"), WRONG),
        (("news", "post"), WRONG),
        (("bank", "news", "news"), WRONG),
        ((*ALL, "bank"), WRONG),
        ((), WRONG),
        (("bank", "news", "shop"), WRONG),
        (("bank", "news", "mall"), WRONG),
    ],
)
def test_the_senders_of_rows_are_all_passive_participants(senders, problem):
    """With any other set the active participant could subtract one sum from another."""
    assert once_only().problem_with(senders) == problem


@pytest.mark.parametrize(
    ("stay", "senders", "problem"),
    [
        (ALL, ALL, ""),
        (ALL[:2], ALL[:2], ""),
        ((*ALL, "mall"), ALL, ""),
        (ALL, ALL[:2], WRONG),
        (ALL[:2], ALL, "the senders of a secure sum are bank, news, each named once"),
        (ALL[1:], ALL[1:], "a secure sum needs 'bank' and at least one more sender"),
        (("bank", "mall"), ("bank",), "a secure sum needs 'bank' and at least one more sender"),
    ],
)
def test_the_senders_of_a_change_are_all_that_stay(stay, senders, problem):
    """A change among some of them would show the space of the others' rows."""
    after = ROSTER.make_roster({"shop": 1, **dict.fromkeys(stay, 1)}, number=2)
    assert once_only().problem_with(senders, after=after) == problem


def test_a_round_before_the_first_new_one_is_never_made_anew():
    once = once_only(next_round=5)
    assert once.first_or_again(ask(4)) == again(ask(4))
    assert once.first_or_again(ask(4, attempt=1)) == again(ask(4, attempt=1))
    assert once.first_or_again(ask(5)) == Fetch(ask(5))
    assert once.next_round == 5


def test_what_was_sent_or_skipped_is_only_sent_again():
    once = once_only()
    send(once, 7, attempt=1)
    assert once.next_round == 8
    for number, attempt in ((7, 1), (7, 0), (6, 0), (6, 9), (1, 0)):
        assert once.first_or_again(ask(number, attempt)) == again(ask(number, attempt))
    for number, attempt in ((7, 2), (8, 0)):
        assert once.first_or_again(ask(number, attempt)) == Fetch(ask(number, attempt))


def test_a_round_is_never_sent_again_with_other_participants():
    once = once_only()
    send(once, 7)
    for other in (("bank", "news"), ("bank", "post")):
        refused = once.first_or_again(ask(7, 1, other))
        assert isinstance(refused, Reply)
        assert (refused.message.round, refused.message.attempt) == (7, 1)
        assert refused.message.code == "pads"
        assert "never sent again with other participants" in refused.message.reason
    same = ask(7, 1, tuple(reversed(ALL)))
    assert once.first_or_again(same) == Fetch(same)
    smaller = ask(8, 0, ("bank", "news"))
    assert once.first_or_again(smaller) == Fetch(smaller)


def test_a_message_that_was_refused_does_not_use_its_stamp_up():
    once = once_only()
    with pytest.raises(SecureSumError, match="a larger one"):
        once.cover(MaskedBlock(np.full((1, 4), 65.0)), Stamp(1, 3), ALL, asked=b"")
    assert once.first_or_again(ask(3)) == Fetch(ask(3))
    send(once, 3)


@given(asks=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2),
                               st.sampled_from([ALL, ALL[:2], ALL[::2]]))))  # fmt: skip
@settings(max_examples=100 * MORE)
def test_whatever_is_asked_a_stamp_is_used_once_and_a_round_has_one_set_of_senders(asks):
    once, used = once_only(), {}
    for number, attempt, senders in asks:
        if isinstance(once.first_or_again(ask(number, attempt, senders)), Fetch):
            send(once, number, attempt, senders)
            assert (number, attempt) not in used
            used[number, attempt] = senders
    for number in range(1, 5):
        assert len({senders for (n, _), senders in used.items() if n == number}) <= 1


def test_pads_need_the_key_that_the_others_believe():
    other = OnceOnly("bank", ROSTER.roster, X25519PrivateKey.generate(), next_round=1)
    first, second = send(once_only(), 1), send(other, 1)
    assert (first.values != second.values).all()


@pytest.mark.parametrize("attempt", [0, 1])
@pytest.mark.parametrize("change", [{"users": ("eve",)}, {"arms": (("b",),)}, {"trial": 7}])
def test_attempts_of_a_round_ask_for_the_same_rows(attempt, change):
    once = once_only()
    send(once, 7)
    refused = once.first_or_again(ask(7, attempt)._replace(**change))
    assert isinstance(refused, Reply)
    assert refused.message.code == "pads"
    assert "asks for the same rows" in refused.message.reason


def test_of_an_older_round_only_what_was_sent_for_the_same_ask_is_sent_again():
    """The outbox compares the digests."""
    once = once_only()
    send(once, 6)
    send(once, 7)
    other = ask(6)._replace(users=("eve",))
    assert once.first_or_again(other) == again(other)
    assert again(other).asked != again(ask(6)).asked


def test_pads_go_by_the_roster_as_well():
    """Under another roster other numbers and participants may be meant."""
    after = ROSTER.make_roster({"shop": 1, "bank": 1, "news": 1, "post": 1}, number=2)
    other = OnceOnly("bank", after, ROSTER.sealing["bank"], next_round=1)
    assert (send(once_only(), 1).values != send(other, 1).values).all()
