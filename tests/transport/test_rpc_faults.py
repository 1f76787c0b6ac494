"""Links between real processes that die, freeze and come back."""

import asyncio
import contextlib
import signal
import time

import link_peers
import pytest
from certificates import FEDERATION
from networks import ACTIVE_NAME, issue

from vfbandits.errors import LinkError
from vfbandits.protocol.messages import Ping, Pong, Prepare
from vfbandits.transport.rpc.client import RpcDialer
from vfbandits.transport.rpc.server import RpcListener
from vfbandits.transport.rpc.tls import host_name

SECONDS = 30.0


@contextlib.asynccontextmanager
async def link_to_a_process(folder):
    """The listening end's link to a participant that runs as a process, and that process."""
    tls = issue(folder, "bank")
    links = asyncio.Queue()
    done = asyncio.Event()

    async def handler(link):
        links.put_nowait(link)
        await done.wait()

    listener = RpcListener("127.0.0.1:0", tls=tls(ACTIVE_NAME))
    port = await listener.start(handler)
    process = link_peers.start("answer", f"127.0.0.1:{port}", folder, "bank")
    try:
        yield await asyncio.wait_for(links.get(), 30), process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        done.set()
        await listener.stop(grace_s=0.0)


async def send_until_stuck(link, message):
    while True:
        await asyncio.wait_for(link.send(message), 0.3)


def test_a_participant_that_is_killed_gives_a_link_error_within_seconds(tmp_path):
    async def test():
        async with link_to_a_process(tmp_path) as (link, process):
            await link.send(Ping(1))
            assert await link.receive() == Pong(1)
            waiting = asyncio.ensure_future(link.receive())
            process.kill()
            start = time.monotonic()
            with pytest.raises(LinkError, match="'bank' is gone"):
                await asyncio.wait_for(waiting, SECONDS)
            assert time.monotonic() - start < 20.0
            with pytest.raises(LinkError):
                await link.send(Ping(2))

    asyncio.run(test())


def test_an_active_participant_that_is_killed_gives_a_link_error_within_seconds(tmp_path):
    tls = issue(tmp_path, "bank")
    process = link_peers.start("listen", "127.0.0.1:0", tmp_path, ACTIVE_NAME)
    port = int(process.stdout.readline())

    async def test():
        dialer = RpcDialer(
            f"127.0.0.1:{port}",
            tls=tls("bank"),
            name="bank",
            role="passive",
            server_name=host_name(ACTIVE_NAME, FEDERATION),
        )
        link = await dialer.dial(timeout_s=SECONDS)
        await link.send(Pong(1))
        process.kill()
        with pytest.raises(LinkError, match="is gone"):
            await asyncio.wait_for(link.receive(), SECONDS)
        await link.close()
        process.wait()
        with pytest.raises(LinkError, match="nobody listens there"):
            await dialer.dial(timeout_s=SECONDS)

    try:
        asyncio.run(test())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_sends_to_a_frozen_participant_can_time_out_and_the_link_goes_on_when_it_thaws(tmp_path):
    big = Prepare(epoch=0, round=0, envelope=bytes(4_000_000))

    async def test():
        async with link_to_a_process(tmp_path) as (link, process):
            process.send_signal(signal.SIGSTOP)
            with pytest.raises(TimeoutError):
                await send_until_stuck(link, big)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(link.send(Ping(7)), 0.1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(link.receive(), 0.1)
            process.send_signal(signal.SIGCONT)
            await asyncio.wait_for(link.send(Ping(8)), SECONDS)
            assert await asyncio.wait_for(link.receive(), SECONDS) == Pong(8)

    asyncio.run(test())


def test_an_ask_that_waited_in_a_frozen_participant_is_answered_when_it_thaws(tmp_path):
    async def test():
        async with link_to_a_process(tmp_path) as (link, process):
            process.send_signal(signal.SIGSTOP)
            for number in range(20):
                await asyncio.wait_for(link.send(Ping(number)), SECONDS)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(link.receive(), 0.2)
            process.send_signal(signal.SIGCONT)
            for number in range(20):
                assert await asyncio.wait_for(link.receive(), SECONDS) == Pong(number)

    asyncio.run(test())


def test_a_frozen_participant_is_soon_posted_nothing_more_and_holds_nobody_up(tmp_path):
    big = Prepare(epoch=0, round=0, envelope=bytes(4_000_000))

    async def test():
        async with link_to_a_process(tmp_path) as (link, process):
            process.send_signal(signal.SIGSTOP)
            start = time.monotonic()
            taken = 0
            while link.post(big) and taken < 100:
                taken += 1
                await asyncio.sleep(0.01)
            assert 1 <= taken < 100
            assert time.monotonic() - start < SECONDS

    asyncio.run(test())


def test_closing_a_link_to_a_frozen_participant_does_not_hang(tmp_path):
    async def test():
        async with link_to_a_process(tmp_path) as (link, process):
            process.send_signal(signal.SIGSTOP)
            big = Prepare(epoch=0, round=0, envelope=bytes(20_000_000))
            with pytest.raises(TimeoutError):
                await send_until_stuck(link, big)
            start = time.monotonic()
            await link.close()
            assert time.monotonic() - start < 20.0
            with pytest.raises(LinkError):
                await link.send(Ping(1))

    asyncio.run(test())


@pytest.mark.long
def test_a_participant_that_stays_silent_is_given_up_by_grpc_itself(tmp_path):
    """Nobody sends, nothing is closed: only the pings of gRPC can tell."""

    async def test():
        async with link_to_a_process(tmp_path) as (link, process):
            process.send_signal(signal.SIGSTOP)
            start = time.monotonic()
            with pytest.raises(LinkError):
                await asyncio.wait_for(link.receive(), 40.0)
            assert 5.0 < time.monotonic() - start < 25.0

    asyncio.run(test())
