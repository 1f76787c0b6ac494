"""A decision has one life, whichever way its requests come in: gRPC, HTTP, a restart."""

import asyncio
import json
from collections import Counter

import pytest
from campaign_world import ARMS, World

import vfbandits as vfb
from vfbandits.campaign import machine
from vfbandits.campaign.query import Query
from vfbandits.errors import ConflictError
from vfbandits.protocol.application import DecideRequest, RewardRequest
from vfbandits.serving.active import ActiveService
from vfbandits.serving.campaigns import Campaigns
from vfbandits.telemetry.log import logger_for


def grpc_of(campaign):
    """What the gRPC servicer calls, without a federation around it."""
    service = object.__new__(ActiveService)
    service.leaders, service.counts = {"default": campaign}, Counter()
    return service


def test_a_frozen_campaign_learns_nothing_over_grpc_either():
    async def main():
        campaign = World(mode="frozen").open()
        service = grpc_of(campaign)
        reply = await service.choose(DecideRequest("ann", ARMS, event_id="a"))
        assert not (await service.learn(RewardRequest(reply.event_id, 1.0))).learnt
        assert campaign.model.bandit.estimate_norm() == 0.0
        assert (await campaign.history("a")).came[""].why == "logged"
        await campaign.configure({"mode": "learn"}, by="ops")
        await service.choose(DecideRequest("ann", ARMS, event_id="b"))
        assert (await service.learn(RewardRequest("b", 1.0))).learnt
        await campaign.durable.close()

    asyncio.run(main())


def test_draws_over_grpc_are_the_events_own_and_do_not_begin_again_after_a_restart():
    policy = vfb.LinTS(posterior_scale=1.0)

    async def scores(*ids):
        world = World(policy=policy)
        drawn = {}
        for event_id in ids:  # each by a process of its own
            campaign = world.open()
            reply = await grpc_of(campaign).choose(DecideRequest("ann", ARMS, event_id=event_id))
            drawn[event_id] = reply.scores
            await campaign.durable.close()
        return drawn

    first, second = asyncio.run(scores("a", "b", "c")), asyncio.run(scores("c", "b"))
    assert len(set(first.values())) == 3
    assert second == {name: first[name] for name in ("c", "b")}


def test_the_same_event_gets_the_same_answer_over_grpc_and_http():
    async def main():
        campaign = World(policy=vfb.LinTS(posterior_scale=1.0)).open()
        service = grpc_of(campaign)
        answer = json.loads(await campaign.rank(Query("ann", ARMS, "a")))
        reply = await service.choose(DecideRequest("ann", ARMS, event_id="a"))
        assert (reply.arm, reply.event_id) == (answer["arm"], "a")
        by_arm = {one["id"]: one for one in answer["ranking"]}
        assert reply.probability == by_arm[reply.arm]["probability"]
        assert campaign.model.position == 1
        second = await service.choose(DecideRequest("bob", ARMS, event_id="b"))
        assert json.loads(await campaign.rank(Query("bob", ARMS, "b")))["arm"] == second.arm
        assert (await service.learn(RewardRequest("b", 1.0))).learnt
        assert not (await service.learn(RewardRequest("b", 1.0))).learnt
        with pytest.raises(ConflictError, match=r"is 1\.0 already, got 2\.0"):
            await service.learn(RewardRequest("b", 2.0))
        await campaign.durable.close()

    asyncio.run(main())


@pytest.mark.parametrize(("snapshot_every", "snapshots"), [(0, [0]), (2, [0, 3])])
def test_no_snapshot_is_taken_where_that_is_switched_off(monkeypatch, snapshot_every, snapshots):
    monkeypatch.setattr("vfbandits.serving.campaigns.SETTLE_EVERY_S", 0.01)

    async def main():
        world = World()
        campaign = world.open()
        log = logger_for("shop", "active")
        for name in "abc":
            await campaign.rank(Query("ann", ARMS, name))
        campaigns = Campaigns([campaign], log=log, snapshot_every=snapshot_every)
        campaigns.start()
        async with asyncio.timeout(60.0):
            while sorted(world.disk.snapshots) != snapshots:  # noqa: ASYNC110  (a test may poll)
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # in which there could be one more
        await campaigns.stop()
        return sorted(world.disk.snapshots)

    assert asyncio.run(main()) == snapshots


def test_a_decision_that_cannot_be_encoded_fails_alone_and_changes_nothing(monkeypatch):
    encode = machine.encode_answer

    def spoilt(answer):
        if answer.event_id == "b":
            raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")
        return encode(answer)

    monkeypatch.setattr(machine, "encode_answer", spoilt)

    async def main():
        campaign = World().open()
        queries = [Query("ann", ARMS, name) for name in "abc"]
        first, second, third = await campaign.rank_many(queries)
        assert isinstance(second, UnicodeEncodeError)
        assert all(isinstance(one, bytes) for one in (first, third))
        assert campaign.durable.broken_by is None
        assert [*campaign.model.pending] == ["a", "c"]
        assert await campaign.reward("c", 1.0) == "learnt"
        await campaign.durable.close()

    asyncio.run(main())
