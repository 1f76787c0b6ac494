"""On a running server: rewards outside the bounds, and one that is taken back after a rotation.

Then one damaged old record that a snapshot covers, with which the server starts all the same, and
a user who is forgotten.
"""

import asyncio
import json
import sqlite3
import sys
import time
from contextlib import closing

import fork_server
import pytest
from http_world import HttpWorld
from live_world import client_of

from vfbandits.errors import RewardError
from vfbandits.protocol.application import DecideRequest, RewardRequest

LIMIT_S = 60.0


def vfb(*words):
    command = [sys.executable, "-m", "vfbandits.cli.main", *map(str, words)]
    return fork_server.run(command, capture_output=True, text=True, check=False)


def norm(client):
    return client.get("/v1/model").json()["norm"]


def learn(world, client, event_id, value):
    assert world.rank(client, event_id=event_id).status_code == 200
    answer = client.post(f"/v1/events/{event_id}/reward", json={"value": value})
    assert answer.json()["status"] == "learnt"


async def reward_by_grpc(world, value):
    client = client_of(world.local)
    try:
        request = DecideRequest(world.town.users[0], tuple(world.town.arms))
        reply = await client.decide(request, timeout_s=LIMIT_S)
        return await client.reward(RewardRequest(reply.event_id, value), timeout_s=LIMIT_S)
    finally:
        await client.close()


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """A busy machine takes its time to start a process."""
    monkeypatch.setattr("vfbandits.demo.processes.READY_S", 240.0)


@pytest.mark.timeout(600)
def test_bounds_a_retraction_after_a_rotation_and_a_damaged_old_record(tmp_path):
    with HttpWorld(tmp_path, top="snapshot_every = 5\n") as world, world.client() as client:
        client.timeout = LIMIT_S
        learn(world, client, "good", 1.0)
        before = norm(client)
        with pytest.raises(RewardError, match="reward_max"):
            asyncio.run(reward_by_grpc(world, 1e9))
        learn(world, client, "wrong", 1e5)
        assert norm(client) > 100 * before
        done = vfb("masks", "rotate", "--config", world.local.config("operator"))
        assert done.returncode == 0, done.stderr
        done = vfb("journal", "retract", "wrong", "--url", world.url, "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {"event_id": "wrong", "reward": 1e5}
        assert norm(client) == pytest.approx(before, abs=1e-9)
        seen = client.get("/v1/events/wrong").json()
        assert (seen["status"], seen["reward"]) == ("retracted", None)
        figures = client.get("/metrics").text
        assert 'vfb_retracted_gained_total{campaign="default",group="policy"} 100000.0' in figures
        assert 'vfb_rewards_total{campaign="default",status="retracted"} 1.0' in figures
        shown = client.get("/v1/dashboard").json()
        assert (shown["rewards"]["policy"]["n"], shown["rewards"]["policy"]["mean"]) == (1, 1.0)
        again = client.post("/v1/events/wrong/retract")
        assert again.status_code == 409
        assert client.post("/v1/events/never/retract").status_code == 404
        done = vfb("journal", "retract", "wrong", "--url", world.url)
        assert done.returncode == 2
        assert "retracted" in done.stderr

        state = world.local.folder / "shop" / "state"
        limit = time.monotonic() + LIMIT_S
        while time.monotonic() < limit and not newer_snapshots(state):
            learn(world, client, f"more-{time.monotonic_ns()}", 0.5)
            time.sleep(0.2)
        known = norm(client)
        world.local.kill("shop")
        with closing(sqlite3.connect(state / "journal.db")) as db, db:
            db.execute("UPDATE event SET record = x'00' WHERE position = 2")
        world.local.start("shop")
        assert client.get("/readyz").status_code == 200
        assert norm(client) == known
        page = world.local.log_path("shop").read_text(encoding="utf-8")
        assert page.count("1 records of the journal cannot be read and are left out") == 1
        world.local.stop("shop")
        assert vfb("journal", "verify", state / "journal.db").returncode == 1
        assert vfb("journal", "repair", state / "journal.db", "--apply").returncode == 0
        assert vfb("journal", "verify", state / "journal.db").returncode == 0

        forget_the_user(world, client, state)
        assert norm(client) == known


def forget_the_user(world, client, state):
    """All events are of one; the server is stopped before, and runs afterwards."""
    user = world.town.users[0]
    done = vfb("journal", "forget", state / "journal.db", "--user", user, "--reason", "asked")
    assert done.returncode == 0, done.stderr
    assert not [p for p in state.rglob("journal.db*") if user.encode() in p.read_bytes()]
    world.local.start("shop")
    for answer in (
        client.post("/v1/events/good/reward", json={"value": 1.0}),
        client.get("/v1/events/good"),
        world.rank(client, event_id="good"),
    ):
        assert (answer.status_code, answer.json()["type"]) == (410, "/problems/erased-event")
    assert client.patch("/v1/config", json={"holdback": 0.5}).status_code == 200
    done = vfb("journal", "audit", state / "journal.db", "--json")
    found = [(one["what"], one["by"]) for one in json.loads(done.stdout)["changes"]]
    assert [what for what, _ in found] == ["masks", "repair", "erasure", "settings"]
    assert (found[0][1], found[3][1]) == ("operator", "everybody")


def newer_snapshots(state):
    return [path for path in state.glob("journal.db.snapshot-*") if int(path.name[-20:]) > 2]
