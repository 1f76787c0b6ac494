"""A running server stops a policy that is made to lose, and stays so after kill -9."""

import json
import subprocess
import sys
import time

import pytest
from http_world import HttpWorld

LIMIT_S = 120.0
TABLES = """
[campaigns.default]
holdback = 0.4

[campaigns.default.guardrail]
min_events = 30
"""


def lose(world, client, count, *, start=0):
    """Rank and reward in batches; the policy's events bring 0 and the holdback's 1, mostly."""
    for first in range(start, start + count, 50):
        requests = [
            {"user": world.town.users[n % 8], "arms": list(world.town.arms), "event_id": f"e{n}"}
            for n in range(first, first + 50)
        ]
        answer = client.post("/v1/rank/batch", json={"requests": requests})
        rewards = [
            {"event_id": one["answer"]["event_id"], "value": value_of(one["answer"], n)}
            for n, one in enumerate(answer.json()["results"])
        ]
        assert client.post("/v1/rewards/batch", json={"rewards": rewards}).status_code == 200


def value_of(answer, n):
    return float((answer["group"] == "holdback") != (n % 10 == 0))


def guardrail(client):
    return client.get("/v1/config").json()["guardrail"]


def wait_for(is_so):
    limit = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < limit
        time.sleep(0.05)


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """A busy machine takes its time to start a process."""
    monkeypatch.setattr("vfbandits.demo.processes.READY_S", 240.0)


@pytest.mark.timeout(600)
def test_a_policy_that_loses_is_stopped_survives_a_kill_and_is_re_armed_by_hand(tmp_path):
    with HttpWorld(tmp_path, tables=TABLES) as world, world.client() as client:
        client.timeout = LIMIT_S
        assert guardrail(client)["state"] == "watching"
        lose(world, client, 300)
        wait_for(lambda: guardrail(client)["state"] == "tripped")
        tripped = guardrail(client)["tripped"]
        assert tripped["high"] < 0.0
        assert tripped["n_policy"] + tripped["n_holdback"] <= 300
        log = world.local.log_path("shop")
        wait_for(lambda: "guardrail_tripped" in log.read_text(encoding="utf-8"))  # it is durable
        world.local.kill("shop")
        world.local.start("shop")
        world.wait_until_all_contribute()
        assert guardrail(client)["tripped"] == tripped
        answer = world.rank(client, event_id="after", baseline=world.town.arms[3]).json()
        assert (answer["group"], answer["arm"]) == ("guardrail", world.town.arms[3])
        shown = client.get("/v1/dashboard").json()
        assert shown["guardrail"]["tripped"] == tripped
        assert [one["kind"] for one in shown["marks"] if one["kind"] == "guardrail"] == [
            "guardrail"
        ]
        assert {"missing_ratio", "norm_ratio"} <= shown["participants"][1].keys()
        figures = client.get("/metrics").text
        assert 'vfb_guardrail_tripped{campaign="default"} 1.0' in figures
        assert 'vfb_guardrail_high{campaign="default"} -0.' in figures

        wrong = client.patch("/v1/config", json={"guardrail": {"alhpa": 0.01}})
        assert wrong.status_code == 422
        assert "alhpa" in wrong.json()["detail"]
        changed = client.patch("/v1/config", json={"guardrail": {"alpha": 0.01}}).json()
        assert (changed["guardrail"]["alpha"], changed["guardrail"]["min_events"]) == (0.01, 30)
        assert changed["guardrail"]["state"] == "tripped"  # which no setting undoes

        rearmed = client.post("/v1/guardrail/rearm")
        assert rearmed.status_code == 200
        assert rearmed.json()["guardrail"]["state"] == "watching"
        lose(world, client, 50, start=1_000)
        assert guardrail(client)["n_policy"] + guardrail(client)["n_holdback"] == 50
        world.local.stop("shop")
        journal = world.local.folder / "shop" / "state" / "journal.db"
        command = [sys.executable, "-m", "vfbandits.cli.main", "journal", "audit", "--json"]
        done = subprocess.run([*command, str(journal)], capture_output=True, text=True, check=True)
        changes = json.loads(done.stdout)["changes"]
        told = [one["by"] for one in changes if one["what"] == "guardrail"]
        assert told == ["guardrail", "everybody"]
        verified = subprocess.run(
            [*command[:4], "verify", str(journal)], capture_output=True, text=True, check=False
        )
        assert verified.returncode == 0, verified.stdout
