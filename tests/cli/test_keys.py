"""``vfb keys``: made, listed and revoked; a key is shown once."""

from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from vfbandits.cli.keys import ScopeName, keys_app
from vfbandits.http.access.caller import RIGHTS, Caller
from vfbandits.http.access.key_file import add_key, read_keys
from vfbandits.http.access.keys import KeyRing, make_key
from vfbandits.http.refusals import Unauthorized


@pytest.fixture
def file(tmp_path):
    return tmp_path / "keys"


def run(*words):
    done = CliRunner().invoke(keys_app, [str(word) for word in words], env={"COLUMNS": "200"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def works(*words):
    done = run(*words)
    assert done.exit_code == 0, done.output
    return done.stdout


def fails(*words):
    """The one line on stderr."""
    done = run(*words)
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: ")
    return done.stderr


def create(file, *more, name="web", scope="rank"):
    return works("create", "--file", file, "--name", name, "--scope", scope, *more).strip()


def test_what_is_printed_is_the_key_and_nothing_else(file):
    done = run("create", "--file", file, "--name", "web", "--scope", "rank", "--scope", "reward",
               "--campaign", "a", "--campaign", "b")  # fmt: skip
    key = done.stdout.removesuffix("\n")
    assert KeyRing.load(file).check(key) == Caller(
        "web", frozenset({"rank", "reward"}), frozenset({"a", "b"})
    )
    assert "not shown again" in done.stderr
    assert key not in done.stderr


def test_days_say_when_it_ends(file):
    create(file, "--days", "3")
    (record,) = read_keys(file)
    assert abs(record.expires - datetime.now(UTC) - timedelta(days=3)) < timedelta(minutes=1)


def test_the_list_has_all_but_the_keys(file):
    key = create(file, "--campaign", "front", name="[red]web[/]")
    admin = create(file, name="ops", scope="admin")
    ended = datetime(2020, 1, 2, 3, 4, tzinfo=UTC)
    add_key(file, make_key("old", scopes=["read", "reward"], expires=ended).record)
    said = works("list", "--file", file)
    rows = {line.split()[0]: line for line in said.splitlines() if line.strip()}
    for heading in ("id", "name", "scopes", "campaigns", "created", "expires"):
        assert heading in rows["id"]
    web, ops = rows[key.split("_")[1]], rows[admin.split("_")[1]]
    assert "[red]web[/]" in web
    assert "front" in web
    assert "admin" in ops
    assert "all" in ops
    assert "never" in ops
    assert "read, reward" in said
    assert "expired 2020-01-02 03:04Z" in said
    assert key[-43:] not in said


def test_a_revoked_key_is_gone(file):
    key, kept = create(file), create(file, name="kept")
    assert works("revoke", "--file", file, key.split("_")[1]) == (
        f"revoked key {key.split('_')[1]}\n"
    )
    ring = KeyRing.load(file)
    assert ring.check(kept).name == "kept"
    with pytest.raises(Unauthorized):
        ring.check(key)


def test_refusals_are_one_line_and_change_nothing(file):
    create(file)
    before = file.read_bytes()
    common = ("create", "--file", file, "--scope", "rank", "--name")
    assert "wanted the id of a key" in fails("revoke", "--file", file, "aaaaaaaa")
    assert "--days must be between 1 and 36500, got 0" in fails(*common, "x", "--days", "0")
    assert "such a key cannot be made" in fails(*common, "")
    assert "No such file" in fails("list", "--file", file.with_name("none"))
    assert file.read_bytes() == before
    file.chmod(0o644)
    assert "chmod 600" in fails("list", "--file", file)
    assert "chmod 600" in fails(*common, "x")
    assert file.read_bytes() == before


def test_a_scope_that_is_none_is_refused(file):
    done = run("create", "--file", file, "--name", "web", "--scope", "all")
    assert done.exit_code == 2
    assert not file.exists()


def test_the_command_knows_all_scopes():
    assert {scope.value for scope in ScopeName} == set(RIGHTS)
