"""The command itself: help, version, the demo, and flags that know the library's names."""

import signal
import subprocess
import sys
from importlib.metadata import version

import pytest
from installed_roles import wait_until
from typer.testing import CliRunner

from vfbandits.cli import choices
from vfbandits.cli.main import app
from vfbandits.client.client import Client
from vfbandits.core.layout import LAYOUTS
from vfbandits.core.policy.registry import POLICIES
from vfbandits.core.round import AGGREGATIONS, MASKS, PROTECTIONS
from vfbandits.simulate.plot import FORMATS

COMMANDS = (
    "parity",
    "simulate",
    "reproduce",
    "evaluate",
    "demo",
    "serve",
    "keys",
    "pki",
    "federation",
    "masks",
    "features",
    "preflight",
)


def test_version_is_the_packages():
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.stdout) == (0, f"vfbandits {version('vfbandits')}\n")


def test_help_names_every_command():
    done = CliRunner().invoke(app, ["--help"])
    assert done.exit_code == 0
    for command in COMMANDS:
        assert command in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command):
    done = CliRunner().invoke(app, [command, "--help"], terminal_width=200)
    assert done.exit_code == 0
    assert "--help" in done.stdout


def test_an_error_is_red_where_there_is_colour():
    runner = CliRunner(env={"FORCE_COLOR": "1", "TERM": "xterm", "NO_COLOR": None})
    done = runner.invoke(app, ["parity", "--ridge", "0"])
    assert done.stderr == "\x1b[31merror: ridge must be a positive number, got 0.0\x1b[0m\n"


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        (choices.PolicyName, POLICIES),
        (choices.LayoutName, LAYOUTS),
        (choices.MaskName, MASKS),
        (choices.ProtectionName, PROTECTIONS),
        (choices.AggregationName, AGGREGATIONS),
        (choices.PlotFormat, (*FORMATS, "none")),
    ],
)
def test_flags_offer_exactly_what_the_library_knows(choice, names):
    assert [member.value for member in choice] == list(names)


def test_a_quick_demo_decides_as_a_central_bandit_and_goes_on_until_it_is_interrupted(tmp_path):
    command = [sys.executable, "-m", "vfbandits.cli.main", "demo", "--quick", "--keep"]
    with subprocess.Popen(
        [*command, "--out", str(tmp_path / "demo")], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            lines = []
            for line in process.stdout:
                lines.append(line)
                if line.startswith("Ctrl-C"):
                    break
            (page,) = [line.split()[1] for line in lines if line.startswith("dashboard:")]
            with Client(page) as client:
                wait_until(lambda: client.config().holdback == 0.2, "a baseline for a fifth")
                wait_until(lambda: client.model().decisions > 200, "decisions for visitors")
        finally:
            process.send_signal(signal.SIGINT)
            rest, _ = process.communicate(timeout=60.0)
    shown = "".join([*lines, rest])
    assert process.returncode == 0, shown
    assert "200 of 200" in shown
    assert shown.endswith("stopping\n")
    assert "latency of a decision" in shown
    lines = (tmp_path / "demo" / "federation.csv").read_text().splitlines()
    assert lines[0] == "round,federation,alone"
    assert len(lines) == 201
    together, alone = map(float, lines[-1].split(",")[1:])
    assert together < alone
    assert (tmp_path / "demo" / "federation.png").stat().st_size > 10_000
