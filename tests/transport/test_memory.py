"""The twin network does to messages what it is told to, and nothing else."""

import asyncio

import pytest

from vfbandits.errors import LinkError
from vfbandits.protocol.messages import Commit, Ping, Pong
from vfbandits.transport.memory import Fate, MemoryNetwork


def received(plan, *, count):
    """What a participant gets of the commits 0, 1, 2 … that are sent to it under a plan."""

    async def test():
        network = MemoryNetwork("shop", plan=plan)

        async def handler(link):
            for epoch in range(4):
                await link.send(Commit(epoch))
            await link.receive()

        await network.start(handler)
        link = await network.dialer("bank").dial(timeout_s=30.0)
        epochs = [(await asyncio.wait_for(link.receive(), 30.0)).epoch for _ in range(count)]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(link.receive(), 0.05)
        await link.close()
        await network.stop(grace_s=1.0)
        return epochs

    return asyncio.run(test())


def on(epoch, fate):
    return lambda _, message: fate if message == Commit(epoch) else Fate()


def test_a_message_is_lost():
    assert received(on(1, Fate(copies=0)), count=3) == [0, 2, 3]


def test_a_message_comes_twice():
    assert received(on(1, Fate(copies=2)), count=5) == [0, 1, 1, 2, 3]


def test_a_message_is_overtaken():
    assert received(on(1, Fate(delay_s=0.02)), count=4) == [0, 2, 3, 1]


def test_a_plan_sees_who_sends_and_may_change():
    seen = []

    async def handler(link):
        while True:
            await link.send(Ping((await link.receive()).number))

    def watch(sender, message):
        seen.append((sender, message))
        return Fate()

    async def test():
        network = MemoryNetwork("shop")
        await network.start(handler)
        link = await network.dialer("bank").dial(timeout_s=30.0)
        await link.send(Pong(1))
        await link.receive()
        network.plan = watch
        await link.send(Pong(2))
        await link.receive()
        await network.stop(grace_s=0.0)

    asyncio.run(test())
    assert seen == [("bank", Pong(2)), ("shop", Ping(2))]


@pytest.mark.parametrize("how", ["a message", "the network"])
def test_a_cut_ends_both_ends_at_once_with_what_was_under_way(how):
    async def test():
        network = MemoryNetwork("shop")
        ended = asyncio.Event()
        started = asyncio.Event()

        async def handler(link):
            for epoch in range(3):
                await link.send(Commit(epoch))
            started.set()
            try:
                await link.receive()
            except LinkError:
                ended.set()

        await network.start(handler)
        link = await network.dialer("bank").dial(timeout_s=30.0)
        await started.wait()
        if how == "a message":
            network.plan = lambda *_: Fate(cut=True)
            await link.send(Pong(1))
        else:
            network.cut("bank")
        with pytest.raises(LinkError):
            await link.receive()
        with pytest.raises(LinkError):
            await link.send(Pong(2))
        await asyncio.wait_for(ended.wait(), 30.0)
        await network.stop(grace_s=0.0)

    asyncio.run(test())


def test_a_mistake_in_a_handler_comes_out_at_the_stop():
    async def handler(link):
        raise ZeroDivisionError

    async def test():
        network = MemoryNetwork("shop")
        await network.start(handler)
        link = await network.dialer("bank").dial(timeout_s=30.0)
        with pytest.raises(LinkError):
            await link.receive()
        with pytest.raises(ZeroDivisionError):
            await network.stop(grace_s=0.0)

    asyncio.run(test())


def test_nobody_listens_before_the_start():
    async def test():
        with pytest.raises(LinkError, match="nobody listens"):
            await MemoryNetwork("shop").dialer("bank").dial(timeout_s=30.0)

    asyncio.run(test())
