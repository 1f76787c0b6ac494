"""Events as bytes: exact both ways, and no damage goes unseen."""

import json
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from vfbandits.campaign.events import (
    Activated,
    ArmsDropped,
    Configured,
    Decided,
    Forgotten,
    Moved,
    Recalled,
    Reported,
    Resized,
    Rewarded,
)
from vfbandits.errors import JournalError
from vfbandits.journal.record import VERSION, decode, encode, is_whole

ids = st.integers() | st.text()
floats = st.floats(allow_nan=False, allow_infinity=False)
finite = st.floats(allow_nan=False, allow_infinity=False, width=64)
vectors = hnp.arrays(np.float64, st.integers(0, 9), elements=finite)
matrices = hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 4)), elements=finite)
contexts = hnp.arrays(np.float64, st.integers(1, 9), elements=finite)
recalled = st.builds(Recalled, st.integers(1, 2**40), contexts, st.none() | ids)
events = st.one_of(
    st.builds(
        Decided,
        decision_id=ids,
        arm=ids,
        index=st.integers(0, 10**6),
        x=vectors,
        model=st.none() | ids,
        probability=st.none() | st.floats(0.0, 1.0),
        contributors=st.lists(st.text(), max_size=3).map(tuple),
        epoch=st.integers(0, 2**40),
        user=st.none() | st.text(),
        at=floats,
        root=st.booleans(),
        group=st.text(),
        due=st.none() | floats,
        held=st.booleans(),
        note=st.binary(),
    ),
    st.builds(Rewarded, ids, floats, floats, st.none() | st.text()),
    st.builds(Rewarded, ids, floats, floats, st.none() | st.text(), recalled),
    st.builds(Resized, st.integers(1, 2**40)),
    st.builds(Forgotten, ids, st.integers(0, 2**40)),
    st.builds(Activated, ids, st.none() | floats, floats, st.integers(0, 2**40)),
    st.builds(Reported, ids, floats, st.text(), st.text(), floats),
    st.builds(Configured, st.binary(), floats),
    st.builds(Moved, st.integers(0, 2**40), matrices, st.binary()),
    st.builds(Forgotten, ids),
    st.builds(ArmsDropped, st.lists(ids, max_size=4).map(tuple), floats),
)


def values(event):
    found = []
    for part in (getattr(event, name) for name in type(event).__slots__):
        if isinstance(part, np.ndarray):
            found.append((part.shape, part.tobytes()))
        else:
            found.append((type(part), values(part) if isinstance(part, Recalled) else part))
    return found


@given(event=events)
def test_an_event_comes_back_bit_for_bit(event):
    again = decode(encode(event), 1)
    assert type(again) is type(event)
    assert values(again) == values(event)


@given(event=events, place=st.floats(0.0, 1.0, exclude_max=True), change=st.integers(1, 255))
def test_a_changed_byte_is_found(event, place, change):
    record = bytearray(encode(event))
    record[int(place * len(record))] ^= change
    assert not is_whole(bytes(record))
    with pytest.raises(JournalError, match="record 17 of the log is damaged"):
        decode(bytes(record), 17)


@given(event=events, data=st.data())
def test_a_cut_record_is_found(event, data):
    record = encode(event)
    cut = data.draw(st.integers(0, len(record) - 1))
    assert not is_whole(record[:cut])


@pytest.mark.parametrize("record", [None, 17, "text", b""])
def test_what_is_not_bytes_is_damaged(record):
    with pytest.raises(JournalError, match="record 3 of the log is damaged"):
        decode(record, 3)


def test_a_context_of_100_features_takes_little_more_than_its_800_bytes():
    event = Decided("6b1f3c7a", "arm-3", 3, np.ones(100), contributors=("shop", "bank", "news"))
    assert 800 < len(encode(event)) < 920


def test_a_matrix_in_any_memory_order_is_stored_by_rows():
    R = np.arange(6.0).reshape(2, 3)
    for matrix in (R, np.asfortranarray(R), np.arange(12.0).reshape(2, 6)[:, ::2] / 2.0 * 1.0):
        again = decode(encode(Moved(1, matrix)), 1).matrix
        assert (again == matrix).all()
        assert again.flags.c_contiguous


def sealed(version=VERSION, kind=4, fields=b'["a"]', floats=b"", n_floats=None):
    n = len(floats) // 8 if n_floats is None else n_floats
    body = struct.pack("<BBHII", version, kind, 0, len(fields), n) + fields + floats
    return body + struct.pack("<I", zlib.crc32(body))


def test_a_record_of_a_newer_version_is_whole_but_refused():
    record = sealed(version=VERSION + 1)
    assert is_whole(record)
    with pytest.raises(JournalError, match="record 5 of the log must have version 2, got 3"):
        decode(record, 5)


@pytest.mark.parametrize(
    "record",
    [
        sealed(kind=9),
        sealed(fields=b"{"),
        sealed(fields=b"[]"),
        sealed(fields=b"[true]"),
        sealed(fields=b"[[1]]"),
        sealed(fields=b"7"),
        sealed(n_floats=4),
        sealed(kind=2, fields=b'["a",0]'),
        sealed(kind=2, fields=b'["a",null]', floats=bytes(8)),
        sealed(kind=3, fields=b"[1,2,2]", floats=bytes(8)),
        sealed(kind=3, fields=b"[1,0.5,2]", floats=bytes(8)),
        sealed(kind=1, fields=b'["a",1,0,null,null,"shop",0,null,0,false,"",null,false]'),
        sealed(kind=1, fields=b'["a",1,0,null,null,[],0,7,0,false,"",null,false]'),
        sealed(kind=1, fields=b'["a",1,0,null,null,[],0,null,0,false,"","soon",false]'),
        sealed(kind=1, fields=b'["a",1,0,null,null,[],0,null,0,false]'),
        sealed(kind=2, fields=b'["a",0]', floats=bytes(8)),
        sealed(kind=5, fields=b'["a","soon",0]'),
        sealed(kind=6, fields=b'["a","r","late",0]'),
        sealed(kind=6, fields=b'["a",1,"late",0]', floats=bytes(8)),
        sealed(kind=7, fields=b"[]"),
        sealed(kind=2, fields=b'["a",0,"r",3,null]', floats=bytes(8)),
        sealed(kind=2, fields=b'["a",0,"r",3]', floats=bytes(16)),
        sealed(kind=2, fields=b'["a",0,"r"]', floats=bytes(16)),
        sealed(kind=4, fields=b'["a",0.5]'),
        sealed(kind=16, fields=b"[true]"),
    ],
)
def test_a_whole_record_that_is_no_event_is_refused(record):
    with pytest.raises(JournalError, match="record 5 of the log is not an event"):
        decode(record, 5)


@pytest.mark.parametrize(
    "event",
    [
        Rewarded("a", 1.0, float("nan")),
        Rewarded(None, 1.0),
        Forgotten(decision_id=True),
        Decided("a", None, 0, np.ones(1)),
        Decided("a", 1, 0, np.ones(1), contributors=("shop", 7)),
        Decided("a", 1, 0, np.ones(1), user=7),
        Decided("a", 1, 0, np.ones(1), model=1.5),
        Moved(1.5, np.eye(2)),
        Moved(1, np.ones(2)),
        Decided("a", 1, np.int64(3), np.ones(1)),
        Decided("a", 1, 0, [1.0]),
        Decided("a", 1, 0, np.ones(1), probability=float("inf")),
        Moved(1, [[1.0]]),
        Moved(1, np.eye(2), "text"),
        Decided("a", 1, 0, np.ones(1), root=1),
        Decided("a", 1, 0, np.ones(1), held=1),
        Decided("a", 1, 0, np.ones(1), group=None),
        Decided("a", 1, 0, np.ones(1), due=float("inf")),
        Decided("a", 1, 0, np.ones(1), due="soon"),
        Decided("a", 1, 0, np.ones(1), note="text"),
        Rewarded("a", 1.0, reward_id=7),
        Activated(None, 1.0),
        Activated("a", float("nan")),
        Reported("a", 1.0, None, "late"),
        Reported("a", 1.0, "r", None),
        Reported("a", "much", "r", "late"),
        Configured("text"),
        Configured(None),
        Configured(b"", at=None),
        Decided("a", 1, 0, np.ones(1), contributors=(["shop"],)),
        Rewarded("a", "much"),
        Rewarded("a", 1.0, at=True),
    ],
)
def test_what_could_not_be_read_back_is_not_written(event):
    with pytest.raises(JournalError, match="cannot be written"):
        encode(event)


def test_no_event_shows_a_context_a_user_or_a_matrix():
    event = Decided("a", 1, 0, np.array([0.123456]), user="u-99", note=b"roster")
    shown = repr(event) + repr(Moved(1, np.array([[0.123456]]), b"roster"))
    assert not any(secret in shown for secret in ("0.123456", "u-99", "roster"))


def test_a_decision_of_version_0_1_0_which_does_not_say_how_long_it_took_is_read():
    record = encode(Decided("a", "tea", 0, np.ones(2), at=3.0, due=9.0, seconds=0.25, note=b"n"))
    version, kind, zero, size, n_floats = struct.unpack_from("<BBHII", record)
    fields = json.loads(record[12 : 12 + size])
    assert fields.pop() == 0.25
    text = json.dumps(fields).encode()
    head = struct.pack("<BBHII", version, kind, zero, len(text), n_floats)
    body = head + text + record[12 + size : -4]
    older = decode(body + struct.pack("<I", zlib.crc32(body)), 1)
    assert (older.decision_id, older.due, older.note, older.seconds) == ("a", 9.0, b"n", 0.0)
    assert older.x.tolist() == [1.0, 1.0]
