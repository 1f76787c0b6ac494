"""Secure by default: who may call, over what, and what of it is ever written down."""

import http.client
import json
import socket
import ssl
import subprocess
import sys
import time
from contextlib import closing, contextmanager

import fork_server
import pytest
from http_load import DEFAULT, SECOND_CAMPAIGN, SUMS, LostError, Wire, prefix
from http_world import HttpWorld
from ports import free_port

from vfbandits.http.access.key_file import add_key, revoke_key
from vfbandits.http.access.keys import make_key
from vfbandits.http.openapi.paths import OPERATIONS
from vfbandits.pki.member import server_name

REVOKED_S = 20.0
FEATURES = [0.123456789012345, -0.246913578024691, 0.370370367037037]
OWN_CERTIFICATE = 'certificate = "identity/shop.crt"\nprivate_key = "identity/shop.key"\n'
KEYS = {
    "boss": make_key("boss", scopes=["admin"]),
    "web": make_key("web", scopes=["rank", "reward"]),
    "reader": make_key("reader", scopes=["read"]),
    "board": make_key("board", scopes=["figures"]),
    "summing": make_key("summing", scopes=["rank", "reward", "read"], campaigns=[SUMS]),
    "leaving": make_key("leaving", scopes=["rank"]),
}


class Named(http.client.HTTPSConnection):
    """Reaches a server on loopback that has a certificate of another name."""

    def __init__(self, port, context, name):
        super().__init__("127.0.0.1", port, timeout=10.0, context=context)
        self._tls, self._name = context, name

    def connect(self):
        plain = socket.create_connection((self.host, self.port), self.timeout)
        self.sock = self._tls.wrap_socket(plain, server_hostname=self._name)


class Secured:
    """A world whose server has a certificate, and calls to it."""

    def __init__(self, world):
        self.world = world
        self.keys_path = world.local.folder / "keys"

    def call(self, method, path, body=None, *, key=None, owner=None, of=None, headers=()):
        """With the key of this name or text, and with the certificate of ``owner``."""
        headers = dict(headers)
        if key is not None:
            headers["authorization"] = f"Bearer {KEYS[key].text if key in KEYS else key}"
        link = Named(
            self.world.http_port,
            context_of(self.world, of or self.world, owner),
            server_name(self.world.local.roster),
        )
        with closing(Wire(link=link, headers=headers)) as wire:
            return wire.call(method, path, body)

    def rank(self, campaign=DEFAULT, *, body=None, **who):
        asked = {"user": self.world.town.users[0], "arms": list(self.world.town.arms)}
        return self.call("POST", f"{prefix(campaign)}/rank", {**asked, **(body or {})}, **who)

    def status(self, *call, **who):
        return self.call(*call, **who)[0]


def context_of(world, of, owner):
    context = ssl.create_default_context(cafile=str(world.local.identity("app").authority_path))
    if owner is not None:
        identity = of.local.identity(owner)
        context.load_cert_chain(identity.certificate_path, identity.key_path)
    return context


@contextmanager
def serving(world):
    """The server alone: nothing here needs another participant."""
    try:
        world.local.start("shop")
        yield Secured(world)
    finally:
        world.local.stop_all()


# --- no key, no start -----------------------------------------------------------------------------


REFUSED = {
    "no key": ("127.0.0.1", "", (), "wanted keys (a file, see `vfb keys create`) or clients"),
    "no certificate": ("192.0.2.1", "", ("--insecure",), "wanted a certificate and a private_key"),
    "no key beyond loopback": (
        "192.0.2.1",
        OWN_CERTIFICATE,
        ("--insecure",),
        "insecure needs an address on loopback",
    ),
}


@pytest.fixture(scope="module")
def unstarted(tmp_path_factory):
    """A federation whose server has nobody to answer to."""
    return HttpWorld(tmp_path_factory.mktemp("unstarted"))


@pytest.fixture(scope="module")
def refused(unstarted):
    """Servers that must not start, all started at once, by what they lack."""
    whole = unstarted.local.config("shop").read_text()
    started = {}
    for number, (name, (host, more, flags, _)) in enumerate(REFUSED.items()):
        config = unstarted.local.config("shop").with_name(f"shop-{number}.toml")
        http = f'[http]\naddress = "{host}:{free_port()}"\n{more}'
        config.write_text(whole[: whole.index("[http]")] + http)
        started[name] = fork_server.Popen(
            [sys.executable, "-m", "vfbandits.cli.serve", "active", "--config", str(config),
             *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
    try:
        ended = {name: process.communicate(timeout=60.0) for name, process in started.items()}
    finally:
        for process in started.values():
            process.kill()
    return {name: (started[name].returncode, *said) for name, said in ended.items()}


@pytest.mark.parametrize("name", REFUSED)
def test_a_server_that_is_not_safe_does_not_start_and_says_what_it_lacks(refused, name):
    code, out, said = refused[name]
    assert (code, out) == (2, "")
    assert REFUSED[name][-1] in said
    assert "Traceback" not in said


# --- keys, over TLS -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keyed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keyed")
    http = f'keys = "../keys"\n{OWN_CERTIFICATE}'
    world = HttpWorld(folder, tables=SECOND_CAMPAIGN, http=http)
    for key in KEYS.values():
        add_key(world.local.folder / "keys", key.record)
    with serving(world) as secured:
        yield secured


def test_without_a_key_there_is_nothing_but_probes_the_page_and_the_document(keyed):
    for operation in OPERATIONS:
        path = operation.path.replace("{campaign}", SUMS).replace("{event_id}", "x")
        body = {} if operation.request else None
        status, answer = keyed.call(operation.method, path, body)
        if operation.path in ("/healthz", "/readyz", "/openapi.json"):
            assert status == 200, operation.path
        else:
            assert status == 401, operation.path
            assert json.loads(answer)["type"] == "/problems/unauthorized"
    assert keyed.status("GET", "/") == 200
    assert keyed.status("GET", "/v1/dashboard") == 401
    assert keyed.status("GET", "/nothing/of/this/name") == 401


def with_the_secret_of(name, other):
    return f"vfb_{KEYS[name].text.split('_', 2)[1]}_{KEYS[other].text.split('_', 2)[2]}"


@pytest.mark.parametrize(
    "key",
    [
        "x" * 56,
        "vfb_aaaaaaaa_" + "a" * 43,
        KEYS["web"].text[:-1],
        KEYS["web"].text[:-1] + "é",
        with_the_secret_of("web", "reader"),
        "long" * 2_000,
    ],
    ids=["no key", "unknown", "cut", "not ASCII", "another's secret", "long"],
)
def test_a_key_that_is_none_of_ours_is_refused_and_not_repeated(keyed, key):
    status, answer = keyed.rank(key=key)
    assert status == 401
    assert key.encode() not in answer


@pytest.mark.parametrize(
    ("key", "call", "wanted"),
    [
        ("web", ("POST", "/v1/rank"), 422),
        ("web", ("POST", f"{prefix(SUMS)}/rank"), 422),
        ("web", ("GET", "/v1/model"), 403),
        ("web", ("GET", "/metrics"), 403),
        ("web", ("GET", "/v1/dashboard"), 403),
        ("web", ("PATCH", "/v1/config"), 403),
        ("reader", ("POST", "/v1/rank"), 403),
        ("reader", ("POST", "/v1/events/x/reward"), 403),
        ("reader", ("POST", "/v1/events/x/activate"), 403),
        ("reader", ("PATCH", "/v1/config"), 403),
        ("reader", ("GET", "/v1/model"), 200),
        ("reader", ("GET", "/metrics"), 200),
        ("reader", ("GET", "/v1/dashboard"), 200),
        ("reader", ("GET", "/v1/events/x"), 404),
        ("board", ("GET", "/v1/model"), 200),
        ("board", ("GET", "/v1/config"), 200),
        ("board", ("GET", "/v1/campaigns"), 200),
        ("board", ("GET", "/metrics"), 200),
        ("board", ("GET", "/v1/dashboard"), 200),
        ("board", ("GET", "/v1/events/x"), 403),
        ("board", ("POST", "/v1/rank"), 403),
        ("board", ("PATCH", "/v1/config"), 403),
        ("summing", ("POST", f"{prefix(SUMS)}/rank"), 422),
        ("summing", ("GET", f"{prefix(SUMS)}/model"), 200),
        ("summing", ("POST", "/v1/rank"), 403),
        ("summing", ("POST", "/v1/rewards/batch"), 403),
        ("summing", ("POST", "/v1/events/x/reward"), 403),
        ("summing", ("GET", "/v1/events/x"), 403),
        ("summing", ("GET", "/v1/campaigns/none/model"), 403),
        ("summing", ("GET", "/v1/campaigns"), 403),
        ("summing", ("GET", "/metrics"), 403),
        ("boss", ("GET", "/v1/campaigns/none/model"), 404),
        ("boss", ("PATCH", "/v1/config"), 200),
    ],
)
def test_a_key_opens_what_it_is_for_and_nothing_else(keyed, key, call, wanted):
    method, path = call
    assert keyed.status(method, path, {} if method != "GET" else None, key=key) == wanted


def test_a_key_for_figures_is_told_no_user_and_no_event(keyed):
    """Whatever it may read: what is in the answers of a reader is not in its own."""
    body = {"event_id": "order-of-ann"}
    status, answer = keyed.rank(body=body, key="web")
    assert status == 200, answer
    user = keyed.world.town.users[0].encode()
    _, told = keyed.call("GET", "/v1/dashboard", key="reader")
    assert user in told
    assert b"order-of-ann" in told
    for operation in OPERATIONS:
        if operation.scope == "figures" and "{" not in operation.path:
            status, told = keyed.call("GET", operation.path, key="board")
            assert status == 200
            assert user not in told
            assert b"order-of-ann" not in told
    _, told = keyed.call("GET", "/v1/dashboard", key="board")
    assert user not in told
    assert b"order-of-ann" not in told
    assert json.loads(told)["totals"]["decisions"] > 0


def test_a_key_may_come_in_the_other_header_but_not_in_the_address(keyed):
    text = KEYS["reader"].text
    assert keyed.status("GET", f"/v1/model?key={text}&api_key={text}") == 401
    assert keyed.status("GET", "/v1/model", headers={"x-api-key": text}) == 200


def test_a_revoked_key_is_worthless_within_seconds(keyed):
    assert keyed.rank(key="leaving")[0] == 200
    revoke_key(keyed.keys_path, KEYS["leaving"].record.id)
    limit = time.monotonic() + REVOKED_S
    while keyed.rank(key="leaving")[0] != 401:
        assert time.monotonic() < limit
        time.sleep(0.1)
    assert keyed.rank(key="web")[0] == 200


def test_a_caller_without_tls_gets_no_answer(keyed):
    with closing(Wire(keyed.world.http_port, timeout_s=30.0)) as plain, pytest.raises(LostError):
        plain.get("/healthz")


def test_neither_keys_nor_features_are_ever_written_down(keyed):
    arms = [{"id": arm, "features": FEATURES} for arm in keyed.world.town.arms]
    assert keyed.rank(body={"arms": arms}, key="web")[0] == 200
    wrong = [{"id": arm, "features": FEATURES * 2} for arm in keyed.world.town.arms]
    status, told = keyed.rank(body={"arms": wrong}, key="web")
    assert status == 422
    assert keyed.rank(body={"arms": [*arms, {"id": FEATURES}]}, key="web")[0] == 422
    assert keyed.status("GET", f"/v1/model?key={KEYS['boss'].text}", key="reader") == 200
    assert keyed.rank(key=KEYS["web"].text[:-4] + "AAAA")[0] == 401
    log = keyed.world.local.log_path("shop").read_text()
    assert "http_request_refused" in log
    for text in (log, told.decode(), keyed.keys_path.read_text()):
        for key in KEYS.values():
            assert key.text.split("_", 2)[2][:20] not in text
        for feature in FEATURES:
            assert f"{feature}"[:9] not in text


# --- certificates of clients ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    http = f'clients = "identity/authority.crt"\n{OWN_CERTIFICATE}'
    with serving(HttpWorld(tmp_path_factory.mktemp("certified"), http=http)) as secured:
        yield secured


def test_an_applications_certificate_is_enough_to_rank_and_not_to_change_settings(certified):
    status, answer = certified.rank(owner="app")
    assert status == 200
    event_id = json.loads(answer)["event_id"]
    reward = ("POST", f"/v1/events/{event_id}/reward", {"value": 1.0})
    assert certified.status(*reward, owner="app") == 200
    assert certified.status("GET", "/v1/model", owner="app") == 200
    assert certified.status("PATCH", "/v1/config", {}, owner="app") == 403
    assert certified.status("PATCH", "/v1/config", {"holdback": 0.1}, owner="operator") == 200


def test_a_participants_certificate_opens_nothing(certified):
    assert certified.rank(owner="bank")[0] in (401, 403)
    assert certified.rank(owner="bank", key="web")[0] == 401  # keys are not known here
    assert certified.status("GET", "/v1/model", owner="bank") in (401, 403)


def test_without_a_certificate_of_the_federation_there_is_no_connection(certified, unstarted):
    with pytest.raises(LostError):
        certified.rank()
    with pytest.raises(LostError):
        certified.rank(owner="app", of=unstarted)
    assert certified.rank(owner="app")[0] == 200
