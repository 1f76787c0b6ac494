"""What a Listener, a Dialer and their Links promise, whatever carries the messages."""

import asyncio
import os

import pytest
from networks import KINDS, network

from vfbandits.errors import LinkError, WireError
from vfbandits.protocol.messages import Abort, Answer, Ask, Commit, Ping, Pong, Prepare, Welcome

SECONDS = 30.0


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


def run(test):
    async def bounded():
        async with asyncio.timeout(60):
            await test()

    asyncio.run(bounded())


async def send_until_refused(link):
    async with asyncio.timeout(SECONDS):
        while True:
            await link.send(Pong(1))
            await asyncio.sleep(0.001)


async def echo(link):
    while True:
        message = await link.receive()
        await link.send(Ping(message.number))


class Collector:
    """A handler that reads until the end, and remembers."""

    def __init__(self):
        self.messages = []
        self.links = []
        self.came = asyncio.Event()
        self.ended = asyncio.Event()
        self.error = None

    async def __call__(self, link):
        self.links.append(link)
        self.came.set()
        try:
            while True:
                self.messages.append(await link.receive())
        except (LinkError, WireError) as error:
            self.error = error
        finally:
            self.ended.set()


def test_messages_arrive_once_and_in_order_both_ways(kind, tmp_path):
    async def test():
        async with network(kind, tmp_path, echo, "bank") as net:
            link = await net.dialer("bank").dial(timeout_s=SECONDS)
            sizes = [await link.send(Pong(number)) for number in range(300)]
            assert min(sizes) > 0
            assert [await link.receive() for _ in range(300)] == [Ping(n) for n in range(300)]
            await link.close()

    run(test)


def test_sends_at_the_same_time_all_arrive(kind, tmp_path):
    async def test():
        async with network(kind, tmp_path, echo, "bank") as net:
            link = await net.dialer("bank").dial(timeout_s=SECONDS)
            await asyncio.gather(*(link.send(Pong(number)) for number in range(100)))
            came = [(await link.receive()).number for _ in range(100)]
            assert sorted(came) == list(range(100))
            await link.close()

    run(test)


def test_messages_posted_arrive_in_order_among_those_that_are_sent(kind, tmp_path):
    async def test():
        async with network(kind, tmp_path, echo, "bank") as net:
            link = await net.dialer("bank").dial(timeout_s=SECONDS)
            for number in range(0, 60, 2):
                assert link.post(Pong(number))
                await link.send(Pong(number + 1))
            assert [await link.receive() for _ in range(60)] == [Ping(n) for n in range(60)]
            await link.close()

    run(test)


def test_nothing_is_posted_to_a_link_that_is_closed_or_cannot_hold_it(kind, tmp_path):
    async def test():
        async with network(kind, tmp_path, Collector(), "bank") as net:
            link = await net.dialer("bank").dial(timeout_s=SECONDS)
            with pytest.raises(WireError, match="cannot hold"):
                link.post(Pong(-1))
            await link.close()
            assert not link.post(Pong(1))

    run(test)


def test_a_listener_gets_each_message_in_order_and_hears_of_the_end(kind, tmp_path):
    async def test():
        heard, ended = [], asyncio.Event()

        async def handler(link):
            heard.append(await link.receive())
            with pytest.raises(LinkError):
                await link.listen(heard.append)
            ended.set()

        async with network(kind, tmp_path, handler, "bank") as net:
            link = await net.dialer("bank").dial(timeout_s=SECONDS)
            for number in range(300):
                await link.send(Pong(number))
            await link.close()
            await asyncio.wait_for(ended.wait(), SECONDS)
            assert heard == [Pong(number) for number in range(300)]

    run(test)


def test_what_a_listener_raises_comes_out_where_it_listens(kind, tmp_path):
    async def test():
        raised = asyncio.get_running_loop().create_future()

        def refuse(message):
            raise WireError(f"no {type(message).__name__} here")

        async def handler(link):
            try:
                await link.listen(refuse)
            except WireError as error:
                raised.set_result(str(error))
                await link.close()

        async with network(kind, tmp_path, handler, "bank") as net:
            link = await net.dialer("bank").dial(timeout_s=SECONDS)
            await link.send(Pong(1))
            assert await asyncio.wait_for(raised, SECONDS) == "no Pong here"
            with pytest.raises(LinkError):
                await asyncio.wait_for(link.receive(), SECONDS)
            await link.close()

    run(test)


def test_a_link_that_serves_answers_each_message_in_order_and_hears_of_the_end(kind, tmp_path):
    async def test():
        ended = asyncio.Event()

        async def answer(message):
            await asyncio.sleep(0)
            return [Ping(message.number), Ping(message.number + 1)]

        async def handler(link):
            await link.send(Ping(0))
            with pytest.raises(LinkError):
                await link.serve(answer)
            ended.set()

        async with network(kind, tmp_path, handler, "bank") as net:
            link = await net.dialer("bank").dial(timeout_s=SECONDS)
            for number in range(0, 100, 2):
                await link.send(Pong(1 + number))
            assert [(await link.receive()).number for _ in range(101)] == list(range(101))
            await link.close()
            await asyncio.wait_for(ended.wait(), SECONDS)

    run(test)


def test_what_an_answerer_raises_comes_out_where_it_serves(kind, tmp_path):
    async def test():
        raised = asyncio.get_running_loop().create_future()

        async def refuse(message):
            raise WireError(f"no {type(message).__name__} here")

        async def handler(link):
            try:
                await link.serve(refuse)
            except WireError as error:
                raised.set_result(str(error))
                await link.close()

        async with network(kind, tmp_path, handler, "bank") as net:
            link = await net.dialer("bank").dial(timeout_s=SECONDS)
            await link.send(Pong(1))
            assert await asyncio.wait_for(raised, SECONDS) == "no Pong here"
            await link.close()

    run(test)


def test_an_answer_under_way_goes_out_though_serving_is_cancelled(kind, tmp_path):
    async def test():
        begun, may_go_on = asyncio.Event(), asyncio.Event()

        async def answer(message):
            begun.set()
            await may_go_on.wait()
            return [Ping(message.number)]

        async def handler(link):
            serving = asyncio.ensure_future(link.serve(answer))
            await begun.wait()
            serving.cancel()
            asyncio.get_running_loop().call_later(0.05, may_go_on.set)
            with pytest.raises(asyncio.CancelledError):
                await serving
            await link.close()

        async with network(kind, tmp_path, handler, "bank") as net:
            link = await net.dialer("bank").dial(timeout_s=SECONDS)
            await link.send(Pong(7))
            assert await asyncio.wait_for(link.receive(), SECONDS) == Ping(7)
            with pytest.raises(LinkError):
                await asyncio.wait_for(link.receive(), SECONDS)
            await link.close()

    run(test)


def test_each_end_knows_the_other(kind, tmp_path):
    async def test():
        collector = Collector()
        async with network(kind, tmp_path, collector, "bank") as net:
            link = await net.dialer("bank").dial(timeout_s=SECONDS)
            await collector.came.wait()
            assert link.peer.role == "active"
            peer = collector.links[0].peer
            assert (peer.name, peer.role) == ("bank", "passive")
            assert len(peer.certificate) == (64 if net.tls else 0)
            await link.close()

    run(test)


def test_a_message_of_ten_megabytes_passes_both_ways(kind, tmp_path):
    values = os.urandom(10_000_000)

    async def handler(link):
        answer = await link.receive()
        await link.send(Prepare(epoch=1, round=2, envelope=bytes(answer.values)))
        await link.receive()

    async def test():
        async with network(kind, tmp_path, handler, "bank") as net:
            link = await net.dialer("bank").dial(timeout_s=SECONDS)
            size = await link.send(Answer(1, 0, 1, bytes(16), 1250, 1000, values))
            assert 10_000_000 < size < 10_000_100
            assert (await link.receive()).envelope == values
            await link.close()

    run(test)


def test_sixty_four_links_at_once_do_not_mix(kind, tmp_path):
    names = [f"p{i}" for i in range(64)]

    async def handler(link):
        while True:
            await link.receive()
            await link.send(Ask(1, 0, 1, users=(link.peer.name,)))

    async def one(net, name):
        link = await net.dialer(name).dial(timeout_s=30.0)
        for number in range(5):
            await link.send(Pong(number))
            assert (await link.receive()).users == (name,)
        await link.close()

    async def test():
        async with network(kind, tmp_path, handler, *names) as net:
            await asyncio.gather(*(one(net, name) for name in names))

    run(test)


def test_what_was_sent_before_the_dialling_end_closes_still_arrives(kind, tmp_path):
    async def test():
        collector = Collector()
        async with network(kind, tmp_path, collector, "bank") as net:
            link = await net.dialer("bank").dial(timeout_s=SECONDS)
            for number in range(50):
                await link.send(Pong(number))
            await link.close()
            await asyncio.wait_for(collector.ended.wait(), SECONDS)
            assert collector.messages == [Pong(number) for number in range(50)]
            assert isinstance(collector.error, LinkError)

    run(test)


@pytest.mark.parametrize("by", ["close", "return"])
def test_what_was_sent_before_the_listening_end_closes_still_arrives(kind, by, tmp_path):
    async def handler(link):
        for epoch in range(50):
            await link.send(Commit(epoch))
        if by == "close":
            await link.close()
            with pytest.raises(LinkError):
                await link.receive()

    async def test():
        async with network(kind, tmp_path, handler, "bank") as net:
            link = await net.dialer("bank").dial(timeout_s=SECONDS)
            await asyncio.sleep(0.1)
            assert [await link.receive() for _ in range(50)] == [Commit(e) for e in range(50)]
            for _ in range(2):
                with pytest.raises(LinkError, match="is gone"):
                    await asyncio.wait_for(link.receive(), SECONDS)
            await link.close()

    run(test)


def test_the_last_words_are_heard_by_an_end_that_is_sending(kind, tmp_path):
    """A refusal must not be lost because the other end was in the middle of something."""

    async def handler(link):
        await link.receive()
        await link.send(Abort(7))

    async def test():
        async with network(kind, tmp_path, handler, "bank") as net:
            link = await net.dialer("bank").dial(timeout_s=SECONDS)
            with pytest.raises(LinkError):
                await send_until_refused(link)
            assert await link.receive() == Abort(7)
            await link.close()

    run(test)


def test_closing_twice_is_closing_once_and_nothing_goes_after(kind, tmp_path):
    async def test():
        async with network(kind, tmp_path, Collector(), "bank") as net:
            link = await net.dialer("bank").dial(timeout_s=SECONDS)
            await link.close()
            await link.close()
            with pytest.raises(LinkError):
                await link.send(Pong(1))
            with pytest.raises(LinkError):
                await link.receive()

    run(test)


def test_close_wakes_whoever_waits_for_a_message(kind, tmp_path):
    async def test():
        async with network(kind, tmp_path, Collector(), "bank") as net:
            link = await net.dialer("bank").dial(timeout_s=SECONDS)
            waiting = asyncio.ensure_future(link.receive())
            await asyncio.sleep(0.05)
            await link.close()
            with pytest.raises(LinkError):
                await asyncio.wait_for(waiting, SECONDS)

    run(test)


def test_sending_to_an_end_that_closed_fails_within_a_bounded_time(kind, tmp_path):
    async def handler(link):
        await link.close()

    async def test():
        async with network(kind, tmp_path, handler, "bank") as net:
            link = await net.dialer("bank").dial(timeout_s=SECONDS)
            with pytest.raises(LinkError):
                await send_until_refused(link)
            await link.close()

    run(test)


def test_a_receive_that_was_cancelled_loses_no_message(kind, tmp_path):
    async def handler(link):
        for epoch in range(3):
            await link.receive()
            await asyncio.sleep(0.05)
            await link.send(Welcome(epoch))
        await link.receive()

    async def test():
        async with network(kind, tmp_path, handler, "bank") as net:
            link = await net.dialer("bank").dial(timeout_s=SECONDS)
            for epoch in range(3):
                await link.send(Pong(epoch))
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(link.receive(), 0.01)
                assert await link.receive() == Welcome(epoch)
            await link.close()

    run(test)


def test_a_message_meant_for_the_other_direction_is_a_wire_error(kind, tmp_path):
    async def test():
        collector = Collector()
        async with network(kind, tmp_path, collector, "bank") as net:
            link = await net.dialer("bank").dial(timeout_s=SECONDS)
            await link.send(Ping(1))
            await asyncio.wait_for(collector.ended.wait(), SECONDS)
            assert isinstance(collector.error, WireError)
            assert collector.messages == []
            await link.close()

    run(test)


def test_a_message_that_cannot_be_encoded_is_refused_and_the_link_goes_on(kind, tmp_path):
    async def test():
        async with network(kind, tmp_path, echo, "bank") as net:
            link = await net.dialer("bank").dial(timeout_s=SECONDS)
            with pytest.raises(WireError, match="cannot hold"):
                await link.send(Pong(-1))
            await link.send(Pong(5))
            assert await link.receive() == Ping(5)
            await link.close()

    run(test)


def test_stop_ends_the_links_that_stay_open(kind, tmp_path):
    async def test():
        collector = Collector()
        async with network(kind, tmp_path, collector, "bank") as net:
            link = await net.dialer("bank").dial(timeout_s=SECONDS)
            await collector.came.wait()
            await asyncio.wait_for(net.stop(0.1), SECONDS)
            with pytest.raises(LinkError):
                await asyncio.wait_for(link.receive(), SECONDS)
            await asyncio.wait_for(collector.ended.wait(), SECONDS)
            assert isinstance(collector.error, LinkError)
            with pytest.raises(LinkError):
                await net.dialer("bank").dial(timeout_s=1.0)
            await link.close()

    run(test)


def test_stop_lets_a_handler_finish_within_its_grace(kind, tmp_path):
    async def handler(link):
        await link.receive()
        await asyncio.sleep(0.3)
        await link.send(Commit(1))

    async def test():
        async with network(kind, tmp_path, handler, "bank") as net:
            link = await net.dialer("bank").dial(timeout_s=SECONDS)
            await link.send(Pong(1))
            stopping = asyncio.ensure_future(net.stop(SECONDS))
            assert await link.receive() == Commit(1)
            await link.close()
            await asyncio.wait_for(stopping, SECONDS)

    run(test)


def test_stop_does_not_wait_for_a_handler_that_never_ends(kind, tmp_path):
    started = []

    async def handler(link):
        started.append(link.peer.name)
        await asyncio.Event().wait()

    async def test():
        async with network(kind, tmp_path, handler, "bank") as net:
            link = await net.dialer("bank").dial(timeout_s=SECONDS)
            await link.send(Pong(1))
            while not started:  # noqa: ASYNC110  (a list tells nobody)
                await asyncio.sleep(0.001)
            await asyncio.wait_for(net.stop(0.1), SECONDS)
            await link.close()
            assert asyncio.all_tasks() == {asyncio.current_task()}

    run(test)
    assert started == ["bank"]
