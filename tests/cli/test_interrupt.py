"""Ctrl-C in long commands: real processes in a pseudo-terminal of their own, and none is left."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

PATIENCE_S = 120.0  # to start; what is interrupted would run for far longer
SIMULATE = ["--rounds", "10000000", "--seeds", "2", "--dim", "20", "--processes", "2"]
# Cells of no time and of an hour.
FIGURE = {
    "config.toml": """
[figure]
title = "A wait"
paper = "Fig. 0"
says = "It takes long."
version = 1

[settings]
pauses_s = [0, 0, 0, 3600, 3600]

[quick]
""",
    "run.py": """
import time

def cells(config):
    return [{"n": n, "pause_s": pause_s} for n, pause_s in enumerate(config["pauses_s"])]

def weight(settings):
    return 1.0 / (1.0 + settings["pause_s"])

def run_cell(settings):
    time.sleep(settings["pause_s"])
    return [{"n": settings["n"]}]
""",
    "claims.py": "def claims(rows, config):\n    return []\n",
    "plot.py": "def draw(rows, config):\n    return []\n",
}


class OnTerminal:
    """``vfb`` as a shell starts it: leader of a group, with a terminal that is read."""

    def __init__(self, *words):
        here, there = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vfbandits.cli.main", *map(str, words)],
            stdin=there,
            stdout=there,
            stderr=there,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "200"},
        )
        os.close(there)
        self._here, self._seen = here, bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        while True:
            try:
                self._seen += os.read(self._here, 1 << 16)
            except OSError:  # so Linux says that nobody has the other end any more
                return

    @property
    def text(self):
        """All that was written, without colours and movements of the cursor."""
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self._seen.decode(errors="replace"))

    def wait_for(self, pattern):
        limit = time.monotonic() + PATIENCE_S
        while time.monotonic() < limit and self.process.poll() is None:
            if found := re.search(pattern, self.text):
                return found
            time.sleep(0.05)
        raise AssertionError(f"no {pattern!r} in {self.text!r}")

    def interrupt(self):
        """What a terminal does when Ctrl-C is typed."""
        os.killpg(self.process.pid, signal.SIGINT)
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    def left_over(self):
        """Processes of its group that are still there; they may take a moment to be gone."""
        limit = time.monotonic() + PATIENCE_S
        while (left := group_of(self.process.pid)) and time.monotonic() < limit:
            time.sleep(0.05)
        return left

    def end(self):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self._here)


def group_of(leader):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = stat.read_text().rsplit(")", 1)[1].split()[:3]
        except OSError:
            continue
        if int(group) == leader and state != "Z":
            found.append(stat.parent.name)
    return found


@pytest.fixture
def started():
    opened = []

    def start(*words):
        opened.append(OnTerminal(*words))
        return opened[-1]

    yield start
    for one in opened:
        one.end()


def last_line(text):
    return text.replace("\r", "\n").strip().splitlines()[-1].strip()


@pytest.mark.parametrize("processes", [1, 2])
def test_simulate_ends_with_one_line_and_leaves_no_process(started, tmp_path, processes):
    running = started("simulate", *SIMULATE, "--processes", processes, "--out", tmp_path / "out")
    # Within a run: no run is finished, and yet the bar moves.
    running.wait_for(r"[1-9][\d,]* of 160,000,000 rounds")
    if processes > 1:
        assert len(group_of(running.process.pid)) >= 1 + processes
    assert running.interrupt() == 130
    assert "Traceback" not in running.text
    assert last_line(running.text) == (
        "stopped after 0 of 16 runs: nothing was written, "
        "and the next run starts from the beginning"
    )
    assert running.left_over() == []
    assert list((tmp_path / "out").iterdir()) == []


def test_reproduce_ends_with_one_line_and_goes_on_from_there(started, tmp_path):
    figure = tmp_path / "figures" / "fig0_wait"
    figure.mkdir(parents=True)
    for name, text in FIGURE.items():
        (figure / name).write_text(text)
    flags = ["--figures", tmp_path / "figures", "--processes", "2", "--out", tmp_path / "out"]
    words = ["reproduce", "all", *flags]
    running = started(*words)
    running.wait_for(r"3 of 5 cells")
    assert running.interrupt() == 130
    assert "Traceback" not in running.text
    kept = list((tmp_path / "out").glob("*/cells/*.json"))
    found = re.fullmatch(
        r"stopped: (\d+) of (\d+) cells are kept in \S+, the same command resumes from there",
        last_line(running.text),
    )
    assert (int(found[1]), int(found[2]), len(kept)) == (3, 5, 3)
    assert all(json.loads(path.read_text())["rows"] for path in kept)
    assert running.left_over() == []
    again = started(*words)
    again.wait_for(r"3 of 5 cells")
    assert again.interrupt() == 130
    assert again.left_over() == []


def test_audit_writes_what_is_done(started, tmp_path):
    rng = np.random.default_rng(0)
    columns = {f"c{j}": rng.exponential(size=40_000) for j in range(40)}
    pl.DataFrame(columns).write_parquet(tmp_path / "bank.parquet")
    out = tmp_path / "out"
    running = started("audit", tmp_path / "bank.parquet", "--out", out)
    running.wait_for(r"[2-9] of 21 attacks")
    assert running.interrupt() == 130
    assert "Traceback" not in running.text
    found = re.fullmatch(r"stopped: (\d+) of 21 attacks are in \S+", last_line(running.text))
    text = (out / "audit.html").read_text("utf-8")
    assert 2 <= int(found[1]) < 21
    assert "The audit was stopped." in text
    assert running.left_over() == []


def test_tune_ends_with_one_line_and_goes_on_from_there(started, tmp_path):
    rng, n = np.random.default_rng(0), 20_000
    columns = {f"x_{j}": rng.standard_normal(n) for j in range(4)}
    columns |= {"arm": rng.integers(5, size=n), "reward": rng.random(n), "probability": [0.2] * n}
    pl.DataFrame(columns).write_parquet(tmp_path / "log.parquet")
    # Candidates of seconds, and then of minutes.
    flags = ["--policy", "linucb", "--policy", "lints", "--train", "0.05", "--processes", "2"]
    words = ["tune", tmp_path / "log.parquet", *flags, "--out", tmp_path / "out"]
    running = started(*words)
    running.wait_for(r"[2-4] of 8 candidates")
    assert running.interrupt() == 130
    assert "Traceback" not in running.text
    kept = list((tmp_path / "out" / "candidates").glob("*.npz"))
    found = re.fullmatch(
        r"stopped: (\d) of 8 candidates are kept in \S+, the same command resumes from there",
        last_line(running.text),
    )
    assert 2 <= int(found[1]) == len(kept) < 8
    assert running.left_over() == []
    again = started(*words)
    again.wait_for(rf"{len(kept)} of 8 candidates")
    assert again.interrupt() == 130
    assert again.left_over() == []
    assert {*kept} <= {*(tmp_path / "out" / "candidates").glob("*.npz")}
