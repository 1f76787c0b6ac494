"""Several campaigns on one federation: independent, and moved together."""

import asyncio
from functools import partial

import numpy as np
import pytest
from campaign_world import World

from vfbandits.campaign.query import Query
from vfbandits.errors import JournalError, UnknownEventError
from vfbandits.serving.campaigns import Campaigns, catch_up
from vfbandits.telemetry.log import logger_for

ARMS = ("tea", "coffee")


def rotation(seed):
    matrix, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(5, 5)))
    return matrix


async def learn(campaign, names):
    for name in names:
        await campaign.rank(Query("ann", ARMS, name))
        await campaign.reward(name, 1.0)


def test_a_model_that_missed_changes_of_masks_gets_them_from_the_leaders_log():
    async def main():
        worlds = [World(), World()]
        leader, other = (world.open() for world in worlds)
        for campaign in (leader, other):
            await learn(campaign, ("a", "b"))
        # The process dies after the leader has the change, and before the other does; twice.
        for epoch in (2, 3):
            await leader.durable.change_masks(rotation(epoch), epoch=epoch, signed_roster=b"roster")
        await other.durable.close()
        restarted = worlds[1].open()
        await catch_up(restarted.durable, leader.durable)
        assert (restarted.model.epoch, restarted.model.signed_roster) == (3, b"roster")
        ours, theirs = (c.model.bandit.states[None].theta for c in (leader, restarted))
        assert np.array_equal(ours, theirs)
        await catch_up(restarted.durable, leader.durable)  # nothing more to do
        for campaign in (leader, restarted):
            await campaign.durable.close()

    asyncio.run(main())


def test_a_change_that_the_leaders_log_no_longer_has_is_refused():
    async def main():
        leader, other = World().open(), World().open()
        await leader.durable.change_masks(rotation(0), epoch=5, signed_roster=b"")
        await other.durable.change_masks(rotation(0), epoch=7, signed_roster=b"")
        with pytest.raises(JournalError, match="at mask epoch 7, wanted 5"):
            await catch_up(other.durable, leader.durable)
        for campaign in (leader, other):
            await campaign.durable.close()

    asyncio.run(main())


@pytest.mark.parametrize("kept", [(3,), (2,), (2, 4), ()])
def test_a_model_is_not_carried_over_a_change_that_is_missing_between(kept):
    """Masks of epoch 3 by the change from 2 to 3 alone would turn what was learnt to noise."""

    async def main():
        leader, other = World().open(), World().open()
        for epoch in (2, 3, 4):
            await leader.durable.change_masks(rotation(epoch), epoch=epoch, signed_roster=b"")
        changes = await leader.durable.mask_changes()
        kept_changes = [one for one in changes if one.epoch in kept]
        leader.durable.recent_mask_changes.clear()  # as after a restart
        leader.durable.mask_changes = partial(asyncio.sleep, 0, kept_changes)  # others are lost
        before = other.durable.position
        with pytest.raises(JournalError, match="at mask epoch 1, wanted 4"):
            await catch_up(other.durable, leader.durable)
        assert (other.model.epoch, other.durable.position) == (1, before)
        for campaign in (leader, other):
            await campaign.durable.close()

    asyncio.run(main())


def test_campaigns_are_found_by_name_and_end_their_waits_by_themselves():
    async def main():
        world = World(reward_wait_s=0.05)
        campaign = world.open()
        log = logger_for("shop", "active")
        campaigns = Campaigns([campaign], log=log, snapshot_every=1)
        with pytest.raises(UnknownEventError, match="one of default, got 'news'"):
            campaigns["news"]
        assert campaigns["default"] is campaign
        campaigns.start()
        await campaign.rank(Query("ann", ARMS, "e"))
        world.clock.now += 1.0
        async with asyncio.timeout(60.0):
            while campaign.n_waiting or campaign.durable.since_snapshot:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (await campaign.history("e")).status == "learnt"
        assert campaigns.problems() == []
        await campaigns.stop()
        assert campaigns.problems() == ["the server is stopping"]

    asyncio.run(main())
