"""``vfb tune``: table, JSON, files, the request that applies it, and refusals."""

import asyncio
import csv
import json
import os
import shlex
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
import typer
from command_words import beside_progress
from logged_campaign import LoggedCampaign
from typer.testing import CliRunner

import vfbandits as vfb
from vfbandits.cli.failure import in_one_line
from vfbandits.cli.tune import GRID, tune

app = typer.Typer()
app.command()(in_one_line(tune))
FEW = ("--policy", "linucb", "--beta", "0.1,30", "--policy", "lingreedy", "--epsilon", "0,0.3")


def run(log, *flags):
    words = [str(log), *map(str, flags), "--processes", "1", "--out", str(log.parent / "out")]
    return CliRunner().invoke(app, words, env={"COLUMNS": "200"})


def as_json(log, *flags):
    done = run(log, *flags, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """A campaign of each layout, served and exported."""
    folder = tmp_path_factory.mktemp("logs")

    async def serve(layout):
        campaign = LoggedCampaign(layout, seed=5, policy=vfb.LinTS(posterior_scale=0.3), floor=0.3)
        leader = campaign.open()
        await campaign.serve(leader, 700)
        await leader.durable.close()
        campaign.export(folder / f"{layout}.parquet")

    for layout in ("per_arm", "outer", "disjoint"):
        asyncio.run(serve(layout))
    return folder


@pytest.mark.parametrize("layout", ["per_arm", "outer", "disjoint"])
def test_the_journal_of_a_campaign_is_tuned_from_in_every_layout(logs, layout):
    found = as_json(logs / f"{layout}.parquet", *FEW)
    assert (found["learnt_rounds"], found["judged_rounds"]) == (350, 350)
    labels = [one["candidate"] for one in found["candidates"]]
    assert {*labels} == {
        "linucb beta=0.1",
        "linucb beta=30",
        "lingreedy epsilon=0",
        "lingreedy epsilon=0.3",
    }
    assert found["best"] == labels[0]
    assert "lingreedy epsilon=0.3" not in found["set"]
    values = [one["value"] for one in found["candidates"]]
    assert values == sorted(values, reverse=True)
    assert found["candidates"][0]["gain_low"] > 0.0  # the log explored a lot


def test_the_table_marks_the_set_and_a_request_follows_that_a_shell_reads(logs):
    done = run(
        logs / "disjoint.parquet", *FEW, "--url", "https://bandit:8443/", "--campaign", "a b"
    )
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert "4 candidates may be the best, with 95 % confidence" in lines[0]
    marked = [line for line in lines if line.strip().startswith("✓")]
    assert len(marked) == int(lines[0].split()[0]) < 4
    assert any("plays one arm with probability 1" in line for line in lines)
    curl = shlex.split(next(line for line in lines if line.startswith("curl")))
    assert curl[:4] == ["curl", "-X", "PATCH", "https://bandit:8443/v1/campaigns/a%20b/config"]
    body = json.loads(curl[curl.index("-d") + 1])
    assert body.keys() == {"policy"}
    assert body["policy"]["name"] in ("linucb", "lingreedy")
    assert json.loads((logs / "out" / "request.json").read_text()) == body


def test_a_floor_is_in_the_request_only_if_it_was_tried(logs):
    log = logs / "disjoint.parquet"
    found = as_json(log, "--policy", "linucb", "--beta", "0.1", "--floor", "0.05,0.5")
    assert found["request"] == {
        "method": "PATCH",
        "path": "/v1/config",
        "body": {"policy": {"name": "linucb", "beta": 0.1}, "floor": 0.05},
    }
    assert found["set"] == ["linucb beta=0.1 floor=0.05"]


def test_a_ridge_is_tried_and_said_to_be_the_models(logs):
    done = run(logs / "disjoint.parquet", "--policy", "lingreedy", "--epsilon", "0", "--ridge", "3")
    assert "ridge and discount belong to the model" in done.stdout


@pytest.mark.parametrize("plot", ["png", "svg", "none"])
def test_files_are_written_and_the_same_run_writes_the_same(logs, plot):
    log, folder = logs / "outer.parquet", logs / "out"
    found = as_json(log, *FEW, "--format", plot)
    assert len(found["written"]) == (2 if plot == "none" else 3)
    rows = list(csv.DictReader((folder / "candidates.csv").read_text().splitlines()))
    assert [row["candidate"] for row in rows] == [one["candidate"] for one in found["candidates"]]
    if plot != "none":
        before = (folder / f"tune.{plot}").read_bytes()
        assert as_json(log, *FEW, "--format", plot) == found
        assert (folder / f"tune.{plot}").read_bytes() == before


def test_what_was_judged_is_kept_and_another_log_or_setting_is_judged_again(logs, tmp_path):
    log = tmp_path / "log.parquet"
    pl.read_parquet(logs / "disjoint.parquet").write_parquet(log)
    kept = lambda: {*(tmp_path / "out" / "candidates").iterdir()}  # noqa: E731
    first = as_json(log, *FEW)
    assert len(kept()) == 4
    assert as_json(log, *FEW, "--confidence", "0.5")["logging_value"] == first["logging_value"]
    assert len(kept()) == 4  # the set is made of what was judged
    one = min(kept())
    one.write_bytes(one.read_bytes()[:100])
    assert as_json(log, *FEW) == first
    as_json(log, *FEW, "--estimator", "snips")
    assert len(kept()) == 8
    table = pl.read_parquet(log)
    table.with_columns(pl.col("reward") + 1.0).write_parquet(log)
    changed = as_json(log, *FEW)
    assert len(kept()) == 12
    assert changed["logging_value"] == pytest.approx(first["logging_value"] + 1.0)


def test_a_log_that_already_earns_the_most_says_so(tmp_path):
    rng = np.random.default_rng(0)
    log = tmp_path / "log.csv"
    columns = {"x_a": rng.random(400), "arm": rng.integers(2, size=400), "reward": rng.random(400)}
    pl.DataFrame({**columns, "probability": [0.5] * 400}).write_csv(log)
    done = run(log, "--policy", "lingreedy")
    assert done.exit_code == 0, done.output
    assert "no candidate earns clearly more than the log did" in done.stdout


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--beta", "a"], "--beta must be numbers such as 0.1,1,10, got 'a'"),
        (["--policy", "lints", "--beta", "1"], "--beta needs policy linucb, got lints"),
        (["--beta", "1,1"], "candidates must differ, at least one, got linucb beta=1 twice"),
        (["--beta", "-1"], "beta must be a number of at least 0, got -1.0"),
        (["--floor", "2"], "floor must be between 0 and 1, got 2.0"),
        (["--ridge", "0"], "ridge must be"),
        (["--estimator", "replay"], "estimator must be one of dr, sndr, snips, got 'replay'"),
        (["--train", "0"], "train_share must be above 0"),
        (["--train", "0.99"], "100 held out, got 700 in all"),
        (["--confidence", "1"], "confidence must be between 0 and 1"),
        (["--arm", "arms"], "got none called arms"),
        (["--ray-address", "a:1"], "--ray-address needs --engine ray"),
    ],
)
def test_bad_flags_are_one_line(logs, flags, message):
    done = run(logs / "disjoint.parquet", *flags)
    assert done.exit_code == 2
    (line,) = beside_progress(done.stderr)
    assert message in line


def test_the_default_grid_is_what_the_help_says():
    text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).stdout
    for parameters in GRID.values():
        for values in parameters.values():
            assert f"[default: ({','.join(f'{value:g}' for value in values)})]" in text


ON_RAY = """
import json, sys
from ray.cluster_utils import Cluster
from typer.testing import CliRunner
from vfbandits.cli.main import app

if __name__ == "__main__":
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    cluster.wait_for_nodes()
    found = []
    for place in ("here", "ray"):
        there = ["--processes", "1"] if place == "here" else [
            "--engine", "ray", "--ray-address", cluster.address]
        for words in json.loads(sys.argv[1]):
            words = [*words, "--json", "--out", f"{sys.argv[2]}/{place}", *there]
            done = CliRunner().invoke(app, words)
            assert done.exit_code == 0, done.output
            document = json.loads(done.stdout)
            del document["written"]
            found.append(document)
    cluster.shutdown()
    half = len(found) // 2
    print(json.dumps(found[:half] == found[half:]))
"""


@pytest.mark.long
def test_on_ray_tune_evaluate_and_simulate_find_the_same_figures(logs, tmp_path):
    """Exact."""
    script, log = tmp_path / "on_ray.py", str(logs / "outer.parquet")
    script.write_text(ON_RAY)
    commands = [
        ["tune", log, *FEW],
        ["evaluate", log],
        ["simulate", "--rounds", "200", "--dim", "10", "--seeds", "2"],
    ]
    done = subprocess.run(
        [sys.executable, str(script), json.dumps(commands), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env={**os.environ, "RAY_DEDUP_LOGS": "0", "RAY_USAGE_STATS_ENABLED": "0"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) is True
