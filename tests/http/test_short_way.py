"""The two hot calls past the routes: the same answers, and only where nothing is unusual."""

import asyncio
import gc
import json
import logging
from contextlib import asynccontextmanager

import pytest
import structlog
from campaign_world import ARMS, World
from hypothesis import given
from hypothesis import strategies as st
from starlette.routing import compile_path
from structlog.testing import capture_logs

from vfbandits.http.access.guard import Guard
from vfbandits.http.access.key_file import add_key
from vfbandits.http.access.keys import KeyRing, make_key
from vfbandits.http.access.limits import Buckets, Limits, Rate
from vfbandits.http.app import Application, Parts, build_app
from vfbandits.http.front import Front
from vfbandits.http.handlers import Handlers
from vfbandits.http.hot import find_call
from vfbandits.http.server import HttpServer
from vfbandits.serving.campaigns import Campaigns
from vfbandits.settings.http import HttpSettings
from vfbandits.telemetry.gauges import Readings
from vfbandits.telemetry.metrics import Metrics
from vfbandits.telemetry.supervised import Supervisor
from vfbandits.telemetry.tracer import NoTracer

KEY = make_key("web", scopes=["rank", "reward"])
LONG = {"connection": "keep-alive, x-long"}  # what the short way leaves to the application
RANK = json.dumps({"user": "ann", "arms": list(ARMS)}).encode()


@pytest.fixture(autouse=True)
def _memory():
    """A server settles the memory of its process, which here is that of all tests."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


class Server:
    """A server in this process; ``n_routed`` is how many requests its routes have seen."""

    def __init__(self, folder, *, body_bytes=100_000):
        self.n_routed = 0
        self.campaign = World().open()
        campaigns = Campaigns([self.campaign], log=structlog.get_logger(), snapshot_every=0)
        self.metrics = Metrics(Readings(list, list, lambda: 1, lambda: True))
        rate = Rate(1e6, burst=10**6)
        limits = Limits(Buckets(rate), Buckets(rate), body_bytes)
        handlers = Handlers(campaigns, model_facts=lambda: None, limits=limits)
        app = build_app(handlers, Parts(self.metrics, NoTracer()))
        add_key(folder / "keys", KEY.record)
        self._routes = app.routes
        counted = Application(self._count, app.hot)
        self.guard = Guard(counted, KeyRing.load(folder / "keys"), limits)
        self._server = HttpServer(self.guard, HttpSettings("127.0.0.1:0"))
        self.counts = self._server.counts

    async def _count(self, scope, receive, send):
        self.n_routed += 1
        await self._routes(scope, receive, send)

    @asynccontextmanager
    async def connect(self):
        port = await self._server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield Caller(reader, writer)
        finally:
            writer.close()
            await self._server.stop()
            await self.campaign.durable.close()


class Caller:
    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    async def post(self, path, body, headers=None):
        self.writer.write(request(path, body, headers))
        return await self.answer()

    async def answer(self):
        """Status, headers and body."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:] if line)
        body = await self.reader.readexactly(int(headers["content-length"]))
        return int(head[0].split()[1]), headers, body


def request(path, body, headers=None):
    given = {"host": "here", "content-type": "application/json", "x-api-key": KEY.text}
    given |= {"content-length": str(len(body))} | (headers or {})
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value is not None)
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def with_server(tmp_path, talk, **settings):
    async def run():
        server = Server(tmp_path, **settings)
        async with server.connect() as caller:
            return await asyncio.wait_for(talk(server, caller), 20.0)

    return asyncio.run(run())


def test_a_rank_and_its_reward_pass_no_route_and_are_answered_as_by_one(tmp_path):
    async def talk(server, caller):
        short = [await caller.post("/v1/rank", RANK, {"connection": "keep-alive"})]
        event_id = json.loads(short[0][2])["event_id"]
        short.append(await caller.post(f"/v1/events/{event_id}/reward", b'{"value": 1}'))
        n_routed = server.n_routed
        long = [await caller.post("/v1/rank", RANK, LONG)]
        other_id = json.loads(long[0][2])["event_id"]
        long.append(await caller.post(f"/v1/events/{other_id}/reward", b'{"value": 1}', LONG))
        return n_routed, short, long, server.metrics.render().decode()

    n_routed, short, long, metrics = with_server(tmp_path, talk)
    assert n_routed == 0
    for ours, theirs in zip(short, long, strict=True):
        assert ours[0] == theirs[0] == 200
        assert ours[1].keys() == theirs[1].keys() == {"date", "content-length", "content-type"}
        assert json.loads(ours[2]).keys() == json.loads(theirs[2]).keys()
    assert json.loads(short[1][2])["status"] == "learnt"
    assert 'vfb_http_requests_total{method="POST",route="/v1/rank",status="200"} 2.0' in metrics


def test_a_reward_outside_the_bounds_is_422_on_both_ways_and_alone_in_a_batch(tmp_path):
    async def talk(server, caller):
        event_id = json.loads((await caller.post("/v1/rank", RANK))[2])["event_id"]
        path, body = f"/v1/events/{event_id}/reward", b'{"value": 1e99}'
        both = [await caller.post(path, body), await caller.post(path, body, LONG)]
        one = {"event_id": event_id}
        batch = json.dumps({"rewards": [{**one, "value": 1e99}, {**one, "value": 1.0}]})
        return both, json.loads((await caller.post("/v1/rewards/batch", batch.encode()))[2])

    both, batch = with_server(tmp_path, talk)
    assert [status for status, _, _ in both] == [422, 422]
    for _, _, body in both:
        assert json.loads(body)["type"] == "/problems/invalid-reward"
        assert "reward_max" in json.loads(body)["detail"]
    refused, learnt = batch["results"]
    assert refused["problem"]["status"] == 422
    assert learnt["answer"]["status"] == "learnt"


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/v1/rank", b"{", {}, 400),
        ("/v1/rank", RANK, {"x-api-key": None}, 401),
        ("/v1/rank", RANK, {"x-api-key": "vfb_wrong"}, 401),
        ("/v1/events/never/reward", b'{"value": 1}', {}, 404),
        ("/v1/rank", b" " * 2_001, {}, 413),
        ("/v1/rank", RANK, {"content-type": "text/plain"}, 415),
        ("/v1/rank", RANK, {"content-type": None}, 415),
        ("/v1/events/never/reward", b'{"value": 1}', {"content-type": None}, 415),
        ("/v1/rank", b'{"user": "ann", "arms": ["tea", "tea"]}', {}, 422),
        ("/v1/rank", b'{"user": "ann", "user": "bob", "arms": ["tea"]}', {}, 422),
        ("/v1/rank", b'{"user": "ann", "\\u0075ser": "bob", "arms": ["tea"]}', {}, 422),
        ("/v1/events/never/reward", b'{"value": 1, "value": 2}', {}, 422),
    ],
)
def test_what_is_wrong_is_told_in_the_same_words(tmp_path, path, body, headers, status):
    async def talk(server, caller):
        short = await caller.post(path, body, headers)
        return short, await caller.post(path, body, {**headers, **LONG})

    short, long = with_server(tmp_path, talk, body_bytes=2_000)
    assert short[0] == long[0] == status
    assert json.loads(short[2]) == json.loads(long[2])
    assert short[1] | {"date": ""} == long[1] | {"date": ""}


@pytest.mark.parametrize(
    "headers",
    [
        {"connection": "keep-alive, x-mine"},
        {"expect": "100-continue"},
        {"transfer-encoding": "chunked", "content-length": None},
    ],
)
def test_what_is_unusual_goes_through_the_application(tmp_path, headers):
    async def talk(server, caller):
        body = RANK
        if "transfer-encoding" in headers:
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(RANK), RANK)
        caller.writer.write(request("/v1/rank", body, {"content-length": str(len(RANK))} | headers))
        if "expect" in headers:
            assert await caller.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        return await caller.answer(), server.n_routed

    (status, _, _), n_routed = with_server(tmp_path, talk)
    assert (status, n_routed) == (200, 1)


def test_what_a_proxy_passes_on_goes_the_short_way_too(tmp_path):
    async def talk(server, caller):
        headers = {"x-forwarded-for": "192.0.2.1", "x-forwarded-proto": "https"}
        return await caller.post("/v1/rank", RANK, headers), server.n_routed

    (status, _, _), n_routed = with_server(tmp_path, talk)
    assert (status, n_routed) == (200, 0)


@pytest.mark.parametrize("headers", [{}, LONG])
def test_a_client_that_hangs_up_is_no_error_of_ours(tmp_path, headers):
    async def talk(server, caller):
        whole = request("/v1/rank", RANK, headers)
        port = caller.writer.get_extra_info("peername")[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(whole[:-5])
        await writer.drain()
        if headers:
            while not server.n_routed:  # noqa: ASYNC110  (a counter tells nobody)
                await asyncio.sleep(0.01)
        writer.close()
        await writer.wait_closed()
        assert (await caller.post("/v1/rank", RANK))[0] == 200
        lines = server.metrics.render().decode().splitlines()
        return {line for line in lines if line.startswith("vfb_http_requests_total")}

    with capture_logs() as lines:
        counted = with_server(tmp_path, talk)
    answered = 'vfb_http_requests_total{method="POST",route="/v1/rank",status="%s"} 1.0'
    assert counted == {answered % status for status in ((200, 499) if headers else (200,))}
    assert [line for line in lines if line["log_level"] == "error"] == []


def test_what_is_no_http_is_logged_once_and_counted(tmp_path):
    async def talk(server, caller):
        port = caller.writer.get_extra_info("peername")[1]
        for garbage in [b"\x16\x03\x01\x00\n\r\n\r\n", b"BREW / HTCPCP/1.0\r\n\r\n"] * 20:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(garbage)
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
            writer.close()
        upgrade = {"upgrade": "websocket", "connection": "upgrade"}
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request("/v1/rank", b"", upgrade))
            await reader.readuntil(b"\r\n\r\n")
            writer.close()
        return server.counts.closed["malformed"]

    logger = logging.getLogger("uvicorn.error")
    for one in list(logger.filters):
        logger.removeFilter(one)  # of a server before, which has counted others
    with capture_logs() as lines:
        assert with_server(tmp_path, talk) == 40
    reasons = [line["reason"] for line in lines if line["event"] == "http_garbage"]
    assert len(reasons) == len(set(reasons)) <= 3
    assert "Invalid HTTP request received." in reasons


def test_a_body_that_is_too_large_to_wait_for_goes_through_the_application(tmp_path):
    async def talk(server, caller):
        padded = RANK + b" " * 70_000
        return await caller.post("/v1/rank", padded), server.n_routed

    (status, _, _), n_routed = with_server(tmp_path, talk)
    assert (status, n_routed) == (200, 1)


def test_requests_that_follow_each_other_closely_are_answered_in_their_order(tmp_path):
    names = [f"event-{number}" for number in range(5)]
    bodies = [json.dumps({"user": "a", "arms": ARMS, "event_id": name}).encode() for name in names]

    async def talk(server, caller):
        ways = ({}, LONG, {}, {}, LONG)
        all_at_once = [request("/v1/rank", *each) for each in zip(bodies, ways, strict=True)]
        caller.writer.write(b"".join(all_at_once))
        return [json.loads((await caller.answer())[2])["event_id"] for _ in names], server.n_routed

    assert with_server(tmp_path, talk) == (names, 2)


def test_calls_that_come_together_are_decided_together_and_each_gets_its_own_answer(tmp_path):
    wrong = {3: {"x-api-key": "vfb_wrong"}, 5: {"content-type": "text/plain"}}

    async def talk(server, caller):
        port = caller.writer.get_extra_info("peername")[1]
        callers = [Caller(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(3 * 16)]
        for number, one in enumerate(callers):
            body = json.dumps({"user": f"u{number}", "arms": list(ARMS)[: 1 + number % 3]})
            one.writer.write(request("/v1/rank", body.encode(), wrong.get(number)))
        answers = [await one.answer() for one in callers]
        for one in callers:
            one.writer.close()
        return answers, server.campaign.durable.commits, server.n_routed

    answers, (n_commits, n_events), n_routed = with_server(tmp_path, talk)
    assert {number: answer[0] for number, answer in enumerate(answers) if answer[0] != 200} == {
        3: 401,
        5: 415,
    }
    for number, (status, _, body) in enumerate(answers):
        if status == 200:
            assert len(json.loads(body)["ranking"]) == 1 + number % 3
    assert (n_events, n_routed) == (46, 0)
    assert n_commits < 23


def test_an_error_of_ours_is_told_to_all_that_came_together(tmp_path, monkeypatch):
    async def talk(server, caller):
        async def fail(asked):
            raise ZeroDivisionError

        monkeypatch.setattr(server.campaign, "rank_many", fail)
        return await caller.post("/v1/rank", RANK)

    status, _, body = with_server(tmp_path, talk)
    assert (status, json.loads(body)["status"]) == (500, 500)


def test_a_request_may_come_in_pieces(tmp_path):
    async def talk(server, caller):
        whole = request("/v1/rank", RANK)
        for start in range(0, len(whole), 40):
            caller.writer.write(whole[start : start + 40])
            await asyncio.sleep(0.001)
        return await caller.answer(), server.n_routed

    (status, _, _), n_routed = with_server(tmp_path, talk)
    assert (status, n_routed) == (200, 0)


def test_a_caller_that_asks_for_it_is_hung_up_on_after_the_answer(tmp_path):
    async def talk(server, caller):
        answer = await caller.post("/v1/rank", RANK, {"connection": "close"})
        return answer, await caller.reader.read()

    (status, headers, _), rest = with_server(tmp_path, talk)
    assert (status, headers["connection"], rest) == (200, "close", b"")


def test_a_caller_that_hangs_up_meanwhile_leaves_its_decision_in_the_log(tmp_path):
    async def talk(server, caller):
        body = json.dumps({"user": "ann", "arms": ARMS, "event_id": "lost"}).encode()
        caller.writer.write(request("/v1/rank", body))
        await caller.writer.drain()
        caller.writer.transport.abort()
        while "lost" not in server.campaign.model.pending:  # noqa: ASYNC110  (no event for it)
            await asyncio.sleep(0.001)
        return (await server.campaign.history("lost")).status

    assert with_server(tmp_path, talk) == "waiting"


@given(st.lists(st.sampled_from(["/v1", "/rank", "/events", "/", "x", "\n", "/reward", "é"])))
def test_a_path_is_hot_exactly_if_it_is_that_of_a_route(parts):
    path = "".join(parts)
    reward, _, _ = compile_path("/v1/events/{event_id:path}/reward")
    match, call = reward.match(path), find_call(path)
    if path == "/v1/rank":
        assert call.event_id is None
    elif match is None or path.endswith("\n"):
        assert call is None
    else:
        assert call.event_id == match["event_id"]


def test_a_front_waits_and_then_hands_on_by_the_short_way_too(tmp_path):
    """Rankers and trainers have a front: before there is a model it refuses, then it is fast."""

    async def run():
        server = Server(tmp_path)
        settings = HttpSettings("127.0.0.1:0", insecure=True)
        front = Front(settings, reason="waiting for the log", supervisor=Supervisor())
        port = await front.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        caller = Caller(reader, writer)
        async with asyncio.timeout(20.0):
            early = await caller.post("/v1/rank", RANK, {"host": "127.0.0.1"})
            front.app = server.guard
            calls = [request("/v1/rank", RANK)] * 5
            writer.write(b"".join(calls))
            ranked = [await caller.answer() for _ in calls]
            event_id = json.loads(ranked[0][2])["event_id"]
            rewarded = await caller.post(f"/v1/events/{event_id}/reward", b'{"value": 1}')
            keyless = await caller.post("/v1/rank", RANK, {"x-api-key": None})
        writer.close()
        await front.stop()
        await server.campaign.durable.close()
        assert (early[0], b"waiting for the log" in early[2]) == (503, True)
        assert [status for status, _, _ in ranked] == [200] * 5
        assert len({json.loads(body)["event_id"] for _, _, body in ranked}) == 5
        assert json.loads(rewarded[2])["status"] == "learnt"
        assert keyless[0] == 401
        assert server.n_routed == 0

    asyncio.run(run())
