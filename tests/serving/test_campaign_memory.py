"""A campaign keeps what it needs of an event, and no longer than it needs it."""

import asyncio
import json
import tracemalloc

from campaign_world import ARMS, World

import vfbandits.serving.leader
from vfbandits.campaign.query import Query

N_EVENTS = 1_500
MAX_BYTES = 80  # of each event, on average: some room for tidying up now and then


async def visit(campaign, n_events):
    for number in range(n_events):
        answer = await campaign.rank(Query("ann", ARMS))
        await campaign.reward(json.loads(answer)["event_id"], 1.0)
        if number % 100 == 0:
            await campaign.settle()


async def measure():
    world = World(reward_wait_s=86_400.0)
    campaign = world.open()
    await visit(campaign, 10)
    tracemalloc.start()
    try:
        await visit(campaign, N_EVENTS)
        world.watcher.rewards.clear()
        world.watcher.decisions.clear()
        snapshot = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    await campaign.durable.close()
    own = tracemalloc.Filter(inclusive=True, filename_pattern=vfbandits.serving.leader.__file__)
    return sum(trace.size for trace in snapshot.filter_traces([own]).traces)


def test_an_event_that_has_its_reward_leaves_nothing_in_memory_however_long_the_wait():
    assert asyncio.run(measure()) / N_EVENTS < MAX_BYTES
