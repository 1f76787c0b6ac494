"""The campaign as a machine: requests change nothing, events do, and a replay ends alike."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_world import ARMS, SPLIT, World, build, first_settings

import vfbandits as vfb
from vfbandits.campaign.machine import Campaign
from vfbandits.campaign.model import Model
from vfbandits.campaign.query import Contexts, Query
from vfbandits.errors import ConflictError
from vfbandits.journal.snapshot import open_sealed, seal_snapshot
from vfbandits.journal.verify import difference

POLICIES = (vfb.LinUCB(beta=0.5), vfb.LinTS(posterior_scale=0.5), vfb.LinGreedy(epsilon=0.3))
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            (
                *("rank", "hold", "activate", "reward", "settle", "configure", "masks", "retract"),
                *("watch", "rearm"),
            )
        ),
        st.integers(0, 2**16),
    ),
    max_size=40,
)


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
@settings(max_examples=60)
@given(steps=STEPS, data=st.data())
def test_a_replay_from_any_snapshot_ends_where_the_live_run_did(policy, steps, data):
    world = World(policy)
    for step in steps:
        world.step(*step)
    live = world.campaign
    cut = data.draw(st.integers(0, len(world.events)))
    first = build(policy)
    for position, event in enumerate(world.events[:cut], start=1):
        first.replay(position, event)
    sealed = seal_snapshot(first.model.snapshot())
    replayed = Campaign(Model.restore(cut, open_sealed(sealed)), first_settings(policy))
    for position, event in enumerate(world.events[cut:], start=cut + 1):
        replayed.replay(position, event)
    assert difference(replayed.model.snapshot(), live.model.snapshot()) is None
    assert replayed.settings == live.settings
    contexts = Contexts(np.full((3, 5), 0.1), SPLIT.names, split=SPLIT)
    answers = [
        one.rank(Query("ann", ARMS), contexts, event_id="next", now=world.now).event.note
        for one in (live, replayed)
    ]
    assert answers[0] == answers[1]


def test_a_request_about_an_event_that_is_not_in_memory_asks_for_its_history():
    world = World(POLICIES[0])
    for number in range(6):  # two more than are kept
        world.step("rank", number)
    gone = "event 1"
    assert gone not in world.campaign.model.pending
    assert world.campaign.reward(gone, 1.0, now=world.now) is None
    assert world.campaign.activate(gone, now=world.now) is None
    verdict = world.campaign.reward(gone, 1.0, now=world.now, past=world.past(gone))
    assert (verdict.status, verdict.event.recalled.opened) == ("learnt", 1)


def test_an_event_that_is_held_takes_no_reward_before_it_is_activated():
    world = World(POLICIES[0])
    world.step("hold", 0)
    with pytest.raises(ConflictError, match="is held; activate it"):
        world.campaign.reward("event 1", 1.0, now=world.now)
    world.apply(world.campaign.activate("event 1", now=world.now).event)
    assert world.campaign.reward("event 1", 1.0, now=world.now).status == "learnt"
    again = world.campaign.activate("event 1", now=world.now)
    assert (again.status, again.event) == ("repeated", None)
