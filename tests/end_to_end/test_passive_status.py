"""The status port of a passive participant tells the truth, in a real process."""

import asyncio
import time

import httpx2
import pytest
from live_world import LiveWorld, Session
from typer.testing import CliRunner

from vfbandits import extras
from vfbandits.cli.main import app
from vfbandits.protocol.roster import Terms

PATIENCE_S = 60.0
WIDTHS = {"shop": 2, "bank": 2}
AWAY = ["not connected to the active participant"]


@pytest.fixture
def world(tmp_path):
    return LiveWorld(tmp_path, widths=WIDTHS, terms=Terms(layout="disjoint"), n_users=3)


@pytest.fixture
def federation(world):
    made = world.federation(journal=False)
    config = made.config("bank")
    config.write_text(config.read_text() + '\n[status]\naddress = "127.0.0.1:0"\n')
    yield made
    for name in list(made.processes):
        made.kill(name)


def client_of(federation):
    (port,) = (
        line["port"] for line in federation.events("bank") if line["event"] == "status_listening"
    )
    return httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S)


def until_ready(client, wanted):
    """Wait for an answer of /readyz with these reasons."""
    limit = time.monotonic() + PATIENCE_S
    while True:
        answer = client.get("/readyz")
        reasons = answer.json()["reasons"]
        assert (answer.status_code == 200) == (not reasons)
        if reasons == wanted:
            return
        assert time.monotonic() < limit, reasons
        time.sleep(0.05)


def metrics_of(client):
    lines = client.get("/metrics").text.splitlines()
    return {line.rpartition(" ")[0]: float(line.split()[-1]) for line in lines if line[0] != "#"}


def decide(world, federation, *users):
    async def ask():
        async with Session(world, federation, None) as session:
            for user in users:
                await session.client.decide(world.request(user), timeout_s=PATIENCE_S)

    asyncio.run(ask())


def test_readiness_follows_the_link_and_the_access_record(world, federation):
    federation.start("bank")
    with client_of(federation) as client:
        assert client.get("/healthz").json()["status"] == "ok"
        until_ready(client, AWAY)
        assert metrics_of(client)["vfb_active_connected"] == 0.0

        federation.start("shop")
        until_ready(client, [])
        decide(world, federation, world.users[0], world.users[1], "stranger")
        now = metrics_of(client)
        assert now["vfb_ready"] == now["vfb_active_connected"] == now["vfb_mask_epoch"] == 1.0
        assert now['vfb_access_asks_total{outcome="answered"}'] == 3.0
        assert now['vfb_access_users_total{outcome="unknown"}'] == 1.0
        assert now['vfb_access_users_total{outcome="users per day"}'] == 0.0
        assert now["vfb_access_rows_total"] == 2.0
        assert now["vfb_access_record_entries"] == 3.0
        (record,) = (federation.folder / "bank" / "state" / "access").glob("access-*.jsonl")
        assert now["vfb_access_record_bytes"] == record.stat().st_size

        federation.kill("shop")
        until_ready(client, AWAY)
        assert client.get("/healthz").status_code == 200
        federation.start("shop")
        until_ready(client, [])

        record.unlink()
        until_ready(client, ["the file of the access record was removed"])
        for share in (federation.folder / "bank" / "state" / "shares").iterdir():
            share.unlink()
        assert (
            "the mask share of the epoch in force is not in the state folder"
            in (client.get("/readyz").json()["reasons"])
        )
        assert metrics_of(client)["vfb_ready"] == 0.0
        assert client.post("/metrics").status_code == 405
        assert client.get("/v1/model").status_code == 404
        assert client.get("/metrics", headers={"host": "evil.example"}).status_code == 403
    assert federation.stop("bank") == 0
    told = [line["reason"] for line in federation.events("bank") if "reason" in line]
    assert AWAY[0] in told


@pytest.mark.parametrize("missing", ["httptools", "starlette", "prometheus_client"])
def test_without_the_extra_the_table_is_one_clear_error_and_nothing_is_started(
    world, monkeypatch, missing
):
    config = world.federation(journal=False).config("bank")
    config.write_text(config.read_text() + '\n[status]\naddress = "127.0.0.1:0"\n')
    monkeypatch.setattr(extras, "_is_installed", lambda module: module != missing)
    done = CliRunner().invoke(app, ["serve", "passive", "--config", str(config)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        f"error: [status] needs {missing}, which is not installed; it comes with the extra 'http': "
        "pip install 'vfbandits[http]'\n"
    )
    assert not (config.parent / "state").exists()
