"""Calls of applications: there and back, with errors as they are and a deadline on each."""

import asyncio
import contextlib
import struct
import time
from dataclasses import asdict, replace

import pytest
from certificates import FEDERATION, make_authority, make_leaf
from networks import ACTIVE_NAME, files
from structlog.testing import capture_logs

from vfbandits.errors import (
    ArmError,
    IdentityError,
    LinkError,
    NumericalError,
    UnknownDecisionError,
    WireError,
)
from vfbandits.protocol.application import (
    ChangeReply,
    ChangeRequest,
    DecideReply,
    DecideRequest,
    GatherReplies,
    GatherReply,
    GatherRequest,
    RewardReply,
    RewardRequest,
    StatusReply,
    StatusRequest,
)
from vfbandits.transport.rpc.application import ApplicationClient
from vfbandits.transport.rpc.server import RpcListener
from vfbandits.transport.rpc.tls import host_name

REQUEST = DecideRequest(
    "ann", ("tea", "mate"), own=struct.pack("<2d", 1.0, 2.0), event_id="d", trial=3
)
REPLY = DecideReply("d", "mate", 1, 0.25, b"s" * 16, b"m" * 16, ("shop", "bank"), 4, 160, 0.01)
GATHER = GatherRequest((REQUEST, replace(REQUEST, user="bob", own=b"")))
GATHERED = GatherReply(struct.pack("<4d", 1.0, 2.0, 3.0, 4.0), ("shop", "bank"), 4, 160)


class Recorder:
    """The active participant, as far as its port sees it."""

    def __init__(self, error=None, delay_s=0.0, outcomes=(GATHERED,)):
        self.seen = []
        self.outcomes = outcomes
        self.error = error
        self.delay_s = delay_s

    async def answer(self, peer, request, reply):
        self.seen.append((peer.name, peer.role, request))
        await asyncio.sleep(self.delay_s)
        if self.error is not None:
            raise self.error
        return reply

    async def decide(self, peer, request):
        return await self.answer(peer, request, REPLY)

    async def reward(self, peer, request):
        return await self.answer(peer, request, RewardReply(learnt=True))

    async def status(self, peer, request):
        return await self.answer(peer, request, StatusReply('{"epoch": 4}'))

    async def change(self, peer, request):
        return await self.answer(peer, request, ChangeReply(5, "ab" * 32))

    async def gather(self, peer, request):
        return await self.answer(peer, request, GatherReplies(self.outcomes))


async def nobody(link):
    await link.receive()


@contextlib.asynccontextmanager
async def client(calls, *, folder=None):
    tls = host = None
    if folder is not None:
        authority = make_authority()
        make_leaf(folder, ACTIVE_NAME, "active", authority=authority)
        make_leaf(folder, "web", "application", authority=authority)
        tls, host = files(folder, "web"), host_name(ACTIVE_NAME, FEDERATION)
    listener = RpcListener(
        "127.0.0.1:0", tls=files(folder, ACTIVE_NAME) if folder else None, calls=calls
    )
    port = await listener.start(nobody)
    client = ApplicationClient(
        f"127.0.0.1:{port}", tls=tls, name="web", role="application", server_name=host or ""
    )
    try:
        yield client
    finally:
        await client.close()
        await listener.stop(grace_s=0.0)


@pytest.mark.parametrize("secured", [True, False])
def test_every_call_goes_there_and_comes_back(tmp_path, secured):
    calls = Recorder()
    change = ChangeRequest(b"roster", {"bank": b"sealed", "news": b""})

    async def test():
        async with client(calls, folder=tmp_path if secured else None) as application:
            reply = await application.decide(REQUEST, timeout_s=30.0)
            assert asdict(reply) == asdict(REPLY)
            reward = await application.reward(RewardRequest("d", 0.5, 3), timeout_s=30.0)
            assert reward == RewardReply(learnt=True)
            status = await application.status(StatusRequest(), timeout_s=30.0)
            assert status.document == '{"epoch": 4}'
            changed = await application.change(change, timeout_s=30.0)
            assert changed == ChangeReply(5, "ab" * 32)
            gathered = await application.gather(GATHER, timeout_s=30.0)
            assert [asdict(one) for one in gathered.outcomes] == [asdict(GATHERED)]

    asyncio.run(test())
    requests = [REQUEST, RewardRequest("d", 0.5, 3), StatusRequest(), change, GATHER]
    assert calls.seen == [("web", "application", request) for request in requests]


@pytest.mark.parametrize(
    "error",
    [
        ArmError("arms must differ, got 'tea' twice"),
        UnknownDecisionError("no open decision 'd'"),
        IdentityError("'web' is not in the roster"),
    ],
)
def test_an_error_about_the_request_comes_back_as_it_is(error):
    async def test():
        async with client(Recorder(error)) as application:
            with pytest.raises(type(error)) as caught:
                await application.decide(REQUEST, timeout_s=30.0)
            assert str(caught.value) == str(error)

    asyncio.run(test())


def test_an_error_of_the_active_participant_itself_stays_there():
    async def test():
        async with client(Recorder(NumericalError("score 3.14"))) as application:
            with pytest.raises(LinkError, match="internal error, see the log") as caught:
                await application.decide(REQUEST, timeout_s=30.0)
            assert "3.14" not in str(caught.value)

    with capture_logs() as logs:
        asyncio.run(test())
    assert [entry["event"] for entry in logs] == ["call_failed"]


def test_one_outcome_may_be_an_error_and_only_what_is_about_the_request_is_told():
    outcomes = (GATHERED, ArmError("arms must differ"), NumericalError("score 3.14"), GATHERED)
    calls = Recorder(outcomes=outcomes)

    async def test():
        async with client(calls) as application:
            return (await application.gather(GATHER, timeout_s=30.0)).outcomes

    with capture_logs() as logs:
        first, bad, internal, last = asyncio.run(test())
    assert asdict(first) == asdict(last) == asdict(GATHERED)
    assert (type(bad), str(bad)) == (ArmError, "arms must differ")
    assert isinstance(internal, LinkError)
    assert "3.14" not in str(internal)
    assert [entry["event"] for entry in logs] == ["call_failed"]


def test_a_request_that_the_decoder_refuses_is_an_error_in_its_place_and_the_others_arrive():
    calls = Recorder()
    sent = GatherRequest((REQUEST, replace(REQUEST, user="x" * 2000), REQUEST))

    async def test():
        async with client(calls) as application:
            await application.gather(sent, timeout_s=30.0)

    asyncio.run(test())
    ((_, _, seen),) = calls.seen
    assert (seen.requests[0], seen.requests[2]) == (REQUEST, REQUEST)
    assert isinstance(seen.requests[1], WireError)
    assert "user has at most 1024 bytes, got 2000" in str(seen.requests[1])


def test_a_call_ends_at_its_deadline():
    async def test():
        async with client(Recorder(delay_s=30.0)) as application:
            start = time.monotonic()
            with pytest.raises(LinkError, match="no answer before the deadline"):
                await application.status(StatusRequest(), timeout_s=0.2)
            assert time.monotonic() - start < 20.0  # and not 30

    asyncio.run(test())


def test_a_request_that_the_wire_cannot_hold_is_refused_here():
    async def test():
        async with client(Recorder()) as application:
            with pytest.raises(WireError, match="cannot hold"):
                await application.decide(replace(REQUEST, trial=-1), timeout_s=30.0)

    asyncio.run(test())


def test_a_request_that_the_decoder_refuses_is_refused_there():
    async def test():
        async with client(Recorder()) as application:
            with pytest.raises(WireError, match="user has at most 1024 bytes, got 2000"):
                await application.decide(replace(REQUEST, user="x" * 2000), timeout_s=30.0)

    asyncio.run(test())


def test_a_port_without_calls_says_so():
    async def test():
        async with client(None) as application:
            with pytest.raises(LinkError, match="does not take such calls"):
                await application.status(StatusRequest(), timeout_s=30.0)

    asyncio.run(test())


def test_without_a_server_the_reason_is_given_and_a_later_call_finds_it():
    async def test():
        listener = RpcListener("127.0.0.1:0", tls=None, calls=Recorder())
        port = await listener.start(nobody)
        way = ApplicationClient(f"127.0.0.1:{port}", tls=None, name="web", role="application")
        await way.status(StatusRequest(), timeout_s=30.0)
        await listener.stop(grace_s=0.0)
        with pytest.raises(LinkError):
            await way.status(StatusRequest(), timeout_s=1.0)
        again = RpcListener(f"127.0.0.1:{port}", tls=None, calls=Recorder())
        await again.start(nobody)
        async with asyncio.timeout(60.0):
            while True:
                with contextlib.suppress(LinkError):
                    await way.status(StatusRequest(), timeout_s=10.0)
                    break
                await asyncio.sleep(0.05)
        await way.close()
        await again.stop(grace_s=0.0)

    asyncio.run(test())
