"""The ends of waits: each event ends by itself, whatever becomes of the others."""

import asyncio

import numpy as np
import pytest
from campaign_world import World, row_of
from structlog.testing import capture_logs

import vfbandits as vfb
from vfbandits.campaign.events import Decided
from vfbandits.campaign.query import Query
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.core.state import State
from vfbandits.errors import JournalError, NumericalError, SettingError
from vfbandits.journal.memory import MemoryJournal
from vfbandits.serving.campaigns import Campaigns
from vfbandits.telemetry.log import logger_for

ARMS = ("tea", "coffee")


def logged(world):
    """All that the journal has, once its writer has closed it."""
    journal = MemoryJournal(world.disk)
    try:
        return [event for _, event in journal.read()]
    finally:
        journal.close()


def statuses(world):
    return {
        seen.event_id: seen.status for seen in world.watcher.rewards if seen.status != "counted"
    }


async def rank(campaign, *names):
    for name in names:
        await campaign.rank(Query(name, ARMS, name))


def test_a_sum_beyond_the_limit_is_learnt_as_the_bound_and_stops_nobody():
    async def main():
        bounds = {"reward_min": -1e100, "reward_max": 1e100}
        world = World(aggregation="sum", reward_wait_s=60.0, **bounds)
        campaign = world.open()
        await rank(campaign, "good", "huge", "late")
        for reward_id in ("r1", "r2"):
            await campaign.reward("huge", 1e100, reward_id=reward_id)
        await campaign.reward("good", 1.0, reward_id="r")
        world.clock.now += 61.0
        assert await campaign.settle() == 3
        assert statuses(world) == {"good": "summed", "huge": "summed", "late": "default"}
        assert campaign.n_waiting == 0
        learnt = {seen.event_id: seen.value for seen in world.watcher.rewards}
        assert learnt["huge"] == 1e100
        await campaign.durable.close()

    asyncio.run(main())


def test_an_event_that_is_evicted_while_others_settle_fails_nobody():
    async def main():
        world = World(reward_wait_s=60.0, bandit={"max_open": 3})
        campaign = world.open()
        await rank(campaign, "a", "b", "c")
        world.clock.now += 61.0
        settling = asyncio.ensure_future(campaign.settle())
        await asyncio.sleep(0)  # it has chosen whom to end, and ended nobody yet
        assert [*campaign.model.pending] == ["a", "b", "c"]
        for name in "de":
            x = row_of("ann", "tea")
            event = Decided(name, "tea", 0, x, epoch=1, due=world.clock.now + 60.0)
            campaign.durable.append(event)
        assert [*campaign.model.pending] == ["c", "d", "e"]
        await settling
        while await campaign.settle():
            pass
        assert statuses(world) == dict.fromkeys("abc", "default")
        assert campaign.durable.broken_by is None
        await campaign.durable.close()

    asyncio.run(main())


def test_an_error_of_the_model_ends_one_event_and_the_model_is_built_again(monkeypatch):
    async def main():
        world = World(reward_wait_s=60.0)
        campaign = world.open()
        await rank(campaign, "a", "b", "c")
        await campaign.reward("a", 1.0)
        before = campaign.model.bandit.states[None].Lambda
        poison = campaign.model.bandit.observation("b").x
        update = State.update

        def fail_half_way(self, x, reward):
            update(self, x, reward)
            if np.array_equal(x, poison) and reward == 0.0:
                raise NumericalError("Lambda is no longer positive definite")

        monkeypatch.setattr(State, "update", fail_half_way)
        await campaign.configure({"policy": {"beta": 0.25}}, by="ops")
        world.clock.now += 61.0
        with capture_logs() as lines:
            for _ in range(3):
                await campaign.settle()
        assert statuses(world) == {"a": "learnt", "b": "failed", "c": "default"}
        assert [line["event"] for line in lines] == ["event_failed", "model_rebuilt"]
        assert campaign.durable.broken_by is None
        # Nothing of the reward that failed is in the model, which decides as configured.
        monkeypatch.undo()
        x = campaign.model.bandit.states[None].Lambda - before
        assert np.linalg.matrix_rank(x) == 1
        assert campaign.model.bandit.policy == vfb.LinUCB(beta=0.25)
        await rank(campaign, "d")
        theta = campaign.model.bandit.states[None].theta.copy()
        await campaign.durable.close()
        restarted = world.open()
        assert np.array_equal(restarted.model.bandit.states[None].theta, theta)
        assert [*restarted.model.pending] == ["d"]
        await restarted.durable.close()

    asyncio.run(main())


@pytest.mark.parametrize("value", [1.1e100, -1e200, float("inf"), float("nan")])
def test_a_default_reward_beyond_the_limit_is_refused(value):
    with pytest.raises(SettingError, match="default_reward"):
        CampaignSettings(vfb.LinUCB(), default_reward=value)
    with pytest.raises(SettingError, match="default_reward"):
        CampaignSettings(vfb.LinUCB()).changed({"default_reward": value})


def test_a_default_reward_that_was_logged_before_it_was_refused_fails_only_its_event():
    async def main():
        world = World(reward_wait_s=60.0)
        campaign = world.open()
        await rank(campaign, "a", "b")
        # As a journal of an older version may have it.
        object.__setattr__(campaign.settings, "default_reward", 1e200)
        await campaign.reward("b", 1.0)
        world.clock.now += 61.0
        assert await campaign.settle() == 1
        assert statuses(world) == {"a": "failed", "b": "learnt"}
        await campaign.durable.close()

    asyncio.run(main())


def test_a_campaign_whose_disk_is_full_does_not_stop_the_others():
    async def main():
        full, well = World(reward_wait_s=0.05), World(reward_wait_s=0.05)
        campaigns = [full.open(), well.open()]
        campaigns[0].name = "full"
        for campaign in campaigns:
            await rank(campaign, "a")
        full.disk.capacity = 1
        with capture_logs() as lines:
            served = Campaigns(campaigns, log=logger_for("shop", "active"), snapshot_every=0)
            served.start()
            full.clock.now += 1.0
            well.clock.now += 1.0
            # The journal is broken a moment before the task that settles hears of it.
            async with asyncio.timeout(20.0):
                while campaigns[1].n_waiting or not lines:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert [problem[:16] for problem in served.problems()] == ["campaign 'full':"]
            await served.stop()
        assert {line["event"] for line in lines} == {"campaign_failed"}
        with pytest.raises(JournalError):
            await campaigns[0].durable.flush()

    asyncio.run(main())
