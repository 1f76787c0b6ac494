"""Connections over the limits, on real sockets, on both event loops, with and without TLS."""

import asyncio
import contextlib
import gc
import socket
import ssl
from pathlib import Path
from typing import ClassVar

import pytest
import uvloop
from certificates import make_authority, make_leaf
from starlette.responses import Response

from vfbandits.http.access.caller import CALLER, EVERYBODY
from vfbandits.http.server import HttpServer
from vfbandits.settings.http import HttpSettings

LATE_S = 20.0
HOST = "127.0.0.1"
loops = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


@pytest.fixture(autouse=True)
def _memory():
    """A server settles the memory of its process, which here is that of all tests."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


async def app(scope, receive, send):
    """Knows whoever shows any key."""
    if any(name == b"x-api-key" for name, _ in scope["headers"]):
        scope[CALLER] = EVERYBODY
    await Response(b"hello")(scope, receive, send)


@contextlib.asynccontextmanager
async def serving(**more):
    n_before = n_descriptors()
    server = HttpServer(app, HttpSettings(f"{HOST}:0", **more))
    port = await server.start()
    try:
        yield server, port
    finally:
        while Caller.all:
            Caller.all.pop().writer.close()
        await until(lambda: server.counts.open == 0)
        await server.stop()
        await until(lambda: n_descriptors() == n_before)


def n_descriptors():
    """Those of this process that are sockets."""
    links = Path("/proc/self/fd").iterdir()
    return sum(str(link.readlink()).startswith("socket:") for link in links if link.is_symlink())


async def until(condition):
    async with asyncio.timeout(LATE_S):
        while not condition():  # noqa: ASYNC110  (of counters, which tell nobody)
            await asyncio.sleep(0.01)


class Caller:
    """One connection that asks."""

    all: ClassVar = []

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.all.append(self)

    @classmethod
    async def connect(cls, port, *, source=HOST, **more):
        line = asyncio.open_connection(HOST, port, local_addr=(source, 0), **more)
        return cls(*await asyncio.wait_for(line, LATE_S))

    async def ask(self, key="a key"):
        shown = f"x-api-key: {key}\r\n" if key else ""
        self.writer.write(f"GET / HTTP/1.1\r\nhost: x\r\n{shown}\r\n".encode())
        return await asyncio.wait_for(self.reader.readuntil(b"hello"), LATE_S)

    async def end(self):
        """All that comes before the server closes the connection."""
        try:
            return await asyncio.wait_for(self.reader.read(), LATE_S)
        except ConnectionError:
            return b""


def idle(port, count, *, source=HOST):
    """Connections that never say a word."""
    return [
        socket.create_connection((HOST, port), LATE_S, source_address=(source, 0))
        for _ in range(count)
    ]


@loops
def test_idle_strangers_make_room_and_callers_with_a_key_stay(run):
    async def visit():
        async with serving(max_connections=6, max_connections_per_address=4) as (server, port):
            caller = await Caller.connect(port)
            assert (await caller.ask()).startswith(b"HTTP/1.1 200")
            lines = []
            for source in ("127.0.0.1", "127.0.0.2", "127.0.0.3"):
                lines += await asyncio.to_thread(idle, port, 20, source=source)
            other = await Caller.connect(port, source="127.0.0.9")
            assert (await other.ask()).startswith(b"HTTP/1.1 200")
            assert (await caller.ask()).startswith(b"HTTP/1.1 200")
            assert server.counts.open <= 6
            assert server.counts.closed["idle"] >= 56
            for line in lines:
                line.close()

    run(visit())


@loops
def test_whoever_comes_when_all_places_are_in_use_gets_503(run):
    async def visit():
        async with serving(max_connections=3, max_connections_per_address=2) as (server, port):
            callers = [await Caller.connect(port) for _ in range(2)]
            for caller in callers:
                await caller.ask()
            refused = await Caller.connect(port)
            assert (await refused.end()).startswith(b"HTTP/1.1 503 ")
            other = await Caller.connect(port, source="127.0.0.2")
            await other.ask()
            third = await Caller.connect(port, source="127.0.0.3")
            assert (await third.end()).startswith(b"HTTP/1.1 503 ")
            assert server.counts.refused == {"address": 1, "total": 1, "descriptors": 0}
            callers[0].writer.close()
            await until(lambda: server.counts.open == 2)
            assert await (await Caller.connect(port)).ask()

    run(visit())


@loops
def test_a_handshake_that_does_not_begin_makes_room_too(run, tmp_path):
    authority = make_authority()
    leaf = make_leaf(tmp_path, "shop", "active", authority=authority)
    context = ssl.create_default_context(cafile=leaf.authority)
    context.check_hostname = False

    async def visit():
        tls = {"certificate": leaf.certificate, "private_key": leaf.key}
        async with serving(max_connections=4, **tls) as (server, port):
            lines = await asyncio.to_thread(idle, port, 30)
            caller = await Caller.connect(port, ssl=context)
            assert (await caller.ask()).startswith(b"HTTP/1.1 200")
            assert server.counts.open <= 4
            # Plain HTTP on a TLS port is no handshake.
            with contextlib.closing(socket.create_connection((HOST, port))) as plain:
                await asyncio.to_thread(plain.sendall, b"GET / HTTP/1.1\r\n\r\n")
                await until(lambda: server.counts.closed["tls"] == 1)
            for line in lines:
                line.close()

    run(visit())
