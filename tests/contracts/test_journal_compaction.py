"""What every Journal must do when it is compacted."""

import pytest
from journals import EVENTS, PLACES, compacted, harm, make_place, numbers, same

from vfbandits.errors import JournalError
from vfbandits.journal.base import Damage


@pytest.fixture(params=PLACES)
def place(request, tmp_path):
    return make_place(request.param, tmp_path)


def test_a_compacted_log_keeps_what_was_asked_for_and_all_behind_it(place):
    journal = compacted(place)
    for again in (False, True):
        if again:
            journal.close()
            journal = place.open()
        assert (journal.last_position, journal.compacted_to) == (5, 3)
        assert journal.damage == Damage(0, 0)
        assert [position for position, _ in journal.remains()] == [1]
        assert same([event for _, event in journal.remains()], EVENTS[:1])
        assert list(journal.remains(after=1)) == []
        assert numbers(journal, after=3) == [4, 5]
        assert journal.snapshot_positions() == [5, 3]
    assert journal.append(EVENTS[:1]) == 6
    assert numbers(journal, after=4) == [5, 6]
    journal.close()


def test_reading_what_was_compacted_away_is_refused(place):
    journal = compacted(place)
    with pytest.raises(
        JournalError, match=r"compacted up to 3: wanted an undamaged snapshot .* got position 2"
    ):
        numbers(journal, after=2)
    journal.close()


def test_a_log_may_be_compacted_to_its_end_and_again(place):
    journal = compacted(place)
    assert journal.compact(5, keep=[1, 4]) == 1
    journal.close()
    journal = place.open()
    assert (journal.last_position, journal.compacted_to, journal.damage) == (5, 5, Damage())
    assert [position for position, _ in journal.remains()] == [1, 4]
    assert numbers(journal, after=5) == []
    assert journal.append(EVENTS) == 10
    journal.close()


@pytest.mark.parametrize("position", [0, 1, 3, 4, 6])
def test_a_log_is_compacted_to_a_later_snapshot_only(place, position):
    journal = compacted(place)
    with pytest.raises(JournalError, match=f"a snapshot after position 3, got {position}"):
        journal.compact(position, keep=[])
    assert numbers(journal, after=3) == [4, 5]
    journal.close()


def test_a_damaged_end_of_a_compacted_log_is_dropped_and_what_remains_is_not(place):
    compacted(place).close()
    harm(place, 1)
    harm(place, 4)
    harm(place, 5)
    journal = place.open(accept_loss="ops")
    assert journal.damage == Damage(records=2, snapshots=1)
    assert journal.last_position == 4
    with pytest.raises(JournalError, match="record 1 of the journal is damaged"):
        list(journal.remains())
    journal.close()
