"""Every role of a federation, started from the ``vfb`` of another environment than the tests'."""

import signal
import time
from contextlib import contextmanager

import httpx2
from http_world import HttpWorld
from scale_world import VARIABLE, ScaleWorld

from vfbandits.protocol.roster import Terms

READY_S = 90.0
STOP_S = 60.0


@contextmanager
def running(fresh, folder):
    """``start(name, *words)`` starts a process; all get SIGTERM in the end, and must end with 0."""
    processes = {}

    def start(name, *words, **variables):
        log = folder / f"{name}.started.log"
        processes[name] = fresh.start("vfb", *words, log=log, **variables)

    try:
        yield start
        for name, process in reversed(processes.items()):
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=STOP_S) == 0, name
    except BaseException as error:
        for name in processes:
            error.add_note(f"{name}: {(folder / f'{name}.started.log').read_text()[-1_500:]}")
        raise
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def wait_until(is_so, what):
    limit = time.monotonic() + READY_S
    while not is_so():
        if time.monotonic() > limit:
            raise TimeoutError(f"{what}: not so after {READY_S:g} s")
        time.sleep(0.05)


def all_connected(client):
    try:
        seen = client.get("/v1/model")
    except httpx2.TransportError:
        return False
    participants = seen.json().get("participants", [])
    return seen.status_code == 200 and all(one["connected"] for one in participants)


def decide_and_learn(client, town, *, status):
    """One decision in which everybody had a part, and its reward."""
    asked = {"user": town.users[0], "arms": list(town.arms)}
    answers = []

    def is_complete():
        answer = client.post("/v1/rank", json={**asked, "event_id": f"visit-{len(answers)}"})
        answers.append(answer)
        return answer.status_code == 200 and not answer.json()["degraded"]

    wait_until(is_complete, "a decision in which nobody is missing")
    path = f"/v1/events/{answers[-1].json()['event_id']}/reward"
    told = client.post(path, json={"value": 1.0})
    assert (told.status_code, told.json()["status"]) == (200, status)


def run_active_and_passive(fresh, folder):
    """The smallest federation that serves HTTP."""
    world = HttpWorld(folder)
    with running(fresh, folder) as start, world.client() as client:
        start("shop", "serve", "active", "--config", world.local.config("shop"))
        start("bank", "serve", "passive", "--config", world.local.config("bank"))
        wait_until(lambda: all_connected(client), "all participants connected")
        decide_and_learn(client, world.town, status="learnt")


def run_active_passive_and_generator(fresh, folder, *, http=""):
    """Dense masks and secure sums: two passive participants, a generator and an operator."""
    world = HttpWorld(
        folder,
        terms=Terms("dense", "secure", "per_arm"),
        widths={"shop": 3, "bank": 4, "news": 2},
        http=f"insecure = true\n{http}",
    )
    local = world.local
    with running(fresh, folder) as start, world.client() as client:
        start("shop", "serve", "active", "--config", local.config("shop"))
        for name in ("bank", "news"):
            start(name, "serve", "passive", "--config", local.config(name))
        wait_until(lambda: all_connected(client), "all participants connected")
        decide_and_learn(client, world.town, status="learnt")
        envelopes = folder / "dealt"
        for words in (
            ("preflight", "--config", local.config("bank")),  # the healthchecks of compose.yaml
            ("federation", "status", "--config", local.config("shop")),
            ("masks", "deal", "--roster", local.config("operator").with_name("roster.signed"),
             "--authority", local.folder / "organiser" / "authority.crt",
             "--key-dir", local.folder / "generator" / "identity",
             "--epoch", "2", "--out", envelopes),
            ("masks", "rotate", "--config", local.config("operator"), "--envelopes", envelopes),
            ("parity", "--config", local.config("app"), "--rounds", "5"),
        ):  # fmt: skip
            done = fresh.run("vfb", *words)
            assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        assert client.get("/v1/model").json()["epoch"] == 2


def run_trainer_and_ranker(fresh, folder):
    """A trainer and a ranker on a journal in PostgreSQL, with a passive participant."""
    world = ScaleWorld(folder)
    with running(fresh, folder) as start:
        for role in ("trainer", "ranker"):
            config, variables = world.config_of(role), {VARIABLE: world.target}
            words = ("serve", "active", "--role", role, "--config", config)
            start(role, *words, **variables)
        start("bank", "serve", "passive", "--config", world.local.config("bank"))
        wait_until(lambda: all(map(world.is_ready, ("trainer", "ranker"))), "both ready")
        with world.client_of("trainer") as client:
            wait_until(lambda: all_connected(client), "the passive participant connected")
        with world.client_of("ranker") as client:
            decide_and_learn(client, world.town, status="queued")
        wait_until(lambda: world.waiting() == 0, "the trainer learnt")
