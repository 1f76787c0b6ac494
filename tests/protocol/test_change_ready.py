"""Once all parts of a change have come nothing stops it, and nobody is left behind."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pure_federation import MODES, WIDTHS, PureFederation
from worlds import MORE

from vfbandits.protocol.messages import Answer, Commit, Declined, Refused

FOUR = {**WIDTHS, "post": 2}


def federation_of(mode, widths=FOUR, **settings):
    mask, aggregation = mode
    return PureFederation(widths, mask=mask, aggregation=aggregation, **settings)


def ready(mode, widths=None):
    federation = federation_of(mode)
    federation.begin_change(widths)
    assert len(federation.changes) == 1
    return federation


@pytest.mark.parametrize("mode", MODES)
def test_a_change_that_is_ready_is_not_given_up(mode):
    federation = ready(mode)
    number = federation.active.change.gathering.round
    federation.hang_up("post")
    federation.carry_out(
        federation.active.hear("bank", Declined(number, 0, "bad_request", ""), federation.now)
    )
    part = Answer(number, 0, 2, b"", 1, 1, bytes(8))
    federation.hear("bank", part)
    federation.wait(100.0)
    assert not federation.failures
    assert len(federation.changes) == 1
    federation.finish_change()
    federation.dial("post")
    federation.check_all()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("restarts", [False, True])
def test_one_that_comes_back_too_early_waits_a_moment_and_keeps_its_new_share(mode, restarts):
    federation = ready(mode)
    federation.hang_up("post")
    back = federation.start if restarts else federation.dial
    back("post")
    assert "mask change to epoch 2" in federation.noted("hung_up")[-1]["reason"]
    assert set(federation.disks["post"].held) == {1, 2}
    federation.finish_change()
    back("post")
    federation.check_all()


def test_being_early_is_no_matter_of_terms():
    federation = ready(("blockwise", "plain"))
    federation.runs_by_itself = False
    federation.hang_up("post")
    federation.dial("post")
    federation.deliver_up(*federation.up.popleft())
    (refused,) = [m for _, _, m in federation.down if isinstance(m, Refused)]
    assert refused.code == "busy"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("widths", [None, {**FOUR, "rail": 3}, {"shop": 3, "bank": 2, "post": 2}])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("active_restarts", [False, True])
def test_a_commit_that_was_lost_is_made_up_by_the_next_welcome(
    mode, widths, restarts, active_restarts
):
    federation = ready(mode, widths)
    federation.runs_by_itself = False
    federation.finish_change()
    federation.hang_up("post")
    federation.run()
    assert federation.passive["post"].epoch == 1
    federation.runs_by_itself = True
    if active_restarts:
        federation.restart_active()
        for name in set(federation.active.split.passive) & set(federation.passive) - {"post"}:
            federation.dial(name)
    (federation.start if restarts else federation.dial)("post")
    if "rail" in federation.active.split.names:
        federation.start("rail")
    federation.check_all()


@pytest.mark.parametrize("mode", MODES)
def test_a_commit_that_was_lost_is_made_up_by_the_next_ask(mode):
    federation = ready(mode)
    federation.runs_by_itself = False
    federation.finish_change()
    federation.down = type(federation.down)(
        entry for entry in federation.down if not isinstance(entry[2], Commit)
    )
    federation.runs_by_itself = True
    assert {role.epoch for role in federation.passive.values()} == {1}
    federation.check_all()
    assert {role.epoch for role in federation.passive.values()} == {2}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["bank", "post"])
@pytest.mark.parametrize("after", range(8))
def test_a_participant_killed_at_any_point_of_a_change_ends_in_the_right_epoch(mode, name, after):
    federation = federation_of(mode)
    federation.ask()
    federation.crash_in[name] = after
    federation.begin_change({**FOUR, "rail": 3})
    if federation.changes:
        federation.finish_change()
        federation.start("rail")
    else:
        assert "left" in federation.failures[0].reason
    federation.crash_in.clear()
    if name not in federation.streams:
        federation.start(name)
    federation.check_all()
    assert federation.active.epoch == 1 + len(federation.changes)
    assert all(set(disk.held) == {federation.active.epoch} for disk in federation.disks.values())
    assert all(len(sent) == 1 for sent in federation.under_pads.values())


@given(mode=st.sampled_from(MODES), data=st.data())
@settings(max_examples=30 * MORE)
def test_whatever_breaks_in_a_change_everybody_ends_behind_one_mask(mode, data):
    federation = federation_of(mode)
    federation.runs_by_itself = False
    federation.begin_change()
    names = st.sampled_from(["bank", "news", "post"])
    for _ in range(data.draw(st.integers(0, 12))):
        deed = data.draw(st.sampled_from(["down", "up", "cut", "restart", "finish", "wait"]))
        if deed == "down" and federation.down:
            federation.deliver_down(*federation.down.popleft())
        elif deed == "up" and federation.up:
            federation.deliver_up(*federation.up.popleft())
        elif deed == "cut":
            federation.hang_up(data.draw(names))
        elif deed == "restart":
            name = data.draw(names)
            federation.hang_up(name)
            federation.start(name)
        elif deed == "wait":
            federation.wait(1.0)
        elif deed == "finish" and federation.active.change and federation.active.change.is_ready:
            federation.finish_change()
    federation.runs_by_itself = True
    federation.run()
    if federation.active.change is not None and federation.active.change.is_ready:
        federation.finish_change()
    for name in ("bank", "news", "post"):
        if name not in federation.streams:
            federation.start(name)
    federation.check_all()
    assert len(federation.changes) + len(federation.failures) <= 1
