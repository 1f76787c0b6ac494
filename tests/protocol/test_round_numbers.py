"""Round numbers only grow, and no passive participant can take them away from the others."""

from dataclasses import replace

import pytest
from pure_federation import MODES, PureFederation

from vfbandits.protocol.handshake import MAX_ROUND_STEP

PASSIVE = ("bank", "news", "post")
WIDTHS = {"shop": 3, "bank": 2, "news": 4, "post": 1}


def say_hello(federation, name, next_round):
    hello = replace(federation.passive[name].hello(), next_round=next_round)
    federation.hang_up(name)
    federation.active.join(name, hello, federation.now)
    federation.active.leave(name, federation.now)


@pytest.mark.parametrize(("mask", "aggregation"), MODES)
@pytest.mark.parametrize("said", [MAX_ROUND_STEP, 1 << 48, (1 << 63) - 1])
def test_a_lie_about_the_round_locks_nobody_out(mask, aggregation, said):
    """Neither now, nor when the others or the active participant start again."""
    federation = PureFederation(WIDTHS, mask=mask, aggregation=aggregation)
    federation.check_all()
    say_hello(federation, "bank", said)
    number = federation.ask()
    alone = aggregation == "secure"  # of secure sums all are asked, or nobody
    federation.check(number, ("shop",) if alone else ("shop", "news", "post"))
    for name in PASSIVE:
        # What it has on disk is up to a thousand above what it sent.
        federation.disks[name].next_round += 1_000
        federation.start(name)
    federation.check_all()
    federation.restart_active(first_round=federation.active.next_round)
    for name in PASSIVE:
        federation.dial(name)
    federation.check_all()


@pytest.mark.parametrize("others_at", [1_001, 10**9, MAX_ROUND_STEP])
def test_an_active_participant_that_lost_its_round_catches_up_with_the_first_hellos(others_at):
    federation = PureFederation(WIDTHS, mask="dense", aggregation="secure")
    federation.check_all()
    federation.restart_active()
    for name in PASSIVE:
        federation.disks[name].next_round = others_at
        federation.start(name)
    federation.check_all()
    assert federation.active.next_round > others_at
    assert all(len(sent) == 1 for sent in federation.under_pads.values())
