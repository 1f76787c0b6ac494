"""Names go into their table some time after their events, and are found all the while."""

import sqlite3
from collections import defaultdict
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import KEY, snapshot

from vfbandits.campaign.events import Configured, Forgotten
from vfbandits.errors import JournalError
from vfbandits.journal.sqlite.journal import SqliteJournal
from vfbandits.journal.sqlite.names import FIND, FIND_UNAIDED, WaitingNames
from vfbandits.journal.sqlite.reader import SqliteReader

AT_ONCE = 8
deeds = st.lists(
    st.lists(st.none() | st.integers(0, 9), min_size=1, max_size=12)
    | st.sampled_from(["open", "kill"]),
    max_size=25,
)


def run(path, sql, *values):
    with closing(sqlite3.connect(path)) as db, db:
        return db.execute(sql, values).fetchall()


def places(found):
    return {key: [position for position, _ in events] for key, events in found.items()}


def event(key):
    return Configured(b"") if key is None else Forgotten(key)


@given(deeds=deeds, sealed=st.booleans())
@settings(deadline=None, max_examples=60)
def test_everything_is_found_by_writer_and_reader_whenever_it_was_opened(
    deeds, sealed, tmp_path_factory
):
    path = tmp_path_factory.mktemp("names") / "log.db"
    key = KEY if sealed else None
    journal = SqliteJournal(path, key=key, names_in_memory=AT_ONCE)
    wanted, last = defaultdict(list), 0
    expected = {number: [] for number in range(10)}
    for deed in deeds:
        if isinstance(deed, list):
            journal.append([event(number) for number in deed])
            for number in deed:
                last += 1
                wanted[number].append(last)
        else:
            journal.close()
            if deed == "kill":  # as if some names had gone into the table, and not all
                run(path, "DELETE FROM named WHERE position > (SELECT indexed_to FROM log) "
                          "AND position % 2")  # fmt: skip
            journal = SqliteJournal(path, key=key, names_in_memory=AT_ONCE)
        expected = {number: wanted.get(number, []) for number in range(10)}
        assert places(journal.find_many(range(10))) == expected
    with closing(SqliteReader(path, key=key)) as reader:
        assert places(reader.find_many(range(10))) == expected
        assert len(list(reader.read())) == last
    journal.close()


def test_what_waits_in_memory_does_not_grow_with_the_log(tmp_path):
    path = tmp_path / "log.db"
    journal = SqliteJournal(path, names_in_memory=50)
    for start in range(0, 2_000, 5):
        journal.append([Forgotten(n) for n in range(start, start + 5)])
        ((indexed_to,),) = run(path, "SELECT indexed_to FROM log")
        assert start + 5 - indexed_to <= 2 * 50 + 5
    assert places(journal.find_many([0, 1_000, 1_999])) == {0: [1], 1_000: [1_001], 1_999: [2_000]}
    journal.close()


def test_a_single_large_commit_does_not_stay_in_memory_for_ever(tmp_path):
    path = tmp_path / "log.db"
    journal = SqliteJournal(path, names_in_memory=50)
    journal.append([Forgotten(n) for n in range(1_000)])
    journal.append([Forgotten(n) for n in range(1_000)])
    assert run(path, "SELECT indexed_to FROM log") == [(1_000,)]
    assert places(journal.find_many([7])) == {7: [8, 1_008]}
    journal.close()


def test_names_are_written_in_their_order_a_few_with_each_commit():
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(
            "CREATE TABLE named (name, position, PRIMARY KEY (name, position)) WITHOUT ROWID;"
            "CREATE TABLE log (indexed_to); INSERT INTO log VALUES (0);"
        )
        waiting = WaitingNames([(30, 1), (-10, 2), (20, 3), (-10, 4)], in_memory=4)
        seen = []
        for _ in range(3):
            waiting.expect(1)
            waiting.write(db)
            waiting.committed([None], after=4)
            seen.append(db.execute("SELECT name FROM named").fetchall())
            assert waiting.positions([-10]) in ([2, 4], [])
        everything = [(-10,), (-10,), (20,), (30,)]
        assert seen == [everything[:2], everything, everything]
        assert db.execute("SELECT indexed_to FROM log").fetchall() == [(4,)]
        assert waiting.positions([-10, 20, 30]) == []


def test_what_a_failed_commit_would_have_written_is_still_found():
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript("CREATE TABLE named (name, position); CREATE TABLE log (indexed_to);")
        waiting = WaitingNames([(7, 1)], in_memory=1)
        waiting.expect(1)
        waiting.write(db)
        assert waiting.positions([7]) == [1]


def test_a_name_that_got_lost_from_the_table_is_noticed_when_the_record_is_read(tmp_path):
    path = tmp_path / "log.db"
    journal = SqliteJournal(path, names_in_memory=4)
    for n in range(12):
        journal.append([Forgotten(n)])
    assert run(path, "SELECT indexed_to >= 4 FROM log") == [(1,)]
    run(path, "DELETE FROM named WHERE position = 2")
    with pytest.raises(JournalError, match="record 2 of the journal must have the lookup hash"):
        list(journal.read())
    journal.close()


def test_the_table_shrinks_with_the_log(tmp_path):
    path = tmp_path / "log.db"
    journal = SqliteJournal(path, names_in_memory=4)
    for n in range(40):
        journal.append([Forgotten(n)])
    journal.save_snapshot(30, snapshot(30))
    journal.compact(30, keep=[3])
    assert run(path, "SELECT count(*) FROM named WHERE position <= 30") == [(1,)]
    found = places(journal.find_many(range(40)))
    assert found == {n: [n + 1] if n == 2 or n >= 30 else [] for n in range(40)}
    for n in range(40, 60):
        journal.append([Forgotten(n)])
    journal.close()
    journal = SqliteJournal(path, names_in_memory=4)
    assert [*places(journal.find_many(range(30, 60))).values()] == [[n + 1] for n in range(30, 60)]
    journal.close()


@pytest.mark.parametrize("sql", [FIND, FIND_UNAIDED])
def test_no_search_reads_the_whole_log(tmp_path, sql):
    path = tmp_path / "log.db"
    SqliteJournal(path).close()
    with closing(sqlite3.connect(path)) as db:
        values = ("[1, 2]", "[3]")[: 1 + (sql is FIND)]
        plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", values)]
    assert any(step.startswith("SEARCH named USING PRIMARY KEY (name=?)") for step in plan)
    assert not any(step.startswith(("SCAN event", "SCAN named")) for step in plan)
