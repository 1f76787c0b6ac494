"""``vfb audit`` on files and stores: what it writes, prints and refuses."""

import json
import signal
import sqlite3
import stat

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from vfbandits.audit import Level, Severity, selftest, steps
from vfbandits.cli.audit import COLOURS, LevelName
from vfbandits.cli.main import app
from vfbandits.features.fit import fit_scaling
from vfbandits.features.table_file import read_table

N = 400
PASSIVE = """
name = "bank"
role = "passive"
address = "127.0.0.1:7443"

[features]
key = ["user"]
"""


def vfb(*words, code=0):
    done = CliRunner().invoke(app, ["audit", *map(str, words)], env={"COLUMNS": "200"})
    assert done.exit_code == code, (done.output, done.exception)
    return done


@pytest.fixture
def bank(tmp_path):
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "user": [f"u{i}" for i in range(N)],
            "age": rng.gamma(2.0, size=N),
            "loan": rng.random(N) < 0.3,
            "city": rng.choice(["Bern", "Rome"], N),
        }
    )
    frame.write_csv(tmp_path / "bank.csv")
    frame.write_parquet(tmp_path / "bank.parquet")
    return tmp_path


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_it_writes_one_page_for_its_owner_and_prints_every_finding(bank, ending):
    out = bank / "out"
    said = vfb(bank / f"bank.{ending}", "--level", "mask", "--out", out).stdout
    page = out / "audit.html"
    assert f"wrote {page}" in said.replace("\n", "")
    assert said.count("RED") + said.count("AMBER") + said.count("TRIED") == 7
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    text = page.read_text("utf-8")
    assert "column user was left out" in text.lower()
    assert "city=Rome" in text


def test_flags_and_colours_are_those_of_the_library():
    assert [name.value for name in LevelName] == list(Level)
    assert set(COLOURS) == set(Severity)


def test_json_has_every_finding_with_its_level(bank):
    words = (bank / "bank.csv", "--level", "sum", "--columns", "age,loan", "--rows", 200)
    document = json.loads(vfb(*words, "--out", bank / "out", "--json").stdout)
    assert document["columns"] == ["age", "loan"]
    assert document["rows"] == 200
    assert {finding["level"] for finding in document["findings"]} == {"sum"}
    assert len(document["findings"]) == 8
    assert document["not_run"] == []


def test_the_store_of_a_configuration_is_audited_as_it_would_be_sent(bank):
    wanted = {"numbers": ("age", "loan"), "categories": ("city",)}
    table = read_table(bank / "bank.parquet", key=("user",), **wanted)
    fit_scaling(table.raw, **wanted).save(bank / "scaling.json")
    config = bank / "bank.toml"
    lines = 'kind = "file"\npath = "bank.parquet"\nscaling = "scaling.json"\nclip_norm = 2.0\n'
    config.write_text(PASSIVE + lines)
    words = ("--config", config, "--level", "mask", "--out", bank / "out", "--json")
    document = json.loads(vfb(*words).stdout)
    assert document["columns"] == ["age", "loan", "city=Bern", "city=Rome"]
    assert any("rows were shortened to clip_norm" in note for note in document["notes"])
    refused = vfb(*words, "--columns", "age", code=2)
    assert "with --config the columns are those of its [features]" in refused.stderr


def test_a_database_is_asked_for_the_users_of_a_table(bank):
    pytest.importorskip("sqlalchemy")
    frame = pl.read_parquet(bank / "bank.parquet").select("user", "age")
    with sqlite3.connect(bank / "bank.db") as database:
        database.execute("create table bank (user text primary key, age real)")
        database.executemany("insert into bank values (?, ?)", frame.rows()[:-10])
    config = bank / "bank.toml"
    where = f'kind = "sql"\nurl = "sqlite:///{bank / "bank.db"}"\ntable = "bank"\n'
    noise = '[noise]\nepsilon = 3.0\ndelta = 1e-6\nclip = 1.0\nunit = "vector"\n'
    config.write_text(PASSIVE + where + 'columns = ["age"]\ntimeout_s = 30\n' + noise)
    words = ("--config", config, "--level", "mask", "--out", bank / "out", "--json")
    assert "wanted a TABLE with the columns user, got none" in vfb(*words, code=2).stderr
    document = json.loads(vfb(bank / "bank.csv", *words).stdout)
    assert "10 users are not in the store: their rows are zeros" in document["notes"]
    assert any("ε = 3 per vector" in note and "left out" in note for note in document["notes"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "wanted TABLE, --config or --selftest, got none of them"),
        (["{}/none.csv"], "must exist, got none"),
        (["{}/bank.xlsx"], "ends in .csv, .csv.gz, .parquet, got 'bank.xlsx'"),
        (["{}/bank.csv", "--columns", "height"], "got none called height"),
        (["{}/bank.csv", "--columns", "user"], "text with 400 different values"),
        (["{}/empty.csv"], "must be a table to read"),
        (["{}/head.csv"], "got none among 2 columns"),
        (["{}/short.csv"], "at least 40 complete rows, got 3"),
        (["{}/nested.parquet"], "'list' of nested.parquet must hold numbers or text, got List"),
    ],
)
def test_what_cannot_be_audited_is_one_line(bank, words, message):
    (bank / "empty.csv").write_text("")
    (bank / "head.csv").write_text("a,b\n")
    (bank / "short.csv").write_text("a,b\n1,2.5\n2,3.5\n2,1.5\n")
    pl.DataFrame({"list": [[1], [2]]}).write_parquet(bank / "nested.parquet")
    done = vfb(*(word.format(bank) for word in words), "--out", bank / "out", code=2)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_interrupted_selftest_prints_the_lines_that_are_measured(monkeypatch):
    def first_and_interrupted(*, seed):
        def interrupted(_seed):
            raise KeyboardInterrupt

        return [
            selftest.Case("all rows", {Level.MASK: lambda _: 0.25}, (seed,)),
            selftest.Case("no row", {Level.MASK: interrupted}, (seed,)),
        ]

    monkeypatch.setattr(selftest, "selftest", first_and_interrupted)
    done = vfb("--selftest", code=130)
    assert "0.25" in done.stdout
    assert "stopped: 1 of 2 lines are measured" in done.stderr


@pytest.fixture
def in_the_foreground():
    """SIGINT interrupts, also where a shell has started the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("in_the_foreground")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_audit_writes_what_is_done_and_says_what_is_not(bank, monkeypatch, number):
    def interrupted(*_args, **_how):
        assert callable(signal.getsignal(number))  # the test itself would end otherwise
        signal.raise_signal(number)

    monkeypatch.setattr(steps, "independent_columns", interrupted)
    out = bank / "out"
    done = vfb(bank / "bank.csv", "--level", "mask", "--out", out, code=130)
    assert f"stopped: 2 of 7 attacks are in {out / 'audit.html'}" in done.stderr
    text = (out / "audit.html").read_text("utf-8")
    assert "Not run: mask: independent components; mask: second moments" in text
