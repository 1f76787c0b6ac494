"""The record of what was answered: nothing is lost or changed unseen, all can be erased."""

import errno
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import fork_server
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import MORE

from vfbandits.errors import AccessRecordError
from vfbandits.participant.access.chain import (
    START,
    Content,
    entries_in,
    files_in,
    forget,
    verify,
)
from vfbandits.participant.access.record import (
    DAY_S,
    HEAD_FILE,
    KEY_FILE,
    OVERDUE_S,
    AccessRecord,
)

CONTENTS = st.builds(
    Content,
    st.floats(0.0, 2e9).map(lambda at: round(at, 3)),
    st.text("0123456789abcdef", min_size=32, max_size=32),
    st.integers(0, 2**48),
    st.sampled_from(["decision", "trial"]),
    st.sampled_from(["answered", "unknown", "users per day"]),
    st.integers(1, 1_000),
)


def content(user="aa", at=1_000.0, outcome="answered"):
    return Content(at, user, 7, "decision", outcome, 3)


def filled(folder, n=10, **options):
    record = AccessRecord(folder, **options)
    for k in range(n):
        record.append([content(f"{k % 3:02x}", at=float(k))])
    record.close()
    return record


@settings(max_examples=30 * MORE, deadline=None)
@given(batches=st.lists(st.lists(CONTENTS, max_size=4), max_size=8), size=st.integers(300, 5_000))
def test_what_is_written_is_read_and_verifies_however_files_are_cut(
    tmp_path_factory, batches, size
):
    folder = tmp_path_factory.mktemp("access")
    for batch in batches:  # every batch by a process of its own
        record = AccessRecord(folder, max_file_bytes=size)
        record.append(batch)
        record.close()
    written = [one for batch in batches for one in batch]
    assert [*entries_in(folder)] == written
    found = verify(folder)
    assert (found.entries, found.erased, found.problems) == (len(written), 0, [])


def test_an_entry_holds_no_user_in_the_clear_and_files_are_the_owners_alone(tmp_path):
    record = AccessRecord(tmp_path)
    record.append([content(record.user("ann@example.org"))])
    record.close()
    for path in tmp_path.iterdir():
        assert b"ann" not in path.read_bytes()
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("place", ["first", "middle", "last"])
@pytest.mark.parametrize("how", ["change", "drop", "swap", "twice"])
def test_a_line_that_is_changed_dropped_moved_or_doubled_is_found(tmp_path, place, how):
    filled(tmp_path)
    (path,) = files_in(tmp_path)
    header, *lines = path.read_bytes().splitlines(keepends=True)
    k = {"first": 0, "middle": 5, "last": 9}[place]
    if how == "change":
        lines[k] = lines[k].replace(b'"answered",3', b'"answered",2')
    elif how == "drop":
        del lines[k]
    elif how == "swap":
        lines[k], lines[k - 1] = lines[k - 1], lines[k]
    else:
        lines.insert(k, lines[k])
    path.write_bytes(header + b"".join(lines))
    if (how, place) == ("drop", "last"):
        assert (
            verify(tmp_path).problems == []
        )  # the note beside it, or a head noted elsewhere, knows
        with pytest.raises(AccessRecordError, match="records 10 entries"):
            AccessRecord(tmp_path)
    else:
        assert len(verify(tmp_path).problems) == 1


def test_a_head_that_was_noted_is_in_the_chain_and_in_no_other(tmp_path):
    filled(tmp_path / "one", 5)
    noted = verify(tmp_path / "one").head
    filled(tmp_path / "one", 5)
    assert verify(tmp_path / "one", head=noted).problems == []
    filled(tmp_path / "other", 10)
    (problem,) = verify(tmp_path / "other", head=noted).problems
    assert noted in problem
    assert verify(tmp_path / "other", head=START.hex()).problems == []


def test_erased_entries_are_gone_from_every_byte_and_the_chain_verifies(tmp_path):
    filled(tmp_path, 60, max_file_bytes=2_000)
    before = verify(tmp_path)
    user = json.dumps("01").encode()
    assert forget(tmp_path, frozenset({"01"})) == 20
    assert not any(user in path.read_bytes() for path in files_in(tmp_path))
    after = verify(tmp_path, head=before.head)
    assert (after.entries, after.erased, after.head, after.problems) == (60, 20, before.head, [])
    assert {one.user for one in entries_in(tmp_path)} == {"00", "02"}
    assert forget(tmp_path, frozenset({"01"})) == 0


def test_an_erased_entry_cannot_be_guessed_from_its_commitment(tmp_path):
    filled(tmp_path, 1)
    (path,) = files_in(tmp_path)
    line = json.loads(path.read_bytes().splitlines()[1])
    forget(tmp_path, frozenset({"00"}))
    erased = json.loads(path.read_bytes().splitlines()[1])
    assert erased == [line[0], line[1], None, None]
    body = json.dumps(line[3], separators=(",", ":")).encode()
    assert hashlib.blake2b(bytes.fromhex(line[2]) + body, digest_size=32).hexdigest() == line[0]
    assert hashlib.blake2b(body, digest_size=32).hexdigest() != line[0]


def test_a_writer_goes_on_while_entries_are_erased(tmp_path):
    record = AccessRecord(tmp_path)
    for k in range(50):
        record.append([content("aa" if k % 2 else "bb")])
        if k % 10 == 9:
            assert forget(tmp_path, frozenset({"aa"})) == 5
    record.close()
    found = verify(tmp_path)
    assert (found.entries, found.erased, found.problems) == (50, 25, [])


def test_old_files_are_removed_and_the_rest_verifies(tmp_path):
    filled(tmp_path, 30, max_file_bytes=1_500)
    old = files_in(tmp_path)
    for path in old:
        os.utime(path, (0.0, 0.0))
    clock = lambda: 40 * DAY_S  # noqa: E731
    record = AccessRecord(tmp_path, max_file_bytes=1_500, keep_days=30, clock=clock)
    for _ in range(10):
        record.append([content()])
    record.close()
    assert files_in(tmp_path)[0].name > old[-2].name
    found = verify(tmp_path)
    assert found.problems == []
    assert found.first > 1
    assert found.first + found.entries - 1 == 40


def test_a_file_that_is_missing_in_the_middle_is_found(tmp_path):
    filled(tmp_path, 30, max_file_bytes=1_500)
    files_in(tmp_path)[1].unlink()
    assert "a file is missing" in verify(tmp_path).problems[0]


def test_a_line_that_was_cut_off_is_dropped_and_a_file_without_a_header_begun_again(tmp_path):
    filled(tmp_path, 3)
    (path,) = files_in(tmp_path)
    path.write_bytes(path.read_bytes() + b'["00')
    filled(tmp_path, 1)
    assert verify(tmp_path).entries == 4
    (tmp_path / "access-000000000005.jsonl").write_bytes(b'{"versi')
    assert verify(tmp_path).problems == []
    filled(tmp_path, 2, max_file_bytes=1)
    found = verify(tmp_path)
    assert (found.entries, found.problems) == (6, [])
    assert len(files_in(tmp_path)) == 3


@pytest.mark.parametrize("what", [KEY_FILE, HEAD_FILE])
def test_what_is_lost_of_the_folder_is_refused(tmp_path, what):
    filled(tmp_path)
    path = tmp_path / what
    path.write_bytes(b"x" * 7)
    with pytest.raises(AccessRecordError, match="must have"):
        AccessRecord(tmp_path)
    if what == KEY_FILE:
        path.unlink()
        with pytest.raises(AccessRecordError, match="put it back"):
            AccessRecord(tmp_path)


def test_a_record_of_a_newer_version_is_refused(tmp_path):
    filled(tmp_path)
    (path,) = files_in(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"version":1', b'"version":2'))
    with pytest.raises(AccessRecordError, match="must have version 1, got 2"):
        AccessRecord(tmp_path)


WRITER = """
import sys
from pathlib import Path
from vfbandits.participant.access.chain import Content
from vfbandits.participant.access.record import AccessRecord
record = AccessRecord(Path(sys.argv[1]), max_file_bytes=4_000)
number = record.chain.count
while True:
    record.append([Content(1.0, "aa", number + k, "decision", "answered", 1) for k in range(3)])
    number += 3
    print(number, flush=True)
"""


def test_what_was_written_survives_kills(tmp_path):
    acknowledged = 0
    for _ in range(5):
        with fork_server.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as writer:
            for _ in range(40):
                acknowledged = int(writer.stdout.readline())
            writer.send_signal(signal.SIGKILL)
        found = verify(tmp_path)
        assert found.problems == []
        assert found.entries >= acknowledged
        rounds = [one.round for one in entries_in(tmp_path)]
        assert rounds == [*range(len(rounds))]


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from vfbandits.errors import AccessRecordError
from vfbandits.participant.access.chain import Content, verify
from vfbandits.participant.access.record import AccessRecord
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder = Path(sys.argv[1])
record = AccessRecord(folder)
one = Content(1.0, "aa", 1, "decision", "answered", 1)
record.append([one])
resource.setrlimit(resource.RLIMIT_FSIZE, (record._size + 100, resource.RLIM_INFINITY))
for _ in range(2):
    try:
        record.append([one])
    except AccessRecordError as error:
        print(error)
print(record.problems())
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
record.append([one])
print(record.problems())
record.close()
found = verify(folder)
print(found.entries, found.problems)
"""


def test_a_full_disk_is_told_and_leaves_no_half_of_an_entry(tmp_path):
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    ran = fork_server.run(
        [sys.executable, "-c", FULL_DISK, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    *told, during, after, end = ran.stdout.splitlines()
    assert len(told) == 2
    assert during == "['the access record cannot be written: File too large']"
    assert after == "[]"
    assert all("cannot be written: File too large" in line for line in told)
    assert end == "2 []"


def test_a_new_file_that_cannot_be_begun_costs_no_descriptor(tmp_path, monkeypatch):
    record = AccessRecord(tmp_path, max_file_bytes=1)
    record.append([content()])
    write = os.write

    def full(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    before = len([*Path("/proc/self/fd").iterdir()])
    for _ in range(20):
        with pytest.raises(AccessRecordError, match="No space left"):
            record.append([content()])
    assert len([*Path("/proc/self/fd").iterdir()]) == before
    monkeypatch.setattr(os, "write", write)
    record.append([content()])
    record.close()
    assert (verify(tmp_path).entries, verify(tmp_path).problems) == (2, [])


def test_entries_that_wait_for_the_disk_are_a_problem_after_a_while(tmp_path):
    now = 100.0
    record = AccessRecord(tmp_path, clock=lambda: now)
    record.append([content(), content()])
    now += OVERDUE_S
    assert (record.n_unsynced, record.problems()) == (2, [])
    now += 1.0
    assert record.problems() == ["the access record was not synced for more than 10 s"]
    record.sync(record.unsynced)
    assert (record.n_unsynced, record.synced_at, record.problems()) == (0, now, [])
    now += 10 * OVERDUE_S  # nothing was written since
    assert record.problems() == []
    record.close()
    assert record.problems() == ["the access record is closed"]


def test_the_size_is_that_of_all_files_also_after_a_restart_and_a_removal(tmp_path):
    now = DAY_S
    for _ in range(2):
        record = AccessRecord(tmp_path, max_file_bytes=500, keep_days=1, clock=lambda: now)
        for _ in range(5):
            record.append([content()])
            assert record.size_bytes == sum(path.stat().st_size for path in files_in(tmp_path))
        assert len(files_in(tmp_path)) > 1
        record.close()
    record = AccessRecord(tmp_path, max_file_bytes=500, keep_days=1, clock=lambda: 1e12)
    record.append([content()])
    assert record.size_bytes == sum(path.stat().st_size for path in files_in(tmp_path))
    assert len(files_in(tmp_path)) == 1
    record.close()
