"""Idle connections without a key keep nobody out: a real federation with few descriptors."""

import contextlib
import json
import resource
import socket
import threading
import time
from pathlib import Path

import httpx2
import pytest
from http_world import HttpWorld

from vfbandits.http.access.key_file import add_key
from vfbandits.http.access.keys import make_key

N_DESCRIPTORS = 256  # of which the HTTP server takes 192, and 96 for one address
N_IDLE = 1_100
LATE_S = 60.0
KEY = make_key("web", scopes=["rank", "reward", "read"])
HEADERS = {"authorization": f"Bearer {KEY.text}"}


@contextlib.contextmanager
def few_descriptors():
    """Processes that start within have ``N_DESCRIPTORS``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (N_DESCRIPTORS, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4_096)), hard))


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr("vfbandits.demo.processes.READY_S", 4.0 * LATE_S)
    add_key(tmp_path / "keys.json", KEY.record)
    world = HttpWorld(tmp_path, http=f'keys = "{tmp_path / "keys.json"}"\n')
    with few_descriptors():
        world.__enter__()
    try:
        wait_for_bank(world)
        yield world
    finally:
        world.__exit__(None, None, None)


def caller(world):
    """One whose address sends no flood."""
    transport = httpx2.HTTPTransport(local_address="127.0.0.99")
    return world.client(headers=HEADERS, transport=transport)


def answer_amid_the_flood(world):
    """For a caller behind an address that floods: it may lose its place before it shows its key."""
    limit = time.monotonic() + LATE_S
    while True:
        with world.client(headers=HEADERS) as client:
            try:
                return world.rank(client)
            except httpx2.TransportError:
                if time.monotonic() > limit:
                    raise


def wait_for_bank(world):
    limit = time.monotonic() + LATE_S
    while time.monotonic() < limit:
        with caller(world) as client:
            if all(one["connected"] for one in client.get("/v1/model").json()["participants"]):
                return
        time.sleep(0.05)
    raise TimeoutError("the passive participant did not come back")


@contextlib.contextmanager
def idle_connections(port, count, *, sources=("127.0.0.1",)):
    """Opened, and opened again when the server closes some, until the context ends."""
    lines, stopping = [], threading.Event()

    def flood(source, count):
        own = [None] * count
        while not stopping.is_set():
            for place in range(count):
                if stopping.is_set():
                    break
                if own[place] is not None:
                    own[place].close()
                with contextlib.suppress(OSError):
                    own[place] = socket.create_connection(
                        ("127.0.0.1", port), 5.0, source_address=(source, 0)
                    )
                    is_first.set() if place == count - 1 else None
            time.sleep(0.05)
        lines.extend(line for line in own if line is not None)

    is_first = threading.Event()
    threads = [
        threading.Thread(target=flood, args=(source, count // len(sources))) for source in sources
    ]
    for thread in threads:
        thread.start()
    try:
        assert is_first.wait(LATE_S)
        yield
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
        for line in lines:
            line.close()


def metrics(client):
    lines = client.get("/metrics").text.splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if line.startswith("vfb_http_connections")]
    return {name: float(value) for name, value in pairs}


def n_open_files(world):
    return len(list(Path(f"/proc/{world.local.processes['shop'].pid}/fd").iterdir()))


def test_a_flood_of_idle_connections_keeps_neither_callers_nor_participants_out(world):
    sources = ["127.0.0.1", *(f"127.0.0.{n}" for n in range(2, 12))]
    with (
        world.client(headers=HEADERS) as kept,
        idle_connections(world.http_port, N_IDLE, sources=sources),
    ):
        assert world.rank(kept).status_code == 200
        for _ in range(10):
            with caller(world) as client:
                answer = world.rank(client)
                assert (answer.status_code, answer.json()["degraded"]) == (200, False)
        assert answer_amid_the_flood(world).status_code == 200
        assert world.rank(kept).status_code == 200
        world.local.kill("bank")
        world.local.start("bank")
        wait_for_bank(world)
        with caller(world) as client:
            assert world.rank(client).json()["contributors"] == ["shop", "bank"]
            seen = metrics(client)
        assert n_open_files(world) < N_DESCRIPTORS
    assert seen["vfb_http_connections_limit"] == 192.0
    assert seen["vfb_http_connections"] <= 192.0
    assert seen['vfb_http_connections_closed_total{reason="idle"}'] > N_IDLE - 192
    assert seen['vfb_http_connections_refused_total{reason="descriptors"}'] == 0.0
    events = [one["event"] for one in world.local.events("shop")]
    assert events.count("http_connection_refused") <= 2


def test_callers_with_a_key_are_limited_by_address_and_the_last_gets_503(world):
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(world.client(headers=HEADERS)) for _ in range(96)]
        assert {client.get("/v1/config").status_code for client in clients} == {200}
        with world.client(headers=HEADERS) as late:
            assert late.get("/v1/config").status_code == 503
        other = httpx2.HTTPTransport(local_address="127.0.0.2")
        with world.client(headers=HEADERS, transport=other) as elsewhere:
            assert elsewhere.get("/v1/config").status_code == 200
            assert metrics(elsewhere)['vfb_http_connections_refused_total{reason="address"}'] == 1.0
        assert {client.get("/v1/config").status_code for client in clients} == {200}
        (line,) = [
            one for one in world.local.events("shop") if one["event"] == "http_connection_refused"
        ]
        assert json.dumps(line).count("127.0.0.1") == 1
