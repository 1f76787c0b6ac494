"""The guard before the application: who gets in, what the others are told, and what is logged."""

import asyncio
import gc
import threading
import time
from functools import partial
from types import SimpleNamespace

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import Mount, Route
from structlog.testing import capture_logs

from vfbandits.http.access.caller import CALLER, Caller, caller_of_certificate
from vfbandits.http.access.guard import Guard, caller_of, require
from vfbandits.http.access.key_file import add_key, revoke_key
from vfbandits.http.access.keys import KeyRing, make_key
from vfbandits.http.access.limits import Buckets, Limits, Rate
from vfbandits.http.problems import MEDIA_TYPE
from vfbandits.http.refusals import Forbidden, Unauthorized
from vfbandits.http.refuse import ERROR_HANDLERS
from vfbandits.http.server import HttpServer
from vfbandits.settings.http import HttpSettings
from vfbandits.telemetry.log_throttle import LogThrottle


async def whoami(request):
    caller = caller_of(request.scope)
    return JSONResponse({"name": caller.name, "scopes": sorted(caller.scopes)})


async def rank(request):
    require(request.scope, "rank", request.path_params["campaign"])
    return JSONResponse({"bytes": len(await request.body())})


async def page(request):
    return PlainTextResponse("a page")


async def metrics(request):
    require(request.scope, "read")
    return PlainTextResponse("metrics")


def application():
    return Starlette(
        routes=[
            Route("/healthz", page),
            Route("/", page),
            Mount("/static", routes=[Route("/{file:path}", page)]),
            Route("/whoami", whoami, methods=["GET", "POST"]),
            Route("/rank/{campaign}", rank, methods=["POST"]),
            Route("/metrics", metrics),
        ],
        exception_handlers=ERROR_HANDLERS,
    )


def limits(*, caller=None, address=None, body_bytes=1_000):
    wide = Rate(1e6, burst=1_000_000)
    return Limits(
        Buckets(caller or wide, clock=lambda: 0.0),
        Buckets(address or wide, clock=lambda: 0.0),
        body_bytes,
    )


def guarded(ring, **more):
    return Guard(
        application(),
        ring,
        limits(**more),
        public=frozenset({"/healthz", "/"}),
        public_below=("/static/",),
    )


def ask(app, path="/whoami", method="GET", address="192.0.2.1", **more):
    async def one():
        transport = httpx2.ASGITransport(app, client=(address, 50_000))
        async with httpx2.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.request(method, path, **more)

    return asyncio.run(one())


@pytest.fixture
def keys(tmp_path):
    """A maker of keys in one file."""

    def make(name="web", **terms):
        key = make_key(name, **{"scopes": ["rank"], **terms})
        add_key(tmp_path / "keys", key.record)
        return key

    make.path = tmp_path / "keys"
    return make


def bearer(key):
    return {"Authorization": f"Bearer {key.text}"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer KEY"},
        {"Authorization": "bEARER   KEY "},
        {"X-API-Key": "KEY"},
        {"X-API-Key": "KEY", "Authorization": "Basic YTpi"},
        {"X-API-Key": "other", "Authorization": "Bearer KEY"},
    ],
)
def test_a_key_opens_by_either_header(keys, headers):
    key = keys("web", scopes=["rank", "reward"])
    shown = {name: value.replace("KEY", key.text) for name, value in headers.items()}
    answer = ask(guarded(KeyRing.load(keys.path)), headers=shown)
    assert answer.json() == {"name": "web", "scopes": ["rank", "reward"]}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer nonsense"},
        {"Authorization": "Basic YTpi"},
        {"Authorization": b"Bearer \xff\x80"},
        {"X-API-Key": ""},
        {"X-API-Key": "vfb_aaaaaaaa_" + "A" * 43},
    ],
)
def test_whoever_has_no_key_is_told_how_to_show_one_and_logged(keys, headers):
    keys()
    with capture_logs() as lines:
        answer = ask(guarded(KeyRing.load(keys.path)), headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["content-type"] == MEDIA_TYPE
    assert answer.json()["type"] == "/problems/unauthorized"
    (line,) = lines
    assert line == {
        "event": "http_request_refused",
        "log_level": "warning",
        "reason": answer.json()["detail"],
        "status": 401,
        "path": "/whoami",
        "address": "192.0.2.1",
    }


def test_no_key_is_ever_logged_or_sent_back(keys):
    key = keys()
    app = guarded(KeyRing.load(keys.path), caller=Rate(1.0, burst=2))
    with capture_logs() as lines:
        answers = [
            ask(app, headers=bearer(key)),
            ask(app, "/metrics", headers=bearer(key)),
            ask(app, headers=bearer(key)),
            ask(app, f"/whoami?key={key.text}"),
            ask(app, headers={"X-API-Key": key.text + "x"}),
        ]
    assert [answer.status_code for answer in answers] == [200, 403, 429, 401, 401]
    assert [line["status"] for line in lines] == [403, 429, 401]
    secret = key.text[-43:]
    assert secret not in str(lines)
    assert not [answer for answer in answers if secret in answer.text]


@pytest.mark.parametrize("path", ["/healthz", "/", "/static/page.css"])
def test_public_paths_need_no_key(keys, path):
    keys()
    assert ask(guarded(KeyRing.load(keys.path)), path).text == "a page"


@pytest.mark.parametrize("path", ["/static", "/healthz/", "/Healthz", "/nowhere", "/metrics"])
def test_all_other_paths_need_one_even_those_that_are_not_there(keys, path):
    keys()
    assert ask(guarded(KeyRing.load(keys.path)), path).status_code == 401


def test_a_route_that_needs_a_caller_refuses_a_public_path(keys):
    keys()
    app = Guard(application(), KeyRing.load(keys.path), limits(), public=frozenset({"/metrics"}))
    assert ask(app, "/metrics").status_code == 401


def test_without_a_ring_everybody_is_an_administrator():
    assert ask(guarded(None)).json() == {"name": "everybody", "scopes": ["admin"]}
    assert ask(guarded(None), "/metrics").text == "metrics"


@pytest.mark.parametrize(
    ("terms", "path", "status"),
    [
        ({"scopes": ["rank"]}, "/rank/a", 200),
        ({"scopes": ["admin"]}, "/rank/a", 200),
        ({"scopes": ["reward", "read"]}, "/rank/a", 403),
        ({"scopes": ["rank"], "campaigns": ["a"]}, "/rank/a", 200),
        ({"scopes": ["rank"], "campaigns": ["b", "c"]}, "/rank/a", 403),
        ({"scopes": ["admin"], "campaigns": ["b"]}, "/rank/a", 403),
    ],
)
def test_a_route_asks_for_its_scope_in_its_campaign(keys, terms, path, status):
    key = keys("web", **terms)
    with capture_logs() as lines:
        answer = ask(guarded(KeyRing.load(keys.path)), path, "POST", headers=bearer(key))
    assert answer.status_code == status
    if status == 403:
        assert answer.json()["type"] == "/problems/forbidden"
        assert [(line["event"], line["caller"]) for line in lines] == [
            ("http_request_refused", "web")
        ]


def test_what_is_about_all_campaigns_is_not_for_a_key_of_some(keys):
    whole, part = keys("a", scopes=["read"]), keys("b", scopes=["read"], campaigns=["x"])
    app = guarded(KeyRing.load(keys.path))
    assert ask(app, "/metrics", headers=bearer(whole)).status_code == 200
    refused = ask(app, "/metrics", headers=bearer(part))
    assert (refused.status_code, "all campaigns" in refused.text) == (403, True)


def test_require_gives_the_caller_or_says_what_was_wanted():
    web = Caller("web", frozenset({"rank", "reward"}), frozenset({"a"}))
    assert require({CALLER: web}, "rank", "a") is web
    with pytest.raises(Forbidden, match="scope 'admin', got one with rank, reward"):
        require({CALLER: web}, "admin", "a")
    with pytest.raises(Forbidden, match="about campaign 'b', got one limited to a"):
        require({CALLER: web}, "rank", "b")
    with pytest.raises(Unauthorized):
        require({}, "rank", "a")
    with pytest.raises(Unauthorized):
        require({CALLER: "admin"}, "rank", "a")


def test_a_caller_known_by_its_certificate_needs_no_key(keys):
    keys()
    inner = guarded(KeyRing.load(keys.path))

    async def after_tls(scope, receive, send):
        await inner({**scope, CALLER: caller_of_certificate("shop", "operator")}, receive, send)

    assert ask(after_tls).json() == {"name": "shop", "scopes": ["admin"]}


def test_a_caller_that_asks_too_often_is_told_when_to_come_back(keys):
    web, app_key = keys("web"), keys("app")
    app = guarded(KeyRing.load(keys.path), caller=Rate(0.25, burst=2))
    answers = [ask(app, headers=bearer(web)) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[2].headers["retry-after"] == "4"
    assert answers[2].json()["type"] == "/problems/too-many-requests"
    assert ask(app, headers=bearer(app_key)).status_code == 200


def test_an_address_is_limited_before_its_key_is_looked_at(keys):
    key = keys()
    app = guarded(KeyRing.load(keys.path), address=Rate(1.0, burst=2))
    statuses = [ask(app).status_code for _ in range(2)]
    assert [*statuses, ask(app, headers=bearer(key)).status_code] == [401, 401, 429]
    assert ask(app, "/").status_code == 429
    assert ask(app, "/healthz").status_code == 200
    assert ask(app, headers=bearer(key), address="192.0.2.2").status_code == 200


def test_all_addresses_of_one_ipv6_host_count_together(keys):
    keys()
    app = guarded(KeyRing.load(keys.path), address=Rate(1.0, burst=1))
    asked = [ask(app, address=f"2001:db8::{host}").status_code for host in (1, 2)]
    assert asked == [401, 429]


def test_a_flood_of_refusals_does_not_flood_the_log(keys, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    throttle = partial(LogThrottle, clock=lambda: clock.now)
    monkeypatch.setattr("vfbandits.http.access.guard.LogThrottle", throttle)
    keys()
    app = guarded(KeyRing.load(keys.path))

    async def flood():
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app), base_url="http://here"
        ) as client:
            return [(await client.get("/whoami")).status_code for _ in range(300)]

    with capture_logs() as lines:
        statuses = asyncio.run(flood())
        said = len(lines)
        clock.now = 61.0
        ask(app, address="127.0.0.1")
    assert statuses == [401] * 300
    assert said == 1
    assert sum(1 + line.get("unlogged", 0) for line in lines) == 301


def test_a_body_that_grows_too_large_is_refused_and_logged_once():
    async def chunks():
        for _ in range(3):
            yield b"x" * 500

    with capture_logs() as lines:
        answer = ask(guarded(None), "/rank/a", "POST", content=chunks())
    assert (answer.status_code, answer.headers["content-type"]) == (413, MEDIA_TYPE)
    assert [(line["event"], line["status"]) for line in lines] == [("http_request_refused", 413)]


def test_a_revoked_key_is_refused_by_a_running_server_within_a_second(keys):
    key = keys()
    app = guarded(KeyRing.load(keys.path))
    assert ask(app, headers=bearer(key)).status_code == 200
    revoke_key(keys.path, key.record.id)
    time.sleep(1.0)
    assert ask(app, headers=bearer(key)).status_code == 401


def test_a_key_file_that_is_gone_makes_it_unavailable(keys):
    key = keys()
    app = guarded(KeyRing.load(keys.path))
    keys.path.unlink()
    time.sleep(1.0)
    answer = ask(app, headers=bearer(key))
    assert (answer.status_code, str(keys.path) in answer.text) == (503, False)


def test_websockets_are_closed_and_lifespan_passes(keys):
    seen, sent = [], []

    async def inner(scope, receive, send):
        seen.append(scope["type"])

    async def send(message):
        sent.append(message)

    guard = Guard(inner, None, limits())
    asyncio.run(guard({"type": "lifespan"}, None, send))
    asyncio.run(guard({"type": "websocket", "path": "/"}, None, send))
    assert seen == ["lifespan"]
    assert sent == [{"type": "websocket.close", "code": 1008}]


@pytest.fixture
def live(keys):
    """Base address of a real server, and a key."""
    key, started, stop = keys(), threading.Event(), threading.Event()
    ports = []

    async def serve():
        settings = HttpSettings("127.0.0.1:0")
        server = HttpServer(guarded(KeyRing.load(keys.path)), settings)
        ports.append(await server.start())
        started.set()
        await asyncio.to_thread(stop.wait)
        await server.stop()

    thresholds = gc.get_threshold()
    thread = threading.Thread(target=asyncio.run, args=[serve()])
    thread.start()
    assert started.wait(60)
    yield f"http://127.0.0.1:{ports[0]}", key
    stop.set()
    thread.join(60)
    assert not thread.is_alive()
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_a_real_server_refuses_large_bodies_however_they_come_and_goes_on(live):
    base, key = live
    large = b"x" * 300_000

    def chunks():
        for _ in range(30):
            yield large[:10_000]

    with httpx2.Client(base_url=base, headers=bearer(key), timeout=20.0) as client:
        assert client.post("/rank/a", content=large).status_code == 413
        counted = client.post("/rank/a", content=chunks())
        assert counted.json()["type"] == "/problems/too-large"
        assert client.post("/rank/a", content=b"x" * 1_000).json() == {"bytes": 1_000}
        assert client.post("/rank/a", content=iter([b"x" * 900])).json() == {"bytes": 900}
        assert client.post("/rank/a", headers={"Authorization": ""}).status_code == 401
