"""Who a request comes from behind proxies, and by what names the server may be called."""

import asyncio
import gc
from ipaddress import ip_network

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route
from structlog.testing import capture_logs

from vfbandits.errors import ConfigError
from vfbandits.http.access.gate import guarded, limits_of
from vfbandits.http.access.proxies import Proxies, hosts_of
from vfbandits.http.refusals import Forbidden
from vfbandits.http.server import HttpServer
from vfbandits.settings.decode import decode
from vfbandits.settings.http import HttpSettings

INSIDE = [ip_network("10.0.0.0/8"), ip_network("fd00::/8")]
LOCAL = (ip_network("127.0.0.0/8"),)


@pytest.fixture(autouse=True)
def _memory():
    """A server settles the memory of its process, which here is that of all tests."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


async def whence(request):
    return JSONResponse({"client": request.client.host, "scheme": request.url.scheme})


def ask(settings, *requests, app=None):
    """What a real server with these settings answers to each of (path, headers)."""
    paths = ("/healthz", "/openapi.json", "/whence")
    app = app or Starlette(routes=[Route(path, whence) for path in paths])

    async def run():
        server = HttpServer(guarded(app, settings, limits_of(settings)), settings)
        port = await server.start()
        try:
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                return [await client.get(path, headers=headers) for path, headers in requests]
        finally:
            await server.stop()

    return asyncio.run(run())


def settings(**more):
    return HttpSettings("127.0.0.1:0", insecure=True, **more)


FORWARDED = {"x-forwarded-for": "192.0.2.7", "x-forwarded-proto": "https"}


def test_what_a_client_on_loopback_says_of_itself_is_not_believed():
    (answer,) = ask(settings(), ("/whence", FORWARDED))
    assert answer.json() == {"client": "127.0.0.1", "scheme": "http"}


def test_another_invented_address_for_each_request_does_not_get_round_the_limit():
    slow = settings(rate=0.001, burst=1.0)  # so an address has two
    # A public path: only addresses are limited there, and not callers.
    invented = [("/openapi.json", {"x-forwarded-for": f"192.0.2.{n}"}) for n in range(3)]
    assert [answer.status_code for answer in ask(slow, *invented)] == [200, 200, 429]


def test_a_trusted_proxy_is_believed():
    (answer,) = ask(settings(trusted_proxies=LOCAL), ("/whence", FORWARDED))
    assert answer.json() == {"client": "192.0.2.7", "scheme": "https"}


def test_a_refusal_is_logged_with_the_address_of_the_caller():
    http = settings(trusted_proxies=LOCAL, rate=0.001, burst=1.0)
    with capture_logs() as lines:
        ask(http, *[("/whence", FORWARDED)] * 3)
    assert {line["address"] for line in lines} == {"192.0.2.7"}


@pytest.mark.parametrize(
    ("peer", "hops", "caller"),
    [
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", ["192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", ["203.0.113.9, 192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", ["203.0.113.9, 192.0.2.1, 10.9.9.9"], "192.0.2.1"),
        ("10.0.0.1", ["203.0.113.9", "192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", ["10.0.0.3,10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", ["192.0.2.1, nonsense, 10.0.0.2"], "10.0.0.2"),
        ("10.0.0.1", ["nonsense"], "10.0.0.1"),
        ("10.0.0.1", [""], "10.0.0.1"),
        ("10.0.0.1", ["192.0.2.1:4711"], "192.0.2.1"),
        ("10.0.0.1", ["[2001:db8::1]:4711"], "2001:db8::1"),
        ("fd00::1", ["2001:DB8::1"], "2001:db8::1"),
        ("::ffff:10.0.0.1", ["192.0.2.1"], "192.0.2.1"),
        ("192.0.2.9", ["192.0.2.1"], "192.0.2.9"),
    ],
)
def test_the_caller_is_the_last_address_that_is_not_a_trusted_proxy(peer, hops, caller):
    assert resolved(peer, hops)["client"][0] == caller


def resolved(peer, hops, **more):
    headers = [(b"x-forwarded-for", hop.encode()) for hop in hops]
    scope = {"client": (peer, 4_711), "scheme": "http", "headers": headers, **more}
    Proxies(INSIDE).resolve(scope)
    return scope


@given(st.lists(st.ip_addresses(v=4).map(str)), st.ip_addresses(v=4, network="192.0.2.0/24"))
def test_nothing_that_a_caller_writes_changes_who_it_is(invented, caller):
    hops = [", ".join([*invented, str(caller), "10.0.0.2"])]
    assert resolved("10.0.0.1", hops)["client"][0] == str(caller)


def test_where_tls_ends_at_a_proxy_nobody_else_may_ask_but_for_health():
    http = settings(tls="proxy", trusted_proxies=tuple(INSIDE))
    refused, probe = ask(http, ("/whence", FORWARDED), ("/healthz", {}))
    assert (refused.status_code, refused.json()["type"]) == (403, "/problems/forbidden")
    assert probe.status_code == 200


@pytest.mark.parametrize(
    ("scheme", "status"),
    [("https", 200), ("HTTPS", 200), ("http", 403), ("https, http", 403), (None, 200)],
)
def test_where_tls_ends_at_a_proxy_plain_http_before_it_is_refused(scheme, status):
    http = settings(tls="proxy", trusted_proxies=LOCAL)
    headers = {} if scheme is None else {"x-forwarded-proto": scheme}
    (answer,) = ask(http, ("/whence", headers))
    assert answer.status_code == status


def test_only_the_settings_say_which_proxies_are_trusted(monkeypatch):
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    (answer,) = ask(settings(), ("/whence", FORWARDED))
    assert answer.json()["client"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("localhost:8080", 200),
        ("LOCALHOST", 200),
        ("[::1]:8080", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost@evil.example", 403),
        ("", 403),
    ],
)
@pytest.mark.parametrize("path", ["/whence", "/healthz"])
def test_a_server_on_loopback_is_called_by_names_of_loopback(host, path, status):
    (answer,) = ask(settings(), (path, {"host": host}))
    assert answer.status_code == status


def test_names_can_be_added_and_loopback_keeps_its_own():
    http = settings(hosts=("Bandit.Example",))
    hosts = ["bandit.example:8443", "localhost", "other.example"]
    answers = ask(http, *[("/whence", {"host": host}) for host in hosts])
    assert [answer.status_code for answer in answers] == [200, 200, 403]


@pytest.mark.parametrize(
    ("address", "hosts", "allowed", "refused"),
    [
        ("0.0.0.0:80", (), ["evil.example", "a"], []),
        ("0.0.0.0:80", ("bandit.example",), ["bandit.example"], ["localhost", "evil.example"]),
        ("127.0.0.2:80", (), ["127.0.0.2", "localhost"], ["127.0.0.3"]),
    ],
)
def test_elsewhere_any_name_will_do_unless_some_are_given(address, hosts, allowed, refused):
    names = hosts_of(HttpSettings(address, hosts=hosts))
    for host in allowed:
        names.check({"headers": [(b"host", host.encode())]})
    for host in refused:
        with pytest.raises(Forbidden, match="wanted a Host"):
            names.check({"headers": [(b"host", host.encode())]})


def test_one_proxy_may_have_more_connections_than_one_address():
    http = settings(trusted_proxies=LOCAL, max_connections=8, max_connections_per_address=1)

    async def app(scope, receive, send):
        await JSONResponse({})(scope, receive, send)

    async def run():
        server = HttpServer(guarded(app, http, limits_of(http)), http)
        port = await server.start()
        lines = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
        for reader, writer in lines:
            writer.write(b"GET /whence HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert (await reader.readuntil(b"{}")).startswith(b"HTTP/1.1 200")
        for _, writer in lines:
            writer.close()
        await server.stop()
        return server.counts.refused

    assert set(asyncio.run(run()).values()) == {0}


def read(**values):
    return decode({"address": "0.0.0.0:0", **values}, HttpSettings)


def test_plain_http_behind_a_proxy_is_asked_for_by_name():
    http = read(tls="proxy", trusted_proxies=["10.0.0.0/8", "fd00::/8"], insecure=False)
    assert list(http.proxy_networks) == INSIDE
    with pytest.raises(ConfigError, match="wanted keys"):
        http.refuse_unless_safe()
    with pytest.raises(ConfigError, match='tls = "proxy" and trusted_proxies'):
        read(trusted_proxies=["10.0.0.0/8"]).refuse_unless_safe()


def safe(**more):
    return HttpSettings("0.0.0.0:0", keys="keys", **more).refuse_unless_safe()


def test_what_is_safe_behind_a_proxy():
    safe(tls="proxy", trusted_proxies=tuple(INSIDE))
    with pytest.raises(ConfigError, match="needs trusted_proxies"):
        safe(tls="proxy")
    with pytest.raises(ConfigError, match="got both"):
        safe(tls="proxy", trusted_proxies=tuple(INSIDE), certificate="a", private_key="b")
    with pytest.raises(ConfigError, match="insecure needs an address on loopback"):
        safe(tls="proxy", trusted_proxies=tuple(INSIDE), insecure=True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tls", "off"),
        ("trusted_proxies", "10.0.0.0/8"),
        ("trusted_proxies", ["10.0.0.0/33"]),
        ("trusted_proxies", ["10.0.0.1/8"]),
        ("trusted_proxies", ["0.0.0.0/0"]),
        ("trusted_proxies", ["::/0"]),
        ("trusted_proxies", ["proxy.example"]),
        ("hosts", [1]),
        ("max_connections", -1),
    ],
)
def test_an_error_in_the_file_names_its_key(key, value):
    with pytest.raises(ConfigError, match=rf"^{key}(\[0\])? must (not )?be"):
        read(**{key: value})
