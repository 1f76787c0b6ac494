"""Every command of a federation is there, and has help."""

import pytest
from typer.testing import CliRunner

from vfbandits.cli.main import app

COMMANDS = {
    "pki": ("init", "request", "approve", "show"),
    "features": ("fit",),
    "federation": ("init", "join", "add", "remove", "status"),
    "masks": ("deal", "rotate"),
    "serve": ("active", "passive"),
    "preflight": (),
}


@pytest.mark.parametrize("group", COMMANDS)
def test_it_is_there_with_all_its_commands_and_help_for_each(group):
    runner = CliRunner(env={"COLUMNS": "200"})
    assert group in runner.invoke(app, ["--help"]).stdout
    for words in ([group], *([group, command] for command in COMMANDS[group])):
        done = runner.invoke(app, [*words, "--help"])
        assert done.exit_code == 0
        assert f"Usage: vfb {' '.join(words)}" in done.stdout


def test_the_help_of_a_change_says_how_it_goes_with_dense_masks():
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["federation", "add", "--help"])
    for step in ("--roster-out next.signed", "vfb masks deal", "--envelopes DIR puts both"):
        assert step in done.stdout
