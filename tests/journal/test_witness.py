"""Acknowledged records that are lost: in a write-ahead log, or by an older copy of a database."""

import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import zlib

import fork_server
import pytest
from hypothesis import given
from hypothesis import strategies as st
from journals import EVENTS, KEY, OnPostgres, OnSqlite, numbers, query, same, snapshot
from logged_runs import Run
from typer.testing import CliRunner

from vfbandits.campaign.events import LossAccepted
from vfbandits.cli.main import app
from vfbandits.errors import JournalError, JournalLossError
from vfbandits.journal.base import Damage
from vfbandits.journal.compact import compact
from vfbandits.journal.sqlite.journal import SqliteJournal
from vfbandits.journal.witness import Head, Witness, pack, read_ack, unpack

WRITER = """
import sys, time
import numpy as np
from vfbandits.campaign.events import Decided
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.sqlite.journal import SqliteJournal
key = JournalKey(bytes.fromhex(sys.argv[2])) if sys.argv[2] else None
journal = SqliteJournal(sys.argv[1], key=key)
for number in range(40):
    last = journal.append([Decided(f"e{number}", "tea", 0, np.full(60, float(number)))])
print(last, flush=True)
time.sleep(60)
"""


def killed(path, key=b""):
    """A journal of 40 records whose writer was killed: they are in the write-ahead log."""
    process = fork_server.Popen(
        [sys.executable, "-c", WRITER, str(path), key.hex()], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "40\n"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    return path.with_name(f"{path.name}-wal")


def flip_bit(path, place):
    data = bytearray(path.read_bytes())
    data[int(len(data) * place)] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])
def test_a_bit_flip_in_the_write_ahead_log_of_a_killed_writer_is_refused(tmp_path, key):
    path = tmp_path / "log.db"
    wal = killed(path, b"" if key is None else bytes(range(32)))
    flip_bit(wal, 0.7)
    before = wal.read_bytes(), path.read_bytes()
    for _ in range(2):
        with pytest.raises(JournalLossError, match="acknowledged up to 40, got an end at") as lost:
            SqliteJournal(path, key=key)
        assert str(path) in str(lost.value)
        assert "--accept-loss" in str(lost.value)
    # A person may yet save what is in it: what was there is there.
    assert (wal.read_bytes(), path.read_bytes()) == before
    journal = SqliteJournal(path, key=key, accept_loss="ops@shop")
    found = journal.last_position - 1
    assert 0 < found < 40
    assert journal.damage == Damage(records=40 - found)
    *kept, (_, accepted) = journal.read()
    assert [event.event_id for _, event in kept] == [f"e{n}" for n in range(found)]
    assert (accepted.expected, accepted.found, accepted.by) == (40, found, "ops@shop")
    journal.close()
    SqliteJournal(path, key=key).close()


def test_verify_tells_of_the_loss_and_changes_nothing(tmp_path):
    path = tmp_path / "log.db"
    wal = killed(path)
    flip_bit(wal, 0.7)
    before = wal.read_bytes()
    done = CliRunner().invoke(app, ["journal", "verify", str(path)])
    assert done.exit_code == 1
    assert "problem: the journal was acknowledged up to 40, got an end at" in done.stdout
    assert wal.read_bytes() == before
    done = CliRunner().invoke(app, ["journal", "compact", str(path)])
    assert done.exit_code == 2
    assert "acknowledged up to 40" in done.stderr


def test_a_killed_writer_without_damage_and_an_older_witness_are_no_loss(tmp_path):
    path = tmp_path / "log.db"
    killed(path)
    lock = tmp_path / "log.db.lock"
    assert read_ack(lock).position == 40
    kept = lock.read_bytes()
    for position in (39, 1, 0):  # a power cut: the witness was not synced
        lock.write_bytes(pack(Head(position)))
        journal = SqliteJournal(path)
        assert (journal.damage, journal.last_position) == (Damage(), 40)
        journal.close()
        assert lock.read_bytes() == kept  # renewed, with the checksum of the last record


def test_a_snapshot_tells_of_a_loss_where_the_witness_is_damaged(tmp_path):
    place = OnSqlite(tmp_path)
    journal = place.open()
    journal.append(EVENTS)
    journal.save_snapshot(5, snapshot(5))
    journal.close()
    place.remove_record(5)
    place.path.with_name("log.db.lock").write_bytes(b"garbage")
    with pytest.raises(JournalLossError, match="acknowledged up to 5, got an end at 4"):
        place.open()
    assert place.reader().damage.records == 1


def test_an_older_copy_that_was_written_on_is_noticed(tmp_path):
    """The witness knows the checksum of the last record, too."""
    place, copy = OnSqlite(tmp_path), tmp_path / "copy.db"
    journal = place.open()
    journal.append(EVENTS[:2])
    journal.close()
    shutil.copy(place.path, copy)
    journal = place.open()
    journal.append(EVENTS[2:])
    journal.close()
    lock = place.path.with_name("log.db.lock")
    witness = lock.read_bytes()
    shutil.copy(copy, place.path)
    lock.unlink()
    journal = place.open()
    journal.append(4 * EVENTS[:1])
    journal.close()
    lock.write_bytes(witness)
    with pytest.raises(
        JournalLossError, match="record 5 differs from the record that was acknowledged"
    ):
        place.open()
    journal = place.open(accept_loss="ops")
    assert journal.last_position == 7
    journal.close()
    place.open().close()


def test_a_loss_stays_on_record_when_the_log_is_compacted(tmp_path):
    place = OnSqlite(tmp_path)
    run = Run(place)
    run.visit(5, "save", 5)
    journal = place.open()
    last = journal.last_position
    journal.close()
    place.remove_record(last)
    place.open(accept_loss="ops").close()
    run.visit(5, "save", 5, "save", 5, "save", 5)
    journal = place.open()
    assert compact(journal) is not None
    assert journal.compacted_to > last
    kept = [event for _, event in journal.remains() if isinstance(event, LossAccepted)]
    journal.close()
    assert [(event.expected, event.found) for event in kept] == [(last, last - 1)]


@given(position=st.integers(0, 2**64 - 1), check=st.binary(min_size=4, max_size=4))
def test_an_ack_comes_back_and_a_flipped_bit_in_it_is_noticed(position, check):
    ack = pack(Head(position, check))
    assert unpack(ack) == Head(position, check if any(check) else b"")
    for place in range(8 * len(ack)):
        harmed = bytearray(ack)
        harmed[place // 8] ^= 1 << place % 8
        assert unpack(bytes(harmed)) is None


def ack_of_version(version, body):
    ack = b"VFBW" + bytes([version]) + body
    return ack + struct.pack("<I", zlib.crc32(ack))


def ack_without_version(head):
    body = struct.pack("<Q4s", head.position, head.check)
    return body + struct.pack("<I", zlib.crc32(body))


@pytest.mark.parametrize("position", [0, 7, int.from_bytes(b"VFBW", "little")])
def test_an_ack_without_a_version_is_of_version_1(tmp_path, position):
    head = Head(position, b"abcd")
    path = tmp_path / "journal.db.lock"
    path.write_bytes(ack_without_version(head))
    assert read_ack(path) == head
    witness = Witness(path)
    assert witness.head == head
    witness.ack(Head(8, b"efgh"))
    assert witness.head == Head(8, b"efgh")
    witness.close()
    assert path.read_bytes()[:5] == b"VFBW\x01"


def test_a_journal_goes_on_with_an_ack_without_a_version(tmp_path):
    journal = SqliteJournal(tmp_path / "log.db")
    journal.append(EVENTS)
    journal.close()
    path = tmp_path / "log.db.lock"
    path.write_bytes(ack_without_version(read_ack(path)))
    journal = SqliteJournal(tmp_path / "log.db")
    assert (journal.last_position, read_ack(path).position) == (5, 5)
    journal.close()


@pytest.mark.parametrize("size", [1, 12, 41])
def test_an_ack_of_a_newer_version_is_refused_with_both_versions(tmp_path, size):
    path = tmp_path / "log.db.lock"
    path.write_bytes(ack_of_version(2, bytes(size)))
    wanted = f"^{re.escape(str(path))} must have version 1, got 2: it was written by"
    with pytest.raises(JournalError, match=wanted):
        read_ack(path)
    for _ in range(2):  # nothing is left locked
        with pytest.raises(JournalError, match=wanted):
            SqliteJournal(tmp_path / "log.db")


# --- PostgreSQL: the witness is a file outside the database -------------------------------------


@pytest.fixture
def place(tmp_path):
    return OnPostgres(tmp_path)


def restored(place, position):
    """The database as an older backup has it: whole, and shorter."""
    query("DELETE FROM vfb_event WHERE journal = %s AND position > %s", place.id, position)
    sql = "UPDATE vfb_journal SET last_position = %s WHERE id = %s"
    query(sql, position, place.id)


def test_an_older_backup_of_the_database_is_refused_by_the_witness(place, tmp_path):
    witness = tmp_path / "default.head"
    journal = place.open(witness=witness)
    journal.append(EVENTS)
    journal.close()
    assert read_ack(witness).position == 5
    restored(place, 3)
    for _ in range(2):
        with pytest.raises(JournalLossError, match="acknowledged up to 5, got an end at 3"):
            place.open(witness=witness)
    assert len(place.records()) == 3
    journal = place.open(witness=witness, accept_loss="ops@shop")
    assert journal.damage == Damage(records=2)
    *kept, (position, accepted) = journal.read()
    assert same([event for _, event in kept], EVENTS[:3])
    assert (position, accepted.expected, accepted.found) == (4, 5, 3)
    journal.close()
    place.open(witness=witness).close()


def test_another_machine_need_not_accept_the_same_loss_again(place, tmp_path):
    here, there = tmp_path / "here.head", tmp_path / "there.head"
    for witness in (here, there):
        journal = place.open(witness=witness)
        journal.append(EVENTS)
        journal.close()
    assert [read_ack(here).position, read_ack(there).position] == [5, 10]
    restored(place, 3)
    place.open(witness=there, accept_loss="ops").close()
    journal = place.open(witness=here)
    assert (journal.damage, numbers(journal)) == (Damage(), [1, 2, 3, 4])
    journal.close()


def test_an_older_backup_that_another_machine_wrote_on_is_refused(place, tmp_path):
    here, there = tmp_path / "here.head", tmp_path / "there.head"
    journal = place.open(witness=here)
    journal.append(EVENTS)
    journal.close()
    restored(place, 2)
    journal = place.open(witness=there)  # it has seen nothing yet
    journal.append([*EVENTS[3:], *EVENTS[3:]])
    journal.close()
    with pytest.raises(
        JournalLossError, match="record 5 differs from the record that was acknowledged"
    ):
        place.open(witness=here)


def test_an_empty_database_is_refused_by_the_witness(place, tmp_path):
    witness = tmp_path / "default.head"
    journal = place.open(witness=witness)
    journal.append(EVENTS)
    journal.close()
    restored(place, 0)
    with pytest.raises(JournalError, match=r"held 5 records, got an empty one; .*default\.head"):
        place.open(witness=witness, accept_loss="ops")


def test_a_witness_that_lags_behind_or_is_damaged_is_no_loss(place, tmp_path):
    witness = tmp_path / "default.head"
    journal = place.open(witness=witness)
    for start in range(0, 200, 5):
        assert journal.append(EVENTS) == start + 5
    journal.append(30 * EVENTS)  # more than go into one statement
    journal.close()
    assert read_ack(witness).position == 350
    for ack in (pack(Head(3)), b"garbage", b""):
        witness.write_bytes(ack)
        journal = place.open(witness=witness)
        assert (journal.damage, journal.last_position) == (Damage(), 350)
        journal.close()
        assert read_ack(witness).position == 350
    place.open(witness=witness).close()


def test_a_witness_may_be_closed_twice(tmp_path):
    witness = Witness(tmp_path / "a.head")
    assert witness.head == Head(0)
    witness.ack(Head(3, b"abcd"))
    witness.sync()
    witness.close()
    witness.close()
    assert read_ack(tmp_path / "a.head") == Head(3, b"abcd")
    assert read_ack(tmp_path / "none") is None
