"""A malicious active participant asks two passive participants for different things.

Pads cancel in a sum only if both ends were asked for the same thing: the same kind of ask, for the
same users and arms in the same order, with the same senders, in the same round and attempt.
Whatever else an active participant adds up is noise.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from pure_federation import PureFederation, features
from worlds import MORE

from vfbandits.core.arrays import PlainBlock
from vfbandits.core.fixed_point import FixedPoint
from vfbandits.protocol.instructions import Fetch, Keep, Reply
from vfbandits.protocol.messages import Answer, Ask, Declined, Prepare
from vfbandits.protocol.signed_roster import sign_roster
from vfbandits.protocol.trial import trial_shares

PASSIVE = ("bank", "news", "post")
BOTH = ("bank", "news")
WIDTHS = {"shop": 3, "bank": 2, "news": 4, "post": 1}
UNKNOWN = frozenset({"nobody", "no one"})
VICTIM = Ask(1, 0, 1, ("victim",), (("tea",),), BOTH)
BOUND = 64.0


def secure_federation():
    return PureFederation(WIDTHS, mask="dense", aggregation="secure", bound=BOUND)


def rows_of(name, ask):
    """The features of a participant, zeros for those that nobody knows."""
    rows = features(name, ask.keys(), WIDTHS[name])
    unknown = [key[0] in UNKNOWN for key in ask.keys()]  # noqa: SIM118  (keys of an ask are rows)
    return PlainBlock(np.where(np.array(unknown)[:, None], 0.0, rows))


def answer_of(federation, name, message):
    """What a passive participant sends when it hears this, or nothing if it declines."""
    role = federation.passive[name]
    todo = role.hear(message)
    if isinstance(todo[0], Fetch):
        rows = role.trial_rows(message) if message.trial else rows_of(name, message)
        todo = role.answer(message, rows)
    answers = [t.message for t in todo if isinstance(t, Reply) and isinstance(t.message, Answer)]
    assert len([t for t in todo if isinstance(t, Keep)]) == len(answers)
    return answers[0] if answers else None


def values_of(answer):
    return np.frombuffer(answer.values, "<u8").reshape(answer.n_rows, answer.n_columns)


def add(*answers):
    """What the active participant gets when it adds messages up."""
    code = FixedPoint(n_terms=len(PASSIVE), bound=BOUND)
    return code.decode(np.sum([values_of(answer) for answer in answers], axis=0, dtype=np.uint64))


def masked_row(federation, name, ask):
    return federation.shares()[name].mask(rows_of(name, ask))


def is_noise(values):
    """Numbers all over the ring, which is 1,024 wide here; sums of rows are a few units large.

    Of noise one in 32 is within 16 units, so that of ten numbers eight or more are in one case of
    10^10.
    """
    assert (np.abs(values) > 16.0).mean() >= 0.3
    return True


# What the other participant is asked meanwhile, and what of its message everybody knows.
DIFFERENT = {
    "an unknown user": VICTIM._replace(users=("nobody",)),
    "an unknown arm": VICTIM._replace(arms=(("no arm",),)),
    "a trial row": VICTIM._replace(trial=7),
    "a trial row of an unknown user": VICTIM._replace(users=("nobody",), trial=7),
    "other senders": VICTIM._replace(users=("victim",), senders=PASSIVE),
    "the unknown user with other senders": VICTIM._replace(users=("nobody",), senders=PASSIVE),
    "another attempt": VICTIM._replace(users=("nobody",), attempt=1),
    "another round": VICTIM._replace(users=("nobody",), round=2),
    "a user and an arm that run together": VICTIM._replace(users=("victimt",), arms=(("ea",),)),
}


@pytest.mark.parametrize("other", DIFFERENT.values(), ids=DIFFERENT)
@pytest.mark.parametrize(("first", "second"), [BOTH, BOTH[::-1]])
def test_two_that_are_asked_for_different_things_add_up_to_noise(first, second, other):
    federation = secure_federation()
    ask = VICTIM
    got = add(answer_of(federation, first, ask), answer_of(federation, second, other))
    known = masked_row(federation, second, other)
    if other.trial:
        rows = federation.passive[second].trial_rows(other)
        known = trial_shares(other.trial, federation.roster)[second].mask(rows)
    assert not np.isclose(got - known, masked_row(federation, first, ask), atol=1e-6).any()
    assert is_noise(got)


def test_the_same_rows_in_another_order_add_up_to_noise():
    """Else sums of unlike rows, and a row twice in one place, would give rows away."""
    federation = secure_federation()
    ask = VICTIM._replace(users=("victim", "nobody"), arms=(("tea",), ("tea",)))
    other = ask._replace(users=("nobody", "victim"))
    got = add(answer_of(federation, "bank", ask), answer_of(federation, "news", other))
    assert not np.isclose(got[0], masked_row(federation, "bank", ask)[0], atol=1e-6).any()
    assert is_noise(got)


def test_three_that_were_asked_with_different_senders_add_up_to_noise():
    """Pads of pairs would cancel all the same: each pair has both ends in this sum."""
    federation = secure_federation()
    got = add(
        answer_of(federation, "bank", VICTIM),
        answer_of(federation, "news", VICTIM._replace(senders=PASSIVE[::-1])),
        answer_of(federation, "post", VICTIM._replace(senders=("post", "news"))),
    )
    assert is_noise(got)


def test_an_unknown_user_shows_a_pad_that_covers_nothing_else():
    """The message of zeros is the pad itself; no other ask has it."""
    federation = secure_federation()
    pad = values_of(answer_of(federation, "news", VICTIM._replace(users=("nobody",))))
    for other in (VICTIM, *DIFFERENT.values()):
        if other.users != ("nobody",) or other != VICTIM._replace(users=("nobody",)):
            fresh = secure_federation_like(federation)
            row = values_of(answer_of(fresh, "bank", other))
            code = FixedPoint(n_terms=len(PASSIVE), bound=BOUND)
            assert is_noise(code.decode(row + pad))


def secure_federation_like(federation):
    """Passive participants as they are after a loss of all that they remember: the worst case."""
    for name in federation.passive:
        federation.disks[name].next_round = 1
        federation.start(name)
    return federation


asks = st.builds(
    Ask,
    st.integers(1, 3),
    st.integers(0, 1),
    st.just(1),
    st.sampled_from([("ann", "bob"), ("bob", "ann"), ("ann", "nobody"), ("nobody", "no one")]),
    st.sampled_from([(("a",), ("b",)), (("b",), ("a",)), (("a",), ("a",))]),
    st.sampled_from([BOTH, PASSIVE, BOTH[::-1]]),
    st.sampled_from([0, 7, 8]),
)


@given(first=asks, second=asks)
@settings(max_examples=40 * MORE, deadline=None)
def test_pads_cancel_if_and_only_if_the_same_was_asked(first, second):
    federation = secure_federation()
    third = answer_of(federation, "post", first) if len(first.senders) == 3 else None
    answers = [
        answer_of(federation, "bank", first),
        answer_of(federation, "news", second),
        *([] if third is None else [third]),
    ]
    same = first == second._replace(senders=first.senders) and set(first.senders) == set(
        second.senders
    )
    if not same:
        assert is_noise(add(*answers))
        return
    if first.trial:
        shares = trial_shares(first.trial, federation.roster)
        rows = {n: federation.passive[n].trial_rows(first) for n in first.senders}
    else:
        shares, rows = federation.shares(), {n: rows_of(n, first) for n in first.senders}
    assert_allclose(add(*answers), sum(shares[n].mask(rows[n]) for n in rows), atol=1e-11)


# --- attempts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        VICTIM._replace(attempt=1, users=("nobody",)),
        VICTIM._replace(attempt=1, arms=(("mate",),)),
        VICTIM._replace(attempt=1, trial=7),
        VICTIM._replace(attempt=1, senders=PASSIVE),
    ],
)
def test_an_attempt_of_a_round_asks_for_the_same_rows_or_is_refused(other):
    federation = secure_federation()
    bank = federation.passive["bank"]
    assert answer_of(federation, "bank", VICTIM) is not None
    (reply,) = bank.hear(other)
    assert isinstance(reply.message, Declined)
    assert reply.message.code == "pads"
    (reply,) = bank.answer(other, rows_of("bank", other))
    assert reply.message.code == "pads"
    assert answer_of(federation, "bank", VICTIM._replace(attempt=1)) is not None


def test_after_a_restart_no_attempt_of_an_old_round_is_answered_anew():
    federation = secure_federation()
    federation.ask(("victim",), (("tea",),))
    federation.start("bank")
    again = VICTIM._replace(senders=PASSIVE)
    assert not isinstance(federation.passive["bank"].hear(again)[0], Fetch)
    for attempt in (0, 1):
        other = again._replace(attempt=attempt, users=("nobody",))
        assert not isinstance(federation.passive["bank"].hear(other)[0], Fetch)


# --- changes of masks --------------------------------------------------------------------------


def envelopes_of(federation, roster=None, epoch=2):
    return federation.deal(roster or federation.roster, epoch)[1]


def test_a_part_of_a_change_and_rows_add_up_to_noise():
    """Ten rows of unknown users are as large as a part of a change, and are zeros."""
    federation = secure_federation()
    dim = federation.roster.split.dim
    envelopes = envelopes_of(federation)
    part = answer_of(federation, "bank", Prepare(2, 1, BOTH, b"", envelopes["bank"]))
    for trial in (0, 7):
        ask = Ask(1, 0, 1, ("nobody",) * dim, (("tea",),) * dim, BOTH, trial)
        fresh = secure_federation_like(federation) if trial else federation
        rows = answer_of(fresh, "news", ask)
        assert rows.n_rows == part.n_rows
        assert is_noise(add(part, rows))


def test_parts_of_two_changes_add_up_to_noise():
    """Another epoch, deal, roster or set of senders is another change."""
    federation = secure_federation()
    envelopes, others = envelopes_of(federation), envelopes_of(federation)
    after = federation.make_roster(WIDTHS, number=2)
    signed = sign_roster(after, federation.ca)
    new_envelopes = envelopes_of(federation, after)
    first = Prepare(2, 1, BOTH, b"", envelopes["bank"])
    part = answer_of(federation, "bank", first)
    for other in (
        Prepare(3, 1, BOTH, b"", envelopes_of(federation, epoch=3)["news"]),
        Prepare(2, 1, BOTH, b"", others["news"]),
        Prepare(2, 1, PASSIVE, b"", envelopes["news"]),
        Prepare(2, 2, BOTH, b"", envelopes["news"]),
        Prepare(2, 1, BOTH, signed, new_envelopes["news"]),
    ):
        federation.disks["news"].held = {1: federation.disks["news"].held[1]}
        fresh = secure_federation_like(federation)
        assert is_noise(add(part, answer_of(fresh, "news", other)))
    federation.disks["news"].held = {1: federation.disks["news"].held[1]}
    fresh = secure_federation_like(federation)
    got = add(part, answer_of(fresh, "news", replace(first, envelope=envelopes["news"])))
    assert np.abs(got).max() <= 2.0  # two partial isometries, and nothing else


# --- honest rounds ----------------------------------------------------------------------------


def test_honest_rounds_trials_changes_and_retries_still_add_up():
    federation = secure_federation()
    federation.check_all()
    number = federation.ask(trial=7)
    federation.check(number, federation.active.split.names)
    federation.change()
    federation.check_all()
    federation.change({**WIDTHS, "mall": 2})
    federation.check_all()
    federation.start("bank")
    federation.check_all()


def test_a_user_that_only_one_knows_is_seen_and_the_documents_say_so():
    """What remains: both are asked for the same user, and all but one have zeros."""
    federation = secure_federation()
    bank = answer_of(federation, "bank", VICTIM)
    ask = VICTIM
    role = federation.passive["news"]
    assert role.hear(ask) == [Fetch(ask)]
    todo = role.answer(ask, PlainBlock(np.zeros((1, WIDTHS["news"]))), missing=1)
    got = add(bank, todo[-1].message)
    assert_allclose(got, masked_row(federation, "bank", ask), atol=1e-11)
