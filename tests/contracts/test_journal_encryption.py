"""What every Journal must do when it is given a key."""

import os
import struct
import zlib

import numpy as np
import pytest
from journals import EVENTS, KEY, PLACES, header_of, make_place, same, snapshot

import vfbandits as vfb
from vfbandits.campaign.events import Decided
from vfbandits.errors import JournalError
from vfbandits.journal.base import Damage
from vfbandits.journal.codec import SEALED
from vfbandits.journal.crypto import JournalKey


@pytest.fixture(params=PLACES)
def place(request, tmp_path):
    return make_place(request.param, tmp_path)


@pytest.fixture(params=[name for name in PLACES if name.endswith("Sealed")])
def sealed(request, tmp_path):
    return make_place(request.param, tmp_path)


def repaired(record):
    """With a checksum that fits."""
    return record[:-4] + struct.pack("<I", zlib.crc32(record[:-4]))


def test_an_encrypted_log_shows_nothing_of_what_is_in_it(sealed):
    journal = sealed.open()
    secret = np.full(4, 0.123456789)
    journal.append([Decided("order-17", "tea", 0, secret, user="ann")])
    bandit = vfb.Bandit(vfb.LinUCB(), dim=4)
    bandit.decide([secret], event_id="order-17")
    journal.save_snapshot(1, bandit.snapshot())
    journal.close()
    kept = b"".join(record for _, record in sealed.records()) + sealed.get_snapshot(1)
    for plain in (secret.tobytes(), secret[:1].tobytes(), b"order-17", b"tea", b"ann", b"linucb"):
        assert plain not in kept
    again = sealed.open()
    ((_, event),) = again.read()
    assert event.x.tobytes() == secret.tobytes()
    assert header_of(again.latest_snapshot()[1]) == header_of(bandit.snapshot())
    again.close()


@pytest.mark.parametrize("wrong", ["none", "another"])
def test_an_encrypted_log_opens_with_its_own_key_only_and_a_refusal_changes_nothing(sealed, wrong):
    for events in ([], EVENTS):
        journal = sealed.open()
        journal.append(events)
        journal.close()
        sealed.key = None if wrong == "none" else JournalKey(os.urandom(32))
        kinds = [sealed.open, *([sealed.reader] if hasattr(sealed, "reader") else [])]
        for open_it in kinds:
            with pytest.raises(JournalError, match=r"wanted (its key|the key that)"):
                open_it()
        sealed.key = KEY
    journal = sealed.open()
    assert same([event for _, event in journal.read()], EVENTS)
    assert journal.damage == Damage()
    journal.close()


def test_a_plain_log_is_not_opened_with_a_key(place):
    if place.key is not None:
        return
    place.open().close()
    place.key = KEY
    with pytest.raises(JournalError, match="not encrypted: wanted no key, got one"):
        place.open()


def test_encrypted_records_cannot_be_moved_or_come_from_another_log(sealed, tmp_path):
    journal = sealed.open()
    journal.append([EVENTS[0], EVENTS[1], EVENTS[2]])
    journal.close()
    (tmp_path / "other").mkdir()
    other = type(sealed)(tmp_path / "other", KEY)
    journal = other.open()
    journal.append([EVENTS[1], EVENTS[1], EVENTS[2]])
    journal.close()
    mine, theirs = dict(sealed.records()), dict(other.records())
    other_kind = bytes([SEALED, 4]) + mine[2][2:]
    for position, record in ((2, mine[1]), (2, theirs[2]), (2, other_kind)):
        sealed.put_record(position, repaired(record))
        journal = sealed.open()
        with pytest.raises(JournalError, match=r"record 2 of the journal must be the one that was"):
            list(journal.read(after=1))
        journal.close()


def test_encrypted_snapshots_cannot_be_moved(sealed):
    journal = sealed.open()
    journal.append(EVENTS)
    journal.save_snapshot(3, snapshot(3))
    journal.save_snapshot(5, snapshot(5))
    journal.close()
    sealed.put_snapshot(5, sealed.get_snapshot(3))
    journal = sealed.open()
    assert journal.latest_snapshot()[0] == 3
    assert journal.damage == Damage(snapshots=1)
    journal.close()


def test_plain_and_encrypted_are_never_mixed(place, tmp_path):
    journal = place.open()
    journal.append(EVENTS)
    journal.save_snapshot(5, snapshot(5))
    journal.close()
    (tmp_path / "other").mkdir()
    other = type(place)(tmp_path / "other", None if place.key else KEY)
    journal = other.open()
    journal.append(EVENTS)
    journal.save_snapshot(5, snapshot(5))
    journal.close()
    place.put_record(3, dict(other.records())[3])
    place.put_snapshot(5, other.get_snapshot(5))
    journal = place.open()
    with pytest.raises(JournalError, match=r"record 3 .* must be (plain|encrypted), got"):
        list(journal.read())
    with pytest.raises(JournalError, match=r"position 5 must be (plain|encrypted), got"):
        journal.latest_snapshot()
    journal.close()
