"""A background task of a real process dies: readiness, metrics and log say so; it comes back."""

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import fork_server
import pytest
from http_world import HttpWorld

FAULTY = Path(__file__).parents[1] / "faulty_server.py"
PATIENCE_S = 60.0


def until(is_so, what):
    limit = time.monotonic() + PATIENCE_S
    while not (found := is_so()):
        assert time.monotonic() < limit, f"not in time: {what}"
        time.sleep(0.05)
    return found


@contextlib.contextmanager
def faulty(world, name, where, fault):
    """A participant as ``LocalFederation`` starts it; a task dies while there is a file."""
    role = "active" if name == "shop" else "passive"
    config = world.local.config(name)
    command = [sys.executable, FAULTY, fault, where, role, "--config", config]
    with world.local.log_path(name).open("ab") as log:
        process = fork_server.Popen([*map(str, command)], stdout=subprocess.PIPE, stderr=log)
    try:
        assert process.stdout.readline().startswith(b"ready")
        yield process
    finally:
        process.terminate()
        with process:
            process.wait(PATIENCE_S)


def failures(client, task):
    for line in client.get("/metrics").text.splitlines():
        if line.startswith(f'vfb_task_failures_total{{task="{task}"}}'):
            return float(line.split()[-1])
    return None


@pytest.mark.parametrize(
    ("where", "task"), [("settle", "settle default"), ("federation", "federation")]
)
def test_a_task_that_dies_is_in_readiness_metrics_and_log_until_it_runs_again(
    tmp_path, where, task
):
    world = HttpWorld(tmp_path)
    fault = tmp_path / "fault"
    with faulty(world, "shop", where, fault), world.client() as client:
        until(lambda: client.get("/readyz").status_code == 200, "ready")
        assert failures(client, task) == 0.0
        fault.touch()
        refused = until(lambda: (r := client.get("/readyz")).status_code == 503 and r, "503")
        assert refused.json()["reasons"] == [f"background task {task!r} died: RuntimeError"]
        assert failures(client, task) >= 1.0
        assert "vfb_ready 0.0" in client.get("/metrics").text
        until(lambda: failures(client, task) >= 2.0, "started again")
        fault.unlink()
        until(lambda: client.get("/readyz").status_code == 200, "ready again")
    died = [line for line in world.local.events("shop") if line["event"] == "task_failed"]
    assert {(line["task"], line["error"], line["level"]) for line in died} == {
        (task, "RuntimeError", "error")
    }
    assert "an injected fault" in died[0]["exception"]


def test_a_passive_participant_whose_link_task_dies_comes_back_by_itself(tmp_path):
    world = HttpWorld(tmp_path)
    fault = tmp_path / "fault"
    world.local.start("shop")
    try:
        with faulty(world, "bank", "link", fault) as bank, world.client() as client:
            world.wait_until_all_contribute()
            fault.touch()

            def has_died():
                world.rank(client)  # asks it for features, which it is then unable to answer
                return any(e["event"] == "task_failed" for e in world.local.events("bank"))

            until(has_died, "the death in the log")
            fault.unlink()
            world.wait_until_all_contribute()
            assert world.rank(client).status_code == 200
            assert bank.poll() is None
            bank.terminate()
            assert bank.wait(PATIENCE_S) == 0
    finally:
        world.local.stop_all()
    (line, *_) = [line for line in world.local.events("bank") if line["event"] == "task_failed"]
    assert (line["task"], line["error"]) == ("link", "RuntimeError")
