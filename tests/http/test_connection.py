"""HTTP on the wire: what is taken, what is refused, and that nobody is led to see two requests."""

import asyncio
import gc
import json
from contextlib import asynccontextmanager

import pytest
import uvloop
from structlog.testing import capture_logs

from vfbandits.http.connection import MAX_LINGER_BYTES
from vfbandits.http.server import HttpServer
from vfbandits.settings.http import HttpSettings

LATE_S = 20.0
HEAD = b"POST /echo HTTP/1.1\r\nhost: x\r\n"
NEXT = b"GET /next HTTP/1.1\r\nhost: x\r\n\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
loops = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


@pytest.fixture(autouse=True)
def _memory():
    """A server settles the memory of its process, which here is that of all tests."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


class App:
    """Answers what it was asked, as JSON; some paths misbehave."""

    def __init__(self):
        self.seen = []
        self.released = asyncio.Event()
        self.end = None

    async def __call__(self, scope, receive, send):
        path = scope["path"]
        self.seen.append(f"{scope['method']} {path}")
        if path == "/refuse":
            await reply(send, b"no", status=401)
            return
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.end = "disconnect"
                return
            body += message["body"]
            more = message["more_body"]
        await self._answer(path, scope, body, receive, send)

    async def _answer(self, path, scope, body, receive, send):
        if path == "/wait":
            await self.released.wait()
        if path == "/until-gone":
            self.end = (await receive())["type"]
            return
        if path == "/fail":
            raise ZeroDivisionError
        if path == "/break-off":
            await send({"type": "http.response.start", "status": 200})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
            raise ZeroDivisionError
        if path == "/header":
            await reply(send, b"", headers=[(b"x", b"a\r\nset-cookie: b")])
            return
        if path in ("/short", "/long"):
            wrong = 1 if path == "/long" else 10
            await reply(send, b"four", headers=[(b"content-length", b"%d" % wrong)])
            return
        if path == "/stream":
            await send({"type": "http.response.start", "status": 200})
            for piece in (b"one", b"", b"two"):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body"})
            return
        if path == "/large":
            await reply(send, b"x" * 1_000_000)
            return
        if path == "/empty":
            await reply(send, b"", status=204)
            return
        told = {
            "method": scope["method"],
            "path": path,
            "query": scope["query_string"].decode(),
            "host": dict(scope["headers"]).get(b"host", b"").decode(),
            "names": sorted({name.decode() for name, _ in scope["headers"]}),
            "version": scope["http_version"],
            "body": body.decode("latin-1"),
        }
        await reply(send, json.dumps(told).encode())


async def reply(send, body, *, status=200, headers=()):
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def connected(**more):
    app = App()
    server = HttpServer(app, HttpSettings("127.0.0.1:0"), **more)
    port = await server.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    app.server, app.port = server, port
    try:
        async with asyncio.timeout(LATE_S):
            yield app, reader, writer
    finally:
        writer.close()
        app.released.set()
        await server.stop()


async def answer(reader, *, has_body=True):
    """Status, headers and body of the next answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in head[1:] if line)
    body = b""
    if has_body and "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    return int(head[0].split()[1]), headers, body


def ask(*pieces, run=asyncio.run):
    """All that the server says to these bytes until it closes, and what its application saw."""

    async def visit():
        async with connected() as (app, reader, writer):
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(0.01)
            writer.write(b"GET /last HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            return await reader.read(), app.seen

    return run(visit())


def ask_once(request, *, run=asyncio.run):
    async def visit():
        async with connected() as (_, reader, writer):
            writer.write(request)
            return await answer(reader)

    return run(visit())


AMBIGUOUS = {
    "a length and chunks": b"content-length: 3\r\n" + CHUNKED + b"0\r\n\r\n",
    "chunks and a length": CHUNKED[:-2] + b"content-length: 3\r\n\r\n0\r\n\r\n",
    "two equal lengths": b"content-length: 3\r\ncontent-length: 3\r\n\r\nabc",
    "two lengths": b"content-length: 3\r\ncontent-length: 30\r\n\r\nabc",
    "a list of lengths": b"content-length: 3, 3\r\n\r\nabc",
    "a signed length": b"content-length: +3\r\n\r\nabc",
    "a negative length": b"content-length: -3\r\n\r\nabc",
    "an endless length": b"content-length: 99999999999999999999999\r\n\r\nabc",
    "an empty length": b"content-length: \r\n\r\nabc",
    "another coding": b"transfer-encoding: gzip\r\n\r\nabc",
    "a coding before chunks": b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "a coding after chunks": b"transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "almost chunked": b"transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked twice": b"transfer-encoding: chunked\r\n" + CHUNKED + b"0\r\n\r\n",
    "identity": b"transfer-encoding: identity\r\ncontent-length: 3\r\n\r\nabc",
    "a folded header": b"x: a\r\n b\r\n\r\n",
    "a folded coding": b"transfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "a space before the colon": b"content-length : 3\r\n\r\nabc",
    "a bare line feed": b"x: a\ncontent-length: 3\r\n\r\nabc",
    "a bare carriage return": b"x: a\rcontent-length: 3\r\n\r\nabc",
    "an empty line of a line feed": b"x: a\r\n\n",
    "a zero byte": b"x: a\0b\r\n\r\n",
    "a header without a name": b": a\r\n\r\n",
    "another host": b"host: y\r\n\r\n",
    "a chunk that ends in a line feed": CHUNKED + b"3\nabc\r\n0\r\n\r\n",
    "a chunk of another length": CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n",
    "a chunk of a hexadecimal prefix": CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n",
    "an endless chunk": CHUNKED + b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    "an extension with a line feed": CHUNKED + b"3;a=\nb\r\nabc\r\n0\r\n\r\n",
    "a body for another protocol": b"connection: upgrade\r\nupgrade: h2c\r\n"
    b"content-length: 3\r\n\r\nabc",
}


@pytest.mark.parametrize("rest", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_a_request_with_two_readings_is_400_and_nothing_after_it_is_read(rest):
    came, seen = ask(HEAD + rest + NEXT)
    assert came.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert came.count(b"HTTP/1.1 ") == 1
    assert b"connection: close" in came
    assert b"application/problem+json" in came
    assert not {"GET /next", "GET /last"} & set(seen)


OTHER = {
    "no host": b"GET /echo HTTP/1.1\r\n\r\n",
    "line feeds alone": b"GET /echo HTTP/1.1\nhost: x\n\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "version 2.0": b"GET /echo HTTP/2.0\r\nhost: x\r\n\r\n",
    "version 0.9": b"GET /echo\r\n\r\n",
    "chunks in HTTP/1.0": b"POST /echo HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "a tunnel": b"CONNECT x:443 HTTP/1.1\r\nhost: x\r\n\r\n",
    "an asterisk": b"OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n",
    "another scheme": b"GET ftp://x/echo HTTP/1.1\r\nhost: x\r\n\r\n",
    "letters beyond ASCII": b"GET /\xc3\xa9 HTTP/1.1\r\nhost: x\r\n\r\n",
    "a tab in the path": b"GET /a\tb HTTP/1.1\r\nhost: x\r\n\r\n",
    "TLS": b"\x16\x03\x01\x00\n\r\n\r\n",
    "another method": b"BREW / HTCPCP/1.0\r\n\r\n",
}


@pytest.mark.parametrize("request_", OTHER.values(), ids=OTHER)
def test_what_is_no_request_for_us_is_400(request_):
    came, seen = ask(request_ + NEXT)
    assert came.startswith(b"HTTP/1.1 400 ")
    assert came.count(b"HTTP/1.1 ") == 1
    assert seen == []


def test_a_request_before_a_malformed_one_is_answered_first():
    came, seen = ask(NEXT + b"nonsense\r\n\r\n")
    first, second = came.split(b"HTTP/1.1 ")[1:]
    assert (first[:3], second[:3]) == (b"200", b"400")
    assert seen == ["GET /next"]


@pytest.mark.parametrize(
    ("target", "path", "query", "host"),
    [
        (b"/echo?a=%20&b", "/echo", "a=%20&b", "x"),
        (b"/a%2Fb%20%C3%A9", "/a/b é", "", "x"),
        (b"/a%ffb", "/a\ufffdb", "", "x"),
        (b"/a%0d%0ab", "/a\r\nb", "", "x"),
        (b"/a%zz", "/a%zz", "", "x"),
        (b"//evil/echo", "//evil/echo", "", "x"),
        (b"/echo#part", "/echo", "", "x"),
        (b"http://y:80/echo?c", "/echo", "c", "y:80"),
        (b"HTTPS://u@y/echo", "/echo", "", "y"),
        (b"http://y", "/", "", "y"),
    ],
)
def test_the_target_of_a_request(target, path, query, host):
    status, _, body = ask_once(b"GET " + target + b" HTTP/1.1\r\nhost: x\r\n\r\n")
    told = json.loads(body)
    assert (status, told["path"], told["query"], told["host"]) == (200, path, query, host)


@loops
def test_a_body_in_chunks_is_one_body_and_its_trailers_are_dropped(run):
    chunks = b"3;name=value\r\nabc\r\n2\r\nde\r\n0\r\nx-api-key: late\r\n\r\n"
    status, _, body = ask_once(HEAD + CHUNKED + chunks, run=run)
    told = json.loads(body)
    assert (status, told["body"]) == (200, "abcde")
    assert told["names"] == ["host", "transfer-encoding"]


def test_http_1_0_is_answered_and_closed():
    async def visit():
        async with connected() as (_, reader, writer):
            writer.write(b"GET /echo HTTP/1.0\r\nconnection: keep-alive\r\n\r\n" + NEXT)
            first = await answer(reader)
            return first, await reader.read()

    (status, headers, _), rest = asyncio.run(visit())
    assert (status, headers["connection"], rest) == (200, "close", b"")


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
def test_an_answer_in_pieces(version):
    async def visit():
        async with connected() as (_, reader, writer):
            writer.write(b"GET /stream HTTP/" + version + b"\r\nhost: x\r\n")
            writer.write(b"connection: close\r\n\r\n")
            return await reader.read()

    head, _, body = asyncio.run(visit()).partition(b"\r\n\r\n")
    assert (b"transfer-encoding: chunked" in head) is (version == b"1.1")
    assert body == (b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n" if version == b"1.1" else b"onetwo")


def test_head_has_the_headers_and_no_body_and_204_has_neither():
    async def visit():
        async with connected() as (_, reader, writer):
            writer.write(b"HEAD /echo HTTP/1.1\r\nhost: x\r\n\r\n")
            head = await answer(reader, has_body=False)
            writer.write(b"HEAD /stream HTTP/1.1\r\nhost: x\r\n\r\n")
            streamed = await answer(reader, has_body=False)
            writer.write(b"GET /empty HTTP/1.1\r\nhost: x\r\n\r\n")
            empty = await answer(reader, has_body=False)
            writer.write(NEXT)
            return head, streamed, empty, await answer(reader)

    head, streamed, empty, following = asyncio.run(visit())
    assert int(head[1]["content-length"]) > 0
    assert (streamed[0], "transfer-encoding" in streamed[1]) == (200, False)
    assert (empty[0], "content-length" in empty[1]) == (204, False)
    assert json.loads(following[2])["path"] == "/next"


def test_an_offer_of_another_protocol_is_declined_and_what_follows_it_is_not_read():
    upgrade = b"GET /echo HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
    came, seen = ask(upgrade + NEXT, NEXT)
    assert came.startswith(b"HTTP/1.1 200 ")
    assert (came.count(b"HTTP/1.1 "), seen) == (1, ["GET /echo"])
    assert b"connection: close" in came


def test_who_waits_for_100_gets_it_only_when_the_body_is_wanted():
    async def visit():
        async with connected() as (_, reader, writer):
            expecting = b"content-length: 3\r\nexpect: 100-continue\r\n\r\n"
            writer.write(HEAD + expecting)
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"abc")
            taken = await answer(reader)
            writer.write(HEAD.replace(b"/echo", b"/refuse") + expecting)
            return taken, await answer(reader), await reader.read()

    taken, refused, rest = asyncio.run(visit())
    assert json.loads(taken[2])["body"] == "abc"
    # It may or may not send the body now: nothing after it can be told apart.
    assert (refused[0], refused[1]["connection"], rest) == (401, "close", b"")


@loops
def test_many_requests_in_one_piece_are_answered_in_order_one_at_a_time(run):
    count = 2_000

    async def visit():
        async with connected() as (app, reader, writer):
            writer.write(b"".join(b"GET /%d HTTP/1.1\r\nhost: x\r\n\r\n" % n for n in range(count)))
            return [json.loads((await answer(reader))[2])["path"] for _ in range(count)], app.seen

    paths, seen = run(visit())
    assert paths == [f"/{number}" for number in range(count)]
    assert len(seen) == count


@loops
def test_a_refusal_before_the_body_leaves_the_connection_usable(run):
    async def visit():
        async with connected() as (_, reader, writer):
            writer.write(b"POST /refuse HTTP/1.1\r\nhost: x\r\ncontent-length: 300000\r\n\r\n")
            refused = await answer(reader)
            writer.write(b"x" * 300_000 + NEXT)
            return refused, await answer(reader)

    refused, following = run(visit())
    assert (refused[0], json.loads(following[2])["path"]) == (401, "/next")


@loops
def test_a_large_body_arrives_whole(run):
    body = b"0123456789" * 100_000
    status, _, told = ask_once(HEAD + b"content-length: %d\r\n\r\n" % len(body) + body, run=run)
    assert (status, json.loads(told)["body"]) == (200, body.decode())


@loops
def test_a_body_that_nobody_asks_for_stays_with_its_sender(run):
    """An application that does not read yet holds up the sender, not our memory."""

    async def visit():
        async with connected() as (app, _, writer):
            app.server._context.app = _waiting(app)  # noqa: SLF001
            writer.write(HEAD + b"content-length: 100000000\r\n\r\n")
            writer.write(b"x" * 50_000_000)
            await asyncio.sleep(0.5)
            return writer.transport.get_write_buffer_size()

    assert run(visit()) > 20_000_000


def _waiting(app):
    async def wait(scope, receive, send):
        await app.released.wait()
        await reply(send, b"")

    return wait


@pytest.mark.parametrize(
    ("path", "status"), [("/fail", 500), ("/header", 500), ("/short", 500), ("/long", 500)]
)
def test_an_application_that_fails_is_a_500_that_is_logged(path, status):
    async def visit():
        async with connected() as (_, reader, writer):
            writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            return await reader.read()

    with capture_logs() as lines:
        came = asyncio.run(visit())
    assert came.startswith(b"HTTP/1.1 %d " % status)
    assert b"connection: close" in came
    assert b"set-cookie" not in came
    assert [line["path"] for line in lines if line["event"] == "http_request_failed"] == [path]


def test_an_answer_that_breaks_off_ends_the_connection():
    async def visit():
        async with connected() as (_, reader, writer):
            writer.write(b"GET /break-off HTTP/1.1\r\nhost: x\r\n\r\n")
            with pytest.raises(asyncio.IncompleteReadError):
                await reader.readuntil(b"0\r\n\r\n")

    with capture_logs():
        asyncio.run(visit())


def test_an_application_hears_that_its_caller_is_gone():
    async def visit():
        async with connected() as (app, _, writer):
            writer.write(b"GET /until-gone HTTP/1.1\r\nhost: x\r\n\r\n")
            while not app.seen:  # noqa: ASYNC110  (a list tells nobody)
                await asyncio.sleep(0.001)
            writer.transport.abort()
            while app.end is None:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            return app.end

    assert asyncio.run(visit()) == "http.disconnect"


@loops
def test_a_server_that_stops_finishes_what_is_under_way_and_closes_the_rest(run):
    async def visit():
        async with connected() as (app, reader, writer):
            idle, idle_writer = await asyncio.open_connection("127.0.0.1", app.port)
            writer.write(b"GET /wait HTTP/1.1\r\nhost: x\r\n\r\n" + NEXT)
            while not app.seen:  # noqa: ASYNC110  (a list tells nobody)
                await asyncio.sleep(0.001)
            stopping = asyncio.create_task(app.server.stop())
            closed = await idle.read()
            idle_writer.close()
            app.released.set()
            came = await reader.read()
            await stopping
            return closed, came, app.seen

    closed, came, seen = run(visit())
    assert (closed, came.count(b"HTTP/1.1 200 "), seen) == (b"", 1, ["GET /wait"])
    assert b"connection: close" in came


def test_a_caller_that_does_not_read_its_answers_is_disconnected():
    async def visit():
        async with connected(read_s=0.2) as (app, reader, writer):
            reader._limit = 1_000  # noqa: SLF001  (stop reading from the socket soon)
            writer.write(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n" * 50)
            while not app.server.counts.closed["unfinished"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            return len(app.seen)

    with capture_logs() as lines:
        assert asyncio.run(visit()) < 50
    assert "http_connection_closed" in {line["event"] for line in lines}


def test_idle_connections_are_closed_after_a_while(monkeypatch):
    monkeypatch.setattr("vfbandits.http.connection.KEEP_ALIVE_S", 0.3)

    async def visit():
        async with connected(read_s=0.1) as (_, reader, writer):
            writer.write(NEXT)
            assert (await answer(reader))[0] == 200
            return await reader.read()

    assert asyncio.run(visit()) == b""


def test_what_follows_a_refusal_is_read_for_a_moment_and_then_cut_off():
    async def visit():
        async with connected() as (_, reader, writer):
            writer.write(b"nonsense\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
            writer.write(b"x" * (20 * MAX_LINGER_BYTES))
            with pytest.raises(ConnectionError):
                await writer.drain()

    asyncio.run(visit())


def test_what_is_no_http_is_logged_once_and_counted():
    async def visit():
        async with connected() as (app, _, _):
            for garbage in [b"\x16\x03\x01\x00\n\r\n\r\n", b"BREW / HTCPCP/1.0\r\n\r\n"] * 20:
                reader, writer = await asyncio.open_connection("127.0.0.1", app.port)
                writer.write(garbage)
                assert (await answer(reader))[0] == 400
                writer.close()
            return app.server.counts.closed["malformed"]

    with capture_logs() as lines:
        assert asyncio.run(visit()) == 40
    reasons = [line["reason"] for line in lines if line["event"] == "http_request_malformed"]
    assert len(reasons) == len(set(reasons)) <= 2
