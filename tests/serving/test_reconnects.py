"""A participant that connects again before its older stream has ended."""

import asyncio

import pytest
from live_world import LiveWorld
from served_federation import ServedFederation

from vfbandits.errors import LinkError
from vfbandits.participant.run import build_passive
from vfbandits.protocol.messages import Ask, Welcome
from vfbandits.protocol.roster import Terms
from vfbandits.settings.services import load_passive
from vfbandits.telemetry.log import logger_for
from vfbandits.transport.channel import Peer
from vfbandits.transport.memory import MemoryLink

WIDTHS = {"shop": 3, "bank": 2}


async def read_to_the_end(link):
    async with asyncio.timeout(5.0):
        while True:
            await link.receive()


def test_the_newest_of_several_streams_counts_and_the_others_are_closed(tmp_path, monkeypatch):
    """While an older one was closing, two newer ones came: both stayed open."""
    world = LiveWorld(tmp_path, widths=WIDTHS, terms=Terms("blockwise", "plain"), n_users=2)
    served = ServedFederation(world, "memory")
    member = served.files.roster.find("bank")
    bank = Peer("bank", "passive", member.certificate, "memory")

    async def connect(hello):
        link = served.network.open(bank)
        await link.send(hello)
        return link

    async def play():
        await served.start_active()
        config = load_passive(served.files.config("bank"))
        service = build_passive(config, logger_for("bank", "passive"))
        hello = service._role.hello()  # noqa: SLF001
        first = await connect(hello)
        assert isinstance(await first.receive(), Welcome)

        close, gate = MemoryLink.close, asyncio.Event()

        async def slow_close(link):
            if link.peer.name == "bank":  # the active participant's end
                await gate.wait()
            await close(link)

        monkeypatch.setattr(MemoryLink, "close", slow_close)
        second = await connect(hello)
        await asyncio.sleep(0.05)
        third = await connect(hello)
        await asyncio.sleep(0.05)
        gate.set()
        assert isinstance(await third.receive(), Welcome)
        with pytest.raises(LinkError):
            await read_to_the_end(second)
        deciding = asyncio.create_task(served.active.choose(world.request(world.users[0])))
        async with asyncio.timeout(5.0):
            assert isinstance(await third.receive(), Ask)
        await deciding
        service._gate.close()  # noqa: SLF001
        for link in (first, second, third):
            await link.close()
        await served.close()

    asyncio.run(play())
