"""Reading an SQLite log beside its writer, after its kill, and from a disk that is read-only."""

import os
import shutil
import signal
import subprocess
import sys

import fork_server
import pytest
from journals import EVENTS, KEY, numbers, snapshot

from vfbandits.errors import JournalError
from vfbandits.journal.base import Damage
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.sqlite.journal import SqliteJournal
from vfbandits.journal.sqlite.reader import SqliteReader

WRITER = """
import sys, time
from vfbandits.campaign.events import Forgotten
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.sqlite.journal import SqliteJournal
journal = SqliteJournal(sys.argv[1])
print(journal.append([Forgotten("a"), Forgotten("b")]), flush=True)
time.sleep(60)
"""


def contents(folder):
    """All files but SQLite's index of the write-ahead log, which every reader shares."""
    return {p.name: p.read_bytes() for p in folder.iterdir() if not p.name.endswith("-shm")}


def test_the_log_of_a_running_and_of_a_killed_writer_is_read_and_left_as_it_was(tmp_path):
    path = tmp_path / "log.db"
    process = fork_server.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "2\n"
        reader = SqliteReader(path)
        assert numbers(reader) == [1, 2]
        reader.close()
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    before = contents(tmp_path)
    reader = SqliteReader(path)
    assert (numbers(reader), reader.damage) == ([1, 2], Damage())
    reader.close()
    assert contents(tmp_path) == before
    journal = SqliteJournal(path)
    assert (numbers(journal), journal.damage) == ([1, 2], Damage())
    journal.close()


def test_a_log_that_is_at_rest_is_left_as_it_was(tmp_path):
    path = tmp_path / "log.db"
    journal = SqliteJournal(path)
    journal.append(EVENTS)
    journal.save_snapshot(5, snapshot(5))
    journal.close()
    before = contents(tmp_path)
    reader = SqliteReader(path)
    assert numbers(reader) == [1, 2, 3, 4, 5]
    assert reader.latest_snapshot()[0] == 5
    reader.close()
    after = contents(tmp_path)
    assert {name: after[name] for name in before} == before
    assert {name for name in after if name not in before and after[name]} == set()


@pytest.mark.parametrize("wrong", [None, JournalKey(bytes(32))])
def test_a_refused_key_leaves_every_file_as_it_was(tmp_path, wrong):
    path = tmp_path / "log.db"
    journal = SqliteJournal(path, key=KEY)
    journal.append(EVENTS)
    journal.save_snapshot(5, snapshot(5))
    journal.close()
    before = contents(tmp_path)
    for opener in (SqliteJournal, SqliteReader):
        with pytest.raises(JournalError, match="wanted"):
            opener(path, key=wrong)
    after = contents(tmp_path)
    assert {name: data for name, data in after.items() if data} == before


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "must be a journal, got an empty file"), (b"no database" * 99, "not a database")],
)
def test_what_is_no_log_is_refused_and_left_as_it_was(tmp_path, content, message):
    path = tmp_path / "log.db"
    path.write_bytes(content)
    with pytest.raises(JournalError, match=message):
        SqliteReader(path)
    assert contents(tmp_path) == {"log.db": content}


READ_ONLY = """
import subprocess, sys
from vfbandits.journal.sqlite.reader import SqliteReader
folder = sys.argv[1]
subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
reader = SqliteReader(folder + "/log.db")
print([position for position, _ in reader.read()])
"""


def test_a_copy_on_a_read_only_disk_can_be_read(tmp_path):
    saved, mounted = tmp_path / "saved", tmp_path / "mounted"
    saved.mkdir()
    mounted.mkdir()
    journal = SqliteJournal(saved / "log.db")
    journal.append(EVENTS)
    journal.close()
    unshare = shutil.which("unshare")
    probe = [unshare or "unshare", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "x"]
    if unshare is None or subprocess.run([*probe, mounted], check=False).returncode:
        pytest.skip("this machine lets no process mount a disk in a namespace of its own")
    script = 'mount -t tmpfs tmpfs "$0" && cp "$1"/* "$0" && exec "$2" -c "$3" "$0"'
    result = subprocess.run(
        [unshare, "--map-root-user", "--mount", "sh", "-c", script, mounted, saved,
         sys.executable, READ_ONLY],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.stdout == "[1, 2, 3, 4, 5]\n", result.stderr
