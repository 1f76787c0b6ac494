"""``vfb preflight``: what it prints, and how it ends."""

import json

import pytest
from live_world import LiveWorld
from typer.testing import CliRunner

from vfbandits.cli.main import app
from vfbandits.protocol.roster import Terms


def vfb_preflight(path, *flags):
    words = ["preflight", "--config", str(path), *flags]
    return CliRunner().invoke(app, words, env={"COLUMNS": "300"})


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    folder = tmp_path_factory.mktemp("preflight")
    terms = Terms("dense")
    return LiveWorld(folder, widths={"shop": 2, "bank": 1}, terms=terms, n_users=1).federation()


def test_each_finding_is_a_line_and_all_well_ends_with_0(federation):
    done = vfb_preflight(federation.config("shop"))
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert all(line.split()[0] == "ok" for line in lines[:-1])
    assert lines[-1] == f"ready: {len(lines) - 1} ok, 0 warnings, 0 problems"


def test_a_problem_ends_with_1_and_says_what_to_do(federation):
    done = vfb_preflight(federation.config("bank"))
    assert done.exit_code == 1
    (line,) = [line for line in done.stdout.splitlines() if line.split()[0] == "problem"]
    assert "Check that the active participant is running" in line
    assert done.stdout.splitlines()[-1].startswith("not ready: ")
    assert done.stdout.splitlines()[-1].endswith(", 0 warnings, 1 problem")


def test_json_is_one_object(federation, tmp_path):
    done = vfb_preflight(tmp_path / "no.toml", "--json")
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert (report["config"], report["ready"]) == (str(tmp_path / "no.toml"), False)
    (finding,) = report["findings"]
    assert (finding["what"], finding["state"]) == ("configuration", "problem")
    report = json.loads(vfb_preflight(federation.config("shop"), "--json").stdout)
    assert report["ready"] is True
    assert {finding["state"] for finding in report["findings"]} == {"ok"}
