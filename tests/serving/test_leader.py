"""A ranker asks the leader, many decisions in a call, and has patience while there is none."""

import asyncio
import contextlib

import pytest
from ports import free_port

from vfbandits.errors import ArmError, LinkError, WireError
from vfbandits.protocol.application import DecideRequest, GatherReplies, GatherReply, StatusReply
from vfbandits.serving.batches import MAX_BATCH_BYTES
from vfbandits.serving.leader_link import LeaderLink
from vfbandits.transport.rpc.application import ApplicationClient
from vfbandits.transport.rpc.server import RpcListener


def request(user, **more):
    return DecideRequest(user, ("tea",), **more)


def reply(user):
    return GatherReply(user.encode().ljust(16), ("shop",), 1, 24)


def users_of(outcomes):
    return [one.rows.decode().strip() for one in outcomes]


class Calls:
    """The part of an active participant that a ranker asks; ``errors`` are by user."""

    decide = reward = change = None

    def __init__(self, error=None, document='{"participants": {"bank": {"width": 3}}}', errors=()):
        self.error, self.document = error, document
        self.errors = dict(errors)
        self.batches = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def gather(self, peer, asked):
        self.batches.append([getattr(one, "user", None) for one in asked.requests])
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return GatherReplies(tuple(map(self.outcome, asked.requests)))

    def outcome(self, one):
        if not isinstance(one, DecideRequest):
            return one
        return self.errors.get(one.user) or reply(one.user)

    async def status(self, peer, request):
        return StatusReply(self.document)


async def nobody(link):
    await link.receive()


async def listening(port, calls):
    listener = RpcListener(f"127.0.0.1:{port}", tls=None, calls=calls)
    await listener.start(nobody)
    return listener


def leader_at(port, patience_s, answer_s=5.0):
    client = ApplicationClient(f"127.0.0.1:{port}", tls=None, name="shop", role="active")
    return LeaderLink(client, answer_s=answer_s, patience_s=patience_s)


@contextlib.asynccontextmanager
async def asking(calls, *, patience_s=0.0, answer_s=5.0):
    port = free_port()
    listener = await listening(port, calls)
    leader = leader_at(port, patience_s, answer_s)
    try:
        async with asyncio.timeout(60.0):
            yield leader
    finally:
        calls.gate.set()
        await leader.stop()
        await listener.stop(grace_s=0.0)


async def soon(is_so):
    async with asyncio.timeout(60.0):
        while not is_so():  # noqa: ASYNC110  (a test may poll)
            await asyncio.sleep(0.01)


def test_a_call_is_made_again_until_somebody_leads():
    async def main():
        port, calls = free_port(), Calls()
        leader = leader_at(port, patience_s=20.0)
        asked = asyncio.create_task(leader.gather([request("ann")], size_bytes=16))
        await asyncio.sleep(0.3)
        assert not asked.done()
        listener = await listening(port, calls)
        assert users_of(await asked) == ["ann"]
        await leader.stop()
        await listener.stop(grace_s=0.0)

    asyncio.run(main())


def test_patience_ends_and_an_error_about_the_request_is_told_at_once():
    async def main():
        port = free_port()
        leader = leader_at(port, patience_s=0.3)
        (lost,) = await leader.gather([request("ann")], size_bytes=16)
        assert isinstance(lost, LinkError)
        await leader.stop()
        calls = Calls(ArmError("arms must differ"))
        async with asking(calls, patience_s=20.0) as leader:
            (refused,) = await leader.gather([request("ann")], size_bytes=16)
        assert (type(refused), str(refused)) == (ArmError, "arms must differ")
        assert len(calls.batches) == 1

    asyncio.run(main())


def test_what_waits_while_a_call_is_under_way_travels_in_the_next_one():
    async def main():
        calls = Calls()
        calls.gate.clear()
        async with asking(calls) as leader:
            first = asyncio.create_task(leader.gather([request("ann")], size_bytes=16))
            await soon(lambda: calls.batches)
            others = [
                asyncio.create_task(
                    leader.gather([request(f"{k}a"), request(f"{k}b")], size_bytes=32)
                )
                for k in range(5)
            ]
            await asyncio.sleep(0.05)
            calls.gate.set()
            assert users_of(await first) == ["ann"]
            for k, other in enumerate(others):
                assert users_of(await other) == [f"{k}a", f"{k}b"]
        assert [len(batch) for batch in calls.batches] == [1, 10]

    asyncio.run(main())


def test_one_bad_request_of_a_call_fails_alone_with_its_own_error():
    async def main():
        calls = Calls(errors={"bad": ArmError("arms must differ")})
        async with asking(calls) as leader:
            asked = [request("ann"), request("bad"), request("bob")]
            one, bad, two = await leader.gather(asked, size_bytes=48)
        assert users_of([one, two]) == ["ann", "bob"]
        assert (type(bad), str(bad)) == (ArmError, "arms must differ")
        assert len(calls.batches) == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (request("x" * 2_000), "user has at most 1024 bytes"),
        (request("bad", trial=-1), "cannot hold"),  # not even sent
        (request("\ud800"), "cannot hold"),
    ],
)
def test_a_request_that_cannot_travel_does_not_hold_up_the_others(bad, sentence):
    async def main():
        async with asking(Calls()) as leader:
            outcomes = await leader.gather([request("ann"), bad, request("bob")], size_bytes=48)
        assert users_of([outcomes[0], outcomes[2]]) == ["ann", "bob"]
        assert isinstance(outcomes[1], WireError)
        assert sentence in str(outcomes[1])

    asyncio.run(main())


def test_a_call_has_a_limit_of_bytes_and_what_is_larger_goes_alone():
    async def main():
        calls = Calls()
        calls.gate.clear()
        async with asking(calls) as leader:
            sizes = [1, *[MAX_BATCH_BYTES // 3] * 5, 2 * MAX_BATCH_BYTES, 1]
            asked = []
            for k, size in enumerate(sizes):
                gathering = leader.gather([request(f"u{k}")], size_bytes=size)
                asked.append(asyncio.create_task(gathering))
                if not k:
                    await soon(lambda: calls.batches)
            await asyncio.sleep(0.05)
            calls.gate.set()
            answers = [users_of(await one) for one in asked]
        assert answers == [[f"u{k}"] for k in range(len(sizes))]
        assert [len(batch) for batch in calls.batches] == [1, 3, 2, 1, 1]

    asyncio.run(main())


def test_a_leader_that_dies_in_the_middle_of_a_call_leaves_nobody_waiting():
    async def main():
        port, calls = free_port(), Calls()
        calls.gate.clear()
        listener = await listening(port, calls)
        leader = leader_at(port, patience_s=0.2)
        asked = [
            asyncio.create_task(leader.gather([request(f"{k}a"), request(f"{k}b")], size_bytes=32))
            for k in range(4)
        ]
        await soon(lambda: calls.batches)
        late = asyncio.create_task(leader.gather([request("late")], size_bytes=16))
        await listener.stop(grace_s=0.0)
        async with asyncio.timeout(20.0):
            outcomes = [one for each in asked for one in await each] + await late
        assert [type(one) for one in outcomes] == [LinkError] * 9
        calls.gate.set()
        again = await listening(port, Calls())
        async with asyncio.timeout(20.0):
            while True:
                (outcome,) = await leader.gather([request("ann")], size_bytes=16)
                if not isinstance(outcome, LinkError):
                    break
        assert users_of([outcome]) == ["ann"]
        await leader.stop()
        await again.stop(grace_s=0.0)

    asyncio.run(main())


def test_a_leader_that_does_not_answer_gives_everybody_an_error_by_the_deadline():
    async def main():
        calls = Calls()
        calls.gate.clear()
        async with asking(calls, answer_s=0.3) as leader:
            asked = [leader.gather([request(f"u{k}")], size_bytes=16) for k in range(6)]
            outcomes = [one for each in await asyncio.gather(*asked) for one in each]
        assert [type(one) for one in outcomes] == [LinkError] * 6

    asyncio.run(main())


def test_only_what_was_lost_is_asked_for_again():
    async def main():
        calls = Calls(errors={"lost": LinkError("stopping"), "bad": ArmError("arms must differ")})
        async with asking(calls, patience_s=20.0) as leader:
            asked = [request("ann"), request("lost"), request("bad")]
            gathering = asyncio.create_task(leader.gather(asked, size_bytes=48))
            await soon(lambda: len(calls.batches) > 1)
            calls.errors.pop("lost")
            one, lost, bad = await gathering
        assert users_of([one, lost]) == ["ann", "lost"]
        assert isinstance(bad, ArmError)
        assert calls.batches[0] == ["ann", "lost", "bad"]
        assert {tuple(batch) for batch in calls.batches[1:]} == {("lost",)}

    asyncio.run(main())


def test_a_reply_with_too_few_outcomes_is_refused_and_nobody_waits():
    class Short(Calls):
        async def gather(self, peer, asked):
            self.batches.append(len(asked.requests))
            return GatherReplies(())

    async def main():
        async with asking(Short()) as leader:
            outcomes = await leader.gather([request("ann"), request("bob")], size_bytes=32)
        assert [str(one) for one in outcomes] == ["wanted 1 outcomes, got 0"] * 2

    asyncio.run(main())


def test_participants_are_as_the_leader_sees_them_and_none_are_known_without_one():
    async def main():
        port, calls = free_port(), Calls()
        listener = await listening(port, calls)
        leader = leader_at(port, patience_s=0.1)
        assert leader.participants() == {}
        leader.start()
        async with asyncio.timeout(60.0):
            while not leader.participants():  # noqa: ASYNC110  (a test may poll)
                await asyncio.sleep(0.02)
            assert leader.participants() == {"bank": {"width": 3}}
            calls.document = "[3]"
            while leader.participants():  # noqa: ASYNC110  (a test may poll)
                await asyncio.sleep(0.02)
        await leader.stop()
        await listener.stop(grace_s=0.0)

    asyncio.run(main())
