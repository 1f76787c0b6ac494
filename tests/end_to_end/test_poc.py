"""``vfb poc`` as its user has it: three tables, real processes, a page, and folders that move."""

import json
import re
import shutil
import signal
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import httpx2
import pytest
from three_tables import write_tables

from vfbandits.demo.kits import Kits
from vfbandits.demo.processes import Processes

STOP_S = 60.0

pytestmark = pytest.mark.timeout(500)


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    """A federation from three tables, with its document; it ends by Ctrl-C."""
    folder = tmp_path_factory.mktemp("poc")
    tables = write_tables(folder / "data", n_users=120)
    command = [sys.executable, "-m", "vfbandits.cli.main", "poc", *map(str, tables), "--key",
               "user", "--reward", "clicked", "--address", "127.0.0.1:0", "--port", "0", "--out",
               str(folder / "out"), "--json"]  # fmt: skip
    with (folder / "stderr").open("wb") as stderr:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    with closing(process.stdout):
        try:
            line = process.stdout.readline()  # the object comes when everything is up
            assert line, (folder / "stderr").read_text()
            yield folder / "out", json.loads(line), process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.wait(timeout=STOP_S)


def client(kits):
    headers = {"authorization": f"Bearer {kits.key}"}
    return httpx2.Client(base_url=kits.url, headers=headers, timeout=30.0)


def pids_of(folder):
    """Processes that were started from a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):  # it may end meanwhile
            words = (entry / "cmdline").read_bytes()
            if str(folder).encode() in words and b"vfbandits.cli.serve" in words:
                found.append(int(entry.name))
    return found


def test_tables_become_a_federation_that_answers_learns_stops_and_moves(up, tmp_path):
    out, document, process = up
    kits = Kits.find(out)
    replayed = document["replay"]
    assert replayed["rows"] == 120
    assert 0 < replayed["agreed"] < 120
    body = json.loads(re.search(r"-d '(.*)'$", document["rank"])[1])
    with client(kits) as http:
        answer = http.post("/v1/rank", json={**body, "event_id": "visit-1"}).json()
        assert answer["contributors"] == ["shop", "bank", "news"]
        assert answer["model_version"] == replayed["agreed"]
        told = http.post("/v1/events/visit-1/reward", json={"value": 1.0}).json()
        assert told["status"] == "learnt"
        assert http.get("/").status_code == 200
    assert len(pids_of(out)) == 3

    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=STOP_S) == 0
    assert pids_of(out) == []

    for name in ("shop", "bank"):  # each to a place of its own, as sent to its organisation
        shutil.move(out / name, tmp_path / "moved" / name)
    with Processes(tmp_path / "moved", ["shop", "bank"]) as moved, client(kits) as http:
        moved.refuse_ended()
        contributors = []
        while contributors != ["shop", "bank"]:
            moved.refuse_ended()
            answer = http.post("/v1/rank", json=body)
            contributors = answer.json()["contributors"]
        assert answer.json()["degraded"]  # news did not move
        assert answer.json()["model_version"] == replayed["agreed"] + 1
