"""The command itself: help, version, the demo, and flags that know the library's names."""

from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from vfbandits.cli import choices
from vfbandits.cli.main import app
from vfbandits.core.layout import LAYOUTS
from vfbandits.core.policy.registry import POLICIES
from vfbandits.core.round import AGGREGATIONS, MASKS
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
        (choices.AggregationName, AGGREGATIONS),
        (choices.PlotFormat, (*FORMATS, "none")),
    ],
)
def test_flags_offer_exactly_what_the_library_knows(choice, names):
    assert [member.value for member in choice] == list(names)


def test_a_quick_demo_decides_as_a_central_bandit_and_draws_its_regret(tmp_path):
    done = CliRunner().invoke(app, ["demo", "--quick", "--out", str(tmp_path / "demo")])
    assert done.exit_code == 0, done.output
    assert "200 of 200" in done.stdout
    assert "latency of a decision" in done.stdout
    lines = (tmp_path / "demo" / "federation.csv").read_text().splitlines()
    assert lines[0] == "round,federation,alone"
    assert len(lines) == 201
    together, alone = map(float, lines[-1].split(",")[1:])
    assert together < alone
    assert (tmp_path / "demo" / "federation.png").stat().st_size > 10_000
