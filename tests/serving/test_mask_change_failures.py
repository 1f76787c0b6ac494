"""A mask change while the journal of one of several campaigns fails."""

import asyncio
import contextlib

import numpy as np
import pytest
from live_world import LiveWorld
from served_federation import ServedFederation

from vfbandits.campaign.query import Query
from vfbandits.errors import JournalError
from vfbandits.protocol.application import ChangeRequest
from vfbandits.protocol.roster import Terms
from vfbandits.transport.channel import Peer

WIDTHS = {"shop": 3, "bank": 2, "news": 2}
PASSIVE = ("bank", "news")
OTHER = "spare"


@pytest.fixture
def served(tmp_path):
    world = LiveWorld(tmp_path, widths=WIDTHS, terms=Terms("blockwise", "plain"), n_users=6)
    served = ServedFederation(world, "memory")
    config = served.files.config("shop")
    config.write_text(f"{config.read_text()}\n[campaigns.{OTHER}]\n[campaigns.{OTHER}.model]\n")
    return served


def run(served, play):
    async def whole():
        try:
            await served.start_active()
            await served.start(*PASSIVE)
            await served.decide_with(*PASSIVE)
            return await play()
        finally:
            await served.close()

    return asyncio.run(whole())


async def change_masks(served):
    operator = served.files.roster.find("operator")
    peer = Peer("operator", "operator", operator.certificate, "memory")
    return await served.active.change(peer, ChangeRequest())


def break_journal(leader):
    """Every later write to this campaign's journal fails, as on a full disk."""

    def fail(events):
        raise JournalError("the disk is full")

    leader.durable._journal.append = fail  # noqa: SLF001


async def means(served):
    """What the default campaign expects of each arm, for every user."""
    seen = {}
    for user in served.world.users:
        reply = await served.active.choose(served.world.request(user))
        assert set(reply.contributors) == set(WIDTHS)
        seen[user] = np.frombuffer(reply.means)
    return seen


def test_the_default_campaign_goes_on_behind_the_new_masks(served):
    """Before, its model was behind new masks and its contexts behind old ones."""

    async def play():
        leaders = served.active.leaders
        before = await means(served)
        break_journal(leaders[OTHER])
        with contextlib.suppress(JournalError):
            await change_masks(served)
        after = await means(served)
        for user, expected in before.items():
            np.testing.assert_allclose(after[user], expected, atol=1e-9)
        assert (served.active.role.epoch, leaders["default"].model.epoch) == (2, 2)
        with pytest.raises(JournalError):
            await leaders[OTHER].rank(Query("ann", served.world.arms))
        assert any(OTHER in problem for problem in served.campaigns.problems())
        await change_masks(served)  # and the next change is not refused
        assert served.active.role.epoch == 3

    run(served, play)


def test_a_campaign_that_missed_a_change_gets_it_at_the_next_start(served):
    async def miss():
        break_journal(served.active.leaders[OTHER])
        await change_masks(served)

    run(served, miss)

    async def look():
        await served.decide_with(*PASSIVE)
        models = [leader.model for leader in served.active.leaders.values()]
        return [model.epoch for model in models], served.campaigns.problems()

    assert run(served, look) == ([2, 2], [])


def test_a_model_that_was_built_again_after_a_missed_change_does_not_decide(served):
    """Its journal ends before the change, and the contexts are behind the new masks."""

    async def play():
        leader = served.active.leaders[OTHER]
        user, arms = served.world.users[0], served.world.request(served.world.users[0]).arms
        kept = leader.durable._journal.append  # noqa: SLF001
        break_journal(leader)
        await change_masks(served)
        leader.durable._journal.append = kept  # noqa: SLF001  (there is room again)
        await leader.durable.rebuild()
        assert leader.model.epoch == 1
        with pytest.raises(JournalError, match="missed a mask change"):
            await leader.rank(Query(user, arms))
        assert any(OTHER in problem for problem in served.campaigns.problems())
        await change_masks(served)  # brings both
        assert leader.model.epoch == 3
        await leader.rank(Query(user, arms))

    run(served, play)
