"""Rewards outside the bounds of a campaign are refused wherever they come from."""

import asyncio
import json
from collections import Counter

import pytest
from campaign_world import World
from ranker_world import RankerWorld, asked

import vfbandits as vfb
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.errors import RewardError, SettingError
from vfbandits.protocol.application import RewardRequest
from vfbandits.serving.active import ActiveService


@pytest.mark.parametrize("value", [1e100, 1e6 + 1.0, -1e6 - 1.0])
def test_a_reward_outside_is_refused_and_changes_nothing(value):
    async def main():
        campaign = World().open()
        await campaign.rank(asked("a"))
        with pytest.raises(RewardError, match=r"from -1e\+06 to 1e\+06 \(reward_min, reward_max\)"):
            await campaign.reward("a", value)
        assert campaign.model.position == 1
        assert campaign.model.bandit.estimate_norm() == 0.0
        assert await campaign.reward("a", 1e6) == "learnt"
        await campaign.durable.close()

    asyncio.run(main())


def test_bounds_change_at_run_time_hold_after_a_restart_and_bound_the_default():
    async def main():
        world = World()
        campaign = world.open()
        for wrong in (
            {"reward_min": 1.0, "reward_max": 1.0},
            {"reward_max": 1e101},
            {"reward_min": float("nan")},
            {"reward_max": -0.5, "reward_min": -1.0},  # the default, 0, would be outside
            {"default_reward": 1e7},
        ):
            with pytest.raises(SettingError):
                await campaign.configure(wrong, by="ops")
        assert campaign.config_version == 0
        await campaign.configure({"reward_min": 0.0, "reward_max": 1.0}, by="ops")
        await campaign.durable.close()
        campaign = world.open()
        await campaign.rank(asked("a"))
        for value in (-0.5, 1.5):
            with pytest.raises(RewardError, match="from 0 to 1"):
                await campaign.reward("a", value)
        assert await campaign.reward("a", 1.0) == "learnt"
        await campaign.durable.close()

    asyncio.run(main())


def test_a_sum_beyond_is_learnt_as_the_bound():
    async def main():
        world = World(aggregation="sum", reward_min=-2.0, reward_max=2.0)
        campaign = world.open()
        for name, sign in (("a", 1.0), ("b", -1.0)):
            await campaign.rank(asked(name))
            for number in range(3):
                assert await campaign.reward(name, 1.5 * sign, reward_id=f"{number}") == "counted"
        world.clock.now += 601.0
        assert await campaign.settle() == 2
        assert (await campaign.history("a")).learnt == 2.0
        assert (await campaign.history("b")).learnt == -2.0
        await campaign.durable.close()

    asyncio.run(main())


def test_a_ranker_refuses_by_the_settings_that_the_log_has_come_to(tmp_path):
    async def main():
        world = RankerWorld(tmp_path, reward_max=5.0)
        async with world.leading() as leader, world.ranking() as ranker:
            await ranker.rank(asked("a"))
            with pytest.raises(RewardError, match=r"to 5 "):
                await ranker.reward("a", 6.0)
            await leader.configure({"reward_max": 7.0}, by="ops")
            assert await ranker.tail.until(lambda model: model.n_settings, timeout_s=30.0)
            assert await ranker.reward("a", 6.0) == "queued"

    asyncio.run(main())


def test_grpc_refuses_by_the_same_bounds():
    """The servicer of gRPC calls this; RewardError is INVALID_ARGUMENT there."""

    async def main():
        campaign = World().open()
        await campaign.rank(asked("d"))
        service = object.__new__(ActiveService)
        service.leaders, service.counts = {"default": campaign}, Counter()
        with pytest.raises(RewardError, match="reward_max"):
            await service.learn(RewardRequest("d", 1e7, 0))
        assert (await service.learn(RewardRequest("d", 1.0, 0))).learnt
        await campaign.durable.close()

    asyncio.run(main())


def test_settings_of_before_are_read_and_their_default_stays_possible():
    settings = CampaignSettings(vfb.LinUCB())
    packed = json.loads(settings.pack())
    for name in ("reward_min", "reward_max"):
        del packed[name]
    assert CampaignSettings.unpack(json.dumps(packed).encode()) == settings
    packed["default_reward"] = -1e8
    assert CampaignSettings.unpack(json.dumps(packed).encode()).reward_min == -1e8
