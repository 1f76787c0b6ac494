"""``vfb journal``: verify, export, compact and keygen, on a file and on PostgreSQL."""

import json

import polars as pl
import pytest
from journals import KEY, OnPostgres, OnSqlite, harm
from logged_runs import Run
from typer.testing import CliRunner

from vfbandits.cli.journal import journal_app
from vfbandits.cli.main import app
from vfbandits.journal.crypto import read_key, write_key


@pytest.fixture(params=[OnSqlite, OnPostgres])
def place(request, tmp_path):
    return request.param(tmp_path)


def vfb_journal(place, command, *words, **env):
    """The command on this place, its address and key as an operator would give them."""
    if isinstance(place, OnPostgres):
        target, name = "env:THE_LOG", ["--name", place.name]
        env["THE_LOG"] = place.url
    else:
        target, name = str(place.path), []
    words = [command, target, *name, *map(str, words)]
    return CliRunner().invoke(journal_app, words, env={"COLUMNS": "200", **env})


def test_verify_tells_what_is_there_while_the_writer_is_at_work(place):
    run = Run(place)
    run.visit(10, "save", "move", 10)
    journal = place.open()
    done = vfb_journal(place, "verify")
    journal.close()
    assert done.exit_code == 0, done.output
    assert "20 decided, 2 forgotten, 1 masks changed, 14 rewarded" in done.stdout
    assert "replayed from position 0; snapshots that match: 0, 18" in done.stdout
    assert done.stdout.endswith("4 pending decisions\nno problems\n")


def test_verify_exits_with_1_on_a_problem(place):
    Run(place).visit(10, "save", 5)
    harm(place, 7)
    done = vfb_journal(place, "verify")
    assert done.exit_code == 1
    assert "problem: record 7 of the journal is damaged: its checksum is wrong\n" in done.stdout
    assert done.stdout.endswith("\n1 problem\n")
    done = vfb_journal(place, "verify", "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["is_whole"]) == (1, False)
    assert found["problems"] == ["record 7 of the journal is damaged: its checksum is wrong"]


def test_verify_counts_acknowledged_events_that_are_missing(place):
    Run(place).visit(5)
    journal = place.open()
    last = journal.last_position
    journal.close()
    place.remove_record(last)
    done = vfb_journal(place, "verify")
    assert done.exit_code == 1
    lost = f"the journal was acknowledged up to {last}, got an end at {last - 1}"
    assert f"problem: {lost}" in done.stdout


def test_export_writes_a_table_while_the_writer_is_at_work(place, tmp_path):
    run = Run(place)
    run.visit(20, "save")
    journal = place.open()
    done = vfb_journal(place, "export", "--out", tmp_path / "log.parquet", "--contexts")
    journal.close()
    assert done.exit_code == 0, done.output
    table = pl.read_parquet(tmp_path / "log.parquet")
    assert {"arm", "reward", "probability", "x_0"} <= set(table.columns)
    assert f"wrote {len(run.rewards)} decisions to {tmp_path}/log.parquet" in done.stdout
    assert "5 decisions have no reward and were left out" in done.stdout
    done = vfb_journal(place, "export", "--out", tmp_path / "all.parquet", "--unrewarded", "0")
    assert "wrote 20 decisions" in done.stdout
    assert "left out" not in done.stdout


def vfb_evaluate(path, *words):
    words = ["evaluate", str(path), "--resamples", "20", "--json", *map(str, words)]
    return CliRunner().invoke(app, words)


def test_what_export_writes_is_what_evaluate_reads(place, tmp_path):
    Run(place).visit(60, "save")
    path = tmp_path / "log.parquet"
    assert vfb_journal(place, "export", "--out", path).exit_code == 0
    done = vfb_evaluate(path)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["rounds"], found["layout"]) == (len(pl.read_parquet(path)), "disjoint")
    assert all(one["value"] is not None for one in found["estimates"])


def test_without_contexts_evaluate_says_what_to_do_and_takes_features_from_a_table(tmp_path):
    place, path = OnSqlite(tmp_path), tmp_path / "log.parquet"
    Run(place).visit(60, "save")
    done = vfb_journal(place, "export", "--out", path, "--no-contexts")
    assert "there are no contexts in it: vfb evaluate needs them" in done.stdout
    done = vfb_evaluate(path)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "export it again with vfb journal export --contexts, or give features" in done.stderr
    ids = pl.read_parquet(path)["event_id"].unique().to_list()
    table = {"event_id": ids, "f": [float(n % 3) for n in range(len(ids))]}
    pl.DataFrame(table).write_parquet(tmp_path / "shop.parquet")
    done = vfb_evaluate(path, "--table", f"shop={tmp_path}/shop.parquet", "--key", "event_id")
    assert done.exit_code == 0, done.output


def test_a_log_of_chosen_contexts_only_says_why_it_cannot_be_judged(tmp_path):
    place, path = OnSqlite(tmp_path), tmp_path / "log.parquet"
    Run(place, "per_arm").visit(30, "save")
    done = vfb_journal(place, "export", "--out", path)
    assert "x_0" not in pl.read_parquet(path).columns
    assert "0 of 22 rows have the contexts of all arms" in done.stdout
    assert 'log_contexts = "all" in the campaign keeps them' in done.stdout
    assert vfb_journal(place, "export", "--out", path, "--contexts").exit_code == 0
    assert 'once the campaign has log_contexts = "all"' in vfb_evaluate(path).stderr


def test_compact_is_refused_while_the_writer_has_it_open_and_works_afterwards(place):
    Run(place).visit(20, "save", 10, "save")
    journal = place.open()
    done = vfb_journal(place, "compact")
    assert done.exit_code == 2
    assert "error: a journal has one writer, got a second" in done.stderr
    journal.close()
    done = vfb_journal(place, "compact")
    assert done.exit_code == 0, done.output
    assert "compacted up to position 37: " in done.stdout
    done = vfb_journal(place, "compact")
    assert "nothing to delete: that needs two snapshots" in done.stdout
    done = vfb_journal(place, "verify")
    assert (done.exit_code, "compacted up to position 37" in done.stdout) == (0, True)


def test_an_encrypted_log_needs_its_key_from_a_file_or_the_environment(place, tmp_path):
    place.key = KEY
    Run(place).visit(8, "save")
    path = tmp_path / "log.key"
    write_key(path, KEY)
    assert vfb_journal(place, "verify", "--key-file", path).exit_code == 0
    digits = KEY.secret.hex()
    assert vfb_journal(place, "verify", "--key-env", "THE_KEY", THE_KEY=digits).exit_code == 0
    out = tmp_path / "log.parquet"
    assert vfb_journal(place, "export", "--out", out, "--key-file", path).exit_code == 0
    for words, message in (
        ((), "is encrypted: wanted its key, got none"),
        (("--key-env", "THE_KEY"), "wanted the key that it was created with, got a different key"),
        (("--key-env", "THE_KEY", "--key-file", path), "got both"),
    ):
        for command in ("verify", "compact"):
            done = vfb_journal(place, command, *words, THE_KEY="0" * 64)
            assert done.exit_code == 2
            assert message in done.stderr
            assert done.stderr.count("\n") == 1
            assert digits not in done.output


def test_a_log_that_is_not_there_is_said_in_one_line_and_not_made(place, tmp_path):
    for words in (("verify",), ("compact",), ("export", "--out", tmp_path / "log.parquet")):
        done = vfb_journal(place, *words)
        assert done.exit_code == 2
        assert done.stderr.count("\n") == 1
        assert "No such file" in done.stderr or "has none of this name" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_empty_log_is_whole(place):
    place.open().close()
    done = vfb_journal(place, "verify")
    assert done.exit_code == 0
    assert "0 records up to position 0" in done.stdout
    assert "no snapshot to start from" in done.stdout


def test_keygen_makes_a_key_and_never_overwrites_one(tmp_path):
    path = tmp_path / "log.key"
    done = CliRunner().invoke(journal_app, ["keygen", "--out", str(path)])
    assert done.exit_code == 0
    secret = read_key(path).secret
    assert secret.hex() not in done.output
    done = CliRunner().invoke(journal_app, ["keygen", "--out", str(path)])
    assert done.exit_code == 2
    assert "File exists" in done.stderr
    assert read_key(path).secret == secret
