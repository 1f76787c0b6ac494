"""A ranker asks whoever leads, and has some patience while nobody does."""

import asyncio

import pytest
from http_world import free_port

from vfbandits.errors import ArmError, LinkError
from vfbandits.protocol.application import DecideRequest, GatherReply, StatusReply
from vfbandits.service.leader import Leader
from vfbandits.transport.rpc.application import ApplicationClient
from vfbandits.transport.rpc.server import RpcListener

REQUEST = DecideRequest("ann", ("tea",))
REPLY = GatherReply(bytes(16), ("shop",), 1, 24)


class Calls:
    """The part of an active participant that a ranker asks."""

    decide = reward = change = None

    def __init__(self, error=None, document='{"participants": {"bank": {"width": 3}}}'):
        self.error, self.document, self.n_asked = error, document, 0

    async def gather(self, peer, request):
        self.n_asked += 1
        if self.error is not None:
            raise self.error
        return REPLY

    async def status(self, peer, request):
        return StatusReply(self.document)


async def nobody(link):
    await link.receive()


async def listening(port, calls):
    listener = RpcListener(f"127.0.0.1:{port}", tls=None, calls=calls)
    await listener.start(nobody)
    return listener


def leader_at(port, patience_s):
    client = ApplicationClient(f"127.0.0.1:{port}", tls=None, name="shop", role="active")
    return Leader(client, answer_s=5.0, patience_s=patience_s)


def test_a_call_is_made_again_until_somebody_leads():
    async def main():
        port, calls = free_port(), Calls()
        leader = leader_at(port, patience_s=20.0)
        asked = asyncio.create_task(leader.gather(REQUEST))
        await asyncio.sleep(0.3)
        assert not asked.done()
        listener = await listening(port, calls)
        assert (await asked).contributors == ("shop",)
        await leader.stop()
        await listener.stop(grace_s=0.0)

    asyncio.run(main())


def test_patience_ends_and_an_error_about_the_request_is_told_at_once():
    async def main():
        port = free_port()
        leader = leader_at(port, patience_s=0.3)
        with pytest.raises(LinkError):
            await leader.gather(REQUEST)
        calls = Calls(ArmError("arms must differ"))
        listener = await listening(port, calls)
        with pytest.raises(ArmError, match="arms must differ"):
            await leader_at(port, patience_s=20.0).gather(REQUEST)
        assert calls.n_asked == 1
        await leader.stop()
        await listener.stop(grace_s=0.0)

    asyncio.run(main())


def test_participants_are_as_the_leader_sees_them_and_none_are_known_without_one():
    async def main():
        port, calls = free_port(), Calls()
        listener = await listening(port, calls)
        leader = leader_at(port, patience_s=0.1)
        assert leader.participants() == {}
        leader.start()
        async with asyncio.timeout(10.0):
            while not leader.participants():  # noqa: ASYNC110  (a test may poll)
                await asyncio.sleep(0.02)
            assert leader.participants() == {"bank": {"width": 3}}
            calls.document = "[3]"
            while leader.participants():  # noqa: ASYNC110  (a test may poll)
                await asyncio.sleep(0.02)
        await leader.stop()
        await listener.stop(grace_s=0.0)

    asyncio.run(main())
