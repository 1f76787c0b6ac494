"""``vfb parity --config``: which flags go with it."""

import pytest
from typer.testing import CliRunner

from vfbandits.cli.main import app


def fails(*flags):
    done = CliRunner().invoke(app, ["parity", *flags])
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    return done.stderr


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--dim", "10"], "--dim"),
        (["--dim", "100"], "--dim"),  # its default, and asked for all the same
        (["--policy", "lints", "--mask", "dense"], "--mask, --policy"),
        (["--missing", "0.1", "--seed", "3"], "--missing, --seed"),
        (["--beta", "2"], "--beta"),
    ],
)
def test_flags_of_a_simulated_world_are_refused_beside_a_real_federation(flags, named):
    said = fails("--config", "app.toml", *flags)
    assert f"--config excludes {named}: the federation has its own settings" in said


def test_a_trial_needs_a_federation():
    assert "--trial needs --config" in fails("--trial", "3")


def test_flags_of_a_live_run_get_as_far_as_its_file(tmp_path):
    flags = ["--rounds", "5", "--arms", "3", "--trial", "3", "--json"]
    assert "must be a file to read" in fails("--config", str(tmp_path / "app.toml"), *flags)
