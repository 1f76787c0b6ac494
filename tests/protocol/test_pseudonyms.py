"""Pseudonyms: one secret for each pair, the same rows as with ids, and no id in a message."""

from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.testing import assert_allclose
from pure_federation import LAYOUTS, MODES, PureFederation

from vfbandits.errors import ConfigError, IdentityError
from vfbandits.protocol.messages import Answer, Ask, Declined
from vfbandits.protocol.pseudonyms import CACHED, Pseudonyms, pseudonyms_between
from vfbandits.protocol.roster import Roster, Terms

WIDTHS = {"shop": 3, "bank": 2, "news": 4, "post": 1}
USERS = ("ann", "bob", "eve")
ARMS = (("a", "b"), ("b", "c", "d"), ("a",))


def federation_by_pseudonyms(mode=("dense", "secure"), layout="per_arm"):
    mask, aggregation = mode
    return PureFederation(
        WIDTHS, mask=mask, aggregation=aggregation, layout=layout, users="pseudonyms"
    )


def between(federation, own, other, roster=None):
    return pseudonyms_between(roster or federation.roster, own, other, federation.sealing[own])


def test_both_ends_of_a_pair_have_the_same_pseudonyms_and_no_other_pair_has():
    federation = federation_by_pseudonyms()
    names = {name: between(federation, "shop", name) for name in ("bank", "news", "post")}
    for name, ours in names.items():
        assert ours == between(federation, name, "shop")
    assert len({ours.of("ann") for ours in names.values()}) == 3
    assert between(federation, "bank", "news").of("ann") not in [
        n.of("ann") for n in names.values()
    ]


def test_pseudonyms_belong_to_a_federation_and_outlive_its_rosters():
    federation = federation_by_pseudonyms()
    first, roster = between(federation, "shop", "bank"), federation.roster
    later = federation.make_roster({**WIDTHS, "mall": 2}, number=2)
    assert between(federation, "shop", "bank", later) == first
    for other in (replace(roster, federation="fair"), replace(roster, session="ab" * 16)):
        assert between(federation, "shop", "bank", other) != first
    federation.sealing["bank"] = X25519PrivateKey.generate()
    renewed = federation.make_roster(WIDTHS, number=2)
    assert between(federation, "shop", "bank", renewed) != first


def test_a_key_that_the_roster_does_not_name_makes_no_pseudonyms():
    federation = federation_by_pseudonyms()
    roster = federation.roster
    with pytest.raises(IdentityError, match="the sealing key of 'shop' must be"):
        pseudonyms_between(roster, "shop", "bank", X25519PrivateKey.generate())
    with pytest.raises(IdentityError, match="wanted a participant of the roster, got 'nobody'"):
        pseudonyms_between(roster, "shop", "nobody", federation.sealing["shop"])
    low = [replace(m, sealing_key="00" * 32) if m.name == "bank" else m for m in roster]
    with pytest.raises(IdentityError, match="the sealing key of 'bank' cannot be used"):
        between(federation, "shop", "bank", replace(roster, members=tuple(low)))


def test_pseudonyms_are_remembered_up_to_a_bound_and_show_no_key():
    names = Pseudonyms(b"k" * 32)
    assert {len(names.of(f"user-{k}")) for k in range(3)} == {32}
    assert names.of.cache_info().maxsize == CACHED
    assert names.of("\ud800") != names.of("")
    assert "kkk" not in repr(names)
    assert names != b"k" * 32


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode", MODES)
def test_rounds_by_pseudonyms_have_the_same_contexts_and_no_message_has_an_id(mode, layout):
    federation = federation_by_pseudonyms(mode, layout)
    federation.runs_by_itself = False
    number = federation.ask(USERS, ARMS)
    asks = {name: message for name, _, message in federation.down if isinstance(message, Ask)}
    assert [*asks] == ["bank", "news", "post"]
    told = [user for ask in asks.values() for user in ask.users]
    assert len({*told}) == 9
    assert not {*told} & {*USERS}
    federation.run()
    federation.check(number, WIDTHS)


def test_a_trial_names_its_invented_users_to_everybody():
    federation = federation_by_pseudonyms()
    number = federation.ask(trial=7)
    federation.check(number, WIDTHS)


def test_pseudonyms_stay_through_changes_of_masks_and_members_retries_and_restarts():
    federation = federation_by_pseudonyms()
    federation.check_all()
    federation.change({**WIDTHS, "mall": 2})
    federation.check_all()
    federation.start("bank")
    federation.restart_active(first_round=federation.active.next_round)
    for name in federation.active.split.passive:
        federation.dial(name)
    federation.check_all()
    federation.runs_by_itself = False
    number = federation.ask(USERS, ARMS)
    federation.hear("bank", Declined(number, 0, "lost_bytes", ""))
    federation.run()
    assert federation.noted("round_retried")
    federation.check(number, federation.active.split.names)


# --- a user that one of them does not know ------------------------------------------------------


@pytest.mark.parametrize("mode", MODES[:2])
def test_without_secure_sums_an_unknown_user_is_zeros_of_the_one_that_does_not_know_it(mode):
    federation = federation_by_pseudonyms(mode)
    federation.unknown_at["bank"] = {"bob"}
    number = federation.ask(USERS, ARMS)
    rows = slice(2, 5)
    got = federation.gathered[number].contexts
    assert_allclose(got[rows], federation.expected(number, ("shop", "news", "post"))[rows])
    assert_allclose(got[:2], federation.expected(number, WIDTHS)[:2])


def test_in_a_secure_sum_a_user_that_one_does_not_know_counts_for_none_of_them():
    """Else zeros of all but one would show the row of that one."""
    federation = federation_by_pseudonyms()
    federation.unknown_at["bank"], federation.unknown_at["post"] = {"bob"}, {"bob"}
    number = federation.ask(USERS, ARMS)
    got, rows = federation.gathered[number], slice(2, 5)
    assert_allclose(got.contexts[rows], federation.expected(number, ("shop",))[rows], atol=1e-11)
    others = [0, 1, 5]
    wanted = federation.expected(number, WIDTHS)
    assert_allclose(got.contexts[others], wanted[others], atol=1e-11)
    assert (got.contributors, got.alone) == (tuple(WIDTHS), {1})


def test_in_a_secure_sum_an_arm_that_one_does_not_know_counts_for_none_of_them():
    federation = federation_by_pseudonyms()
    federation.unknown_at["bank"] = {("bob", "c")}
    number = federation.ask(USERS, ARMS)
    got, wanted = federation.gathered[number], federation.expected(number, WIDTHS)
    wanted[3] = federation.expected(number, ("shop",))[3]
    assert_allclose(got.contexts, wanted, atol=1e-11)
    assert got.alone == frozenset()


@pytest.mark.parametrize("places", [(6,), (0, 6), (2**32 - 1,)])
def test_a_place_that_no_row_has_is_refused(places):
    federation = federation_by_pseudonyms()
    federation.runs_by_itself = False
    number = federation.ask(USERS, ARMS)
    federation.run_down()
    answer = federation.sent_by("bank", Answer)
    federation.hear("bank", answer._replace(withheld=places))
    (refused,) = federation.noted("answer_refused")
    assert refused["reason"] == f"withheld rows: wanted places below 6, got {places[-1]}"
    federation.run()
    assert federation.gathered[number].contributors == ("shop",)


def test_an_answer_without_ids_is_declined_before_pads_are_used():
    federation = federation_by_pseudonyms()
    federation.runs_by_itself = False
    federation.ask(USERS, ARMS)
    bank = federation.passive["bank"]
    (ask,) = [m for name, _, m in federation.down if name == "bank" and isinstance(m, Ask)]
    (fetch,) = bank.hear(ask)
    rows = np.zeros((6, 2))
    for users in (None, USERS[:2]):
        (reply,) = bank.answer(fetch.ask, rows, users=users)
        assert isinstance(reply.message, Declined)
        assert "wanted the ids of 3 pseudonyms" in reply.message.reason


# --- the terms ----------------------------------------------------------------------------------


def test_a_roster_without_the_term_has_ids_in_the_clear_and_keeps_its_digest():
    roster = PureFederation().roster
    assert roster.terms.users == "clear"
    document = roster.to_bytes()
    assert b"users" not in document
    assert Roster.from_bytes(document).digest == roster.digest
    hidden = federation_by_pseudonyms().roster
    assert Roster.from_bytes(hidden.to_bytes()) == hidden
    assert replace(hidden, terms=replace(hidden.terms, users="clear")).digest != hidden.digest


def test_terms_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="users must be one of clear, pseudonyms"):
        Terms(users="hashed")
    with pytest.raises(ConfigError, match="session, which pseudonyms need"):
        replace(federation_by_pseudonyms(MODES[0]).roster, session="")
    with pytest.raises(IdentityError, match="need the sealing key of 'shop'"):
        type(federation_by_pseudonyms().active)(
            federation_by_pseudonyms().roster, federation_by_pseudonyms().active.share, epoch=1
        )


def test_a_participant_with_other_terms_is_told_both():
    federation = federation_by_pseudonyms()
    hello = replace(federation.passive["bank"].hello(), users="clear")
    federation.carry_out(federation.active.join("bank", hello, 0.0))
    (refused,) = federation.noted("handshake_refused")
    assert refused["reason"] == (
        "users: the active participant has 'pseudonyms', 'bank' has 'clear'"
    )
