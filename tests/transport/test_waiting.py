import asyncio

import pytest

from vfbandits.transport.rpc.waiting import MAX_MESSAGES, MAX_SIZE_BYTES, Waiting


async def soon(task):
    """Let what can run, run."""
    for _ in range(5):
        await asyncio.sleep(0)
    return task.done()


@pytest.mark.parametrize(
    ("message", "most"), [(b"x", MAX_MESSAGES), (bytes(1 << 20), MAX_SIZE_BYTES >> 20)]
)
def test_whoever_puts_more_than_there_is_room_for_waits_until_some_is_taken(message, most):
    async def test():
        waiting = Waiting()
        for _ in range(most):
            assert await asyncio.wait_for(waiting.put(message), 30.0)
        late = [asyncio.ensure_future(waiting.put(message)) for _ in range(3)]
        assert not await soon(late[0])
        await waiting.take()
        assert [await soon(task) for task in late] == [True, False, False]
        await waiting.take()
        await waiting.take()
        assert [await task for task in late] == [True, True, True]

    asyncio.run(test())


def test_what_is_put_at_once_is_refused_when_there_is_no_room_and_after_the_end():
    async def test():
        waiting = Waiting()
        assert all(waiting.put_at_once(b"x") for _ in range(MAX_MESSAGES))
        assert not waiting.put_at_once(b"x")
        await waiting.take()
        assert waiting.put_at_once(b"y")
        await waiting.take()
        waiting.end()
        assert not waiting.put_at_once(b"z")

    asyncio.run(test())


def test_the_end_lets_all_go_that_wait_and_keeps_what_was_put():
    async def test():
        full, empty = Waiting(), Waiting()
        for _ in range(MAX_MESSAGES):
            await full.put(b"x")
        putters = [asyncio.ensure_future(full.put(b"y")) for _ in range(3)]
        takers = [asyncio.ensure_future(empty.take()) for _ in range(3)]
        assert not await soon(putters[0])
        full.end()
        empty.end()
        assert [await task for task in putters] == [False] * 3
        assert [await task for task in takers] == [None] * 3
        assert [await full.take() for _ in range(MAX_MESSAGES + 1)] == [b"x"] * 64 + [None]

    asyncio.run(test())


def test_a_taker_that_gives_up_at_the_last_moment_leaves_the_message_to_the_next():
    async def test():
        waiting = Waiting()
        takers = [asyncio.ensure_future(waiting.take()) for _ in range(2)]
        await soon(takers[0])
        await waiting.put(b"x")
        takers[0].cancel()
        assert await asyncio.wait_for(takers[1], 30.0) == b"x"
        assert takers[0].cancelled()

    asyncio.run(test())


def test_a_putter_that_gives_up_puts_nothing():
    async def test():
        waiting = Waiting()
        for _ in range(MAX_MESSAGES):
            await waiting.put(b"x")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(waiting.put(b"y"), 0.01)
        taken = [await waiting.take() for _ in range(MAX_MESSAGES)]
        assert taken == [b"x"] * MAX_MESSAGES
        waiting.end()
        assert await waiting.take() is None

    asyncio.run(test())
