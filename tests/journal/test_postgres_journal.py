"""The journal in a real PostgreSQL: one leader, taken over; cut off, frozen, full, restarted."""

import os
import signal
import subprocess
import sys
import threading
import time

import fork_server
import numpy as np
import psycopg
import pytest
import servers
from journals import EVENTS, OnPostgres, numbers, query, same, snapshot

from vfbandits.campaign.events import Decided, Forgotten, MasksChanged
from vfbandits.core.snapshot import Snapshot
from vfbandits.errors import JournalError, JournalLossError
from vfbandits.journal.base import Damage
from vfbandits.journal.inbox.postgres import PostgresInbox
from vfbandits.journal.postgres.journal import PostgresJournal
from vfbandits.journal.postgres.reader import PostgresReader
from vfbandits.journal.postgres.rows import FIND

MANY = 200  # more than go into one statement


@pytest.fixture
def place(tmp_path):
    return OnPostgres(tmp_path)


def decided(numbers):
    return [Decided(n, "tea", 0, np.full(60, float(n))) for n in numbers]


HOLDER = """
import os, sys, time
from vfbandits.campaign.events import Forgotten
from vfbandits.journal.open import open_journal
journal = open_journal("env:LOG", name=sys.argv[1])
print(journal.append([Forgotten("a"), Forgotten("b")]), flush=True)
time.sleep(60)
"""


def test_another_process_is_refused_until_the_writer_is_gone_even_by_a_kill(place):
    process = fork_server.Popen(
        [sys.executable, "-c", HOLDER, place.name],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "LOG": place.url},
    )
    try:
        assert process.stdout.readline() == "2\n"
        with pytest.raises(JournalError, match=f"one writer, got a second: '{place.name}' at 127"):
            place.open(wait_s=0.0)
        reader = place.reader()
        assert numbers(reader) == [1, 2]
        reader.close()
        opened = []
        standby = threading.Thread(target=lambda: opened.append(place.open(wait_s=30.0)))
        standby.start()
        time.sleep(0.2)
        assert opened == []
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    standby.join()
    assert (numbers(opened[0]), opened[0].damage) == ([1, 2], Damage())
    assert opened[0].append([Forgotten("c")]) == 3
    opened[0].close()


@pytest.mark.parametrize("count", [1, MANY])
def test_a_writer_that_lost_its_connection_never_writes_again(place, count):
    first = place.open()
    first.append(EVENTS)
    place.cut_off()
    second = place.open()
    assert second.last_position == 5
    second.append(EVENTS[:1])
    with pytest.raises(JournalError, match="cannot be written: "):
        first.append(decided(range(count)))
    with pytest.raises(JournalError, match="has failed before; close it and open it again"):
        first.append(decided(range(count)))
    first.close()
    assert numbers(second) == [1, 2, 3, 4, 5, 6]
    assert second.append(EVENTS[:1]) == 7
    second.close()


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize(
    "deed", ["term = term + 1", "last_position = last_position + 1", "last_position = 2"]
)
def test_should_another_write_all_the_same_the_first_is_refused_in_its_transaction(
    place, count, deed
):
    """As when a pooler had broken the lock."""
    journal = place.open()
    journal.append(EVENTS)
    query(f"UPDATE vfb_journal SET {deed} WHERE id = %s", place.id)  # noqa: S608
    with pytest.raises(
        JournalError, match="which is no longer this process: another one took over"
    ):
        journal.append(decided(range(count)))
    assert len(place.records()) == 5
    journal.close()


def test_nor_does_it_save_a_snapshot_or_compact(place):
    journal = place.open()
    journal.append(EVENTS)
    journal.save_snapshot(3, snapshot(3))
    query("UPDATE vfb_journal SET term = term + 1 WHERE id = %s", place.id)
    for use in (
        lambda: journal.save_snapshot(4, snapshot(4)),
        lambda: journal.compact(3, keep=[]),
    ):
        with pytest.raises(JournalError, match="another one took over"):
            use()
    assert len(place.records()) == 5
    assert journal.snapshot_positions() == [3]
    journal.close()


def test_records_behind_the_acknowledged_end_are_not_believed(place):
    journal = place.open()
    journal.append(EVENTS)
    journal.close()
    sql = (
        "INSERT INTO vfb_event (journal, position, record) "
        "SELECT journal, 6, record FROM vfb_event WHERE journal = %s LIMIT 1"
    )
    query(sql, place.id)
    with pytest.raises(JournalError, match="must end at 5, got 6: another process wrote to it"):
        place.open()


def test_records_that_vanish_from_the_end_are_counted_and_snapshots_of_them_set_aside(place):
    journal = place.open()
    journal.append(EVENTS)
    journal.save_snapshot(5, snapshot(5))
    journal.close()
    place.remove_record(5)
    with pytest.raises(JournalLossError, match="acknowledged up to 5, got an end at 4"):
        place.open()
    assert place.get_snapshot(5)
    journal = place.open(accept_loss="ops")
    assert journal.damage == Damage(records=1, snapshots=1)
    assert journal.latest_snapshot() is None
    journal.close()
    sql = "SELECT position FROM vfb_lost_snapshot WHERE journal = %s"
    assert query(sql, place.id) == [(5,)]
    again = place.open()
    assert (again.damage, again.append(EVENTS[:1])) == (Damage(), 6)
    again.close()


def test_a_log_that_lost_everything_is_refused(place):
    journal = place.open()
    journal.append(EVENTS)
    journal.close()
    query("DELETE FROM vfb_event WHERE journal = %s", place.id)
    for _ in range(2):
        with pytest.raises(JournalError, match="held 5 records, got an empty one; restore it"):
            place.open()


def test_damaged_records_are_kept_for_a_person_to_look_at(place):
    journal = place.open()
    journal.append(EVENTS)
    journal.close()
    place.put_record(5, b"torn")
    place.open(accept_loss="ops").close()
    found = query("SELECT position, record FROM vfb_damaged WHERE journal = %s", place.id)
    assert found == [(5, b"torn")]


def test_a_few_large_events_are_written_as_well_as_many_small_ones(place):
    journal = place.open()
    matrix = np.random.default_rng(0).standard_normal((400, 400))
    assert journal.append([MasksChanged(1, matrix), *EVENTS]) == 6
    assert journal.append(EVENTS) == 11
    ((_, event), *_) = journal.read()
    assert event.matrix.tobytes() == matrix.tobytes()
    journal.close()


def test_logs_of_one_database_do_not_meet(place, tmp_path):
    other = OnPostgres(tmp_path)
    one, two = place.open(), other.open()
    one.append(EVENTS)
    two.append(EVENTS[:2])
    one.save_snapshot(5, snapshot(5))
    assert (numbers(one), numbers(two)) == ([1, 2, 3, 4, 5], [1, 2])
    assert two.latest_snapshot() is None
    two.close()
    again = other.open()
    assert (again.last_position, again.damage) == (2, Damage())
    again.close()
    one.close()


@pytest.mark.parametrize("count", [1, MANY])
@pytest.mark.parametrize("moment", ["IMMEDIATE", "DEFERRED"])
def test_when_the_disk_is_full_nothing_is_acknowledged_and_nothing_lost(place, count, moment):
    """The server's own error, at the write or as late as the commit."""
    journal = place.open()
    journal.append(EVENTS)
    name = f"full_{place.id}_{moment.lower()}"
    query(
        f"""CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';
        END $$;
        CREATE CONSTRAINT TRIGGER {name} AFTER INSERT ON vfb_event
        DEFERRABLE INITIALLY {moment} FOR EACH ROW WHEN (NEW.journal = {place.id})
        EXECUTE FUNCTION {name}()"""
    )
    try:
        with pytest.raises(JournalError, match=r"cannot be written: .*No space left on device"):
            journal.append(decided(range(count)))
        with pytest.raises(JournalError, match="has failed before"):
            journal.append(EVENTS)
    finally:
        query(f"DROP TRIGGER {name} ON vfb_event; DROP FUNCTION {name}()")
    journal.close()
    journal = place.open()
    assert (numbers(journal), journal.damage) == ([1, 2, 3, 4, 5], Damage())
    assert journal.append(decided(range(count))) == 5 + count
    journal.close()


def test_a_failed_snapshot_leaves_the_log_usable_and_the_next_one_works(place):
    journal = place.open()
    journal.append(EVENTS)
    mine = query("SELECT pid FROM pg_stat_activity WHERE application_name = 'vfbandits'")
    for (pid,) in mine:
        if [pid] != place.writers():
            query("SELECT pg_terminate_backend(%s)", pid)
    with pytest.raises(JournalError, match="cannot be given a snapshot"):
        journal.save_snapshot(3, snapshot(3))
    assert journal.append(EVENTS[:1]) == 6
    journal.save_snapshot(3, snapshot(3))
    assert journal.latest_snapshot()[0] == 3
    journal.close()


def test_a_server_that_is_frozen_is_given_up_in_time(place):
    journal = place.open(timeout_s=0.5)
    reader = place.reader(timeout_s=0.5)
    journal.append(EVENTS)
    servers.postgres().freeze()
    try:
        start = time.monotonic()
        with pytest.raises(JournalError, match="did not answer in time"):
            journal.append(EVENTS)
        with pytest.raises(JournalError, match="did not answer in time"):
            numbers(reader)
        assert time.monotonic() - start < 20.0
    finally:
        servers.postgres().thaw()
    journal.close()
    again = place.open(wait_s=10.0)
    assert again.last_position in (5, 10)  # the frozen server may have had it
    assert numbers(reader) == numbers(again)
    reader.close()
    again.close()


def test_after_a_crash_of_the_server_nothing_acknowledged_is_lost_and_readers_find_back(place):
    journal, reader = place.open(), place.reader()
    journal.append(EVENTS)
    journal.append(decided(range(MANY)))
    journal.save_snapshot(5, snapshot(5))
    servers.postgres().kill()
    try:
        with pytest.raises(JournalError, match="cannot be written"):
            journal.append(EVENTS)
        # Of a server that dies at this moment the connection may be closed instead.
        with pytest.raises(JournalError, match=r"cannot be opened: .*(refused|closed)"):
            place.open()
        with pytest.raises(JournalError, match="cannot be read"):
            numbers(reader)
    finally:
        servers.postgres().start()
    with pytest.raises(JournalError, match="has failed before"):
        journal.append(EVENTS)
    journal.close()
    again = place.open()
    assert (again.last_position, again.damage) == (5 + MANY, Damage())
    assert same([event for _, event in again.read(after=5)], decided(range(MANY)))
    assert again.append(EVENTS) == 10 + MANY
    assert len(numbers(reader)) == 10 + MANY
    assert reader.latest_snapshot()[0] == 5
    reader.close()
    again.close()


def test_a_large_snapshot_is_kept_in_parts(place):
    large = Snapshot(
        {"kind": "example"}, {"b": np.random.default_rng(0).standard_normal(1_200_000)}
    )
    journal = place.open()
    journal.append(EVENTS)
    journal.save_snapshot(5, large)
    sql = "SELECT count(*) FROM vfb_snapshot WHERE journal = %s"
    assert query(sql, place.id) == [(2,)]
    assert journal.latest_snapshot()[1].arrays["b"].tobytes() == large.arrays["b"].tobytes()
    journal.save_snapshot(5, snapshot(5))
    assert query(sql, place.id) == [(1,)]
    journal.close()


def test_several_processes_may_make_the_tables_at_once_in_a_schema_of_their_own(place):
    query(f"CREATE SCHEMA schema_{place.name[4:]}")
    url = f"{place.url}?options=-csearch_path%3Dschema_{place.name[4:]}"
    opened, errors = [], []

    def open_one(name):
        try:
            opened.append(PostgresJournal(url, name=name))
        except JournalError as error:
            errors.append(error)

    threads = [threading.Thread(target=open_one, args=(f"log-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    for journal in opened:
        journal.append(EVENTS)
        journal.close()
    with pytest.raises(JournalError, match="has none of this name"):
        PostgresReader(place.url, name="log-0")
    reader = PostgresReader(url, name="log-0")
    assert len(numbers(reader)) == 5
    reader.close()


def test_tables_of_another_version_are_refused_and_no_log_is_made_in_them(place):
    schema = f"schema_{place.name[4:]}"
    query(f"CREATE SCHEMA {schema}")
    url = f"{place.url}?options=-csearch_path%3D{schema}"
    PostgresJournal(url, name="first").close()
    PostgresInbox(url, name="first").close()
    for change, message in (
        ("UPDATE vfb_version SET version = 2", "got 2: it was written by a newer"),
        ("UPDATE vfb_version SET version = 0", "got 0$"),
        ("DELETE FROM vfb_version", "got 0$"),
        ("DROP TABLE vfb_version", "got 0$"),
    ):
        query(change.replace("vfb_version", f"{schema}.vfb_version"))
        for open_it in (PostgresJournal, PostgresReader, PostgresInbox):
            for name in ("first", "second"):
                with pytest.raises(JournalError, match=f"tables of version 1, {message}"):
                    open_it(url, name=name)
    assert query(f"SELECT name FROM {schema}.vfb_journal") == [("first",)]  # noqa: S608


def test_an_inbox_of_another_version_is_refused(place):
    schema = f"schema_{place.name[4:]}"
    query(f"CREATE SCHEMA {schema}")
    url = f"{place.url}?options=-csearch_path%3D{schema}"
    PostgresJournal(url, name="first").close()
    PostgresInbox(url, name="first").close()
    query(f"UPDATE {schema}.vfb_version SET version = 2 WHERE tables = 'inbox'")  # noqa: S608
    with pytest.raises(JournalError, match=r"\(its inbox\) must have tables of version 1, got 2"):
        PostgresInbox(url, name="first")
    PostgresJournal(url, name="first").close()


def test_commits_wait_for_the_disk_even_where_the_server_would_not(place, caplog):
    journal = PostgresJournal(f"{place.url}?options=-csynchronous_commit%3Doff", name=place.name)
    assert "runs without fsync" in caplog.text  # as the server of these tests does
    name = f"spy_{place.id}"
    query(
        f"""CREATE TABLE {name} (mode text);
        CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO {name} VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
        CREATE TRIGGER {name} AFTER INSERT ON vfb_event FOR EACH STATEMENT
        EXECUTE FUNCTION {name}()"""  # noqa: S608
    )
    journal.append(EVENTS)
    journal.append(decided(range(MANY)))
    journal.close()
    query(f"DROP TRIGGER {name} ON vfb_event; DROP FUNCTION {name}()")
    assert query(f"SELECT mode FROM {name}") == [("on",), ("on",)]  # noqa: S608


def test_events_are_found_by_the_index_even_before_the_server_knows_the_table(place):
    schema = f"schema_{place.name[4:]}"
    query(f"CREATE SCHEMA {schema}")
    url = f"{place.url}?options=-csearch_path%3D{schema}"
    journal = PostgresJournal(url)
    query(f"ALTER TABLE {schema}.vfb_event SET (autovacuum_enabled = off)")
    journal.append([Forgotten(n) for n in range(20_000)])
    journal.close()
    with psycopg.connect(url) as connection:
        cursor = connection.execute(f"EXPLAIN {FIND}", (list(range(300)), 1))
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "Seq Scan" not in plan
    assert "vfb_event_name" in plan
