"""A pad covers one message, whatever process opens the outbox, and whatever it has forgotten."""

import json
import sqlite3
import subprocess
import sys
from contextlib import closing

import fork_server
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import MORE

from vfbandits.core.pads import Stamp
from vfbandits.errors import ConfigError, JournalError
from vfbandits.participant import outbox as module
from vfbandits.participant.outbox import MAX_KEPT, RESERVE, Outbox

BOTH = ("bank", "news")

OTHER_PROCESS = """
import json, sys
from pathlib import Path
from vfbandits.core.pads import Stamp

from vfbandits.participant.outbox import Outbox
outbox = Outbox(Path(sys.argv[1]))
print(json.dumps(outbox.next_round), flush=True)
for line in sys.stdin:
    number, attempt = json.loads(line)
    try:
        outbox.keep(Stamp(1, number, attempt), ("bank", "news"), b"theirs", asked=b"")
        print(json.dumps("kept"), flush=True)
    except Exception as error:
        print(json.dumps(f"{type(error).__name__}: {error}"), flush=True)
"""


class OtherProcess:
    """Another process that has the same outbox open, as a second server without a lock would."""

    def __init__(self, path):
        self._process = fork_server.Popen(
            [sys.executable, "-c", OTHER_PROCESS, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.next_round = self._read()

    def _read(self):
        return json.loads(self._process.stdout.readline())

    def keep(self, number, attempt=0):
        self._process.stdin.write(json.dumps([number, attempt]) + "\n")
        self._process.stdin.flush()
        return self._read()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with self._process:
            self._process.stdin.close()
            self._process.wait(60.0)


def keep(outbox, number, attempt=0, message=b"ours"):
    outbox.keep(Stamp(1, number, attempt), BOTH, message, asked=b"digest")


def reserved_in(path):
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT round FROM reservation").fetchone()[0]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "outbox.db"


def test_two_processes_never_send_two_messages_under_one_stamp(path):
    outbox = Outbox(path)
    keep(outbox, 1)
    with OtherProcess(path) as other:
        assert other.next_round == 1 + RESERVE + 1
        assert other.keep(5_000) == "kept"
        assert "was sent already" in other.keep(5_000)
        for number in (2, 1_500, 5_000):
            with pytest.raises(JournalError, match="was sent already"):
                keep(outbox, number)
        keep(outbox, 5_001)
        assert "was sent already" in other.keep(5_001)
        keep(outbox, 5_001, attempt=1)
        # The first reserved 2,500 for itself in between, and no less was reserved by it.
        assert reserved_in(path) >= 5_000 + RESERVE
    outbox.close()
    outbox = Outbox(path)
    assert outbox.next_round > 5_000 + RESERVE
    outbox.close()


def test_a_reservation_never_decreases_whoever_writes(path):
    outbox = Outbox(path)
    keep(outbox, 7_000)
    outbox.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in (
            "UPDATE reservation SET round = 1",
            "UPDATE reservation SET id = 2",
            "DELETE FROM reservation",
            "INSERT INTO reservation VALUES (1, 5)",
            "INSERT INTO reservation VALUES (2, 5)",
            "INSERT OR REPLACE INTO reservation VALUES (1, 5)",
            "UPDATE last SET round = 1",
            "UPDATE last SET attempt = -1",
            "DELETE FROM last",
            "INSERT OR REPLACE INTO last VALUES (1, 0, 0)",
            "UPDATE sent SET message = x'00'",
            "INSERT INTO sent VALUES (9, 1, 7000, 0, '', '', '')",
            "INSERT INTO sent VALUES (9, 1, 6999, 5, '', x'', x'')",
            "INSERT INTO sent VALUES (9, 1, 8001, 0, '', x'', x'')",
        ):
            with pytest.raises(sqlite3.IntegrityError):
                db.execute(statement)
    assert reserved_in(path) == 7_000 + RESERVE


def test_what_was_forgotten_is_never_sent_again(path):
    outbox = Outbox(path)
    for number in range(1, 3 * MAX_KEPT):
        keep(outbox, number)
    assert outbox.find(Stamp(1, 1)) is None
    for number in (1, 2, MAX_KEPT):
        with pytest.raises(JournalError, match="was sent already"):
            keep(outbox, number)
    outbox.close()
    again = Outbox(path)
    with pytest.raises(JournalError, match="count as used"):
        keep(again, 3 * MAX_KEPT)
    keep(again, again.next_round)
    again.close()


def test_the_newest_messages_are_kept(path):
    outbox = Outbox(path)
    for number in range(1, 1_500):
        keep(outbox, number, message=b"%d" % number)
        oldest = max(1, number - MAX_KEPT + 1)
        for kept in (oldest, number):
            assert outbox.find(Stamp(1, kept)).message == b"%d" % kept
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM sent").fetchone()[0] <= 2 * MAX_KEPT
    outbox.close()


@given(sizes=st.lists(st.integers(0, 400), min_size=1, max_size=40))
@settings(max_examples=30 * MORE, deadline=None)
def test_large_messages_push_out_only_as_many_as_do_not_fit(tmp_path_factory, sizes):
    """Before, a single byte too many left four of them."""
    path = tmp_path_factory.mktemp("outbox") / "outbox.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_KEPT_BYTES", 1_000)
        outbox = Outbox(path)
        for number, size in enumerate(sizes, start=1):
            keep(outbox, number, message=bytes(size))
            total = 0
            for back in range(number, 0, -1):
                total += sizes[back - 1]
                if total > 1_000:
                    break
                assert outbox.find(Stamp(1, back)) is not None
        outbox.close()


def test_the_largest_round_can_be_kept(path):
    outbox = Outbox(path)
    keep(outbox, (1 << 63) - 1)
    assert reserved_in(path) == (1 << 63) - 1
    outbox.close()


def test_an_outbox_of_an_older_version_is_brought_to_the_newest_and_keeps_all(path, monkeypatch):
    outbox = Outbox(path)
    keep(outbox, 7)
    outbox.close()
    monkeypatch.setattr(module, "VERSION", 3)
    steps = {
        1: "ALTER TABLE reservation ADD COLUMN note TEXT;",
        2: "ALTER TABLE reservation ADD COLUMN at REAL;",
    }
    monkeypatch.setattr(module, "UPCASTERS", steps)
    for _ in range(2):
        outbox = Outbox(path)
        assert outbox.next_round == 8 + RESERVE
        assert outbox.find(Stamp(1, 7)) is not None
        outbox.close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (3,)
        assert db.execute("SELECT note, at FROM reservation").fetchall() == [(None, None)]


def test_an_outbox_whose_upgrade_fails_is_left_as_it_was(path, monkeypatch):
    Outbox(path).close()
    monkeypatch.setattr(module, "VERSION", 2)
    wrong = "ALTER TABLE reservation ADD COLUMN note TEXT; DROP TABLE nowhere;"
    monkeypatch.setattr(module, "UPCASTERS", {1: wrong})
    with pytest.raises(JournalError, match="cannot be opened: no such table: nowhere"):
        Outbox(path)
    monkeypatch.undo()
    Outbox(path).close()


def test_an_outbox_without_a_version_is_refused_and_its_reservation_stays(path):
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            "CREATE TABLE sent (round INTEGER); CREATE TABLE reserved (round INTEGER);"
            "INSERT INTO reserved VALUES (1234);"
        )
    with pytest.raises(JournalError, match="cannot be opened: table sent already exists"):
        Outbox(path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT round FROM reserved").fetchall() == [(1234,)]


def test_an_outbox_of_a_later_version_is_refused(path):
    Outbox(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(
        JournalError, match="it must have version 1, got 99: it was written by a newer"
    ):
        Outbox(path)


def test_an_old_copy_is_noticed(path):
    noted = []
    outbox = Outbox(path, on_reserve=noted.append)
    keep(outbox, 1)
    outbox.close()
    assert noted == [1 + RESERVE]
    Outbox(path, noted=noted[-1]).close()
    with pytest.raises(ConfigError, match=f"must have all rounds up to {2 + RESERVE}"):
        Outbox(path, noted=noted[-1] + 1)
