"""Masks and members change while the federation goes on; a change is whole, or there is none."""

from dataclasses import replace

import numpy as np
import pytest
from fingerprint import fingerprint
from numpy.testing import assert_allclose
from pure_federation import LAYOUTS, MODES, WIDTHS, PureFederation

from vfbandits.core.mask import MaskShare, sample_mask
from vfbandits.errors import HandshakeError, LinkError, MaskError
from vfbandits.protocol.messages import Answer, Declined, Welcome
from vfbandits.protocol.roster import Terms

FOUR = {**WIDTHS, "post": 2}
KINDS = {
    "rotate": (FOUR, None),
    "add": (FOUR, {**FOUR, "rail": 3}),
    "add in front": (FOUR, {"shop": 3, "rail": 3, "bank": 2, "news": 4, "post": 2}),
    "remove": (FOUR, {"shop": 3, "bank": 2, "post": 2}),
    "replace": (FOUR, {"shop": 3, "rail": 3, "post": 2, "bank": 2}),
}


def federation_of(mode, widths=FOUR, **settings):
    mask, aggregation = mode
    return PureFederation(widths, mask=mask, aggregation=aggregation, **settings)


def columns_of(split, names):
    return np.concatenate([np.arange(split.dim)[split.columns(name)] for name in names])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode", MODES)
def test_a_change_carries_the_features_that_stay_from_mask_to_mask(mode, layout, kind):
    before_widths, after_widths = KINDS[kind]
    federation = federation_of(mode, before_widths, layout=layout)
    federation.check_all()
    before, old_mask = federation.active.split, federation.mask()
    remask = federation.change(after_widths)
    after, new_mask = federation.active.split, federation.mask()
    stay = [name for name in before.names if name in after.names]
    wanted = new_mask[:, columns_of(after, stay)] @ old_mask[:, columns_of(before, stay)].T
    assert_allclose(remask.R, wanted, atol=1e-11)
    assert remask.kept == sum(dict(before.items())[name] for name in stay)
    assert federation.active.epoch == 2
    federation.check_all()
    assert {role.epoch for name, role in federation.passive.items() if name in after.names} == {2}


@pytest.mark.parametrize("mode", MODES)
def test_a_new_mask_has_nothing_to_do_with_the_old_one(mode):
    federation = federation_of(mode)
    old = federation.mask()
    federation.change()
    assert np.abs(federation.mask() - old).max() > 1e-3


@pytest.mark.parametrize("mode", MODES)
def test_many_changes_one_after_another(mode):
    federation = federation_of(mode)
    for widths in (None, {**FOUR, "rail": 3}, None, FOUR, {"shop": 3, "bank": 2, "post": 2}, None):
        federation.change(widths)
        federation.check_all()
    assert federation.active.epoch == 7
    assert federation.active.roster.number == 4


def test_all_passive_participants_may_be_replaced_where_nothing_is_summed_in_secret():
    for mode in MODES[:2]:
        federation = federation_of(mode)
        remask = federation.change({"shop": 3, "rail": 2})
        assert remask.kept == 3
        federation.check_all()


@pytest.mark.parametrize("mode", MODES)
def test_rounds_go_on_while_a_change_is_prepared(mode):
    federation = federation_of(mode)
    federation.runs_by_itself = False
    federation.begin_change()
    first = federation.ask(("eve",), (("a", "b"),))
    federation.run()
    assert len(federation.changes) == 1
    second = federation.ask(("eve",), (("a", "b"),))
    with pytest.raises(HandshakeError, match="no open round, got epoch 2, 1 open"):
        federation.active.finish_change()
    federation.run()
    for number in (first, second):
        federation.check(number, tuple(FOUR))
    federation.finish_change()
    federation.run()
    federation.runs_by_itself = True
    federation.check_all()


def test_leavers_are_told_and_are_not_let_in_again():
    federation = federation_of(("dense", "plain"))
    federation.change({"shop": 3, "bank": 2, "post": 2})
    (facts,) = federation.noted("hung_up")
    assert facts["at"] == "news"
    assert facts["reason"].endswith("refused: 'news' is no longer in the roster")
    assert "news" not in federation.active.seats
    assert "news" not in federation.streams
    federation.dial("news")
    assert "wanted a passive participant" in federation.noted("hung_up")[-1]["reason"]
    federation.check_all()


def test_a_newcomer_is_not_let_in_before_the_change_is_in_force():
    federation = federation_of(("dense", "plain"))
    federation.begin_change({**FOUR, "rail": 3})
    federation.signed = federation.active.change.signed_roster
    federation.start("rail")
    assert "wanted a passive participant" in federation.noted("handshake_refused")[-1]["reason"]
    federation.finish_change()
    federation.dial("rail")
    federation.check_all()


def test_a_newcomer_whose_welcome_was_lost_may_come_again():
    """Nothing was learnt behind its share yet: it may have another one."""
    for mode in MODES:
        federation = federation_of(mode, start=False)
        federation.runs_by_itself = False
        for name in FOUR:
            if name != "shop":
                federation.start(name)
        while federation.up:
            federation.deliver_up(*federation.up.popleft())
        federation.hang_up("bank")  # before its welcome came
        federation.run()
        federation.runs_by_itself = True
        federation.dial("bank")
        federation.check_all()


def test_a_share_that_was_lost_is_refused_with_the_way_out_and_the_way_out_works():
    federation = federation_of(("dense", "plain"))
    federation.check_all()
    federation.hang_up("bank")
    federation.disks["bank"].held.clear()
    federation.start("bank")
    reason = federation.noted("hung_up")[-1]["reason"]
    assert "restore it from a backup, or remove 'bank' and add it again" in reason
    assert "bank" not in federation.active.seats
    federation.change({"shop": 3, "news": 4, "post": 2})
    federation.change(FOUR)
    federation.start("bank")
    federation.check_all()


def test_one_that_is_added_again_must_put_its_old_share_away():
    federation = federation_of(("blockwise", "plain"))
    federation.change({"shop": 3, "news": 4, "post": 2})
    federation.change(FOUR)
    old = federation.disks["bank"].held
    federation.disks["bank"].held = {}
    federation.start("bank")
    assert federation.passive["bank"].epoch == 3
    stuck = federation.disks["bank"]
    stuck.held = {1: replace(old[1], signed_roster=federation.signed)}
    federation.active = federation.active.__class__(
        federation.active.roster, federation.active.share, epoch=3
    )
    federation.start("bank")
    assert "delete these first" in federation.noted("hung_up")[-1]["reason"]


# --- changes that cannot be


def test_one_change_at_a_time():
    federation = federation_of(("dense", "plain"))
    federation.runs_by_itself = False
    federation.begin_change()
    with pytest.raises(HandshakeError, match="a change to epoch 2 is under way already"):
        federation.begin_change()


def test_a_change_needs_everybody_that_stays():
    federation = federation_of(("dense", "plain"))
    federation.hang_up("news")
    before = fingerprint(federation.active)
    with pytest.raises(
        HandshakeError, match="every participant and helper that stays; disconnected: news"
    ):
        federation.begin_change()
    assert fingerprint(federation.active) == before
    federation.change({"shop": 3, "bank": 2, "post": 2})  # it may be removed without its help
    federation.check_all()


@pytest.mark.parametrize("mode", MODES)
def test_one_that_is_to_leave_cannot_stop_it(mode):
    federation = federation_of(mode)
    federation.runs_by_itself = False
    federation.begin_change({"shop": 3, "bank": 2, "post": 2})
    number = federation.active.change.gathering.round
    for message in (
        Declined(number, 0, "bad_request", "I want to stay"),
        Answer(number, 0, 2, b"", 1, 1, bytes(8)),
    ):
        federation.hear("news", message)
    federation.hang_up("news")
    federation.run()
    assert not federation.failures
    federation.finish_change()
    federation.runs_by_itself = True
    federation.check_all()


def test_a_change_that_is_not_ready_cannot_be_put_into_force():
    federation = federation_of(("dense", "plain"))
    with pytest.raises(HandshakeError, match="that is ready and no open round, got no change, 0"):
        federation.active.finish_change()
    federation.runs_by_itself = False
    federation.begin_change()
    before = fingerprint(federation.active)
    with pytest.raises(HandshakeError, match="that is ready and no open round, got epoch 2, 0"):
        federation.active.finish_change()
    assert fingerprint(federation.active) == before


def test_round_numbers_never_fall():
    """A change that was planned before some rounds gets a number after them."""
    federation = federation_of(("dense", "secure"))
    change = federation.plan()
    for _ in range(3):
        federation.ask()
    federation.carry_out(federation.active.begin_change(change, federation.now))
    assert change.gathering.round == 4
    assert federation.active.next_round == 5
    federation.run()
    federation.finish_change()
    federation.check_all()


@pytest.mark.parametrize("number", [1, 9])
def test_a_change_from_somewhere_else_is_refused(number):
    federation = federation_of(("dense", "plain"))
    stale = federation.plan()
    again = federation.plan()
    federation.carry_out(federation.active.begin_change(again, 0.0))
    federation.run()
    federation.finish_change()
    before = fingerprint(federation.active)
    with pytest.raises(HandshakeError, match="epoch: wanted one after 2, got 2"):
        federation.active.begin_change(stale, 0.0)
    with pytest.raises(HandshakeError, match="from the masks in force, got one from older masks"):
        federation.active.begin_change(federation.plan(old_share=stale.old_share), 0.0)
    other = federation.make_roster(FOUR, number=number + 1)
    with pytest.raises(HandshakeError, match="wanted a change from the roster in force"):
        federation.active.begin_change(federation.plan(before=other), 0.0)
    assert fingerprint(federation.active) == before


def test_plans_that_cannot_be_are_refused():
    federation = federation_of(("dense", "secure"))
    roster = federation.roster
    with pytest.raises(MaskError, match="'bank' must keep its width 2, got 3"):
        federation.plan({**FOUR, "bank": 3})
    with pytest.raises(HandshakeError, match="secure sums need 2 passive participants that stay"):
        federation.plan({"shop": 3, "bank": 2, "rail": 1, "farm": 1})
    for what, after in (
        ("federation", replace(roster, federation="acne")),
        ("terms", replace(roster, terms=Terms("dense", "plain"))),
        ("session", replace(roster, session="ab" * 16)),
        ("active participant", federation.make_roster({"mall": 3, **FOUR}, number=2)),
    ):
        with pytest.raises(HandshakeError, match=f"^{what}: a live federation has .* and keeps it"):
            federation.plan(after=after)


def test_own_shares_that_do_not_fit_are_refused_before_anything_starts():
    federation = federation_of(("blockwise", "plain"))
    before = fingerprint(federation.active)
    bent = MaskShare(2.0 * sample_mask(3))
    change = federation.plan({"shop": 3, "rail": 2}, share=bent)
    with pytest.raises(MaskError, match="a participant's part is missing or wrong"):
        federation.active.begin_change(change, 0.0)
    assert fingerprint(federation.active) == before


def test_shares_of_those_that_stay_cannot_be_lost_without_notice():
    """They are in use from the first moment of an epoch: the model was carried over to them."""
    federation = federation_of(("dense", "plain"))
    federation.change({**FOUR, "rail": 3})
    assert federation.active.has_share == {"bank", "news", "post"}
    federation.ask()
    assert federation.active.has_share == {"bank", "news", "post", "rail"}
    wanted = {"participant": "rail", "epoch": 2}
    assert federation.noted("share_in_use") == [wanted]


def test_a_part_says_nothing_without_the_shares():
    federation = federation_of(("dense", "secure"))
    federation.runs_by_itself = False
    federation.begin_change()
    federation.run_down()
    parts = [m for _, _, m in federation.up]
    assert {part.epoch for part in parts} == {2}
    for part in parts:
        values = np.frombuffer(part.values, dtype="<u8")
        assert len(np.unique(values)) == len(values)


def test_a_refused_hello_does_not_end_a_change():
    federation = federation_of(("dense", "plain"))
    federation.runs_by_itself = False
    federation.begin_change()
    hello = replace(federation.passive["bank"].hello(), name="mall")
    federation.carry_out(federation.active.join("mall", hello, 0.0))
    assert federation.active.change is not None


def test_hear_needs_a_seat_after_leaving():
    federation = federation_of(("dense", "plain"))
    federation.change({"shop": 3, "bank": 2, "post": 2})
    with pytest.raises(LinkError, match="wanted a hello of 'news' first"):
        federation.active.hear("news", Declined(1, 0, "busy", ""), 0.0)


def test_a_welcome_names_the_epoch_in_force():
    federation = federation_of(("dense", "plain"))
    federation.change()
    federation.runs_by_itself = False
    federation.hang_up("bank")
    federation.dial("bank")
    federation.deliver_up(*federation.up.popleft())
    (welcome,) = [m for _, _, m in federation.down if isinstance(m, Welcome)]
    assert welcome == Welcome(2)
