"""The runner: nothing twice, nothing lost, the same rows wherever they are made."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise

import pytest

from vfbandits.errors import SettingError
from vfbandits.reproduce.figure import read_figure
from vfbandits.reproduce.runner import reproduce
from vfbandits.simulate.engine import HereEngine
from vfbandits.simulate.processes import ProcessEngine

PROGRAM = """
import sys
from pathlib import Path
from vfbandits.reproduce.figure import read_figure
from vfbandits.reproduce.runner import reproduce
from vfbandits.simulate.processes import local_engine

if __name__ == "__main__":
    reproduce([read_figure(Path(sys.argv[1]))], Path(sys.argv[2]), engine=local_engine(1))
"""


def run(folder, out, engine=None, **how):
    (outcome,) = reproduce([read_figure(folder)], out, engine=engine or HereEngine(), **how)
    return outcome


def log_of(path):
    return [line.split() for line in path.read_text().splitlines()]


def test_rows_come_in_the_order_of_the_cells_with_a_csv_of_the_same(toy, tmp_path):
    outcome = run(toy(), tmp_path / "out")
    assert [row["n"] for row in outcome.rows] == [1, 2, 3, 4]
    with (tmp_path / "out" / "fig0_toy" / "rows.csv").open(newline="") as file:
        written = list(csv.DictReader(file))
    assert [{k: str(v) for k, v in row.items()} for row in outcome.rows] == written


def test_the_number_of_processes_does_not_change_a_byte_of_what_is_written(toy, tmp_path):
    folder = toy()
    run(folder, tmp_path / "one")
    run(folder, tmp_path / "two", ProcessEngine(2))
    for name in ("rows.csv", "squares.png"):
        one = (tmp_path / "one" / "fig0_toy" / name).read_bytes()
        assert one == (tmp_path / "two" / "fig0_toy" / name).read_bytes()


def test_a_finished_cell_is_not_run_again_unless_asked(toy, tmp_path):
    log = tmp_path / "log"
    folder = toy(config=('log = ""', f'log = "{log}"'))
    first = run(folder, tmp_path / "out")
    assert run(folder, tmp_path / "out").rows == first.rows
    assert len(log_of(log)) == 4
    run(folder, tmp_path / "out", fresh=True)
    assert len(log_of(log)) == 8


def test_a_new_version_of_the_code_makes_every_cell_unfinished(toy, tmp_path):
    log = tmp_path / "log"
    folder = toy(config=('log = ""', f'log = "{log}"'))
    run(folder, tmp_path / "out")
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("version = 1", "version = 2"))
    run(folder, tmp_path / "out")
    assert len(log_of(log)) == 8


def test_cells_that_quick_and_full_share_are_run_once(toy, tmp_path):
    log = tmp_path / "log"
    folder = toy(config=('log = ""', f'log = "{log}"'))
    run(folder, tmp_path / "out", quick=True)
    run(folder, tmp_path / "out")
    assert sorted(line[0] for line in log_of(log)) == ["1", "2", "3", "4"]


@pytest.mark.parametrize("damage", ["", "{", "{}", '{"settings": 3, "rows": []}'])
def test_a_damaged_cell_is_run_again(toy, tmp_path, damage):
    folder = toy()
    before = run(folder, tmp_path / "out")
    cells = sorted((tmp_path / "out" / "fig0_toy" / "cells").glob("*.json"))
    cells[0].write_text(damage)
    assert run(folder, tmp_path / "out").rows == before.rows
    assert json.loads(cells[0].read_text())["figure"] == "fig0_toy"


def test_a_run_that_was_killed_goes_on_where_it_stopped(toy, tmp_path):
    """kill -9 in the middle of a cell: its file is not there, finished ones are and are kept."""
    log, out = tmp_path / "log", tmp_path / "out"
    folder = toy(config=('log = ""\npause_s = 0.0', f'log = "{log}"\npause_s = 0.4'))
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    process = subprocess.Popen([sys.executable, str(program), str(folder), str(out)])
    cells = out / "fig0_toy" / "cells"
    deadline = time.monotonic() + 60.0
    while len(list(cells.glob("*.json"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    finished = {path: path.read_bytes() for path in cells.glob("*.json")}
    assert 2 <= len(finished) < 4
    begun = len(log_of(log))
    outcome = run(folder, out)
    assert [row["square"] for row in outcome.rows] == [1, 4, 9, 16]
    assert len(log_of(log)) == begun + 4 - len(finished)
    for path, content in finished.items():
        assert path.read_bytes() == content


def test_timed_cells_run_alone_in_one_process_that_is_not_ours(toy, tmp_path):
    log = tmp_path / "log"
    folder = toy(config=('log = ""\npause_s = 0.0', f'log = "{log}"\npause_s = 0.2'))
    config = folder / "config.toml"
    config.write_text(config.read_text().replace("timed = false", "timed = true"))
    run(folder, tmp_path / "out", ProcessEngine(2))
    lines = log_of(log)
    assert len({pid for _, pid, _ in lines}) == 1
    assert lines[0][1] != str(os.getpid())
    starts = sorted(float(start) for _, _, start in lines)
    assert all(b - a >= 0.2 for a, b in pairwise(starts))


def test_headway_counts_cells_and_their_weights(toy, tmp_path):
    folder = toy()
    with (folder / "run.py").open("a") as file:
        file.write("\ndef weight(settings):\n    return 10.0 * settings['n']\n")
    seen = []
    run(folder, tmp_path / "out", on_cell=seen.append)
    assert [h.cells for h in seen] == [0, 1, 2, 3, 4]
    assert [h.work for h in seen] == [0.0, 40.0, 70.0, 90.0, 100.0]  # the longest first
    again = []
    run(folder, tmp_path / "out", on_cell=again.append)
    assert [(h.cells, h.of_cells, h.work) for h in again] == [(4, 4, 100.0)]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('settings["n"] / 10', 'float("nan")', "run_cell of fig0_toy must give finite JSON"),
        ('settings["n"] / 10', "{1, 2}", "run_cell of fig0_toy must give finite JSON"),
        ('settings["n"] / 10', "[1]", "tenth must be text or a number, got [1]"),
        ('config["sizes"]]', "[1, 1]]", "cells of figure fig0_toy must differ"),
        ('{"n": n,', '{"n": {1}, "m": n,', "must be a table that JSON can hold"),
        ("return [{", "return 3\n    [{", "must be a list of"),
    ],
)
def test_what_cannot_be_kept_is_refused(toy, tmp_path, old, new, message):
    with pytest.raises(SettingError) as caught:
        run(toy(run=(old, new)), tmp_path / "out")
    assert message in str(caught.value)
