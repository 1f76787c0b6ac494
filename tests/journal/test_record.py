"""Events as bytes: exact both ways, and no damage goes unseen."""

import struct
import zlib

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from vfbandits.campaign.events import (
    Activated,
    Administered,
    ArmsDropped,
    Configured,
    Decided,
    Erased,
    Forgotten,
    LossAccepted,
    MasksChanged,
    Offered,
    Recalled,
    Reported,
    Resized,
    Retracted,
    Rewarded,
    SetAside,
)
from vfbandits.errors import JournalError
from vfbandits.journal import record as records
from vfbandits.journal.record import VERSION, decode, encode, is_whole

ids = st.integers() | st.text(st.characters())  # lone surrogates, too
floats = st.floats(allow_nan=False, allow_infinity=False)
finite = st.floats(allow_nan=False, allow_infinity=False, width=64)
vectors = hnp.arrays(np.float64, st.integers(0, 9), elements=finite)
matrices = hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 4)), elements=finite)
contexts = hnp.arrays(np.float64, st.integers(1, 9), elements=finite)
recalled = st.builds(Recalled, st.integers(1, 2**40), contexts, st.none() | ids)
events = st.one_of(
    st.builds(
        Decided,
        event_id=ids,
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
        answer=st.binary(),
        seconds=floats,
    ),
    st.builds(
        Retracted, ids, floats, vectors, st.none() | ids, st.integers(0, 2**40), floats, st.text()
    ),
    st.builds(LossAccepted, st.integers(0), st.integers(0), st.text(), st.text(), floats),
    st.builds(SetAside, st.text(), st.none() | st.integers(0), st.text(), floats),
    st.builds(Rewarded, ids, floats, floats, st.none() | st.text()),
    st.builds(Rewarded, ids, floats, floats, st.none() | st.text(), recalled),
    st.builds(Resized, st.integers(1, 2**40)),
    st.builds(Forgotten, ids, st.integers(0, 2**40)),
    st.builds(Activated, ids, st.none() | floats, floats, st.integers(0, 2**40)),
    st.builds(Reported, ids, floats, st.text(), st.text(), floats),
    st.builds(Configured, st.binary(), floats),
    st.builds(MasksChanged, st.integers(0, 2**40), matrices, st.binary()),
    st.builds(Forgotten, ids),
    st.builds(Erased, ids, st.none() | st.integers(0, 2**40)),
    st.builds(Administered, st.text(), st.text(), st.text(), floats),
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
    with pytest.raises(JournalError, match="record 17 of the journal is damaged"):
        decode(bytes(record), 17)


@given(event=events, data=st.data())
def test_a_cut_record_is_found(event, data):
    record = encode(event)
    cut = data.draw(st.integers(0, len(record) - 1))
    assert not is_whole(record[:cut])


@pytest.mark.parametrize("record", [None, 17, "text", b""])
def test_what_is_not_bytes_is_damaged(record):
    with pytest.raises(JournalError, match="record 3 of the journal is damaged"):
        decode(record, 3)


def test_a_context_of_100_features_takes_little_more_than_its_800_bytes():
    event = Decided("6b1f3c7a", "arm-3", 3, np.ones(100), contributors=("shop", "bank", "news"))
    assert 800 < len(encode(event)) < 920


def test_a_matrix_in_any_memory_order_is_stored_by_rows():
    R = np.arange(6.0).reshape(2, 3)
    for matrix in (R, np.asfortranarray(R), np.arange(12.0).reshape(2, 6)[:, ::2] / 2.0 * 1.0):
        again = decode(encode(MasksChanged(1, matrix)), 1).matrix
        assert (again == matrix).all()
        assert again.flags.c_contiguous


def sealed(fields=("a", 0, None), *, version=VERSION, kind=4, body=None):
    data = msgspec.msgpack.encode(fields) if body is None else body
    whole = bytes((version, kind)) + data
    return whole + struct.pack("<I", zlib.crc32(whole))


DECISION = (
    "a",
    1,
    0,
    bytes(8),
    None,
    None,
    [],
    0,
    None,
    0.0,
    False,
    "",
    None,
    False,
    b"",
    0.0,
    0.0,
)


def changed(place, value):
    return sealed((*DECISION[:place], value, *DECISION[place + 1 :]), kind=1)


def test_a_decision_from_before_all_contexts_could_be_kept_has_none():
    event = decode(sealed(DECISION, kind=1), 5)
    assert (event.event_id, event.offered) == ("a", None)
    assert decode(encode(event), 5).offered is None


@pytest.mark.parametrize("features", [None, np.arange(4.0).reshape(2, 2) / 3.0])
def test_all_contexts_of_a_decision_come_back_bit_for_bit(features):
    offered = Offered((7, "milk\ud800"), np.arange(6.0).reshape(2, 3).T[:2] / 7.0, features)
    event = Decided("a", 7, 0, np.ones(2), offered=offered)
    read = decode(encode(event), 1).offered
    assert read.arms == offered.arms
    assert read.rows.tolist() == offered.rows.tolist()
    assert (read.arm_features is None) == (features is None)
    assert features is None or read.arm_features.tolist() == features.tolist()


@pytest.mark.parametrize("version", [VERSION + 1, 127])
def test_a_record_of_a_newer_version_is_whole_but_refused(version):
    record = sealed(version=version)
    assert is_whole(record)
    message = (
        f"record 5 of the journal must have version {VERSION}, got {version}: it was written by a "
        "newer"
    )
    with pytest.raises(JournalError, match=message):
        decode(record, 5)


def test_a_record_of_a_version_that_was_never_released_is_refused():
    with pytest.raises(JournalError, match="record 5 of the journal must have version 1, got 0"):
        decode(sealed(version=0), 5)


def test_the_fields_that_the_next_test_changes_are_right():
    assert decode(sealed(DECISION, kind=1), 5).x.tolist() == [0.0]


@pytest.mark.parametrize(
    "record",
    [
        sealed(kind=200),
        sealed(kind=0),
        sealed(body=b""),
        sealed(body=b"\xc1"),
        sealed(body=msgspec.msgpack.encode(("a", 0, None)) + b"\x00"),
        sealed(body=msgspec.msgpack.encode(("a", 0, None))[:-1]),
        sealed(()),
        sealed(("a",)),
        sealed(("a", 0, "")),
        sealed(("a", 0, None, 0)),
        sealed((True, 0)),
        sealed(([1], 0)),
        sealed(7),
        sealed({"event_id": "a", "opened": 0}),
        sealed(("a", 0.5)),
        sealed((msgspec.msgpack.Ext(3, b"a"), 0)),
        sealed((msgspec.msgpack.Ext(2, b"\xff"), 0)),
        sealed(("a", msgspec.msgpack.Ext(2, b"a"))),
        sealed(body=b"\x91" * 100_000),
        sealed(body=b"\xdd\xff\xff\xff\xff"),
        sealed(("a", msgspec.msgpack.Ext(1, b"\x7f" * 200), 0.0, None, None), kind=2),
        sealed(("a", 1.0, None, None, None), kind=2),
        sealed(("a", float("nan"), 0.0, None, None), kind=2),
        sealed(("a", 1.0, 0.0, None, (3, bytes(7), None)), kind=2),
        sealed(("a", 1.0, 0.0, None, (3, bytes(8))), kind=2),
        sealed((1, (2, 2, bytes(8)), b""), kind=3),
        sealed((1, (0.5, 2, bytes(8)), b""), kind=3),
        sealed((1, (-1, -1, bytes(8)), b""), kind=3),
        changed(3, bytes(7)),
        changed(3, "text"),
        changed(3, None),
        changed(5, float("inf")),
        changed(6, "shop"),
        changed(8, 7),
        changed(10, 1),
        changed(12, "soon"),
        sealed(DECISION[:-2], kind=1),
        sealed((*DECISION, 0), kind=1),
        sealed((*DECISION, None, None), kind=1),
        sealed((*DECISION, (["a"], (1, 2, bytes(8)), None)), kind=1),
        sealed((*DECISION, ([None], (1, 1, bytes(8)), None)), kind=1),
        sealed(("a", "soon", 0.0, 0), kind=5),
        sealed(("a", None, "r", "late", 0.0), kind=6),
        sealed((b"",), kind=7),
        sealed(("text", 0.0), kind=7),
        sealed((True,), kind=12),
    ],
)
def test_a_whole_record_that_is_no_event_is_refused(record):
    with pytest.raises(JournalError, match="record 5 of the journal is not an event"):
        decode(record, 5)


@given(body=st.binary(max_size=60), kind=st.integers(0, 255), version=st.integers(0, 127))
def test_any_whole_bytes_are_an_event_or_refused(body, kind, version):
    record = sealed(body=body, kind=kind, version=version)
    try:
        event = decode(record, 5)
    except JournalError:
        return
    assert values(decode(encode(event), 5)) == values(event)


@given(event=events, data=st.data())
def test_a_mutated_record_with_a_right_checksum_is_an_event_or_refused(event, data):
    body = bytearray(encode(event)[2:-4])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    for mutated in (bytes(body), bytes(body[:cut])):
        try:
            again = decode(sealed(body=mutated, kind=encode(event)[1]), 5)
        except JournalError:
            continue
        assert type(again) is type(event)


def test_a_field_that_was_added_at_the_end_has_its_default_in_an_older_record():
    assert decode(sealed(DECISION[:-1], kind=1), 5).holdback == 0.0
    assert decode(sealed(("a", 0)), 5) == Forgotten("a")


def test_a_record_of_an_older_version_is_read_through_upcasters(monkeypatch):
    """As if versions 1 and 2 had been released: there a decision had no seconds, then no group."""

    def without_group(read):
        kind, fields = read
        return (kind, [*fields[:11], "policy", *fields[11:]]) if kind == 1 else read

    def without_seconds(read):
        kind, fields = read
        return (kind, [*fields, 0.0, 0.0]) if kind == 1 else read

    monkeypatch.setattr(records, "VERSION", 3)
    monkeypatch.setattr(records, "UPCASTERS", {1: without_group, 2: without_seconds})
    second = sealed(DECISION[:-2], kind=1, version=2)
    first = sealed((*DECISION[:11], *DECISION[12:-2]), kind=1, version=1)
    assert (decode(second, 5).group, decode(second, 5).seconds) == ("", 0.0)
    assert (decode(first, 5).group, decode(first, 5).seconds) == ("policy", 0.0)
    assert decode(sealed(("a", 0), version=1), 5) == Forgotten("a")
    with pytest.raises(JournalError, match="must have a version from 1 to 3, got 4: it was writ"):
        decode(sealed(version=4), 5)
    with pytest.raises(JournalError, match=r"must have a version from 1 to 3, got 0$"):
        decode(sealed(version=0), 5)
    with pytest.raises(JournalError, match="record 5 of the journal is not an event"):
        decode(sealed(("a", 0, ""), version=1), 5)  # what the upcasters give is checked


@pytest.mark.parametrize(
    "event",
    [
        Rewarded("a", 1.0, float("nan")),
        Rewarded(None, 1.0),
        Forgotten(event_id=True),
        Decided("a", None, 0, np.ones(1)),
        Decided("a", 1, 0, np.ones(1), contributors=("shop", 7)),
        Decided("a", 1, 0, np.ones(1), user=7),
        Decided("a", 1, 0, np.ones(1), model=1.5),
        MasksChanged(1.5, np.eye(2)),
        MasksChanged(1, np.ones(2)),
        Decided("a", 1, np.int64(3), np.ones(1)),
        Decided("a", 1, 0, [1.0]),
        Decided("a", 1, 0, np.ones(1), probability=float("inf")),
        MasksChanged(1, [[1.0]]),
        MasksChanged(1, np.eye(2), "text"),
        Decided("a", 1, 0, np.ones(1), root=1),
        Decided("a", 1, 0, np.ones(1), held=1),
        Decided("a", 1, 0, np.ones(1), group=None),
        Decided("a", 1, 0, np.ones(1), due=float("inf")),
        Decided("a", 1, 0, np.ones(1), due="soon"),
        Decided("a", 1, 0, np.ones(1), answer="text"),
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
        Rewarded("a", float("nan")),
        Rewarded("a", 10**400),
        Rewarded("a", float("-inf")),
        Rewarded("a", 1.0, recalled=Recalled(1, np.ones((1, 1)))),
        Rewarded("a", 1.0, recalled=Recalled("1", np.ones(1))),
        Decided("a", 1, 0, np.ones((1, 2))),
        "text",
    ],
)
def test_what_could_not_be_read_back_is_not_written(event):
    with pytest.raises(JournalError, match="cannot be written"):
        encode(event)


def test_no_event_shows_a_context_a_user_or_a_matrix():
    event = Decided("a", 1, 0, np.array([0.123456]), user="u-99", answer=b"roster")
    shown = repr(event) + repr(MasksChanged(1, np.array([[0.123456]]), b"roster"))
    assert not any(secret in shown for secret in ("0.123456", "u-99", "roster"))
