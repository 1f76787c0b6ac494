"""What every JournalReader must do."""

import pytest
from journals import EVENTS, PLACES, compacted, header_of, make_place, numbers, same, snapshot

from vfbandits.errors import JournalError
from vfbandits.journal.base import Damage


@pytest.fixture(params=[name for name in PLACES if not name.startswith("InMemory")])
def shared(request, tmp_path):
    """A place that other processes can read."""
    return make_place(request.param, tmp_path)


def test_readers_see_what_was_committed_while_the_writer_is_at_work(shared):
    journal = shared.open()
    journal.append(EVENTS[:3])
    reader = shared.reader()
    assert numbers(reader) == [1, 2, 3]
    assert reader.latest_snapshot() is None
    journal.append(EVENTS[3:])
    journal.save_snapshot(4, snapshot(4))
    assert (reader.last_position, reader.compacted_to, reader.damage) == (5, 0, Damage())
    assert same([event for _, event in reader.read(after=3)], EVENTS[3:])
    position, found = reader.latest_snapshot()
    assert (position, header_of(found)) == (4, header_of(snapshot(4)))
    assert (reader.snapshot_positions(), reader.load_snapshot(4).header) == ([4], found.header)
    second = shared.reader()
    assert numbers(second) == [1, 2, 3, 4, 5]
    journal.close()
    assert numbers(reader, after=4) == [5]
    for one in (reader, second):
        one.close()
        one.close()
    with pytest.raises(JournalError, match="closed"):
        numbers(reader)


def test_readers_see_what_remains_of_a_compacted_log(shared):
    journal = compacted(shared)
    reader = shared.reader()
    assert reader.compacted_to == 3
    assert [position for position, _ in reader.remains()] == [1]
    with pytest.raises(JournalError, match="compacted up to 3"):
        numbers(reader)
    reader.close()
    journal.close()


def test_a_reader_of_a_log_that_is_not_there_is_refused(shared):
    with pytest.raises(JournalError, match=r"No such file|has none of this name"):
        shared.reader()


def test_a_reader_counts_what_is_missing_from_the_end(shared):
    journal = shared.open()
    journal.append(EVENTS)
    journal.close()
    shared.remove_record(5)
    shared.remove_record(4)
    reader = shared.reader()
    assert (reader.damage, reader.last_position) == (Damage(records=2), 3)
    reader.close()
