"""Encrypted records and snapshots: no key stream serves twice, no piece goes missing."""

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from journals import EVENTS, KEY, same

from vfbandits.campaign.events import Forgotten
from vfbandits.core.snapshot import Snapshot
from vfbandits.errors import JournalError, SnapshotError
from vfbandits.journal.codec import SEALED, Codec
from vfbandits.journal.record import encode, is_whole

IDENTITY = bytes(16)
RECORDS = [encode(event) for event in EVENTS]


def salt(record):
    return record[4:20]


def body(record):
    return record[20:-4]


def repaired(data):
    return data[:-4] + struct.pack("<I", zlib.crc32(data[:-4]))


def test_records_come_back_with_the_key_of_another_opening():
    sealed = Codec(IDENTITY, KEY).seal(RECORDS, after=7)
    again = Codec(IDENTITY, KEY)
    opened = [again.open(record, position) for position, record in enumerate(sealed, start=8)]
    assert same(opened, EVENTS)
    assert all(is_whole(record) for record in sealed)


def test_a_plain_record_is_never_taken_for_an_encrypted_one():
    assert SEALED not in {record[0] for record in RECORDS}
    opened = [Codec(IDENTITY).open(record, 1) for record in RECORDS]
    assert same(opened, EVENTS)


def test_the_same_event_is_never_the_same_bytes():
    codec, other = Codec(IDENTITY, KEY), Codec(IDENTITY, KEY)
    one, two = codec.seal([RECORDS[0], RECORDS[0]], after=0)
    (three,) = other.seal([RECORDS[0]], after=0)
    assert len({body(one), body(two), body(three)}) == 3
    assert salt(one) == salt(two) != salt(three)


def test_a_position_that_is_written_again_gets_another_key():
    """As after a write that failed: an encrypted record of it may have reached the disk."""
    codec = Codec(IDENTITY, KEY)
    first = codec.seal(RECORDS[:3], after=4)
    again = codec.seal(RECORDS[:3], after=4)
    onward = codec.seal(RECORDS[:2], after=7)
    assert not {salt(record) for record in first} & {salt(record) for record in again}
    assert salt(onward[0]) == salt(again[0])
    assert same([codec.open(record, 5 + n) for n, record in enumerate(again)], EVENTS[:3])


def test_many_openings_are_read_one_after_the_other():
    reader = Codec(IDENTITY, KEY)
    for number in range(1_100):
        (record,) = Codec(IDENTITY, KEY).seal([encode(Forgotten(number))], after=number)
        assert reader.open(record, number + 1).event_id == number


@given(place=st.floats(0.0, 1.0, exclude_max=True), change=st.integers(1, 255))
def test_a_changed_byte_is_found_even_under_a_checksum_that_fits(place, change):
    codec = Codec(IDENTITY, KEY)
    record = bytearray(codec.seal(RECORDS[:1], after=0)[0])
    at = int(place * (len(record) - 4))
    record[at] ^= change
    with pytest.raises(JournalError, match="record 1 of the journal is damaged"):
        codec.open(bytes(record), 1)
    with pytest.raises(JournalError, match=r"record 1 of the journal must be (the one|encrypted)"):
        codec.open(repaired(bytes(record)), 1)


def test_a_record_that_is_too_short_to_be_encrypted_is_refused():
    record = repaired(bytes([SEALED, 1, 0, 0]) + bytes(12) + bytes(4))
    with pytest.raises(JournalError, match="must be the one that was encrypted there"):
        Codec(IDENTITY, KEY).open(record, 1)


def test_a_snapshot_is_encrypted_anew_each_time():
    codec, snapshot = Codec(IDENTITY, KEY), Snapshot({"kind": "example"}, {"b": np.ones(9)})
    one, two = (codec.seal_snapshot(3, snapshot) for _ in range(2))
    assert one[8:24] != two[8:24]
    assert one[24:60] != two[24:60]
    assert codec.open_snapshot(one, 3).arrays["b"].tolist() == [1.0] * 9


def test_a_large_snapshot_comes_back_and_none_of_its_pieces_can_go():
    codec = Codec(IDENTITY, KEY)
    arrays = {"b": np.arange(9_000_000, dtype=np.float64)}
    data = codec.seal_snapshot(3, Snapshot({"kind": "example"}, arrays))
    found = codec.open_snapshot(data, 3)
    assert (found.arrays["b"] == arrays["b"]).all()
    piece = (64 << 20) + 16
    for cut in (
        data[: 24 + piece] + bytes(4),
        data[:24] + data[24 + piece :],
        data[:24] + bytes(4),
    ):
        with pytest.raises(SnapshotError, match=r"must be the one|not a whole"):
            codec.open_snapshot(repaired(cut), 3)


@pytest.mark.parametrize("data", [b"", b"VFBSEAL1", b"VFBSEAL1" + bytes(20), bytes(100)])
def test_what_is_no_snapshot_is_refused(data):
    for codec in (Codec(IDENTITY, KEY), Codec(IDENTITY)):
        with pytest.raises((SnapshotError, JournalError)):
            codec.open_snapshot(data, 1)
