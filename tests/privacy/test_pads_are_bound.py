"""A malicious active participant asks two passive participants for different things.

Pads cancel in a sum only if both ends were asked for the same thing: the same kind of ask, for the
same users and arms in the same order, in the same round and attempt, and if both have the rows.
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

BOTH = ("bank", "news")
WIDTHS = {"shop": 3, "bank": 2, "news": 4}
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
        keys = () if message.trial else message.keys()
        absent = [place for place, key in enumerate(keys) if key[0] in UNKNOWN]
        todo = role.answer(message, rows, absent=absent)
    answers = [t.message for t in todo if isinstance(t, Reply) and isinstance(t.message, Answer)]
    assert len([t for t in todo if isinstance(t, Keep)]) == len(answers)
    return answers[0] if answers else None


def values_of(answer):
    return np.frombuffer(answer.values, "<u8").reshape(answer.n_rows, answer.n_columns)


def add(*answers):
    """What the active participant gets when it adds messages up."""
    code = FixedPoint(n_terms=len(BOTH), bound=BOUND)
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
    "another attempt": VICTIM._replace(users=("nobody",), attempt=1),
    "another round": VICTIM._replace(users=("nobody",), round=2),
    "a user and an arm that run together": VICTIM._replace(users=("victimt",), arms=(("ea",),)),
    "another campaign": VICTIM._replace(campaigns=("spring",)),
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


@pytest.mark.parametrize("senders", [BOTH, ("bank", "post"), ("news", "post"), ("bank",), ()])
def test_with_other_senders_than_all_nothing_is_sent(senders):
    """Two sums of one user, with a participant and without it, would differ by its row."""
    federation = PureFederation({**WIDTHS, "post": 1}, mask="dense", aggregation="secure")
    assert answer_of(federation, "bank", VICTIM._replace(senders=senders)) is None
    assert answer_of(federation, "bank", VICTIM._replace(senders=(*BOTH, "post"))) is not None


def test_an_unknown_user_shows_no_pad():
    """Under its pad alone, a row of zeros would be the pad."""
    federation = secure_federation()
    pad = values_of(answer_of(federation, "news", VICTIM._replace(users=("nobody",))))
    for other in (VICTIM, VICTIM._replace(users=("nobody",)), *DIFFERENT.values()):
        fresh = secure_federation_like(federation)
        row = values_of(answer_of(fresh, "bank", other))
        code = FixedPoint(n_terms=len(BOTH), bound=BOUND)
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
    st.sampled_from([BOTH, BOTH[::-1]]),
    st.sampled_from([0, 7, 8]),
    st.sampled_from([(), ("spring",), ("spring", "autumn")]),
    st.none(),  # a slot is for secret shares
)


@given(first=asks, second=asks)
@settings(max_examples=40 * MORE, deadline=None)
def test_pads_cancel_if_and_only_if_the_same_was_asked(first, second):
    federation = secure_federation()
    got = add(answer_of(federation, "bank", first), answer_of(federation, "news", second))
    for place, (one, other) in enumerate(zip(first.keys(), second.keys(), strict=True)):
        is_same = (first[:3], first.trial) == (second[:3], second.trial)
        if first.trial:  # its pads are of all its rows together
            is_same &= (first.keys(), first.campaigns) == (second.keys(), second.campaigns)
        else:
            campaigns = first.campaign_of_each[place], second.campaign_of_each[place]
            is_same &= one == other and campaigns[0] == campaigns[1]
        if not is_same or (not first.trial and one[0] in UNKNOWN):
            assert is_noise(got[place])
            continue
        shares = federation.shares()
        rows = {name: rows_of(name, first) for name in BOTH}
        if first.trial:
            shares = trial_shares(first.trial, federation.roster)
            rows = {name: federation.passive[name].trial_rows(first) for name in BOTH}
        wanted = sum(shares[name].mask(rows[name])[place] for name in BOTH)
        assert_allclose(got[place], wanted, atol=1e-11)


# --- attempts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "other",
    [
        VICTIM._replace(attempt=1, users=("nobody",)),
        VICTIM._replace(attempt=1, arms=(("mate",),)),
        VICTIM._replace(attempt=1, trial=7),
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
    again = VICTIM
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
    """Another epoch, deal or roster is another change."""
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


def test_a_row_that_only_one_has_is_not_seen():
    """The other sends noise: zeros under its pads would leave the row alone in the sum."""
    federation = secure_federation()
    bank = answer_of(federation, "bank", VICTIM)
    role = federation.passive["news"]
    assert role.hear(VICTIM) == [Fetch(VICTIM)]
    todo = role.answer(VICTIM, PlainBlock(np.zeros((1, WIDTHS["news"]))), absent=[0])
    assert todo[-1].message.withheld == (0,)
    assert is_noise(add(bank, todo[-1].message))


# --- asks by pseudonyms -------------------------------------------------------------------------


def asked_by_pseudonyms(federation, name, ask):
    """What a passive participant sends to an ask that names users as it stands here."""
    role = federation.passive[name]
    assert role.hear(ask) == [Fetch(ask)]
    return federation.fetched(name, ask)[-1].message


def named(federation, name, user):
    return federation.passive[name].pseudonyms.of(user)


def federation_by_pseudonyms():
    federation = PureFederation(
        WIDTHS, mask="dense", aggregation="secure", bound=BOUND, users="pseudonyms"
    )
    federation.everyone = {"victim", "other"}
    return federation


# What news is asked for, while bank is asked for the victim.
MEANWHILE = {
    "another user": lambda federation: named(federation, "news", "other"),
    "a user that it does not know": lambda federation: named(federation, "news", "nobody"),
    "what bank calls the victim": lambda federation: named(federation, "bank", "victim"),
    "the victim's id": lambda _: "victim",
}


@pytest.mark.parametrize("pseudonym", MEANWHILE.values(), ids=MEANWHILE)
def test_two_that_are_asked_by_pseudonyms_for_different_users_add_up_to_noise(pseudonym):
    """Pads go by the user that a pseudonym leads to, whatever travelled."""
    federation = federation_by_pseudonyms()
    bank = VICTIM._replace(users=(named(federation, "bank", "victim"),))
    news = VICTIM._replace(users=(pseudonym(federation),))
    answers = [
        asked_by_pseudonyms(federation, "bank", bank),
        asked_by_pseudonyms(federation, "news", news),
    ]
    assert is_noise(add(*answers))


def test_the_same_user_by_two_pseudonyms_adds_up():
    federation = federation_by_pseudonyms()
    answers = [
        asked_by_pseudonyms(
            federation, name, VICTIM._replace(users=(named(federation, name, "victim"),))
        )
        for name in BOTH
    ]
    assert_allclose(
        add(*answers), sum(masked_row(federation, name, VICTIM) for name in BOTH), atol=1e-11
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"users": (1, 0), "arms": (("tea",), ("tea",))},
        {"users": (0, 1), "arms": (("mate",), ("tea",))},
        {"users": (0, 0), "arms": (("tea",), ("tea",))},
    ],
)
def test_rows_of_users_in_another_order_or_with_other_arms_add_up_to_noise(changes):
    federation = federation_by_pseudonyms()
    users = ("victim", "other")
    bank = tuple(named(federation, "bank", user) for user in users)
    news = tuple(named(federation, "news", users[place]) for place in changes["users"])
    first = VICTIM._replace(users=bank, arms=(("tea",), ("tea",)))
    second = VICTIM._replace(users=news, arms=changes["arms"])
    got = add(
        asked_by_pseudonyms(federation, "bank", first),
        asked_by_pseudonyms(federation, "news", second),
    )
    differs = [
        place
        for place in (0, 1)
        if (changes["users"][place], changes["arms"][place]) != (place, ("tea",))
    ]
    assert is_noise(got[differs])


@pytest.mark.parametrize("unknown", ["victim", ("victim", "tea")])
def test_by_pseudonyms_a_row_that_only_one_has_is_not_seen(unknown):
    """The other sends noise, whether it lacks the user or the arm."""
    federation = federation_by_pseudonyms()
    federation.unknown_at["news"] = {unknown}
    answers = [
        asked_by_pseudonyms(
            federation, name, VICTIM._replace(users=(named(federation, name, "victim"),))
        )
        for name in BOTH
    ]
    assert [answer.withheld for answer in answers] == [(), (0,)]
    assert is_noise(add(*answers))
