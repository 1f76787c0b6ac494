"""Work that runs together ends together."""

import asyncio

import pytest

from vfbandits.errors import LinkError
from vfbandits.serving.concurrency import both


@pytest.mark.parametrize("fails_first", [False, True])
def test_an_error_of_one_ends_the_work_on_the_other(fails_first):
    ended = []

    async def wait():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("wait")

    async def fail():
        await asyncio.sleep(0)
        raise LinkError("away")

    with pytest.raises(LinkError, match="away"):
        asyncio.run(both(fail(), wait()) if fails_first else both(wait(), fail()))
    assert ended == ["wait"]


def test_a_cancelled_wait_for_both_ends_both():
    ended = []

    async def wait(name):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async def scenario():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(both(wait("one"), wait("other")), 0.01)

    asyncio.run(scenario())
    assert ended == ["one", "other"]
