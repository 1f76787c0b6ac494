"""Arms that are not shown any more lose their model, by a record of the journal."""

import asyncio

import numpy as np
import pytest
from campaign_world import Clock, PlainSource
from durables import parts

import vfbandits as vfb
from vfbandits.campaign.events import ArmsDropped
from vfbandits.campaign.query import Contexts, Query
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.errors import ConfigError
from vfbandits.journal.memory import MemoryDisk, MemoryJournal
from vfbandits.journal.record import decode, encode
from vfbandits.protocol.roster import Terms
from vfbandits.serving.campaigns import Campaigns
from vfbandits.serving.durable import DurableBandit
from vfbandits.serving.leader import Leader
from vfbandits.settings.decode import decode as read
from vfbandits.settings.model import ModelSettings
from vfbandits.telemetry.log import logger_for

DAY_S = 86_400.0


class UserSource(PlainSource):
    async def contexts(self, queries, *, campaign):
        return [Contexts(np.full((1, 5), 0.3), self.split.names) for _ in queries]


class DisjointWorld:
    def __init__(self, *, expiry_days=7.0, **options):
        self.disk, self.clock, self.options = MemoryDisk(), Clock(), options
        self.expiry_s = None if expiry_days is None else expiry_days * DAY_S

    def open(self):
        policy = vfb.LinUCB(beta=0.5)
        make = lambda: vfb.Bandit(policy, dim=5, layout="disjoint", seed=1, **self.options)  # noqa: E731
        model = DurableBandit.open(MemoryJournal(self.disk), make, epoch=1, clock=self.clock)
        settings = CampaignSettings(policy, reward_wait_s=30 * DAY_S)
        campaign = Leader("default", model, UserSource(), settings, clock=self.clock)
        campaign.arm_expiry_s = self.expiry_s
        return campaign


async def show(campaign, arm, name, *, reward=1.0):
    await campaign.rank(Query("ann", (arm,), name))
    if reward is not None:
        await campaign.reward(name, reward)


def test_an_arm_that_is_not_shown_for_long_loses_its_model_and_a_replay_agrees():
    world = DisjointWorld()

    async def first():
        campaign = world.open()
        await show(campaign, "old", "a")
        await show(campaign, "live", "b")
        world.clock.now += 6 * DAY_S
        await show(campaign, "live", "c", reward=None)  # shown is enough
        assert await campaign.expire_arms() == 0
        world.clock.now += 2 * DAY_S
        assert await campaign.expire_arms() == 1
        assert await campaign.expire_arms() == 0
        assert list(campaign.model.bandit.states) == ["live"]
        assert (campaign.model.bandit.n_arms, campaign.model.bandit.n_arms_dropped) == (1, 1)
        seen = parts(campaign.model.bandit), campaign.model.pack()
        await campaign.durable.close()
        return seen

    async def again(*, snapshot):
        campaign = world.open()
        seen = parts(campaign.model.bandit), campaign.model.pack()
        if snapshot:
            await campaign.durable.snapshot()
        await campaign.durable.close()
        return seen

    seen = asyncio.run(first())
    assert asyncio.run(again(snapshot=True)) == seen  # from the records
    header, arrays = asyncio.run(again(snapshot=False))[0]  # and from a snapshot behind them
    assert arrays == seen[0][1]
    assert header["learner"]["n_dropped"] == 1


def test_a_reward_that_comes_for_an_expired_arm_starts_it_from_the_prior():
    world = DisjointWorld()

    async def main():
        campaign = world.open()
        await show(campaign, "old", "a")
        await show(campaign, "old", "b", reward=None)
        world.clock.now += 8 * DAY_S
        assert await campaign.expire_arms() == 1
        assert await campaign.reward("b", 1.0) == "learnt"
        assert campaign.model.bandit.state_of("old").n_updates == 1
        await campaign.durable.close()
        campaign = world.open()
        assert campaign.model.bandit.state_of("old").n_updates == 1
        await campaign.durable.close()

    asyncio.run(main())


def test_without_the_setting_nothing_expires():
    world = DisjointWorld(expiry_days=None)

    async def main():
        campaign = world.open()
        await show(campaign, "old", "a")
        world.clock.now += 10_000 * DAY_S
        assert await campaign.expire_arms() == 0
        await campaign.durable.close()

    asyncio.run(main())


def test_the_background_task_lets_them_go():
    world = DisjointWorld()

    async def main():
        campaign = world.open()
        await show(campaign, "old", "a")
        world.clock.now += 8 * DAY_S
        campaigns = Campaigns([campaign], log=logger_for("shop", "active"), snapshot_every=10**9)
        campaigns.start()
        async with asyncio.timeout(60.0):
            while campaign.model.bandit.n_arms:  # noqa: ASYNC110  (the task under test has no event)
                await asyncio.sleep(0.01)
        await campaigns.stop()

    asyncio.run(main())


def test_times_of_arms_are_bounded_as_their_models_are():
    world = DisjointWorld(max_arms=2)

    async def main():
        campaign = world.open()
        for arm in ("a", "b", "c"):
            await show(campaign, arm, f"of {arm}")
        assert list(campaign.model.arms_shown) == ["b", "c"]
        assert list(campaign.model.bandit.states) == ["b", "c"]
        await campaign.durable.close()

    asyncio.run(main())


def test_the_record_is_read_as_it_was_written():
    dropped = ArmsDropped(("tea", 7, 'a "quoted" ü'), at=12.5)
    assert decode(encode(dropped), 1) == dropped


def test_settings_are_read_and_refused_where_they_mean_nothing():
    settings = read({"max_arms": 50, "arm_expiry_days": 0.5}, ModelSettings)
    assert (settings.max_arms, settings.arm_expiry_s) == (50, 43_200.0)
    assert read({}, ModelSettings).arm_expiry_s is None
    with pytest.raises(ConfigError, match="arm_expiry_days must be a number above 0"):
        read({"arm_expiry_days": 0}, ModelSettings)

    class PerArm:
        terms = Terms()

    with pytest.raises(ConfigError, match="goes with layout 'disjoint'"):
        ModelSettings(arm_expiry_days=1.0).build(PerArm())
