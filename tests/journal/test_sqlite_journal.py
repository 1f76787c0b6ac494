"""The journal on a real disk: locked, killed, full, read-only, damaged."""

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import fork_server
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import MORE

import vfbandits as vfb
from vfbandits.campaign.events import Decided, Forgotten
from vfbandits.errors import JournalError, JournalLossError
from vfbandits.journal.base import Damage
from vfbandits.journal.record import encode
from vfbandits.journal.sqlite.journal import SqliteJournal
from vfbandits.journal.sqlite.rows import APPLICATION
from vfbandits.journal.witness import Witness

FULL_DISK = Path(__file__).with_name("full_disk_child.py")

HOLDER = """
import sys, time
from vfbandits.campaign.events import Forgotten
from vfbandits.journal.sqlite.journal import SqliteJournal
journal = SqliteJournal(sys.argv[1])
print(journal.append([Forgotten("a"), Forgotten("b")]), flush=True)
time.sleep(60)
"""


def decided(numbers):
    return [Decided(n, "tea", 0, np.full(60, float(n))) for n in numbers]


def edit(path, sql):
    """What a person with the sqlite3 command could do."""
    with closing(sqlite3.connect(path)) as db, db:
        return db.execute(sql).fetchall()


def newer(path):
    SqliteJournal(path).close()
    edit(path, "PRAGMA user_version = 2")


def older(path):
    edit(path, "CREATE TABLE event (position INTEGER PRIMARY KEY, record BLOB NOT NULL) STRICT")
    edit(path, f"PRAGMA application_id = {APPLICATION}")
    edit(path, "PRAGMA user_version = 0")


def read_ids(journal):
    return [event.event_id for _, event in journal.read()]


def test_another_process_is_refused_until_the_writer_is_gone_even_by_a_kill(tmp_path):
    path = tmp_path / "log.db"
    process = fork_server.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "2\n"
        with pytest.raises(JournalError, match=r"one writer, got a second: .*log\.db\.lock"):
            SqliteJournal(path)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    journal = SqliteJournal(path)
    assert (read_ids(journal), journal.damage) == (["a", "b"], Damage())
    journal.close()


COMMITS = """
import sys
from vfbandits.campaign.events import Forgotten
from vfbandits.journal.sqlite.journal import SqliteJournal
journal = SqliteJournal(sys.argv[1])
print("ready", file=sys.stderr, flush=True)
for number in range(20):
    journal.append([Forgotten(number), Forgotten(-number)])
print("done", file=sys.stderr, flush=True)
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="only strace shows what is synced")
def test_every_commit_is_synced_to_the_disk_once(tmp_path):
    watch = ["strace", "-f", "-e", "trace=fsync,fdatasync", "-e", "signal=none"]
    result = subprocess.run(
        [*watch, sys.executable, "-c", COMMITS, str(tmp_path / "log.db")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "ready" not in result.stderr:
        pytest.skip(f"strace may not watch here: {result.stderr[-200:]}")
    between = result.stderr.split("ready", 1)[1].split("done", 1)[0]
    assert between.count("sync(") == 20


def test_all_files_are_for_their_owner_only(tmp_path):
    journal = SqliteJournal(tmp_path / "log.db")
    journal.append(decided(range(3)))
    journal.save_snapshot(3, vfb.Bandit(vfb.LinUCB(), dim=2).snapshot())
    names = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    journal.close()
    assert set(names) >= {"log.db", "log.db-wal", "log.db.lock"}
    assert any("snapshot" in name for name in names)
    assert set(names.values()) == {0o600}


def test_a_snapshot_file_can_be_loaded_on_its_own(tmp_path):
    bandit = vfb.Bandit(vfb.LinUCB(), dim=2)
    bandit.reward(bandit.decide(np.eye(2)), 1.0)
    journal = SqliteJournal(tmp_path / "log.db")
    journal.save_snapshot(0, bandit.snapshot())
    journal.close()
    (path,) = tmp_path.glob("*.snapshot-*")
    assert (vfb.load(path).states[None].Lambda == bandit.states[None].Lambda).all()


def test_half_written_snapshots_of_a_killed_writer_are_cleared_away(tmp_path):
    part = tmp_path / ".log.db.snapshot-00000000000000000007.4242.part"
    part.write_bytes(b"half")
    journal = SqliteJournal(tmp_path / "log.db")
    assert not part.exists()
    assert journal.latest_snapshot() is None
    journal.close()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_bytes(b"not a database" * 100), "not a database"),
        (lambda path: edit(path, "CREATE TABLE t (a)"), "got a database with 0x0"),
        (newer, "tables of version 1, got 2: it was written by a newer"),
        (older, r"tables of version 1, got 0$"),
        (lambda path: path.mkdir(), "cannot be opened"),
    ],
)
def test_a_file_that_is_no_log_of_this_version_is_refused_and_left_alone(tmp_path, make, message):
    path = tmp_path / "log.db"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    for _ in range(2):  # the refusal gives the lock back
        with pytest.raises(JournalError, match=message):
            SqliteJournal(path)
    assert before is None or path.read_bytes() == before


def test_a_folder_that_is_not_there_is_a_journal_error(tmp_path):
    with pytest.raises(JournalError, match=r"cannot be opened: .*No such file"):
        SqliteJournal(tmp_path / "nowhere" / "log.db")


def test_a_record_that_is_missing_in_the_middle_is_named(tmp_path):
    journal = SqliteJournal(tmp_path / "log.db")
    journal.append(decided(range(6)))
    edit(tmp_path / "log.db", "DELETE FROM event WHERE position = 4")
    with pytest.raises(JournalError, match="record 4 of the journal is missing, the next is 5"):
        read_ids(journal)
    journal.close()


def test_records_that_vanish_from_the_end_are_counted(tmp_path, caplog):
    path = tmp_path / "log.db"
    journal = SqliteJournal(path)
    journal.append(decided(range(6)))
    journal.save_snapshot(6, vfb.Bandit(vfb.LinUCB(), dim=2).snapshot())
    journal.close()
    edit(path, "DELETE FROM event WHERE position > 4")
    with pytest.raises(JournalLossError, match="acknowledged up to 6, got an end at 4"):
        SqliteJournal(path)
    journal = SqliteJournal(path, accept_loss="ops")
    assert journal.damage == Damage(records=2, snapshots=1)
    assert "2 records lost at the end, journal ends at 4" in caplog.text
    assert len(list(tmp_path.glob("*.lost"))) == 1
    assert journal.append(decided([7])) == 6
    journal.close()


def test_damaged_records_are_kept_for_a_person_to_look_at(tmp_path):
    path = tmp_path / "log.db"
    journal = SqliteJournal(path)
    journal.append(decided(range(3)))
    journal.close()
    edit(path, "UPDATE event SET record = x'0102' WHERE position = 3")
    SqliteJournal(path, accept_loss="ops").close()
    assert edit(path, "SELECT position, record FROM damaged") == [(3, b"\x01\x02")]


@pytest.mark.parametrize("loss", ["file gone", "file empty", "all records damaged"])
def test_a_log_that_lost_everything_is_refused(tmp_path, loss):
    path = tmp_path / "log.db"
    journal = SqliteJournal(path)
    journal.append(decided(range(3)))
    journal.close()
    if loss == "all records damaged":
        edit(path, "UPDATE event SET record = x'00'")
    elif loss == "file gone":
        path.unlink()
    elif loss == "file empty":
        path.write_bytes(b"")
    with pytest.raises(JournalError, match="held 3 records, got an empty one; restore it"):
        SqliteJournal(path)


def test_a_damaged_note_is_logged_and_no_reason_to_refuse(tmp_path, caplog):
    path = tmp_path / "log.db"
    journal = SqliteJournal(path)
    journal.append(decided(range(3)))
    journal.close()
    for harm in (b"garbage", b"garbage garb"):
        (tmp_path / "log.db.lock").write_bytes(harm)
        journal = SqliteJournal(path)
        assert journal.last_position == 3
        journal.close()
        assert "log.db.lock is damaged" in caplog.text
        caplog.clear()
    witness = Witness(tmp_path / "log.db.lock")
    assert witness.head.position == 3
    witness.close()
    witness.close()


COMMITTED = 40


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """Files as a kill leaves them: half of the events in the database, half in its WAL."""
    folder = tmp_path_factory.mktemp("crashed")
    path = folder / "log.db"
    journal = SqliteJournal(path, names_in_memory=8)
    for start in range(0, COMMITTED // 2, 4):
        journal.append(decided(range(start, start + 4)))
    journal.close()
    journal = SqliteJournal(path, names_in_memory=8)
    for start in range(COMMITTED // 2, COMMITTED, 4):
        journal.append(decided(range(start, start + 4)))
    saved = {p.name: p.read_bytes() for p in folder.iterdir() if not p.name.endswith("-shm")}
    journal.close()
    assert set(saved) == {"log.db", "log.db-wal", "log.db.lock"}
    return saved


def put_back(folder, files):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder / "log.db"


def test_a_killed_writer_loses_nothing(crashed, tmp_path):
    journal = SqliteJournal(put_back(tmp_path / "again", crashed))
    assert (read_ids(journal), journal.damage) == (list(range(COMMITTED)), Damage())
    journal.close()


@given(
    name=st.sampled_from(["log.db", "log.db-wal", "log.db.lock"]),
    deed=st.sampled_from(["flip", "zero", "noise", "cut", "remove"]),
    place=st.floats(0.0, 1.0, exclude_max=True),
    size=st.sampled_from([1, 2, 16, 512, 4096]),
    bits=st.integers(1, 255),
)
@settings(deadline=None, max_examples=400 * MORE)
def test_damage_anywhere_is_refused_and_what_is_lost_must_be_accepted(
    crashed, tmp_path_factory, name, deed, place, size, bits
):
    """After it the log is the same, or refused, or ends earlier, says so, and must be accepted."""
    files = dict(crashed)
    data, start = bytearray(files[name]), int(place * len(files[name]))
    part = slice(start, min(start + size, len(data)))
    if deed == "flip":
        data[start] ^= bits
    elif deed == "zero":
        data[part] = bytes(part.stop - part.start)
    elif deed == "noise":
        data[part] = np.random.default_rng(bits).bytes(part.stop - part.start)
    elif deed == "cut":
        del data[start:]
    files[name] = bytes(data)
    if deed == "remove":
        del files[name]
    path = put_back(tmp_path_factory.getbasetemp() / "damaged", files)
    try:
        journal = SqliteJournal(path)
    except JournalLossError:
        journal = SqliteJournal(path, accept_loss="ops")
    except JournalError:
        return
    lost = journal.damage.records
    try:
        found = [encode(event) for _, event in journal.read() if isinstance(event, Decided)]
        by_id = journal.find_many(range(COMMITTED))
    except JournalError:
        return
    finally:
        journal.close()
    assert found == [encode(event) for event in decided(range(len(found)))]
    assert [len(events) for events in by_id.values()] == [n < len(found) for n in by_id]
    assert lost == COMMITTED - len(found)


def run_full_disk(command):
    result = fork_server.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return [int(number) for number in result.stdout.split()]


def assert_nothing_acknowledged_was_lost(acknowledged, found, batch):
    assert acknowledged > 2 * batch
    assert found in (acknowledged, acknowledged + batch)


def test_when_a_file_cannot_grow_nothing_is_acknowledged_and_nothing_lost(tmp_path):
    numbers = run_full_disk([sys.executable, str(FULL_DISK), str(tmp_path), "limit"])
    assert_nothing_acknowledged_was_lost(*numbers)


def in_a_mount(tmp_path, options, rest):
    """A command line that runs ``rest`` where ``tmp_path`` is a small disk of its own."""
    unshare = shutil.which("unshare")
    probe = [unshare or "unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "x"]
    if unshare is None or subprocess.run([*probe, tmp_path], check=False).returncode:
        pytest.skip("this machine lets no process mount a disk in a namespace of its own")
    script = f'mount -t tmpfs -o {options} tmpfs "$0" && exec "$@"'
    return [unshare, "--map-root-user", "--mount", "sh", "-c", script, str(tmp_path), *rest]


def test_on_a_full_disk_nothing_is_acknowledged_and_nothing_lost(tmp_path):
    rest = [sys.executable, str(FULL_DISK), str(tmp_path), "mount"]
    assert_nothing_acknowledged_was_lost(*run_full_disk(in_a_mount(tmp_path, "size=600k", rest)))


TURNED_READ_ONLY = """
import subprocess, sys
from vfbandits.errors import JournalError, JournalLossError
from vfbandits.campaign.events import Forgotten
from vfbandits.journal.sqlite.journal import SqliteJournal
folder = sys.argv[1]
path = folder + "/log.db"
journal = SqliteJournal(path)
journal.append([Forgotten("a")])
journal.close()
subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
try:
    SqliteJournal(path)
except JournalError as error:
    print(error)
"""


def test_a_read_only_disk_is_refused_with_the_reason(tmp_path):
    rest = [sys.executable, "-c", TURNED_READ_ONLY, str(tmp_path)]
    result = subprocess.run(
        in_a_mount(tmp_path, "size=4m", rest), capture_output=True, text=True, check=False
    )
    assert "log.db cannot be opened: " in result.stdout, result.stderr
    assert "Read-only file system" in result.stdout


def test_a_failed_snapshot_leaves_the_log_usable(tmp_path):
    journal = SqliteJournal(tmp_path / "log.db")
    journal.append(decided(range(3)))
    blocker = tmp_path / "log.db.snapshot-00000000000000000003"
    blocker.mkdir()
    with pytest.raises(JournalError, match="cannot be given a snapshot"):
        journal.save_snapshot(3, vfb.Bandit(vfb.LinUCB(), dim=2).snapshot())
    assert journal.append([Forgotten(0)]) == 4
    journal.close()
    assert not list(tmp_path.glob("*.part"))
