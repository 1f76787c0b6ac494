"""``vfb evaluate``: table, JSON, files, warnings and refusals."""

import csv
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import typer
from command_words import beside_progress
from typer.testing import CliRunner

from vfbandits.cli.evaluate import evaluate
from vfbandits.cli.failure import in_one_line
from vfbandits.evaluate.evaluation import ESTIMATORS

OBD = Path(__file__).parents[3] / "shared" / "data" / "obd"
app = typer.Typer()
app.command()(in_one_line(evaluate))


def run(log, *flags):
    return CliRunner().invoke(app, [str(log), *flags], env={"COLUMNS": "200"})


def as_json(log, *flags):
    done = run(log, *flags, "--json", "--resamples", "100")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def write_log(path, *, n=300, uniform=True):
    """Arm 0 is good for x_a > 0, arm 1 for the others; a bank knows half of x_a."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, n))
    p = np.full(n, 0.5) if uniform else np.where(a > 0.0, 0.3, 0.7)
    arm = (rng.random(n) > p).astype(int)
    mean = np.where(arm == 0, a + b, -a - b)
    pl.DataFrame(
        {
            "user": np.arange(n),
            "arm": np.where(arm == 0, "tea", "milk"),
            "reward": mean + rng.standard_normal(n),
            "probability": np.where(arm == 0, p, 1.0 - p),
            "x_a": a,
        }
    ).write_csv(path)
    pl.DataFrame({"user": np.arange(n), "b": b}).write_parquet(path.with_name("bank.parquet"))
    return path


@pytest.fixture
def log(tmp_path):
    return write_log(tmp_path / "log.csv")


def test_the_table_has_a_row_for_every_estimator_and_says_what_the_log_earned(log):
    done = run(log, "--beta", "0.1")
    assert done.exit_code == 0, done.output
    assert "LinUCB(beta=0.1) on 300 rounds, 2 arms, uniform; the log earned" in done.stdout
    for name in ESTIMATORS:
        assert f"\n  {name} " in done.stdout
    told = " ".join(done.stdout.split())  # wrapped at the width of the table
    assert "learnt from the first 150 rounds, evaluated on the other 150" in told
    assert beside_progress(done.stderr) == []


def test_a_good_policy_is_found_better_than_the_log(log):
    document = as_json(log, "--policy", "lingreedy", "--seed", "1")
    assert document["policy"] == {"name": "lingreedy", "epsilon": 0.0}
    assert (document["rounds"], document["arms"], document["uniform"]) == (300, 2, True)
    values = {one["estimator"]: one for one in document["estimates"]}
    assert list(values) == list(ESTIMATORS)
    for one in values.values():
        assert one["low"] <= one["value"] <= one["high"]
        assert one["value"] > document["logging_value"] + 0.2
    assert values["replay"]["target"] == "learning"
    assert values["dr"]["target"] == "frozen"


def test_the_caption_tells_of_the_targets_that_were_estimated(log):
    def caption(estimators):
        done = run(log, "--estimators", estimators)
        return " ".join(done.stdout.split())

    assert "frozen: learnt" not in caption("replay")
    assert "learning: replayed" not in caption("dr")


def test_a_participants_table_adds_what_it_knows_masked_or_not(log):
    flags = ["--policy", "lingreedy", "--estimators", "dr,replay"]
    joined = [*flags, "--key", "user", "--table", f"bank={log.with_name('bank.parquet')}"]
    alone, plain = as_json(log, *flags), as_json(log, *joined)
    masked = as_json(log, *joined, "--mask", "dense")
    for at in range(2):
        one, other = plain["estimates"][at], masked["estimates"][at]
        assert one["value"] > alone["estimates"][at]["value"]
        assert [other[key] for key in ("value", "low", "high")] == pytest.approx(
            [one[key] for key in ("value", "low", "high")], rel=1e-6
        )


def test_a_log_that_is_not_uniform_is_warned_of(tmp_path):
    done = run(write_log(tmp_path / "log.csv", uniform=False), "--estimators", "replay,ips")
    assert "warning, replay: the log is not uniform, so replay is biased" in done.stdout


@pytest.mark.parametrize("plot_format", ["png", "svg", "none"])
def test_files_are_written_where_they_are_wanted(tmp_path, log, plot_format):
    out = tmp_path / "out"
    done = run(log, "--out", str(out), "--format", plot_format, "--estimators", "ips,dm")
    assert done.exit_code == 0, done.output
    wanted = ["estimates.csv"] + ([] if plot_format == "none" else [f"estimates.{plot_format}"])
    assert sorted(path.name for path in out.iterdir()) == wanted
    for name in wanted:
        assert f"wrote {out / name}" in done.stdout
    with (out / "estimates.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["estimator"] for row in rows] == ["ips", "dm"]
    assert float(rows[0]["low"]) <= float(rows[0]["value"]) <= float(rows[0]["high"])


def test_the_same_flags_give_the_same_files(tmp_path, log):
    for name in ("1", "2"):
        run(log, "--policy", "lints", "--out", str(tmp_path / name), "--format", "svg")
    for name in ("estimates.csv", "estimates.svg"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--estimators", "ips,magic"], "estimators must be some of replay, ips"),
        (["--reward", "gain"], "got none called gain"),
        (["--context", "z_"], "begin with 'z_'"),
        (["--context", "x_a,x_z"], "got none called x_z"),
        (["--layout", "outer"], "layout is 'outer', got none"),
        (["--table", "bank"], "--table must be NAME=FILE with distinct names, got 'bank'"),
        (["--table", "bank=b.csv"], "feature tables need a key"),
        (["--mask", "dense"], "a federation needs an active and a passive participant, got 1"),
        (["--train", "1"], "train_share must be in [0, 1), got 1.0"),
        (["--clip", "0"], "clip must be a positive number, got 0.0"),
        (["--model", "tree"], "model must be one of auto, shared, arm, got 'tree'"),
        (["--interval", "magic"], "interval must be one of percentile, bca, studentised"),
        (["--epsilon", "0.1"], "--epsilon needs policy lingreedy, got linucb"),
        (["--ridge", "0"], "ridge must be a positive number, got 0.0"),
    ],
)
def test_a_bad_setting_gives_one_line_on_stderr(log, flags, message):
    done = run(log, *flags)
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr


@pytest.mark.parametrize("name", ["absent.csv", "log.txt", "obd:absent"])
def test_a_log_that_is_not_there_gives_one_line_on_stderr(tmp_path, name):
    done = run(name if ":" in name else tmp_path / name)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")


def test_a_folder_that_is_a_file_is_refused_before_the_run(tmp_path, log):
    (tmp_path / "out").write_text("")
    done = run(log, "--out", str(tmp_path / "out"))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--out must be a writable folder, got" in done.stderr


@pytest.mark.skipif(not OBD.is_dir(), reason=f"the Open Bandit Dataset is not in {OBD}")
def test_a_folder_of_the_open_bandit_dataset_is_a_log():
    flags = ["--train", "0.9", "--estimators", "snips", "--policy", "lingreedy", "--epsilon", "1"]
    document = as_json(f"obd:{OBD / 'random' / 'men'}", *flags)
    assert (document["rounds"], document["arms"], document["logging_value"]) == (10_000, 34, 0.0046)
    one = document["estimates"][0]
    assert one["effective_size"] == pytest.approx(1000)  # epsilon 1 is the logging policy itself
    assert one["relative"] == pytest.approx(1.0)


def test_a_ray_address_without_the_engine_is_refused_and_one_without_a_cluster_too(log):
    done = run(log, "--ray-address", "127.0.0.1:1")
    assert done.exit_code == 2
    assert "--ray-address needs --engine ray" in done.stderr
    done = run(log, "--engine", "ray", "--ray-address", "127.0.0.1:1")
    assert done.exit_code == 2
    assert "no Ray cluster answers at '127.0.0.1:1'" in done.stderr
