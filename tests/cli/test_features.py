"""``vfb features fit``: a file for its owner, and what the federation is told."""

import json
import stat

import polars as pl
import pytest
from numpy.testing import assert_allclose
from typer.testing import CliRunner

from vfbandits.cli.features import features_app
from vfbandits.features.scaling import Scaling
from vfbandits.features.table_file import open_file


@pytest.fixture
def source(tmp_path):
    columns = {"user": ["a", "a", "b"], "arm": ["t", "m", "t"], "age": [1.0, 2.0, 77.125],
               "pay": [3, 5, 3], "city": ["Rome", "Bern", "Rome"]}  # fmt: skip
    path = tmp_path / "bank.csv"
    pl.DataFrame(columns).write_csv(path)
    return path


def run(source, *flags):
    out = source.with_name("scaling.json")
    flags = ["--source", str(source), "--out", str(out), *flags]
    return CliRunner().invoke(features_app, ["fit", *flags], env={"COLUMNS": "200"}), out


def test_a_scaling_is_fitted_and_its_width_and_digest_are_told(source):
    done, out = run(source, "--key", "user,arm", "--columns", "age, pay", "--one-hot", "city",
                    "--scale", "minmax")  # fmt: skip
    assert done.exit_code == 0, done.output
    scaling = Scaling.load(out)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert f"wrote {out}: minmax scaling of 3 columns, fitted on 3 rows" in done.stdout
    assert "width 4\n" in done.stdout
    assert f"digest {scaling.digest}\n" in done.stdout
    store = open_file(source, key=("user", "arm"), scaling=scaling)
    assert_allclose(store.rows([("b", "t"), ("a", "m")]).values[0], [1.0, -1.0, 0.0, 1.0])
    assert "77" not in done.stdout.replace(scaling.digest, "").replace(str(out), "")


def test_json_has_the_same_facts(source):
    done, out = run(source, "--key", "user,arm", "--one-hot", "city", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {
        "scaling": str(out),
        "features": str(out.with_name("features.toml")),
        "rows": 3,
        "columns": ["city"],
        "width": 2,
        "digest": Scaling.load(out).digest,
    }


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--key", "user", "--columns", "age"], "each key of 'user' once, got 1 row with"),
        (["--key", "user,arm"], "--hash or --hash-rest, got none of them"),
        (["--key", ",", "--columns", "age"], "at least one key column, got none"),
        (["--key", "user,arm", "--columns", "age,height"], "got none called height"),
        (["--key", "user,arm", "--columns", "city"], "must hold finite numbers, got 3 rows"),
        (["--key", "user,arm", "--columns", "age", "--one-hot", "age"], "must be named once"),
        (
            ["--key", "user,arm", "--columns", "age", "--out", "/no/such/x"],
            "cannot write the scaling",
        ),
    ],
)
def test_what_cannot_be_fitted_is_one_line_and_no_file(source, flags, says):
    done, out = run(source, *flags)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert not out.exists()


def test_a_refused_fit_leaves_the_older_file_alone(source):
    out = run(source, "--key", "user,arm", "--columns", "age")[1]
    before = out.read_bytes()
    assert run(source, "--key", "user", "--columns", "age")[0].exit_code == 2
    assert out.read_bytes() == before


def test_open_vocabularies_are_hashed_to_the_widths_that_are_declared(source):
    done, out = run(source, "--key", "user,arm", "--columns", "age", "--hash", "city:8",
                    "--hash-rest", "16")  # fmt: skip
    assert done.exit_code == 0, done.output
    scaling = Scaling.load(out)
    assert (scaling.hashed, scaling.rest, scaling.width) == ({"city": 8}, 16, 25)
    store = open_file(source, key=("user", "arm"), scaling=scaling)
    assert abs(store.rows([("b", "t")]).values[0, 1:9]).sum() == 1.0


def test_hashing_alone_needs_no_data(tmp_path):
    out = tmp_path / "scaling.json"
    words = ["fit", "--hash", "page:4", "--hash-rest", "8", "--out", str(out)]
    done = CliRunner().invoke(features_app, words, env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    assert Scaling.load(out).width == 12


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--hash", "page"], "--hash must be NAME:WIDTH with distinct names, got 'page'"),
        (["--hash", "a:1,a:2"], "with distinct names, got 'a:2'"),
        (["--hash", "page:0"], "'page' needs a width from 1 to 65536, got 0"),
        (["--columns", "age"], "--columns and --one-hot are fitted on --source, got none"),
    ],
)
def test_what_cannot_be_hashed_is_one_line(tmp_path, flags, says):
    words = ["fit", *flags, "--out", str(tmp_path / "scaling.json")]
    done = CliRunner().invoke(features_app, words, env={"COLUMNS": "200"})
    assert (done.exit_code, done.stdout) == (2, "")
    assert says in done.stderr
    assert not [*tmp_path.iterdir()]
