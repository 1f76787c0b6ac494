"""``vfb simulate``: files, flags and refusals."""

import csv
import subprocess
import sys
import tomllib

import pytest
from command_words import beside_progress
from typer.testing import CliRunner

from vfbandits.cli.main import app
from vfbandits.settings.decode import load_document
from vfbandits.simulate.study_file import read_study

SMALL = ["--dim", "10", "--arms", "4", "--rounds", "30", "--seeds", "2", "--processes", "1"]
ACCEPTED = [word for name in ("p2", "p3", "p4", "p5") for word in ("--accept-leak", name)]
STUDY = """
rounds = 20
seeds = 2
widths = { shop = 3, bank = 4 }

[[contestant]]
name = "together"
policy = "linucb"
federated = true

[[contestant]]
name = "alone"
policy = "linucb"
features = ["shop"]
"""


def simulate(out, *flags, small=True):
    words = ["simulate", *(SMALL if small else []), *flags, "--out", str(out)]
    return CliRunner().invoke(app, words)


def written(out):
    return sorted(path.name for path in out.iterdir())


def study_of(out):
    return read_study(load_document(out / "study.toml"))


@pytest.fixture
def study_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(STUDY)
    return path


def test_it_prints_the_table_and_the_paths_of_what_it_wrote(tmp_path):
    done = simulate(tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert written(tmp_path / "out") == ["regret.csv", "regret.png", "study.toml", "table.md"]
    for name in written(tmp_path / "out"):
        assert f"wrote {tmp_path / 'out' / name}" in done.stdout
    for name in ("central LinUCB", "masked LinTS (VFTS)", "partial LinTS 0.8"):
        assert name in done.stdout
        assert name in (tmp_path / "out" / "table.md").read_text()
    assert beside_progress(done.stderr) == []


def test_noise_on_vectors_is_compared_with_central_and_alone(tmp_path):
    flags = ("--vector-noise", "1,100", "--vector-clip", "0.8", "--policy", "linucb")
    done = simulate(tmp_path / "out", *flags)
    assert done.exit_code == 0, done.output
    assert "noise.png" in written(tmp_path / "out")
    names = ["central LinUCB", "LinUCB, ε = 1 per vector", "LinUCB, ε = 100 per vector"]
    study = study_of(tmp_path / "out")
    assert [one.name for one in study.contestants] == [*names, "active LinUCB alone"]
    assert {one.vector_noise.clip for one in study.contestants if one.vector_noise} == {0.8}
    for word in ("ε per vector", "benefit left"):
        assert word in done.stdout
    assert "benefit left" in (tmp_path / "out" / "table.md").read_text()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--vector-noise", "1,many"), "--vector-noise must be numbers such as 1,3,10,30"),
        (("--vector-noise", "0"), "epsilon must be between 0.001 and 1e+06, got 0.0"),
        (("--vector-noise", "1", "--partial", "0.2"), "got --partial as well"),
    ],
)
def test_noise_that_makes_no_study_is_refused(tmp_path, flags, said):
    done = simulate(tmp_path / "out", *flags)
    assert done.exit_code == 2
    assert said in done.stderr


def test_the_study_toml_that_it_writes_makes_the_same_run_again(tmp_path):
    simulate(tmp_path / "one", "--format", "svg", "--layout", "disjoint", "--noise", "0.3")
    again = str(tmp_path / "one" / "study.toml")
    done = simulate(tmp_path / "two", again, "--format", "svg", "--processes", "1", small=False)
    assert done.exit_code == 0, done.output
    assert written(tmp_path / "one") == written(tmp_path / "two")
    assert "regret.svg" in written(tmp_path / "one")
    for name in written(tmp_path / "one"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        (("--policy", "lints", "--posterior-scale", "0.1"), "LinTS"),
        (("--policy", "linucb", "--layout", "outer", "--arm-dim", "9", *ACCEPTED), "LinUCB"),
    ],
)
def test_secret_shares_play_beside_the_central_bandit_and_the_file_repeats_them(
    flags, name, tmp_path
):
    done = simulate(tmp_path / "one", "--protection", "shares", *flags, "--format", "none")
    assert done.exit_code == 0, done.output
    assert f"shared {name}" in done.stdout
    again = str(tmp_path / "one" / "study.toml")
    simulate(tmp_path / "two", again, "--format", "none", "--processes", "1", small=False)
    first, second = (tmp_path / name / "regret.csv" for name in ("one", "two"))
    assert first.read_bytes() == second.read_bytes()


def test_a_file_names_contestants_and_participants(tmp_path, study_file):
    done = simulate(tmp_path / "out", str(study_file), "--processes", "1", small=False)
    assert done.exit_code == 0, done.output
    with (tmp_path / "out" / "regret.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["contestant"] for row in rows} == {"together", "alone"}
    assert {row["seed"] for row in rows} == {"0", "1"}
    assert max(int(row["round"]) for row in rows) == 20


def test_flags_overrule_the_file(tmp_path, study_file):
    flags = ["--rounds", "9", "--ridge", "3", "--seed", "5", "--processes", "1", "--format", "none"]
    done = simulate(tmp_path / "out", str(study_file), *flags, small=False)
    assert done.exit_code == 0, done.output
    study = study_of(tmp_path / "out")
    assert (study.horizon, study.ridge, study.seeds) == (9, 3.0, (5, 6))
    assert dict(study.world.widths) == {"shop": 3, "bank": 4}
    assert written(tmp_path / "out") == ["regret.csv", "study.toml", "table.md"]


def test_widths_of_a_flag_replace_dim_of_a_file_and_the_other_way_round(tmp_path):
    for key, flags in (("dim = 30", ["--widths", "2,3,4"]), ("widths = [9, 9]", SMALL[:2])):
        path = tmp_path / "mine.toml"
        path.write_text(f"rounds = 5\nseeds = 1\n{key}\n")
        done = simulate(
            tmp_path / "out",
            str(path),
            *flags,
            *("--processes", "1", "--format", "none", "--policy", "linucb"),
            small=False,
        )
        assert done.exit_code == 0, done.output
        wanted = [2, 3, 4] if "--widths" in flags else [2, 2, 2, 2, 2]
        assert list(study_of(tmp_path / "out").world.widths.values()) == wanted


def test_flags_make_any_set_of_policies_and_feature_subsets(tmp_path):
    flags = ["--policy", "lingreedy", "--epsilon", "0.2", "--partial", "p1,p3", "--partial", "0.5"]
    done = simulate(tmp_path / "out", *flags, "--mask", "dense", "--aggregation", "secure")
    assert done.exit_code == 0, done.output
    document = tomllib.loads((tmp_path / "out" / "study.toml").read_text())
    central, masked, participants, ratio = document["contestant"]
    assert {c["policy"] for c in document["contestant"]} == {"lingreedy"}
    assert {c["epsilon"] for c in document["contestant"]} == {0.2}
    assert (central["name"], central["federated"]) == ("central LinGreedy", False)
    assert (masked["mask"], masked["aggregation"]) == ("dense", "secure")
    assert (participants["features"], ratio["features"]) == (["p1", "p3"], 0.5)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--rounds", "0"], "rounds must be a whole number from 1, got 0"),
        (["--widths", "2,x"], "--widths must be integers such as 20,30,50, got '2,x'"),
        (["--widths", "2,3"], "widths replaces dim and participants, got widths and dim"),
        (["--partial", "1.5"], "features must be 'all', 'active', a ratio between 0 and 1"),
        (["--partial", "p9"], "features must name some of p1, p2, p3, p4, p5, got p9"),
        (["--partial", "0.2", "--partial", "0.2"], "got 'partial LinUCB 0.2' twice"),
        (["--scale", "3"], "--scale needs policy inverse_gap, got linucb, lints"),
        (["--beta", "-3"], "beta must be a number of at least 0, got -3.0"),
        (["--aggregation", "secure"], "secure aggregation needs mask='dense'"),
        (["--processes", "0"], "processes must be a whole number from 1, got 0"),
        (["--discount", "0"], "discount must be in (0, 1], got 0.0"),
        (["absent.toml"], "absent.toml must be a file to read, got: No such file"),
    ],
)
def test_a_bad_setting_gives_one_line_on_stderr_and_writes_nothing(tmp_path, flags, message):
    done = simulate(tmp_path / "out", *flags)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists() or not written(tmp_path / "out")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rounds = ", "must be a TOML file"),
        ("roundz = 3", "roundz is not a key, but rounds is"),
        ('[[contestant]]\nname = "a"\npolicy = "x"', "contestant[0].policy must be one of"),
    ],
)
def test_a_bad_file_gives_one_line_on_stderr(tmp_path, text, message):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    done = simulate(tmp_path / "out", str(path), small=False)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr


def test_contestants_from_the_file_and_from_flags_at_once_are_refused(tmp_path, study_file):
    done = simulate(tmp_path / "out", str(study_file), "--policy", "lints", small=False)
    assert done.exit_code == 2
    assert "contestants must come from the file or from flags, got both" in done.stderr


def test_a_folder_that_is_a_file_is_refused_before_the_run(tmp_path):
    (tmp_path / "out").write_text("")
    done = simulate(tmp_path / "out")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "out must be a folder to write to" in done.stderr


def test_as_a_real_process_with_two_processes_of_its_own(tmp_path):
    """Two processes give the file that one gives, byte for byte."""
    flags = [
        *SMALL[:-1],
        "2",
        "--format",
        "none",
        "--policy",
        "linucb",
        "--out",
        str(tmp_path / "2"),
    ]
    command = [sys.executable, "-m", "vfbandits.cli.main", "simulate", *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "masked LinUCB (VFUCB)" in done.stdout
    assert beside_progress(done.stderr) == []
    simulate(tmp_path / "1", "--format", "none", "--policy", "linucb")
    for name in written(tmp_path / "1"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()
