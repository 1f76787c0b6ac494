"""What every Journal must do; a new one is added to ``journals.PLACES`` and to nothing else."""

import threading
import time

import pytest
from journals import (
    EVENTS,
    EVERY_KIND,
    PLACES,
    flip,
    harm,
    header_of,
    make_place,
    numbers,
    same,
    snapshot,
)

from vfbandits.campaign.events import Erased, Forgotten, Rewarded
from vfbandits.errors import JournalError, JournalLossError, SnapshotError
from vfbandits.journal.base import Damage


@pytest.fixture(params=PLACES)
def place(request, tmp_path):
    return make_place(request.param, tmp_path)


@pytest.fixture
def journal(place):
    journal = place.open()
    yield journal
    journal.close()


def test_an_empty_log_is_at_position_0_and_has_no_snapshot(journal):
    assert journal.last_position == 0
    assert list(journal.read()) == []
    assert journal.latest_snapshot() is None
    assert journal.damage == Damage(0, 0)


def test_events_come_back_as_they_were_in_order_and_numbered_from_1(place):
    journal = place.open()
    assert journal.append(EVENTS[:2]) == 2
    assert journal.append(EVENTS[2:]) == 5
    for again in (False, True):
        if again:
            journal.close()
            journal = place.open()
        assert journal.last_position == 5
        assert numbers(journal) == [1, 2, 3, 4, 5]
        assert same([event for _, event in journal.read()], EVENTS)
    journal.close()


def test_every_kind_of_event_comes_back(place):
    journal = place.open()
    for start in range(0, len(EVERY_KIND), 4):
        journal.append(EVERY_KIND[start : start + 4])
    journal.append(10 * EVERY_KIND)
    journal.close()
    journal = place.open()
    assert same([event for _, event in journal.read()], 11 * EVERY_KIND)
    journal.close()


def test_reading_begins_behind_a_position(journal):
    journal.append(EVENTS)
    assert numbers(journal, after=3) == [4, 5]
    assert numbers(journal, after=5) == []


def test_a_long_log_is_read_whole(journal):
    for start in range(0, 2_500, 500):
        journal.append([Forgotten(start + i) for i in range(500)])
    assert [event.event_id for _, event in journal.read()] == list(range(2_500))


def test_nothing_appended_changes_nothing(journal):
    journal.append(EVENTS)
    assert journal.append([]) == 5
    assert journal.last_position == 5


def test_an_event_that_cannot_be_written_is_refused_and_so_are_those_with_it(journal):
    with pytest.raises(JournalError, match="a Rewarded cannot be written"):
        journal.append([EVENTS[0], Rewarded(object(), 1.0)])
    with pytest.raises(JournalError, match="a str cannot be written"):
        journal.append(["hello"])
    with pytest.raises(JournalError, match="a Rewarded cannot be written"):
        journal.append([*(Forgotten(n) for n in range(199)), Rewarded(object(), 1.0)])
    assert journal.last_position == 0
    assert list(journal.read()) == []
    assert journal.append(EVENTS[:1]) == 1


def test_an_erased_record_is_found_under_its_decision_and_nothing_else_of_it_is_kept(place):
    journal = place.open()
    journal.append(EVENTS)
    before = dict(place.records())
    for at in (0, 6):
        with pytest.raises(JournalError, match=f"records to replace are from 1 to 5, got {at}"):
            journal.erase({1: Erased("a", 5), at: Erased("a", 5)})
    assert dict(place.records()) == before
    journal.erase({1: Erased("a", 5), 3: Erased("a", 5)})
    for again in (False, True):
        if again:
            journal.close()
            journal = place.open()
        assert [event for _, event in journal.find("a")] == 2 * [Erased("a", 5)]
        assert same([event for at, event in journal.read() if at not in (1, 3)], [
            *EVENTS[1:2], *EVENTS[3:]])  # fmt: skip
        assert (journal.last_position, journal.damage) == (5, Damage(0, 0))
    assert journal.append(EVENTS[:1]) == 6
    journal.close()


def test_a_log_has_one_writer(place):
    first = place.open()
    with pytest.raises(JournalError, match="one writer"):
        place.open()
    first.append(EVENTS)
    first.close()
    second = place.open()
    assert second.last_position == 5
    second.close()


def test_a_closed_journal_refuses_and_may_be_closed_again(place):
    journal = place.open()
    journal.append(EVENTS)
    journal.close()
    journal.close()
    for use in (lambda: journal.append(EVENTS), lambda: list(journal.read())):
        with pytest.raises(JournalError, match="closed"):
            use()
    place.open().close()


def test_the_latest_snapshot_comes_back_bit_for_bit_and_two_are_kept_and_the_first(place):
    journal = place.open()
    journal.append(EVENTS)
    for position in (0, 2, 3, 5):
        journal.save_snapshot(position, snapshot(position))
    assert journal.snapshot_positions() == [5, 3, 0]
    for harmed, wanted in ((None, 5), (5, 3), (3, 0), (0, None)):
        journal.close()
        if harmed is not None:
            place.put_snapshot(harmed, flip(place.get_snapshot(harmed)))
        journal = place.open()
        found = journal.latest_snapshot()
        assert (found and found[0]) == wanted
        if found:
            assert header_of(found[1]) == header_of(snapshot(wanted))
            for name, array in snapshot(wanted).arrays.items():
                assert found[1].arrays[name].tobytes() == array.tobytes()
    assert journal.damage == Damage(0, snapshots=3)
    journal.close()


def test_a_snapshot_of_the_same_position_takes_the_place_of_the_first(journal):
    journal.append(EVENTS)
    journal.save_snapshot(3, snapshot(3))
    journal.save_snapshot(3, snapshot(4))
    assert header_of(journal.latest_snapshot()[1]) == header_of(snapshot(4))


@pytest.mark.parametrize("position", [-1, 6])
def test_a_snapshot_needs_a_position_that_the_log_has_reached(journal, position):
    journal.append(EVENTS)
    with pytest.raises(JournalError, match=f"from 0 to 5, got {position}"):
        journal.save_snapshot(position, snapshot(1))
    assert journal.latest_snapshot() is None


def test_a_damaged_end_is_refused_and_nothing_is_changed(place):
    journal = place.open()
    journal.append(EVENTS)
    journal.save_snapshot(5, snapshot(5))
    journal.close()
    harm(place, 4)
    harm(place, 5)
    before = place.records()
    for _ in range(2):
        with pytest.raises(JournalLossError, match="acknowledged up to 5, got an end at 3: 2 rec"):
            place.open()
    assert place.records() == before
    assert place.get_snapshot(5)


def test_a_damaged_end_may_be_accepted_which_is_counted_logged_and_recorded(place, caplog):
    journal = place.open()
    journal.append(EVENTS)
    journal.save_snapshot(3, snapshot(3))
    journal.save_snapshot(5, snapshot(5))
    journal.close()
    harm(place, 4)
    harm(place, 5)
    before = time.time()
    journal = place.open(accept_loss="ops@shop")
    assert journal.damage == Damage(records=2, snapshots=1)
    assert "2 records lost at the end, journal ends at 3" in caplog.text
    assert journal.last_position == 4
    *kept, (position, accepted) = journal.read()
    assert same([event for _, event in kept], EVENTS[:3])
    assert (position, accepted.expected, accepted.found) == (4, 5, 3)
    assert accepted.by == "ops@shop"
    assert before <= accepted.at <= time.time()
    assert journal.latest_snapshot()[0] == 3
    assert journal.append(EVENTS[4:]) == 5
    journal.close()
    journal = place.open()  # no longer refused
    assert journal.damage == Damage(0, 0)
    assert same([event for _, event in journal.read()], [*EVENTS[:3], accepted, EVENTS[4]])
    journal.close()


def test_a_log_that_lost_nothing_has_nothing_to_accept(place):
    for _ in range(2):
        journal = place.open(accept_loss="ops@shop")
        journal.append(EVENTS)
        journal.close()
    journal = place.open()
    assert same([event for _, event in journal.read()], 2 * EVENTS)
    journal.close()


def test_damage_before_the_end_is_an_error_that_names_the_position(place):
    journal = place.open()
    journal.append(EVENTS)
    journal.close()
    harm(place, 2)
    journal = place.open()
    assert journal.damage == Damage(0, 0)
    reading = journal.read()
    assert next(reading)[0] == 1
    with pytest.raises(JournalError, match="record 2 of the journal is damaged"):
        next(reading)
    assert numbers(journal, after=2) == [3, 4, 5]
    journal.close()


def test_threads_may_append_read_and_save_at_once(journal):
    journal.append(EVENTS)

    def append():
        for _ in range(30):
            journal.append([Forgotten(n) for n in range(10)])

    def look():
        for _ in range(10):
            got = numbers(journal)
            assert got == list(range(1, len(got) + 1))
            journal.save_snapshot(5, snapshot(5))
            assert journal.latest_snapshot()[0] == 5

    errors = []

    def noting(work):
        try:
            work()
        except Exception as error:  # noqa: BLE001  (handed to the test)
            errors.append(error)

    works = (append, append, look, look)
    threads = [threading.Thread(target=noting, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert numbers(journal) == list(range(1, 606))


def test_a_snapshot_that_is_not_there_is_a_snapshot_error(journal):
    with pytest.raises(SnapshotError, match="position 3 is gone"):
        journal.load_snapshot(3)
