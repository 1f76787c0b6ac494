"""A full disk, a damaged log, a server that is told to end: nothing acknowledged is lost."""

import contextlib
import resource
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager

import fork_server
import pytest
from http_load import DEFAULT, Wire, prefix
from http_world import HttpWorld

from vfbandits.campaign.events import Decided
from vfbandits.journal.open import open_reader
from vfbandits.journal.verify import verify

OTHER = "other"
PROBLEM = "application/problem+json"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("disk")
    with HttpWorld(folder, tables=f"[campaigns.{OTHER}]\n[campaigns.{OTHER}.model]\n") as world:
        yield world


@pytest.fixture
def world(running):
    """With its server at work, whatever a test before did to it."""
    if "shop" not in running.local.processes:
        running.local.start("shop")
        running.wait_until_all_contribute()
    return running


def journal(world, campaign=DEFAULT):
    state = world.local.folder / "shop" / "state"
    return state / "journal.db" if campaign == DEFAULT else state / "campaigns" / f"{campaign}.db"


def write_ahead(world, campaign=DEFAULT):
    path = journal(world, campaign)
    return path.with_name(f"{path.name}-wal")


def rank(world, client, event_id, campaign=DEFAULT):
    body = {"user": world.town.users[0], "arms": list(world.town.arms), "event_id": event_id}
    return client.post(f"{prefix(campaign)}/rank", json=body)


def limit_files(world, size):
    """Let files of the server end at ``size``: a write past it fails, as on a full disk."""
    pid = world.local.processes["shop"].pid
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def rank_until_refused(world, client):
    """Answers by event id, and the refusal."""
    answers = {}
    for number in range(2_000):
        answer = rank(world, client, f"full-{number}")
        if answer.status_code != 200:
            return answers, answer
        answers[f"full-{number}"] = answer.content
    raise AssertionError("the disk is never full")


def test_a_full_disk_is_told_and_costs_nothing_that_was_acknowledged(world):
    with world.client() as client:
        limit_files(world, write_ahead(world).stat().st_size + 150_000)
        answers, refusal = rank_until_refused(world, client)
        assert len(answers) > 10
        assert "the journal cannot be" in refusal.json()["detail"]
        ready = client.get("/readyz")
        assert ready.status_code == 503
        assert "campaign 'default'" in ready.json()["reasons"][0]
        assert "cannot be written" in ready.json()["reasons"][0]
        assert client.get("/healthz").status_code == 200
        known = next(iter(answers))
        limit_files(world, resource.RLIM_INFINITY)  # room alone does not help: see the next line
        for answer in (  # until the log is read anew, nothing can be said for certain
            refusal,
            world.rank(client),
            world.rank(client, event_id=known),
            client.post(f"/v1/events/{known}/reward", json={"value": 1.0}),
            client.get(f"/v1/events/{known}"),
        ):
            assert (answer.status_code, answer.headers["content-type"]) == (503, PROBLEM)
        assert rank(world, client, "elsewhere", OTHER).status_code == 200  # it has its own log
        world.local.stop("shop")
        world.local.start("shop")
        assert client.get("/readyz").status_code == 200
        for event_id, answer in answers.items():
            assert rank(world, client, event_id).content == answer
        assert client.post(f"/v1/events/{known}/reward", json={"value": 1.0}).status_code == 200
    with closing(open_reader(journal(world))) as reader:
        assert verify(reader).problems == ()


def test_a_full_disk_is_seen_by_those_who_look_on(world):
    with world.client() as client:
        rank_until_the_disk_is_full(world, client, also=world.local.log_path("shop"))
        metrics, page = client.get("/metrics"), client.get("/v1/dashboard")
    world.local.kill("shop")
    assert metrics.status_code == 200
    assert "vfb_ready 0.0" in metrics.text
    assert page.status_code == 200


def test_a_disk_that_has_no_room_for_our_own_log_either_changes_no_answer(world):
    with world.client() as client:
        refusals = [rank_until_the_disk_is_full(world, client), client.get("/v1/events/x")]
        ready = client.get("/readyz")
    world.local.kill("shop")
    for refusal in refusals:
        assert (refusal.status_code, refusal.headers["content-type"]) == (503, PROBLEM)
    assert ready.status_code == 503


def rank_until_the_disk_is_full(world, client, *, also=None):
    """At once for the log of events; for the server's own only if there is no room ``also``."""
    room = write_ahead(world).stat().st_size
    if also is None:
        with world.local.log_path("shop").open("ab") as log:
            log.write(b"\n" * (room + 4_096))
    limit_files(world, room if also is None else room + also.stat().st_size + 100_000)
    return rank_until_refused(world, client)[1]


def damage_the_write_ahead_log(world, campaign):
    path = write_ahead(world, campaign)
    path.write_bytes(path.read_bytes()[:-4_000] + bytes(4_000))


def damage_the_last_record(world, campaign):
    with closing(sqlite3.connect(journal(world, campaign))) as database:
        database.execute(
            "UPDATE event SET record = zeroblob(50) "
            "WHERE position = (SELECT max(position) FROM event)"
        )
        database.commit()


def test_a_damaged_end_is_refused_and_once_accepted_all_before_it_stands(world):
    damages = {DEFAULT: damage_the_write_ahead_log, OTHER: damage_the_last_record}
    answers, begins = {}, {}
    with world.client() as client:
        for campaign in damages:
            begins[campaign] = position(client, campaign)
            answers[campaign] = [
                rank(world, client, f"end-{n}", campaign).content for n in range(10)
            ]
        world.local.kill("shop")
        for campaign, damage in damages.items():
            damage(world, campaign)
        assert "--accept-loss" in refused_to_start(world)
        world.local.start("shop", flags=["--accept-loss"])
        assert client.get("/readyz").status_code == 200
        for campaign, given in answers.items():
            n_kept = (
                position(client, campaign) - begins[campaign] - 1
            )  # one record accepts the loss
            assert 1 <= n_kept < 10
            kept = [rank(world, client, f"end-{n}", campaign).content for n in range(n_kept)]
            assert kept == given[:n_kept]
            assert position(client, campaign) == begins[campaign] + n_kept + 1
            assert rank(world, client, "end-9", campaign).status_code == 200
    accepted = [one for one in world.local.events("shop") if one["event"] == "loss_accepted"]
    assert {one["campaign"] for one in accepted} == {DEFAULT, OTHER}


def position(client, campaign):
    return client.get(f"{prefix(campaign)}/model").json()["log_position"]


def test_a_log_that_is_gone_is_refused_in_one_sentence_and_may_be_put_back(world):
    with world.client() as client:
        assert rank(world, client, "before").status_code == 200
    world.local.stop("shop")
    aside = journal(world).with_name("aside")
    journal(world).rename(aside)
    told = refused_to_start(world)
    aside.rename(journal(world))
    assert "got an empty one; restore it" in told


def refused_to_start(world):
    """What the server says when it ends at once."""
    ended = fork_server.run(
        [sys.executable, "-m", "vfbandits.cli.serve", "active", "--config",
         str(world.local.config("shop"))],
        capture_output=True,
        text=True,
        timeout=60.0,
        check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    return ended.stderr


@contextmanager
def read_only(folder):
    """Nobody can write below ``folder``, not even an administrator."""
    try:
        subprocess.run(["mount", "--bind", folder, folder], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("to make a disk read-only takes the right to mount, which this user has not")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_disk_that_cannot_be_written_is_told_in_one_sentence_and_nothing_is_lost(world):
    with world.client() as client:
        answer = rank(world, client, "before it was read-only")
        world.local.stop("shop")
        with read_only(world.local.folder / "shop" / "state"):
            told = refused_to_start(world)
        world.local.start("shop")
        world.wait_until_all_contribute()
        assert rank(world, client, "before it was read-only").content == answer.content
    assert len(told.strip().splitlines()) == 1
    assert "Read-only file system" in told


def test_a_server_that_is_told_to_end_answers_what_is_under_way(world):
    """A frozen participant keeps these decisions waiting until their deadline."""
    body = {"user": world.town.users[0], "arms": list(world.town.arms)}
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(closing(Wire(world.http_port))) for _ in range(20)]
        world.local.signal("bank", signal.SIGSTOP)
        for number, wire in enumerate(wires):
            wire.send("POST", "/v1/rank", {**body, "event_id": f"late-{number}"})
        with world.client() as client:  # whoever comes after them is answered: they were read
            assert client.get("/healthz").status_code == 200
        assert world.local.stop("shop") == 0
        answers = [wire.receive() for wire in wires]
    world.local.signal("bank", signal.SIGCONT)
    assert {status for status, _ in answers} == {200}
    with closing(open_reader(journal(world))) as reader:
        notes = {event.answer for _, event in reader.read() if isinstance(event, Decided)}
    assert {answer for _, answer in answers} <= notes
