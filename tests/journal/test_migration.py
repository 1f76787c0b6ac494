"""Tables of an earlier version are brought to the newest: all or nothing, and under no writer.

The earlier version is the one of today: a test registers a step to a version of tomorrow.
"""

import json
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from contextlib import closing, contextmanager

import fork_server
import psycopg
import pytest
from journals import KEY, OnSqlite, postgres_url, query
from typer.testing import CliRunner

from vfbandits.campaign.events import Forgotten
from vfbandits.cli.main import app
from vfbandits.errors import JournalError
from vfbandits.journal.inbox import postgres as inbox
from vfbandits.journal.inbox.postgres import PostgresInbox
from vfbandits.journal.migration import Step, newest, plan, refuse_other_version
from vfbandits.journal.open import migrate, plan_migration
from vfbandits.journal.postgres import rows as postgres_rows
from vfbandits.journal.postgres.journal import PostgresJournal
from vfbandits.journal.postgres.reader import PostgresReader
from vfbandits.journal.sqlite import rows as sqlite_rows

SQLITE = Step("say when a record came", ("ALTER TABLE event ADD COLUMN at REAL",))
POSTGRES = Step("say when a record came", ("ALTER TABLE vfb_event ADD COLUMN at float8",))
WRONG = ("DROP TABLE nowhere",)


class Place:
    """A journal of five records, whose tables are of the version of today."""

    def __init__(self, kind, folder, key=None):
        self.kind = kind
        if kind == "sqlite":
            self._place = OnSqlite(folder, key)
            self.target, self.journal = str(self._place.path), str(self._place.path)
        else:
            schema = f"migrated_{folder.name[-40:].lower().replace('-', '_')}_{id(self)}"
            query(f'CREATE SCHEMA "{schema}"')
            self.target = f"{postgres_url()}?options=-csearch_path%3D{schema}"
            self._key, self.schema = key, schema
        with closing(self.open()) as journal:
            journal.append([Forgotten(number) for number in range(5)])

    def open(self):
        if self.kind == "sqlite":
            return self._place.open()
        return PostgresJournal(self.target, key=self._key, wait_s=0.0)

    def reader(self):
        if self.kind == "sqlite":
            return self._place.reader()
        return PostgresReader(self.target, key=self._key)

    def columns(self):
        if self.kind == "sqlite":
            with closing(sqlite3.connect(self._place.path)) as db:
                return [row[1] for row in db.execute("PRAGMA table_info(event)")]
        sql = (
            "SELECT column_name FROM information_schema.columns "
            "WHERE table_schema = %s AND table_name = 'vfb_event'"
        )
        return [row[0] for row in query(sql, self.schema)]

    def is_migrating(self):
        """Whether another process is within its transaction, or in the slow statement of it."""
        if self.kind == "postgres":
            sql = "SELECT 1 FROM pg_stat_activity WHERE state = 'active' AND query = %s"
            return bool(query(sql, SLOW["postgres"]))
        with closing(sqlite3.connect(self._place.path, timeout=0.0)) as db:
            try:
                db.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            return False

    def tomorrow(self, monkeypatch, *more):
        """As in a program whose tables are of the version of tomorrow."""
        steps = {"sqlite": sqlite_rows, "postgres": postgres_rows}[self.kind].STEPS
        step = {"sqlite": SQLITE, "postgres": POSTGRES}[self.kind]
        monkeypatch.setitem(steps, 1, Step(step.does, (*step.statements, *more)))

    def vfb(self, *words):
        return CliRunner().invoke(app, ["journal", "migrate", "env:THE_JOURNAL", *words],
                                  env={"THE_JOURNAL": self.target})  # fmt: skip


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    return Place(request.param, tmp_path)


def test_a_table_of_an_older_version_is_refused_with_the_command_that_helps(place, monkeypatch):
    place.tomorrow(monkeypatch)
    for open_it in (place.open, place.reader):
        with pytest.raises(JournalError) as caught:
            open_it()
        assert "must have tables of version 2, got 1: stop every process that" in str(caught.value)
        assert "run `vfb journal migrate` on it" in str(caught.value)


def test_a_dry_run_says_what_would_be_done_and_changes_nothing(place, monkeypatch):
    place.tomorrow(monkeypatch)
    with writer_of_today(place, monkeypatch):  # and a server may be running
        done = place.vfb()
    assert done.exit_code == 1, done.output
    assert done.stdout == (
        "tables of the journal: version 1 would be migrated to 2:\n"
        "  say when a record came\n"
        "nothing was changed: use --apply\n"
    )
    assert "at" not in place.columns()


@contextmanager
def writer_of_today(place, monkeypatch):
    """A writer of today's program, while tomorrow's looks at its journal."""
    with monkeypatch.context() as today:
        today.delitem({"sqlite": sqlite_rows, "postgres": postgres_rows}[place.kind].STEPS, 1)
        journal = place.open()
    with closing(journal):
        yield journal


def test_after_the_migration_every_record_is_there_and_more_can_be_written(place, monkeypatch):
    place.tomorrow(monkeypatch)
    done = place.vfb("--apply", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {
        "migrated": True,
        "tables": [
            {"tables": "journal", "found": 1, "newest": 2, "steps": ["say when a record came"]}
        ],
    }
    assert "at" in place.columns()
    with closing(place.reader()) as reader:
        assert reader.last_position == 5
        assert [event.event_id for _, event in reader.read()] == [0, 1, 2, 3, 4]
    again = place.vfb()
    assert again.exit_code == 0
    assert again.stdout == "tables of the journal: version 2, the newest: nothing to migrate\n"
    assert place.vfb("--apply").exit_code == 0


def test_who_migrated_is_listed_and_a_migration_that_changes_nothing_is_not(place, monkeypatch):
    def listed():
        words = ["journal", "audit", "env:THE_JOURNAL", "--json"]
        done = CliRunner().invoke(app, words, env={"THE_JOURNAL": place.target})
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)["changes"]

    assert place.vfb("--apply").exit_code == 0
    assert listed() == []
    place.tomorrow(monkeypatch)
    before = time.time()
    assert place.vfb("--apply").exit_code == place.vfb("--apply").exit_code == 0
    (change,) = listed()
    assert (change["what"], change["detail"]) == ("migration", "journal, version 1 to 2")
    assert "@" in change["by"]
    assert before <= change["at"] <= time.time()


def test_the_program_of_yesterday_refuses_a_migrated_journal(place, monkeypatch):
    with monkeypatch.context() as tomorrow:
        place.tomorrow(tomorrow)
        migrate(place.target)
    for open_it in (place.open, place.reader, lambda: plan_migration(place.target)):
        with pytest.raises(JournalError, match="of version 1, got 2: it was written by a newer"):
            open_it()


def test_a_step_that_fails_leaves_everything_as_it_was(place, monkeypatch):
    with monkeypatch.context() as tomorrow:
        place.tomorrow(tomorrow, *WRONG)
        done = place.vfb("--apply")
        assert done.exit_code == 2
        assert "cannot be migrated" in done.stderr
        assert "nowhere" in done.stderr
    assert "at" not in place.columns()
    with closing(place.open()) as journal:
        assert journal.append([Forgotten(9)]) == 6


def test_all_steps_are_one_transaction(place, monkeypatch):
    """The second step fails: the first is taken back with it."""
    place.tomorrow(monkeypatch)
    steps = {"sqlite": sqlite_rows, "postgres": postgres_rows}[place.kind].STEPS
    monkeypatch.setitem(steps, 2, Step("fail", WRONG))
    with pytest.raises(JournalError, match="cannot be migrated"):
        migrate(place.target)
    assert "at" not in place.columns()
    assert plan_migration(place.target)[0].found == 1
    monkeypatch.setitem(steps, 2, Step("nothing", ("SELECT 1",)))
    assert migrate(place.target)[0].newest == 3
    assert plan_migration(place.target)[0].steps == ()


def test_it_is_refused_while_a_writer_has_the_journal(place, monkeypatch):
    place.tomorrow(monkeypatch)
    with writer_of_today(place, monkeypatch) as writer:
        done = place.vfb("--apply")
        assert done.exit_code == 2
        assert "is locked by another process" in done.stderr
        assert "at" not in place.columns()
        assert writer.append([Forgotten(9)]) == 6
    assert place.vfb("--apply").exit_code == 0


def test_a_journal_that_is_not_there_is_not_made(tmp_path):
    path = tmp_path / "nowhere.db"
    for deed in (plan_migration, migrate):
        with pytest.raises(JournalError, match="cannot be opened"):
            deed(path)
    assert not list(tmp_path.iterdir())
    path.touch()
    with pytest.raises(JournalError, match="must be a journal, got an empty file"):
        migrate(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE t (a)")
    with pytest.raises(JournalError, match="got a database with 0x0"):
        migrate(path)


def test_a_database_without_a_journal_is_refused(tmp_path):
    query("CREATE SCHEMA IF NOT EXISTS migrated_empty")
    with pytest.raises(JournalError, match="got a database without tables of vfbandits"):
        migrate(f"{postgres_url()}?options=-csearch_path%3Dmigrated_empty")


def test_an_encrypted_journal_is_migrated_without_its_key(tmp_path, monkeypatch):
    for kind in ("sqlite", "postgres"):
        place = Place(kind, tmp_path, KEY)
        with monkeypatch.context() as tomorrow:
            place.tomorrow(tomorrow)
            assert migrate(place.target)[0].newest == 2
            with closing(place.reader()) as reader:
                assert len(list(reader.read())) == 5


def test_the_inbox_is_migrated_with_the_journals_of_its_database(tmp_path, monkeypatch):
    place = Place("postgres", tmp_path)
    PostgresInbox(place.target).close()
    step = Step("note the sender", ("ALTER TABLE vfb_inbox ADD COLUMN sender text",))
    monkeypatch.setitem(inbox.STEPS, 1, step)
    with pytest.raises(JournalError, match=r"\(its inbox\) must have tables of version 2, got 1"):
        PostgresInbox(place.target)
    found = {one.tables: (one.found, one.newest) for one in migrate(place.target)}
    assert found == {"journal": (1, 1), "inbox": (1, 2)}
    PostgresInbox(place.target).close()


def test_a_writer_that_looked_before_the_migration_is_refused_after_it(tmp_path, monkeypatch):
    """It checked the version, waited for the lock, and got it when the tables had changed."""
    place = Place("postgres", tmp_path)
    import vfbandits.journal.postgres.journal as module  # noqa: PLC0415

    lead = module._lead  # noqa: SLF001

    def late(link, journal, wait_s):
        query(f'UPDATE "{place.schema}".vfb_version SET version = 2')  # noqa: S608
        return lead(link, journal, wait_s)

    monkeypatch.setattr(module, "_lead", late)
    with pytest.raises(JournalError, match="must have tables of version 1, got 2"):
        place.open()


SLOW = {
    "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
    "SELECT count(*) FROM n WHERE i < 0",
    "postgres": "SELECT pg_sleep(600)",
}


def test_a_kill_in_the_middle_leaves_the_version_before(place):
    step = {"sqlite": SQLITE, "postgres": POSTGRES}[place.kind]
    statements = (*step.statements, SLOW[place.kind])
    module = "sqlite" if place.kind == "sqlite" else "postgres"
    program = textwrap.dedent(f"""
        from vfbandits.journal.{module} import rows
        from vfbandits.journal.migration import Step
        from vfbandits.journal.open import migrate
        rows.STEPS[1] = Step("slow", {statements!r})
        print("begun", flush=True)
        migrate({place.target!r})
    """)
    child = fork_server.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    try:
        assert child.stdout.readline() == b"begun\n"
        while not place.is_migrating():
            assert child.poll() is None
            time.sleep(0.05)
    finally:
        child.send_signal(signal.SIGKILL)
        child.communicate()
    if place.kind == "postgres":
        forget_the_dead()
    assert "at" not in place.columns()
    with closing(place.open()) as journal:
        assert [position for position, _ in journal.read()] == [1, 2, 3, 4, 5]
        assert journal.append([Forgotten(9)]) == 6
    assert plan_migration(place.target)[0].found == 1


def forget_the_dead():
    """A server notices a dead client when it next writes to it: here a sleep has to end."""
    with psycopg.connect(postgres_url(), autocommit=True) as connection:
        sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE %s"
        while connection.execute(sql, ("SELECT pg_sleep(600)%",)).fetchall():
            time.sleep(0.05)


@pytest.mark.parametrize("found", [-1, 0, 4, 99])
def test_a_version_without_steps_from_it_is_refused(found):
    steps = {1: Step("one", ()), 2: Step("two", ())}
    for deed in (lambda: plan(found, steps, tables="journal", journal="x"),
                 lambda: refuse_other_version(found, steps, journal="x")):  # fmt: skip
        with pytest.raises(JournalError, match=f"must have tables of version 3, got {found}"):
            deed()


def test_steps_of_this_program_lead_from_the_first_version_to_the_newest_without_a_gap():
    for steps in (sqlite_rows.STEPS, postgres_rows.STEPS, inbox.STEPS):
        assert sorted(steps) == list(range(1, newest(steps)))
