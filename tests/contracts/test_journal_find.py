"""What every Journal and every JournalReader must do to find the events of a decision."""

import threading
from contextlib import closing

import pytest
from journals import ALL_KINDS, PLACES, harm, make_place, same, snapshot

from vfbandits.campaign.events import Configured, Decided, Forgotten, Reported, Rewarded
from vfbandits.errors import JournalError
from vfbandits.journal.lookup import event_id_of

IDS = ["a", "held", 1, "1", "never"]
MANY = 300  # more than PostgreSQL gets in one statement


@pytest.fixture(params=PLACES)
def place(request, tmp_path):
    return make_place(request.param, tmp_path)


@pytest.fixture(params=[name for name in PLACES if not name.startswith("InMemory")])
def shared(request, tmp_path):
    return make_place(request.param, tmp_path)


def obvious(journal, event_id):
    """By reading everything."""
    return [
        (position, event)
        for position, event in (*journal.remains(), *journal.read(journal.compacted_to))
        if (type(event_id_of(event)), event_id_of(event)) == (type(event_id), event_id)
    ]


def alike(found, others):
    positions, events = [[pair[n] for pair in found] for n in (0, 1)]
    return positions == [p for p, _ in others] and same(events, [e for _, e in others])


def positions(found):
    return [position for position, _ in found]


def test_all_events_of_a_decision_are_found_in_their_order(place):
    journal = place.open()
    journal.append(ALL_KINDS)
    for again in (False, True):
        if again:
            journal.close()
            journal = place.open()
        for event_id in IDS:
            assert alike(journal.find(event_id), obvious(journal, event_id))
        assert positions(journal.find("held")) == [4, 5, 7, 12]
        assert positions(journal.find(1)) == [2, 6, 10]
        assert positions(journal.find("1")) == [13]
        assert journal.find("never") == []
    journal.close()


def test_several_are_found_at_once_and_every_id_is_in_the_answer(place):
    journal = place.open()
    journal.append(ALL_KINDS)
    found = journal.find_many([*IDS, "a"])
    assert list(found) == IDS
    for event_id, events in found.items():
        assert alike(events, journal.find(event_id))
    assert journal.find_many([]) == {}
    journal.close()


def test_every_one_of_many_is_found_whatever_the_size_of_the_commits(place):
    journal = place.open()
    ids = [f"order-{n}" for n in range(2 * MANY)]
    journal.append([Forgotten(key) for key in ids[:MANY]])
    for start in range(MANY, 2 * MANY, 50):
        journal.append([Forgotten(key) for key in ids[start : start + 50]])
    journal.append([Reported(key, 1.0, "r", "late") for key in ids])
    found = journal.find_many(ids)
    assert [positions(found[key]) for key in ids] == [
        [n, n + 2 * MANY] for n in range(1, 2 * MANY + 1)
    ]
    journal.close()


def test_readers_find_what_was_committed_and_what_is_added_later(shared):
    with closing(shared.open()) as journal:
        journal.append(ALL_KINDS[:5])
        with closing(shared.reader()) as reader:
            assert positions(reader.find("held")) == [4, 5]
            journal.append(ALL_KINDS[5:])
            found = reader.find_many(IDS)
            assert [positions(found[key]) for key in IDS] == [
                positions(journal.find(key)) for key in IDS
            ]
            assert alike(reader.find("held"), journal.find("held"))


def test_names_that_are_no_utf_8_and_large_numbers_are_found(place):
    ids = ["", "ü\ud800", "\x00", -1, 2**70, 0]
    journal = place.open()
    journal.append([Forgotten(key) for key in ids])
    assert [positions(journal.find(key)) for key in ids] == [[1], [2], [3], [4], [5], [6]]
    journal.close()


def test_what_belongs_to_no_decision_is_never_found(place):
    journal = place.open()
    journal.append([Configured(b"a")])  # alone, and among many
    journal.append([Configured(b"a"), *(Forgotten(n) for n in range(MANY)), Configured(b"a")])
    assert [event.settings for _, event in journal.read() if isinstance(event, Configured)] == (
        3 * [b"a"]
    )
    assert journal.find("a") == []
    assert positions(journal.find(0)) == [3]
    journal.close()


def test_after_compaction_what_was_kept_is_found_and_the_rest_is_not(place):
    journal = place.open()
    journal.append(ALL_KINDS)
    journal.save_snapshot(6, snapshot(6))
    journal.compact(6, keep=[4])
    for again in (False, True):
        if again:
            journal.close()
            journal = place.open()
        assert positions(journal.find("held")) == [4, 7, 12]
        assert positions(journal.find("a")) == [8, 11]
        assert positions(journal.find(1)) == [10]
    assert journal.append([Forgotten("a")]) == 14
    assert positions(journal.find("a")) == [8, 11, 14]
    journal.close()


def test_ids_whose_numbers_collide_are_told_apart(place):
    journal = place.open()
    journal.append(ALL_KINDS)
    wanted = journal.find("held")
    journal.close()
    numbers = dict(place.names())
    for position in (1, 2, 6, 8, 13):
        place.put_name(position, numbers[4])
    journal = place.open()
    assert alike(journal.find("held"), wanted)
    assert alike(journal.find_many(["held", 1])["held"], wanted)
    journal.close()


def test_a_number_that_is_not_that_of_its_decision_is_noticed_when_the_record_is_read(shared):
    journal = shared.open()
    journal.append(ALL_KINDS)
    journal.close()
    for position, number in ((5, 7), (3, 7), (5, None)):
        before = dict(shared.names())[position]
        shared.put_name(position, number)
        with (
            closing(shared.open()) as journal,
            pytest.raises(JournalError, match=f"record {position} .* must have the lookup"),
        ):
            list(journal.read())
        shared.put_name(position, before)
    with closing(shared.open()) as journal:
        assert len(list(journal.read())) == len(ALL_KINDS)


def test_the_same_id_has_another_number_in_every_log(place, tmp_path):
    (tmp_path / "other").mkdir()
    other = type(place)(tmp_path / "other", place.key)
    for one in (place, other):
        journal = one.open()
        journal.append([Forgotten("a"), Forgotten("b"), Rewarded("a", 1.0)])
        journal.close()
    mine, theirs = dict(place.names()), dict(other.names())
    assert mine[1] == mine[3] != mine[2]
    assert not set(mine.values()) & set(theirs.values())


def test_a_damaged_end_is_not_found_and_what_takes_its_place_is(place):
    journal = place.open()
    journal.append(ALL_KINDS)
    journal.close()
    for position in (11, 12, 13):
        harm(place, position)
    journal = place.open(accept_loss="ops")  # which is record 11
    assert journal.find("1") == []
    journal.append([Forgotten("new"), Forgotten("1"), Forgotten("new")])
    for again in (False, True):
        if again:
            journal.close()
            journal = place.open()
        assert positions(journal.find("new")) == [12, 14]
        assert positions(journal.find("1")) == [13]
        assert positions(journal.find("held")) == [4, 5, 7]
    journal.close()


def test_a_damaged_record_is_named_when_it_would_be_found(place):
    journal = place.open()
    journal.append(ALL_KINDS)
    journal.close()
    harm(place, 5)
    journal = place.open()
    with pytest.raises(JournalError, match="record 5 of the journal is damaged"):
        journal.find("held")
    assert positions(journal.find("a")) == [1, 8, 11]
    journal.close()


def test_what_was_refused_is_not_found(place):
    journal = place.open()
    for count in (1, MANY):
        with pytest.raises(JournalError, match="cannot be written"):
            journal.append([*(Forgotten(n) for n in range(count)), Rewarded(object(), 1.0)])
    assert journal.find(0) == []
    journal.append([Forgotten(0)])
    assert positions(journal.find(0)) == [1]
    journal.close()


def test_a_closed_journal_finds_nothing_and_says_why(place):
    journal = place.open()
    journal.close()
    for use in (journal.find, lambda key: journal.find_many([key])):
        with pytest.raises(JournalError, match="closed"):
            use("a")


def test_whatever_was_acknowledged_is_found_at_once_from_other_threads(place):
    journal = place.open()
    acknowledged, errors, is_over = [], [], threading.Event()

    def look(step):
        try:
            while not is_over.is_set() or step < len(acknowledged):
                if step < len(acknowledged):
                    key, position = acknowledged[step]
                    assert position in positions(journal.find(key))
                    step += 7
        except Exception as error:  # noqa: BLE001  (handed to the test)
            errors.append(error)

    threads = [threading.Thread(target=look, args=(start,)) for start in range(2)]
    for thread in threads:
        thread.start()
    for n in range(60):
        last = journal.append([Forgotten(f"{n}-{k}") for k in range(5)])
        acknowledged += [(f"{n}-{k}", last - 4 + k) for k in range(5)]
    is_over.set()
    for thread in threads:
        thread.join()
    assert errors == []
    journal.close()


def test_what_a_decision_says_of_itself_comes_back_with_it(place):
    journal = place.open()
    journal.append(ALL_KINDS)
    ((_, event), *_) = journal.find("held")
    assert isinstance(event, Decided)
    assert (event.group, event.due, event.held, event.answer) == ("holdback", 9.0, True, b"\x00{}")
    journal.close()
