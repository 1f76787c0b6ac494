"""What comes before a body is bounded while it arrives: 431, and the connection is closed."""

import asyncio
import gc
from contextlib import asynccontextmanager

import pytest
from starlette.requests import Request
from starlette.responses import Response

from vfbandits.http.connection import MAX_HEAD_BYTES
from vfbandits.http.server import HttpServer
from vfbandits.settings.http import HttpSettings

FIRST = b"POST / HTTP/1.1\r\nhost: x\r\n"
LATE_S = 30.0
PIECE = b"a" * 16_384


@pytest.fixture(autouse=True)
def _memory():
    """A server settles the memory of its process, which here is that of all tests."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


async def echo(scope, receive, send):
    await Response(await Request(scope, receive).body())(scope, receive, send)


@asynccontextmanager
async def connected():
    server = HttpServer(echo, HttpSettings("127.0.0.1:0"))
    reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
    try:
        yield server, reader, writer
    finally:
        writer.close()
        await server.stop()


def padded(size, *, body=b""):
    """A request whose request line and headers, with the empty line, have ``size`` bytes."""
    tail = b"content-length: %d\r\n\r\n" % len(body)
    name = b"x-pad: "
    return FIRST + name + b"p" * (size - len(FIRST + name + tail) - 2) + b"\r\n" + tail + body


async def answer(reader):
    """All that came until the server closed the connection."""
    return await asyncio.wait_for(reader.read(), LATE_S)


def visit(check):
    async def run():
        async with connected() as (server, reader, writer):
            return await check(server, reader, writer)

    return asyncio.run(run())


def test_a_head_of_exactly_the_limit_is_served():
    async def check(_, reader, writer):
        writer.write(padded(MAX_HEAD_BYTES, body=b"whole"))
        return await asyncio.wait_for(reader.readuntil(b"whole"), LATE_S)

    assert visit(check).startswith(b"HTTP/1.1 200")


def test_one_byte_more_is_431_and_closed():
    async def check(server, reader, writer):
        writer.write(padded(MAX_HEAD_BYTES + 1, body=b"whole"))
        return await answer(reader), dict(server.counts.closed)

    came, closed = visit(check)
    assert came.startswith(b"HTTP/1.1 431 ")
    assert b"connection: close" in came
    assert b"application/problem+json" in came
    assert closed["head_too_large"] == 1


ENDLESS = {
    "a header": FIRST + b"x-pad: ",
    "the name of a header": FIRST,
    "the address": b"GET /",
    "trailers": FIRST + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nx-pad: ",
    "a chunk's extension": FIRST + b"transfer-encoding: chunked\r\n\r\n3;x=",
}


@pytest.mark.parametrize("beginning", ENDLESS.values(), ids=ENDLESS)
def test_what_never_ends_is_cut_off_while_it_arrives(beginning):
    """160 MB would take the parser 20 s; nothing near that is taken."""

    async def check(_, reader, writer):
        sent = 0
        writer.write(beginning)
        try:
            while sent < 160_000_000:
                writer.write(PIECE)
                await writer.drain()
                sent += len(PIECE)
        except ConnectionError:
            pass
        return sent

    assert visit(check) < 20_000_000  # what the kernel's buffers hold is sent before we know


def test_many_small_headers_count_together():
    async def check(_, reader, writer):
        writer.write(FIRST + b"".join(b"x-%d: %d\r\n" % (n, n) for n in range(8_000)))
        return await answer(reader)

    assert visit(check).startswith(b"HTTP/1.1 431 ")


def test_headers_that_come_in_drops_count_together():
    async def check(_, reader, writer):
        writer.write(FIRST)
        for _ in range(9):
            writer.write(b"x-pad: " + b"p" * 7_990 + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0.005)
        return await answer(reader)

    assert visit(check).startswith(b"HTTP/1.1 431 ")


def test_a_second_head_on_the_same_connection_is_bounded_too():
    async def check(_, reader, writer):
        writer.write(padded(1_000, body=b"first"))
        assert (await reader.readuntil(b"first")).startswith(b"HTTP/1.1 200")
        writer.write(padded(MAX_HEAD_BYTES + 1))
        return await answer(reader)

    assert visit(check).startswith(b"HTTP/1.1 431 ")


def test_heads_of_many_requests_do_not_add_up():
    async def check(_, reader, writer):
        for n in range(6):
            body = b"body %d" % n
            writer.write(padded(40_000, body=body))
            assert (await reader.readuntil(body)).startswith(b"HTTP/1.1 200")
        return True

    assert visit(check)


def test_bodies_are_not_heads():
    large = b"b" * (3 * MAX_HEAD_BYTES)
    chunks = b"".join(b"1\r\nc\r\n" for _ in range(20_000)) + b"0\r\n\r\n"

    async def check(_, reader, writer):
        writer.write(padded(500, body=large))
        assert (await reader.readuntil(large)).startswith(b"HTTP/1.1 200")
        writer.write(FIRST + b"transfer-encoding: chunked\r\n\r\n" + chunks)
        assert await asyncio.wait_for(reader.readuntil(b"c" * 20_000), LATE_S)
        return True

    assert visit(check)
