"""Connections whose request never comes to its end are closed; those of others stay."""

import asyncio
import gc
from contextlib import asynccontextmanager

import pytest
from starlette.requests import Request
from starlette.responses import Response

from vfbandits.http.server import HttpServer
from vfbandits.settings.http import HttpSettings

READ_S = 1.0
HEAD = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 6\r\n\r\n"
WHOLE = HEAD + b"abcdef"


@pytest.fixture(autouse=True)
def _memory():
    """A server settles the memory of its process, which here is that of all tests."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


async def echo(scope, receive, send):
    body = await Request(scope, receive).body()
    if body == b"slowly":
        await asyncio.sleep(1.5 * READ_S)
    await Response(body)(scope, receive, send)


@asynccontextmanager
async def connected():
    server = HttpServer(echo, HttpSettings("127.0.0.1:0"), read_s=READ_S)
    reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
    try:
        yield reader, writer
    finally:
        writer.close()
        await server.stop()


async def is_closed(reader):
    try:
        return not await asyncio.wait_for(reader.read(), 30.0)
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("beginning", [b"", b"POS", HEAD[:30], HEAD, HEAD + b"abc"])
def test_a_request_that_is_never_finished_is_hung_up_on(beginning):
    async def visit():
        async with connected() as (reader, writer):
            writer.write(beginning)
            assert await is_closed(reader)

    asyncio.run(visit())


def test_a_request_that_comes_in_drops_is_hung_up_on():
    async def drip(writer):
        for byte in HEAD:
            writer.write(bytes([byte]))
            await asyncio.sleep(READ_S / 10.0)

    async def visit():
        async with connected() as (reader, writer):
            dripping = asyncio.create_task(drip(writer))
            assert await is_closed(reader)
            dripping.cancel()

    asyncio.run(visit())


def test_an_unfinished_second_request_is_hung_up_on_too():
    async def visit():
        async with connected() as (reader, writer):
            writer.write(WHOLE)
            assert (await reader.readuntil(b"abcdef")).startswith(b"HTTP/1.1 200")
            writer.write(HEAD)
            assert await is_closed(reader)

    asyncio.run(visit())


def test_callers_that_finish_their_requests_stay_connected():
    async def visit():
        async with connected() as (reader, writer):
            for _ in range(4):  # idle in between, for longer than a request may take in all
                writer.write(WHOLE)
                assert (await reader.readuntil(b"abcdef")).startswith(b"HTTP/1.1 200")
                await asyncio.sleep(READ_S / 2.0)

    asyncio.run(visit())


def test_a_caller_may_wait_longer_for_its_answer_than_it_may_take_to_ask():
    async def visit():
        async with connected() as (reader, writer):
            writer.write(HEAD + b"slowly")
            assert (await reader.readuntil(b"slowly")).startswith(b"HTTP/1.1 200")

    asyncio.run(visit())
