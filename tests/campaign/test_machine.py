"""The campaign as a machine: requests change nothing, events do, and a replay ends alike."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_world import ARMS, SPLIT, World, build, first_settings

import vfbandits as vfb
from vfbandits.campaign.events import Decided, MasksChanged, Restored, Retracted, Rewarded
from vfbandits.campaign.machine import Campaign
from vfbandits.campaign.model import Model
from vfbandits.campaign.query import Contexts, Query
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.errors import ConflictError
from vfbandits.journal.snapshot import open_sealed, seal_snapshot
from vfbandits.journal.verify import difference

POLICIES = (vfb.LinUCB(beta=0.5), vfb.LinTS(posterior_scale=0.5), vfb.LinGreedy(epsilon=0.3))
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            (
                *("rank", "hold", "activate", "reward", "settle", "configure", "masks", "retract"),
                *("watch", "rearm", "export", "restore"),
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
        one.rank(Query("ann", ARMS), contexts, event_id="next", now=world.now).event.answer
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


def test_a_reward_before_the_activation_is_learnt_at_the_end_of_the_wait_that_follows():
    world = World(POLICIES[0])
    world.step("hold", 0)
    early = world.campaign.reward("event 1", 1.0, now=world.now)
    assert early.status == "counted"
    world.apply(early.event)
    assert world.campaign.reward("event 1", 1.0, now=world.now).status == "repeated"
    world.apply(world.campaign.activate("event 1", now=world.now).event)
    again = world.campaign.activate("event 1", now=world.now)
    assert (again.status, again.event) == ("repeated", None)
    past = world.past("event 1")
    later = world.campaign.reward("event 1", 0.5, reward_id="b", now=world.now, past=past)
    assert later.status == "ignored"  # the earliest counts
    world.apply(later.event)
    world.now += 61.0
    end = world.campaign.end("event 1", now=world.now)
    assert (end.status, end.value) == ("summed", 1.0)


def test_a_reward_before_the_activation_adds_to_a_sum():
    world = World(POLICIES[0])
    world.step("hold", 0)
    world.apply(world.campaign.configure({"aggregation": "sum"}, now=world.now))
    for reward_id, value in (("a", 1.0), ("b", 0.5)):
        verdict = world.campaign.reward("event 1", value, reward_id=reward_id, now=world.now)
        assert verdict.status == "counted"
        world.apply(verdict.event)
        if reward_id == "a":
            world.apply(world.campaign.activate("event 1", now=world.now).event)
    assert world.campaign.end("event 1", now=world.now + 61.0).value == 1.5


def test_a_reward_before_the_activation_is_refused_where_no_wait_would_end():
    world = World(POLICIES[0])
    model = Model(vfb.Bandit(POLICIES[0], dim=5), epoch=1)
    world.campaign = Campaign(model, CampaignSettings(POLICIES[0], reward_wait_s=None))
    world.step("hold", 0)
    with pytest.raises(ConflictError, match="is held, and waits have no end"):
        world.campaign.reward("event 1", 1.0, now=world.now)
    with pytest.raises(ConflictError, match="is held, and waits have no end"):
        queued(world, "event 1")  # a replica must not promise what the leader refuses
    world.apply(world.campaign.activate("event 1", now=world.now).event)
    assert queued(world, "event 1").status == "queued"
    assert world.campaign.reward("event 1", 1.0, now=world.now).status == "learnt"


def queued(world, event_id):
    past = world.past(event_id)
    return world.campaign.reward_queued(event_id, 1.0, reward_id="", now=world.now, past=past)


def test_an_activated_event_waits_without_end_in_memory_or_not():
    world = World(POLICIES[0])
    model = Model(vfb.Bandit(POLICIES[0], dim=5, max_open=2), epoch=1)
    rules = CampaignSettings(POLICIES[0], reward_wait_s=None, holdback=0.5)
    world.campaign = Campaign(model, rules)
    for number in range(4):
        world.step("hold", number)
    for event_id in ("event 1", "event 4"):  # the first has left memory
        past, now = world.past(event_id), world.now
        world.apply(world.campaign.activate(event_id, now=now, past=past).event)
    world.now += rules.activation_wait_s + 1.0
    over = {one.event_id for one in world.campaign.due(world.now, most=9)}
    over |= {world.events[at - 1].event_id for at in model.cold.over(world.now, most=9)}
    assert over == {"event 2", "event 3"}
    past = world.past("event 1")
    assert world.campaign.reward("event 1", 1.0, now=world.now, past=past).status == "learnt"
    assert len(model.comparison) == 3  # the first is left out and holds up no others


def test_a_reward_without_an_activation_is_never_learnt():
    world = World(POLICIES[0])
    world.step("hold", 0)
    world.apply(world.campaign.reward("event 1", 1.0, now=world.now).event)
    end = world.campaign.end("event 1", now=world.now + 1e6)
    assert end.status == "forgotten"


@settings(max_examples=80)
@given(steps=STEPS)
def test_a_model_holds_the_rewards_up_to_the_one_restored_and_those_since_and_no_retracted_one(
    steps,
):
    policy = POLICIES[0]
    world = World(policy)
    for step in steps:
        world.step(*step)
    model, records = world.campaign.model, [*enumerate(world.events, start=1)]
    retracted = {one.event_id for _, one in records if isinstance(one, Retracted)}
    held = [
        at
        for at, one in records
        if isinstance(one, Rewarded) and model.holds(at) and one.event_id not in retracted
    ]
    # The obvious way: a bandit that learns these, and no others, in the masks of the time.
    plain = vfb.Bandit(policy, dim=5)
    contexts = {}
    for at, one in records:
        if isinstance(one, Decided):
            contexts[one.event_id] = one.x
        elif isinstance(one, Rewarded) and at in held:
            x = contexts[one.event_id] if one.recalled is None else one.recalled.x
            plain.fit([x], [one.value])
        elif isinstance(one, MasksChanged):
            move = model.make_move(one.matrix)
            plain.move(move)
            contexts = {name: move.vector(x) for name, x in contexts.items()}
    state, wanted = model.bandit.states[None], plain.states[None]
    np.testing.assert_allclose(state.Lambda, wanted.Lambda, atol=1e-8)
    np.testing.assert_allclose(state.u, wanted.u, atol=1e-8)


def test_a_reward_that_a_restore_has_taken_out_of_the_model_cannot_be_retracted():
    world = World(POLICIES[0])
    for kind in ("rank", "rank", "export"):
        world.step(kind, 1)
    world.apply(world.campaign.reward("event 1", 1.0, now=world.now).event)
    learnt = world.campaign.model.bandit.estimate_norm()
    world.step("restore", 0)
    assert isinstance(world.events[-1], Restored)
    assert learnt > world.campaign.model.bandit.estimate_norm() == 0.0
    with pytest.raises(ConflictError, match="an earlier one was restored since"):
        world.campaign.retract("event 1", by="ops", now=world.now, past=world.past("event 1"))
    world.apply(
        world.campaign.reward("event 2", 1.0, now=world.now).event
    )  # it is still waited for
    assert world.campaign.model.bandit.estimate_norm() > 0.0
