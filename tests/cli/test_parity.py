"""``vfb parity``: what it prints, and how it ends."""

import io
import json
import subprocess
import sys

import pytest
from command_words import beside_progress
from typer.testing import CliRunner

import vfbandits as vfb
from vfbandits.cli.main import app
from vfbandits.cli.parity import compare
from vfbandits.core.policy import Scored
from vfbandits.simulate.parity import ParityReport
from vfbandits.simulate.trial import ParityTrial
from vfbandits.simulate.world import WorldSettings, even_widths

SMALL = ["--dim", "10", "--arms", "4", "--rounds", "40"]
KINDS = {
    "policy": dict,
    "layout": str,
    "mask": str,
    "aggregation": str,
    "protection": str,
    "released": str,
    "accept_leak": list,
    "dim": int,
    "arms": int,
    "rounds": int,
    "participants": int,
    "arm_dim": (int, type(None)),
    "noise": float,
    "ridge": float,
    "discount": float,
    "floor": float,
    "missing": float,
    "seed": int,
    "lossless": bool,
    "decisions_equal": int,
    "decisions_total": int,
    "first_difference": (int, type(None)),
    "largest_score_difference": float,
    "masked_norm": float,
    "plain_norm": float,
    "norm_difference": float,
    "masked_regret": float,
    "plain_regret": float,
    "rotated_draws": bool,
}


class Peek:
    """Not blind: it scores by the first coordinate, which a mask mixes with the others."""

    def score(self, statistics, rng):
        del rng
        return Scored(statistics.X[:, 0].copy())


class Terminal(io.StringIO):
    """Where somebody looks."""

    def isatty(self):
        return True


def vfb_parity(*flags):
    return CliRunner().invoke(app, ["parity", *SMALL, *flags])


def peeking():
    return ParityTrial(Peek(), WorldSettings(even_widths(10, 5), n_arms=4), horizon=40)


def test_secret_shares_decide_as_a_plain_bandit_with_the_servers_noise():
    done = vfb_parity("--protection", "shares", "--floor", "0.2")
    assert done.exit_code == 0
    for wanted in ("secret shares, 10 features", "40 of 40", "each of the two servers"):
        assert wanted in done.stdout


def test_secret_shares_release_no_scores():
    flags = ("--protection", "shares", "--policy", "lingreedy", "--missing", "0.5", "--json")
    done = json.loads(vfb_parity(*flags).stdout)
    assert done["protection"] == "shares"
    assert done["lossless"]
    assert done["largest_score_difference"] is None
    assert done["norm_difference"] < 1e-9


@pytest.mark.parametrize("layout", ["disjoint", "outer"])
def test_secret_shares_decide_in_other_layouts_as_a_plain_bandit(layout):
    done = vfb_parity("--protection", "shares", "--layout", layout, "--missing", "0.3")
    assert done.exit_code == 0, done.output
    assert f"{layout}, blockwise mask, secret shares" in done.output
    assert "40 of 40" in done.output


def test_numbers_from_which_rows_could_be_read_must_be_accepted_by_name():
    flags = ("--protection", "shares", "--layout", "disjoint", "--policy", "linucb")
    flags = (*flags, "--participants", "3", "--accept-leak", "p3")
    done = vfb_parity(*flags)
    assert done.exit_code != 0
    assert "'p2' has 3 features: its rows can be read" in " ".join(
        f"{done.output}{done.exception}".split()
    )
    flags = (*flags, "--accept-leak", "p2")
    done = vfb_parity(*flags)
    assert done.exit_code == 0, done.output
    assert "from which rows of p3, p2 can be read" in " ".join(done.output.split())
    found = json.loads(vfb_parity(*flags, "--json").output)
    assert (found["accept_leak"], found["decisions_equal"]) == (["p3", "p2"], 40)


def test_secret_shares_refuse_policies_that_need_statistics():
    done = vfb_parity("--protection", "shares", "--policy", "inverse_gap")
    assert done.exit_code == 2
    assert "got InverseGap: it would need means of the arms in the open" in done.stderr


@pytest.mark.parametrize("policy", ["linucb", "lints", "lingreedy", "inverse_gap"])
def test_secret_shares_that_release_statistics_have_the_scores_of_a_plain_bandit(policy):
    flags = ("--protection", "shares", "--release", "statistics", "--policy", policy)
    done = json.loads(vfb_parity(*flags, "--json").stdout)
    assert done["lossless"]
    assert done["largest_score_difference"] < 1e-9
    assert "means" in done["released"]


def test_the_report_names_what_is_released():
    done = vfb_parity("--protection", "shares", "--policy", "linucb")
    assert done.exit_code == 0
    assert "learns the arm and the widths of all arms" in " ".join(done.stdout.split())


def test_the_table_says_how_many_decisions_are_equal_and_the_command_ends_well():
    done = vfb_parity()
    assert done.exit_code == 0
    for wanted in ("40 of 40", "none", "score difference", "‖θ̃‖", "‖θ̂‖", "regret, masked"):
        assert wanted in done.stdout
    assert beside_progress(done.stderr) == []  # not a terminal: no progress bar


@pytest.mark.parametrize("policy", ["linucb", "lints", "lingreedy", "inverse_gap"])
@pytest.mark.parametrize("layout", ["per_arm", "outer", "disjoint"])
def test_every_policy_and_layout_is_lossless_behind_the_hardest_settings(policy, layout):
    flags = ["--mask", "dense", "--aggregation", "secure", "--missing", "0.3", "--floor", "0.1"]
    done = vfb_parity("--policy", policy, "--layout", layout, *flags, "--discount", "0.9", "--json")
    report = json.loads(done.stdout)
    assert done.exit_code == 0
    assert (report["decisions_equal"], report["decisions_total"]) == (40, 40)
    assert (report["policy"]["name"], report["layout"]) == (policy, layout)


def test_json_is_one_object_with_these_keys_and_nothing_else_is_printed():
    done = vfb_parity("--json", "--seed", "3", "--beta", "2", "--participants", "3")
    report = json.loads(done.stdout)
    assert list(report) == list(KINDS)
    for key, kind in KINDS.items():
        assert isinstance(report[key], kind), key
    assert report["policy"] == {"name": "linucb", "beta": 2.0}
    assert (report["seed"], report["participants"], report["dim"]) == (3, 3, 10)
    assert done.stdout.count("\n") == 1
    assert beside_progress(done.stderr) == []


def test_policy_parameters_reach_the_policy():
    done = vfb_parity("--json", "--policy", "lints", "--posterior-scale", "3", "--space", "arm")
    assert json.loads(done.stdout)["policy"] == {
        "name": "lints",
        "posterior_scale": 3.0,
        "space": "arm",
        "n_draws": 1000,
    }
    done = vfb_parity("--json", "--policy", "inverse_gap", "--scale", "3", "--exponent", "0.3")
    policy = json.loads(done.stdout)["policy"]
    assert policy == {"name": "inverse_gap", "scale": 3.0, "exponent": 0.3}


def test_lints_with_more_arms_than_features_says_that_draws_were_turned():
    footnote = "sampled in parameter space"
    assert footnote in vfb_parity("--policy", "lints", "--arms", "20").stdout
    assert footnote not in vfb_parity("--policy", "lints").stdout


def test_the_same_flags_print_the_same_report():
    flags = ["--json", "--policy", "lints", "--missing", "0.5"]
    assert vfb_parity(*flags).stdout == vfb_parity(*flags).stdout


def test_a_decision_that_differs_makes_the_exit_code_1(capsys):
    assert compare(peeking()) == 1
    printed = capsys.readouterr().out
    assert "40 of 40" not in printed
    assert "counted from 0" in printed


def test_a_decision_that_differs_shows_in_json_too(capsys):
    assert compare(peeking(), as_json=True) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["lossless"] is False
    assert report["decisions_equal"] < report["decisions_total"]
    assert isinstance(report["first_difference"], int)
    assert report["policy"] == {"name": "Peek"}


@pytest.mark.parametrize("as_json", [False, True])
def test_a_terminal_gets_a_progress_bar_on_stderr(monkeypatch, capsys, as_json):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    compare(peeking(), as_json=as_json)
    assert "40 of 40 rounds" in terminal.getvalue()
    assert "\x1b" not in capsys.readouterr().out


def test_a_blind_policy_of_ones_own_ends_with_0(capsys):
    world = WorldSettings(even_widths(10, 5), n_arms=4)
    assert compare(ParityTrial(vfb.LinUCB(), world, horizon=40)) == 0
    assert "40 of 40" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--ridge", "-1"], "ridge must be a positive number, got -1.0"),
        (["--discount", "1.5"], "discount must be in (0, 1], got 1.5"),
        (["--floor", "2"], "floor must be between 0 and 1, got 2.0"),
        (["--missing", "nan"], "missing must be a number of at least 0, got nan"),
        (["--rounds", "0"], "rounds must be a whole number from 1, got 0"),
        (["--arms", "0"], "arms must be a whole number from 1, got 0"),
        (["--dim", "0"], "dim must be a whole number from 1, got 0"),
        (["--dim", "4"], "dim must give each of 5 participants a feature, got 4"),
        (["--participants", "1"], "needs an active and a passive participant, got 1"),
        (["--seed", "-3"], "seed must be a whole number from 0, got -3"),
        (["--noise", "-3"], "noise must be a number of at least 0, got -3.0"),
        (["--beta", "-1"], "beta must be a number of at least 0, got -1.0"),
        (["--epsilon", "0.1"], "--epsilon needs policy lingreedy, got linucb"),
        (["--posterior-scale", "1"], "--posterior-scale needs policy lints, got linucb"),
        (["--aggregation", "secure"], "secure aggregation needs mask='dense'"),
        (
            ["--aggregation", "secure", "--mask", "dense", "--participants", "2"],
            "secure aggregation needs at least two passive participants",
        ),
    ],
)
def test_a_bad_setting_gives_one_line_on_stderr_and_exit_code_2(flags, message):
    done = vfb_parity(*flags, "--json")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "flags", [["--policy", "x"], ["--layout", "x"], ["--dim", "x"], ["--unknown", "1"], ["extra"]]
)
def test_a_bad_flag_gives_usage_and_exit_code_2(flags):
    done = vfb_parity(*flags)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert "Usage: vfb parity" in done.stderr


def test_as_a_real_process_stdout_is_json_and_stderr_is_silent():
    command = [sys.executable, "-m", "vfbandits.cli.main", "parity", *SMALL, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["lossless"] is True
    assert beside_progress(done.stderr) == []


def test_as_a_real_process_a_bad_setting_gives_no_traceback():
    command = [sys.executable, "-m", "vfbandits.cli.main", "parity", "--ridge", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: ridge must be a positive number, got 0.0\n"


def test_a_notebook_shows_what_the_terminal_shows():
    report = ParityReport(3, 4, 1, 1e-16, 1.0, 1.0, masked_regret=2.0, plain_regret=2.5)
    shown = report._repr_html_()
    assert all(f"<td>{cell}</td>" in shown for row in report.rows() for cell in row)
    assert "3 of 4" in shown
    assert "round 1, counted from 0" in shown
