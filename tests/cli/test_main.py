"""The command itself: help, version, the demo, and flags that know the library's names."""

from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from vfbandits.cli import choices
from vfbandits.cli.demo import show_all
from vfbandits.cli.main import app
from vfbandits.core.layout import LAYOUTS
from vfbandits.core.policy import LinUCB, Scored
from vfbandits.core.policy.registry import POLICIES
from vfbandits.core.round import AGGREGATIONS, MASKS
from vfbandits.simulate.contestant import Contestant
from vfbandits.simulate.plot import FORMATS
from vfbandits.simulate.study import Study
from vfbandits.simulate.trial import ParityTrial
from vfbandits.simulate.world import WorldSettings, even_widths


def test_version_is_the_packages():
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.stdout) == (0, f"vfbandits {version('vfbandits')}\n")


def test_help_names_every_command():
    done = CliRunner().invoke(app, ["--help"])
    assert done.exit_code == 0
    for command in ("parity", "simulate", "reproduce", "evaluate", "demo"):
        assert command in done.stdout


@pytest.mark.parametrize("command", ["parity", "simulate", "reproduce", "evaluate", "demo"])
def test_every_command_has_help(command):
    done = CliRunner().invoke(app, [command, "--help"], terminal_width=200)
    assert done.exit_code == 0
    assert "Options" in done.stdout


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


class Peek:
    """Not blind: it scores by the first coordinate, which a mask mixes with the others."""

    def score(self, statistics, rng):
        del rng
        return Scored(statistics.X[:, 0].copy())


def test_a_demo_in_which_a_decision_differs_ends_with_1_after_all_is_written(tmp_path):
    world = WorldSettings(even_widths(10, 5), n_arms=4)
    study = Study(contestants=(Contestant("a", LinUCB()),), world=world, horizon=9, n_seeds=1)
    trials = [ParityTrial(policy, world, horizon=40) for policy in (Peek(), LinUCB())]
    assert show_all(trials, study, tmp_path, processes=1) == 1
    assert show_all(trials[1:], study, tmp_path, processes=1) == 0
    assert (tmp_path / "table.md").exists()


def test_a_quick_demo_shows_parity_of_both_policies_and_writes_its_files(tmp_path):
    done = CliRunner().invoke(app, ["demo", "--quick", "--out", str(tmp_path / "demo")])
    assert done.exit_code == 0, done.output
    assert done.stdout.count("200 of 200") == 2
    assert "LinUCB(beta=0.5)" in done.stdout
    assert "LinTS(posterior_scale=0.01" in done.stdout
    files = sorted(path.name for path in (tmp_path / "demo").iterdir())
    assert files == ["regret.csv", "regret.png", "study.toml", "table.md"]
    table = (tmp_path / "demo" / "table.md").read_text()
    assert table.count("\n| ") == 9  # a header and eight contestants
    assert f"wrote {tmp_path / 'demo' / 'table.md'}" in done.stdout
