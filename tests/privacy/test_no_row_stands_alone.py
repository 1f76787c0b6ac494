"""A malicious active participant tries to have one participant's row alone in a secure sum.

It exhausts a quota, asks for users that one participant does not know, asks again, and asks with
other senders.  All messages that it ever got are then added and subtracted in every way: what
comes out is noise, or the sum of *all* rows.
"""

from functools import cache
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pure_federation import PureFederation, features
from worlds import MORE

from vfbandits.core.fixed_point import FixedPoint
from vfbandits.protocol.instructions import Fetch, Reply
from vfbandits.protocol.messages import Answer, Ask, Declined

BOTH = ("bank", "news")
WIDTHS = {"shop": 5, "bank": 2, "news": 4}
BOUND = 64.0
CODE = FixedPoint(n_terms=2, bound=BOUND)
NAMED_BY = ["clear", "pseudonyms"]


class Attacker:
    """Plays the active participant by hand; ``got`` are all answers.

    What a passive participant does not know, or no longer answers about, is in ``unknown_at`` of
    the federation.
    """

    def __init__(self, users="clear"):
        self.federation = PureFederation(
            WIDTHS, mask="dense", aggregation="secure", layout="disjoint", bound=BOUND, users=users
        )
        self.federation.everyone = {"victim", "ann"}
        self.got = []
        self.round = 0

    def exhaust(self, name):
        self.federation.unknown_at[name].add("victim")

    def ask(self, *users, **other):
        self.round += 1
        return Ask(self.round, 0, self.federation.active.epoch, users, (), BOTH)._replace(**other)

    def say(self, name, ask):
        """What a participant replies; None if it sends old bytes again."""
        role = self.federation.passive[name]
        if role.pseudonyms is not None:
            ask = ask._replace(users=role.pseudonyms.of_all(ask.users))
        todo = role.hear(ask)
        if isinstance(todo[0], Fetch):
            todo = self.federation.fetched(name, ask)
        messages = [do.message for do in todo if isinstance(do, Reply)]
        message = messages[0] if messages else None
        if isinstance(message, Answer):
            self.got.append(message)
        return message

    def rows(self, user):
        """The masked row of each participant."""
        shares = self.federation.shares()
        return [shares[n].mask(features(n, [(user,)], WIDTHS[n]))[0] for n in BOTH]

    def shows(self, row):
        """Whether this row is a sum or difference of rows that came, in whatever selection."""
        lines = [np.frombuffer(one.values, "<u8").reshape(one.n_rows, -1) for one in self.got]
        if not lines:
            return False
        parts = np.unique(np.concatenate(lines), axis=0)
        found = CODE.decode(selections(len(parts)) @ parts)
        return bool(np.isclose(found, row, atol=1e-9).all(axis=1).any())

    def isolates(self, user):
        return any(self.shows(row) for row in self.rows(user))


@cache
def selections(n_parts):
    """Plus one, minus one or zero for each part; of many parts, up to four at a time."""
    signs = np.array([1, 2**64 - 1], dtype=np.uint64)
    chosen = []
    for size in range(1, (n_parts if n_parts <= 8 else 4) + 1):
        for places in combinations(range(n_parts), size):
            for some in product(signs, repeat=size):
                line = np.zeros(n_parts, dtype=np.uint64)
                line[list(places)] = some
                chosen.append(line)
    return np.array(chosen)


@pytest.mark.parametrize("users", NAMED_BY)
def test_the_attacker_sees_the_sum_of_a_user_that_all_answer_about(users):
    """The tests below could find a row if there were one."""
    attacker = Attacker(users)
    ask = attacker.ask("victim")
    for name in BOTH:
        assert isinstance(attacker.say(name, ask), Answer)
    assert attacker.shows(sum(attacker.rows("victim")))
    assert not attacker.isolates("victim")


@pytest.mark.parametrize("users", NAMED_BY)
@pytest.mark.parametrize("asked_before", [False, True])
@pytest.mark.parametrize("exhausted", BOTH)
def test_exhausting_one_quota_does_not_isolate_the_other(exhausted, asked_before, users):
    """Nor do rounds before it was exhausted, second attempts, or other users beside the victim."""
    attacker = Attacker(users)
    asks = [("victim",), ("ann", "victim"), ("victim", "ann")]
    if asked_before:
        ask = attacker.ask("victim")
        assert all(isinstance(attacker.say(name, ask), Answer) for name in BOTH)
    attacker.exhaust(exhausted)
    for wanted in asks:
        ask = attacker.ask(*wanted)
        for attempt in (ask, ask._replace(attempt=1)):
            for name in BOTH:
                attacker.say(name, attempt)
    withheld = [one.withheld for one in attacker.got if one.withheld]
    assert withheld == [(0,), (0,), (1,), (1,), (0,), (0,)]
    assert not attacker.isolates("victim")
    assert attacker.shows(sum(attacker.rows("victim"))) == asked_before
    assert attacker.shows(sum(attacker.rows("ann")))  # one user costs another nothing


@pytest.mark.parametrize("senders", [("bank",), ("news", "mall"), (), ("bank", "shop")])
def test_the_senders_of_a_user_never_change_within_an_epoch(senders):
    attacker = Attacker()
    for name in BOTH:
        assert isinstance(attacker.say(name, attacker.ask("victim")), Answer)
        said = attacker.say(name, attacker.ask("victim", senders=senders))
        assert isinstance(said, Declined)


def test_three_participants_are_never_summed_by_two():
    federation = PureFederation(
        {**WIDTHS, "post": 1}, mask="dense", aggregation="secure", layout="disjoint"
    )
    for senders in (("bank", "news"), ("bank", "post"), ("bank",)):
        (reply,) = federation.passive["bank"].hear(Ask(1, 0, 1, ("victim",), (), senders))
        assert isinstance(reply.message, Declined)
        assert reply.message.reason == (
            "the senders of a secure sum are bank, news, post, each named once"
        )


DEEDS = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "ask", "exhaust", "restart"]),
        st.sampled_from(BOTH),
        st.lists(st.sampled_from(["victim", "ann"]), min_size=1, max_size=2, unique=True),
        st.booleans(),
    ),
    max_size=10,
)


@given(deeds=DEEDS, users=st.sampled_from(NAMED_BY))
@settings(max_examples=25 * MORE, deadline=None)
def test_whatever_is_asked_in_whatever_order_no_row_is_isolated(deeds, users):
    """The same numbers for both or not, before and after a quota is used up or a restart."""
    attacker = Attacker(users)
    for deed, name, asked, is_new in deeds:
        if deed == "exhaust":
            attacker.exhaust(name)
            continue
        if deed == "restart":
            attacker.federation.disks[name].next_round = attacker.round + 1
            attacker.federation.start(name)
            continue
        ask = attacker.ask(*asked)
        if not is_new and attacker.round > 1:
            attacker.round -= 1
            ask = ask._replace(round=attacker.round)
        for other in (name, *(n for n in BOTH if n != name)):
            attacker.say(other, ask)
    assert not attacker.isolates("victim")
