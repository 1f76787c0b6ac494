"""Rank and reward by a real server: from bytes on a socket to a durable decision."""

import asyncio
import gc
import json
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
import structlog
from campaign_world import ARMS, World
from structlog.testing import capture_logs

from vfbandits import LinTS
from vfbandits.cli.tune import GRID
from vfbandits.evaluate.tune import as_patch, make_grid
from vfbandits.http.access.guard import Guard
from vfbandits.http.access.key_file import add_key
from vfbandits.http.access.keys import KeyRing, make_key
from vfbandits.http.access.limits import Buckets, Limits, Rate
from vfbandits.http.app import Parts, build_app
from vfbandits.http.handlers import Handlers
from vfbandits.http.serve import HttpFront
from vfbandits.http.server import HttpServer
from vfbandits.protocol.roster import Terms
from vfbandits.serving.build import Process
from vfbandits.serving.campaigns import Campaigns
from vfbandits.settings.http import HttpSettings
from vfbandits.telemetry.metrics import Metrics
from vfbandits.telemetry.readings import Readings
from vfbandits.telemetry.supervised import Supervisor

KEY = make_key("web", scopes=["rank", "reward"])
ADMIN = make_key("ops", scopes=["admin"])
RANK = json.dumps({"user": "ann", "arms": list(ARMS)}).encode()


@pytest.fixture(autouse=True)
def _memory():
    """A server settles the memory of its process, which here is that of all tests."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


class Server:
    """A server in this process, with the campaigns "default" and "news"."""

    def __init__(self, folder, *, body_bytes=100_000):
        self.campaign, self.news = World().open(), World().open()
        self.news.name = "news"
        campaigns = Campaigns(
            [self.campaign, self.news], log=structlog.get_logger(), snapshot_every=0
        )
        roster = SimpleNamespace(federation="shops", number=1, terms=Terms())
        self.process = Process("active", campaigns, lambda: roster, dict, list)
        self.metrics = Metrics(Readings(list, list, lambda: 1, lambda: True))
        rate = Rate(1e6, burst=10**6)
        limits = Limits(Buckets(rate), Buckets(rate), body_bytes)
        handlers = Handlers(campaigns, model_facts=lambda: None, limits=limits)
        app = build_app(handlers, Parts(self.metrics))
        add_key(folder / "keys", KEY.record)
        add_key(folder / "keys", ADMIN.record)
        self.guard = Guard(app, KeyRing.load(folder / "keys"), limits)
        self._server = HttpServer(self.guard, HttpSettings("127.0.0.1:0"))
        self.counts = self._server.counts

    @asynccontextmanager
    async def connect(self):
        port = await self._server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield Caller(reader, writer)
        finally:
            writer.close()
            await self._server.stop()
            await self.close()

    async def close(self):
        await self.campaign.durable.close()
        await self.news.durable.close()


class Caller:
    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    async def post(self, path, body, headers=None):
        self.writer.write(request(path, body, headers))
        return await self.answer()

    async def patch(self, path, body):
        self.writer.write(request(path, body, {"x-api-key": ADMIN.text}, method="PATCH"))
        return await self.answer()

    async def answer(self):
        """Status, headers and body."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:] if line)
        body = await self.reader.readexactly(int(headers["content-length"]))
        return int(head[0].split()[1]), headers, body


def request(path, body, headers=None, *, method="POST"):
    given = {"host": "here", "content-type": "application/json", "x-api-key": KEY.text}
    given |= {"content-length": str(len(body))} | (headers or {})
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items() if value is not None)
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body


def chunks(body):
    """A body in two chunks."""
    pieces = (body[:10], body[10:]) if body[10:] else (body,)
    return b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in pieces) + b"0\r\n\r\n"


def with_server(tmp_path, talk, **settings):
    async def run():
        server = Server(tmp_path, **settings)
        async with server.connect() as caller:
            return await asyncio.wait_for(talk(server, caller), 20.0)

    return asyncio.run(run())


@pytest.mark.parametrize("beginning", ["/v1", "/v1/campaigns/default", "/v1/campaigns/news"])
def test_a_rank_and_its_reward_are_answered_and_counted(tmp_path, beginning):
    async def talk(server, caller):
        ranked = await caller.post(f"{beginning}/rank", RANK, {"connection": "keep-alive"})
        event_id = json.loads(ranked[2])["event_id"]
        rewarded = await caller.post(f"{beginning}/events/{event_id}/reward", b'{"value": 1}')
        return [ranked, rewarded], server.metrics.render().decode()

    answers, metrics = with_server(tmp_path, talk)
    for status, headers, _ in answers:
        assert status == 200
        assert headers.keys() == {"date", "content-length", "content-type"}
        assert headers["content-type"] == "application/json"
    assert json.loads(answers[1][2])["status"] == "learnt"
    route = beginning if beginning == "/v1" else "/v1/campaigns/{campaign}"
    for path in ("rank", "events/{event_id}/reward"):
        labels = f'method="POST",route="{route}/{path}",status="200"'
        assert f"vfb_http_requests_total{{{labels}}} 1.0" in metrics


def test_a_reward_outside_the_bounds_is_422_and_alone_in_a_batch(tmp_path):
    async def talk(server, caller):
        event_id = json.loads((await caller.post("/v1/rank", RANK))[2])["event_id"]
        path, body = f"/v1/events/{event_id}/reward", b'{"value": 1e99}'
        alone = await caller.post(path, body)
        one = {"event_id": event_id}
        batch = json.dumps({"rewards": [{**one, "value": 1e99}, {**one, "value": 1.0}]})
        return alone, json.loads((await caller.post("/v1/rewards/batch", batch.encode()))[2])

    (status, _, body), batch = with_server(tmp_path, talk)
    assert status == 422
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
def test_what_is_wrong_is_told_as_a_problem_however_the_body_comes(
    tmp_path, path, body, headers, status
):
    async def talk(server, caller):
        whole = await caller.post(path, body, headers)
        chunked = {**headers, "transfer-encoding": "chunked", "content-length": None}
        return whole, await caller.post(path, chunks(body), chunked)

    whole, chunked = with_server(tmp_path, talk, body_bytes=2_000)
    assert whole[0] == chunked[0] == json.loads(whole[2])["status"] == status
    assert json.loads(whole[2])["type"] == json.loads(chunked[2])["type"]
    assert whole[1]["content-type"] == "application/problem+json"
    assert whole[1]["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "headers",
    [
        {"connection": "keep-alive, x-mine"},
        {"expect": "100-continue"},
        {"transfer-encoding": "chunked", "content-length": None},
        {"x-forwarded-for": "192.0.2.1", "x-forwarded-proto": "https"},
    ],
)
def test_what_is_unusual_is_answered_all_the_same(tmp_path, headers):
    async def talk(server, caller):
        body = chunks(RANK) if "transfer-encoding" in headers else RANK
        whole = request("/v1/rank", body, {"content-length": str(len(RANK))} | headers)
        if "expect" in headers:
            caller.writer.write(whole[: -len(body)])
            assert await caller.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            whole = body
        caller.writer.write(whole)
        return await caller.answer(), await caller.post("/v1/rank", RANK)

    answers = with_server(tmp_path, talk)
    assert [status for status, _, _ in answers] == [200, 200]


def test_a_client_that_hangs_up_is_no_error_of_ours(tmp_path):
    async def talk(server, caller):
        whole = request("/v1/rank", RANK)
        port = caller.writer.get_extra_info("peername")[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(whole[:-5])
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        assert (await caller.post("/v1/rank", RANK))[0] == 200
        while 'status="499"' not in server.metrics.render().decode():  # noqa: ASYNC110  (a counter)
            await asyncio.sleep(0.01)
        lines = server.metrics.render().decode().splitlines()
        return {line for line in lines if line.startswith("vfb_http_requests_total")}

    with capture_logs() as lines:
        counted = with_server(tmp_path, talk)
    answered = 'vfb_http_requests_total{method="POST",route="/v1/rank",status="%s"} 1.0'
    assert counted == {answered % status for status in (200, 499)}
    assert [line for line in lines if line["log_level"] == "error"] == []


def test_a_body_of_many_pieces_is_read_to_its_end(tmp_path):
    async def talk(server, caller):
        return await caller.post("/v1/rank", RANK + b" " * 90_000)

    assert with_server(tmp_path, talk)[0] == 200


def test_requests_that_follow_each_other_closely_are_answered_in_their_order(tmp_path):
    names = [f"event-{number}" for number in range(5)]
    bodies = [json.dumps({"user": "a", "arms": ARMS, "event_id": name}).encode() for name in names]

    async def talk(server, caller):
        caller.writer.write(b"".join(request("/v1/rank", body) for body in bodies))
        return [json.loads((await caller.answer())[2])["event_id"] for _ in names]

    assert with_server(tmp_path, talk) == names


def test_calls_that_come_together_are_decided_together_and_each_gets_its_own_answer(tmp_path):
    wrong = {3: {"x-api-key": "vfb_wrong"}, 5: {"content-type": "text/plain"}}

    async def talk(server, caller):
        port = caller.writer.get_extra_info("peername")[1]
        callers = [Caller(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(3 * 16)]
        for number, one in enumerate(callers):
            body = json.dumps({"user": f"u{number}", "arms": list(ARMS)[: 1 + number % 3]})
            path = "/v1/campaigns/news/rank" if number % 2 else "/v1/rank"
            one.writer.write(request(path, body.encode(), wrong.get(number)))
        answers = [await one.answer() for one in callers]
        for one in callers:
            one.writer.close()
        return answers, [one.durable.commits for one in (server.campaign, server.news)]

    answers, commits = with_server(tmp_path, talk)
    assert {number: answer[0] for number, answer in enumerate(answers) if answer[0] != 200} == {
        3: 401,
        5: 415,
    }
    for number, (status, _, body) in enumerate(answers):
        if status == 200:
            assert len(json.loads(body)["ranking"]) == 1 + number % 3
    assert [n_events for _, n_events in commits] == [24, 22]
    assert max(n_commits for n_commits, _ in commits) < 12


def test_an_error_of_ours_is_told_to_all_that_came_together(tmp_path, monkeypatch):
    async def talk(server, caller):
        async def fail(asked):
            raise ZeroDivisionError

        monkeypatch.setattr(server.campaign, "decide_many", fail)
        return await caller.post("/v1/rank", RANK)

    status, _, body = with_server(tmp_path, talk)
    assert (status, json.loads(body)["status"]) == (500, 500)


def test_a_request_may_come_in_pieces(tmp_path):
    async def talk(server, caller):
        whole = request("/v1/rank", RANK)
        for start in range(0, len(whole), 40):
            caller.writer.write(whole[start : start + 40])
            await asyncio.sleep(0.001)
        return await caller.answer()

    assert with_server(tmp_path, talk)[0] == 200


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


def test_a_front_waits_and_then_serves(tmp_path):
    """A process listens before there is a model."""

    async def run():
        server = Server(tmp_path)
        settings = HttpSettings("127.0.0.1:0", keys=tmp_path / "keys", hosts=("here",))
        front = HttpFront(settings, Supervisor(), structlog.get_logger())
        port = await front.start("waiting for the journal")
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        caller = Caller(reader, writer)
        async with asyncio.timeout(20.0):
            early = await caller.post("/v1/rank", RANK, {"host": "127.0.0.1"})
            serve = await front.prepare(server.process)
            assert await serve() == port
            calls = [request("/v1/rank", RANK)] * 5
            writer.write(b"".join(calls))
            ranked = [await caller.answer() for _ in calls]
            event_id = json.loads(ranked[0][2])["event_id"]
            rewarded = await caller.post(f"/v1/events/{event_id}/reward", b'{"value": 1}')
            keyless = await caller.post("/v1/rank", RANK, {"x-api-key": None})
        writer.close()
        await front.stop()
        await server.close()
        assert (early[0], b"waiting for the journal" in early[2]) == (503, True)
        assert [status for status, _, _ in ranked] == [200] * 5
        assert len({json.loads(body)["event_id"] for _, _, body in ranked}) == 5
        assert json.loads(rewarded[2])["status"] == "learnt"
        assert keyless[0] == 401

    asyncio.run(run())


def test_the_request_that_tuning_prints_applies_every_candidate(tmp_path):
    """One after the other, each over another policy: it decides from then on."""
    grid = make_grid(GRID, floors=[0.0, 0.1])

    async def talk(server, caller):
        seen = []
        for number, one in enumerate(grid):
            body = json.dumps(as_patch(one, with_floor=True)).encode()
            status, _, config = await caller.patch("/v1/config", body)
            assert status == 200, config
            assert server.campaign.settings.policy == one.policy
            assert server.campaign.settings.floor == one.floor
            ranked = {"user": "ann", "arms": list(ARMS), "event_id": f"e{number}"}
            status, _, answer = await caller.post("/v1/rank", json.dumps(ranked).encode())
            assert (status, json.loads(answer)["config_version"]) == (200, number + 1)
            seen.append(json.loads(config)["policy"])
        status, _, problem = await caller.patch("/v1/config", b'{"policy": {"name": "linux"}}')
        assert status == 422
        assert "policy must be one of linucb, lints, lingreedy, inverse_gap" in problem.decode()
        draws = b'{"policy": {"name": "lints", "n_draws": 50}}'
        status, _, config = await caller.patch("/v1/config", draws)
        assert (status, json.loads(config)["policy"]["n_draws"]) == (200, 50)
        assert server.campaign.settings.policy == LinTS(n_draws=50)
        status, _, problem = await caller.patch("/v1/config", b'{"log_contexts": "every"}')
        assert status == 422
        return seen

    policies = with_server(tmp_path, talk)
    assert [one["name"] for one in policies] == [one.parameters["name"] for one in grid]
