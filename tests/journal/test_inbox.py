"""What every inbox promises, in memory and in PostgreSQL, plain and encrypted."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from inboxes import INBOXES, InboxOnPostgres, make_place
from journals import KEY, flip, postgres_url, query

from vfbandits.campaign.events import Activated, Configured, Decided, Reported
from vfbandits.errors import JournalError
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.inbox.base import QUEUED
from vfbandits.journal.inbox.open import open_inbox
from vfbandits.journal.inbox.postgres import PostgresInbox
from vfbandits.journal.record import encode


@pytest.fixture(params=INBOXES)
def place(request):
    return make_place(request.param)


@pytest.fixture
def inbox(place):
    inbox = place.open()
    yield inbox
    inbox.close()


def decided(event_id, value=1.0):
    return Decided(event_id, "tea", 0, np.array([value, 2.0]), user="ann", answer=b"answer")


def reward(event_id, value, reward_id="", at=5.0):
    return Reported(event_id, value, reward_id, QUEUED, float(at))


def same(events, others):
    return [encode(event) for event in events] == [encode(event) for event in others]


def test_what_was_put_waits_in_order_until_it_is_taken(inbox, place):
    events = [decided("a"), decided("b"), reward("a", 1.0), Activated("b", 9.0, 3.0)]
    assert inbox.put(events[:2]) == events[:2]
    assert inbox.put(events[2:]) == events[2:]
    other = place.open()
    waiting = other.waiting(10)
    assert same([one.event for one in waiting], events)
    assert [one.id for one in other.waiting(2)] == [one.id for one in waiting[:2]]
    other.take([one.id for one in waiting[:3]])
    assert same([one.event for one in inbox.waiting(10)], events[3:])
    assert inbox.is_used()
    other.close()


def test_the_first_event_under_a_key_is_kept(inbox, place):
    other = place.open()
    first, late = decided("a", 1.0), decided("a", 7.0)
    assert inbox.put([first])[0] is first
    assert same(other.put([late, reward("a", 1.0)]), [first, reward("a", 1.0)])
    assert same(inbox.put([reward("a", 0.0)]), [reward("a", 1.0)])
    one, two = reward("a", 2.0, "x"), reward("a", 3.0, "x")
    put = inbox.put([one, two])  # twice in one statement
    assert put[0] is one
    assert same(put, [one, one])
    inbox.take([waiting.id for waiting in inbox.waiting(10)])
    assert same(other.put([late]), [first])  # what was taken keeps its key
    assert other.waiting(10) == []
    other.close()


def test_a_decision_is_found_while_it_waits(inbox):
    inbox.put([decided("a"), decided("b"), reward("a", 1.0, "r"), Configured(b"{}")])
    found = inbox.find_many(["a", "c"])
    assert list(found) == ["a", "c"]
    assert same(found["a"], [decided("a"), reward("a", 1.0, "r")])
    assert found["c"] == []
    inbox.take([one.id for one in inbox.waiting(10)])
    assert inbox.find_many(["a"]) == {"a": []}


def test_each_change_of_settings_stands_for_itself(inbox):
    inbox.put([Configured(b"{}", 1.0), Configured(b"{}", 1.0)])
    assert len(inbox.waiting(10)) == 2


def test_what_was_erased_is_gone_whether_it_was_taken_or_not(inbox):
    his = Decided("d", "tea", 0, np.array([1.0, 2.0]), user="bob")
    inbox.put([decided("a"), decided("b"), his])
    inbox.put([reward("a", 1.0, "r"), reward("d", 1.0, "r"), Configured(b"{}")])
    inbox.take([one.id for one in inbox.waiting(1)])
    assert inbox.decisions_of("ann") == ["a", "b"]
    inbox.erase(["a", "b"])
    assert inbox.decisions_of("ann") == []
    left = [one.event for one in inbox.waiting(10)]
    assert same(left, [his, reward("d", 1.0, "r"), Configured(b"{}")])
    again = decided("a")
    assert inbox.put([again]) == [again]


def test_what_was_taken_is_pruned_and_what_was_set_aside_never(inbox):
    inbox.put([decided("a"), decided("b"), decided("c")])
    a, b, _ = (one.id for one in inbox.waiting(10))
    inbox.take([a])
    inbox.set_aside([b])
    assert inbox.prune(older_s=3_600.0, most=10) == 0
    assert inbox.prune(older_s=-1.0, most=10) == 1
    assert inbox.prune(older_s=-1.0, most=10) == 0
    fresh, old = decided("a", 9.0), decided("b", 9.0)
    put = inbox.put([fresh, old])
    assert put[0] is fresh
    assert same(put[1:], [decided("b")])
    assert [one.event.event_id for one in inbox.waiting(10)] == ["c", "a"]


def test_what_was_set_aside_goes_when_it_is_old_and_nothing_else_does(inbox):
    events = [reward(name, 1.0, "r", at) for name, at in zip("abcdef", range(1, 7), strict=True)]
    inbox.put(events)
    ids = [one.id for one in inbox.waiting(10)]
    inbox.take(ids[:1])
    inbox.set_aside(ids[1:5])
    assert inbox.retire(before=2.0, most=10) == 0
    assert inbox.retire(before=4.0, most=1) == 1
    assert inbox.retire(before=4.0, most=10) == 1
    left = [event.event_id for event, _ in inbox.copied()]
    assert left == ["a", "d", "e", "f"]
    assert inbox.retire(before=9.0, most=10) == 2
    assert [one.event.event_id for one in inbox.waiting(10)] == ["f"]


def test_what_was_set_aside_and_cannot_be_read_is_as_old_as_the_next(inbox, place):
    inbox.put([reward("a", 1.0, "r", 1.0)])
    (record,) = place.records()
    place.put_record(flip(record))
    inbox.set_aside([one.id for one in inbox.waiting(10)])
    assert inbox.retire(before=9.0, most=10) == 0  # nobody can tell
    inbox.put([reward("b", 1.0, "r", 5.0)])
    assert inbox.retire(before=5.0, most=10) == 0
    assert inbox.retire(before=9.0, most=10) == 1
    assert [one.event.event_id for one in inbox.waiting(10)] == ["b"]


def test_an_event_that_is_damaged_is_told_and_the_others_are_given(inbox, place):
    inbox.put([decided("a")])
    (record,) = place.records()
    place.put_record(flip(record))
    inbox.put([decided("b")])
    broken, whole = inbox.waiting(10)
    assert broken.event is None
    assert "checksum is wrong" in broken.reason
    assert same([whole.event], [decided("b")])


CALLS = {
    "put": lambda inbox: inbox.put([decided("a")]),
    "find_many": lambda inbox: inbox.find_many(["a"]),
    "waiting": lambda inbox: inbox.waiting(10),
    "take": lambda inbox: inbox.take([1]),
    "set_aside": lambda inbox: inbox.set_aside([1]),
    "is_used": lambda inbox: inbox.is_used(),
    "prune": lambda inbox: inbox.prune(older_s=0.0, most=10),
    "retire": lambda inbox: inbox.retire(before=0.0, most=10),
    "decisions_of": lambda inbox: inbox.decisions_of("ann"),
    "erase": lambda inbox: inbox.erase(["a"]),
    "copied": lambda inbox: [*inbox.copied()],
}


@pytest.mark.parametrize("call", CALLS)
def test_a_closed_inbox_says_so(place, call):
    inbox = place.open()
    inbox.close()
    inbox.close()
    with pytest.raises(JournalError, match="closed"):
        CALLS[call](inbox)


@pytest.mark.parametrize("name", [name for name in INBOXES if name.endswith("Sealed")])
def test_an_encrypted_inbox_shows_no_id_and_no_record_fits_another_key(name):
    place = make_place(name)
    inbox = place.open()
    inbox.put([decided("event-a"), decided("event-b")])
    assert all(b"event" not in record and b"ann" not in record for record in place.records())
    place.put_key_of(0, 1)
    assert all("got one that does not decrypt" in one.reason for one in inbox.waiting(10))
    inbox.close()


def test_many_processes_with_the_same_keys_agree_and_none_waits_for_ever():
    place = InboxOnPostgres()
    inboxes = [place.open() for _ in range(4)]
    together = threading.Barrier(4)

    def work(number):
        rng = np.random.default_rng(number)
        answers = {}
        together.wait()
        for _ in range(20):
            names = [f"e{k}" for k in rng.permutation(30)[:15]]
            for name, event in zip(names, inboxes[number].put(
                [decided(name, float(number)) for name in names]), strict=True):  # fmt: skip
                assert answers.setdefault(name, event.x[0]) == event.x[0]
        return answers

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, range(4)))
    kept = {one.event.event_id: one.event.x[0] for one in inboxes[0].waiting(100)}
    for answers in found:
        assert answers.items() <= kept.items()
    for inbox in inboxes:
        inbox.close()


def test_it_reconnects_after_it_lost_its_connection():
    place = InboxOnPostgres()
    inbox = place.open()
    inbox.put([decided("a")])
    query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND query LIKE '%%vfb_inbox%%'"
    )
    with pytest.raises(JournalError, match="cannot be written"):
        inbox.put([decided("b")])
    inbox.put([decided("c")])
    assert [one.event.event_id for one in inbox.waiting(10)] == ["a", "c"]
    inbox.close()


def test_the_key_and_the_name_must_be_those_of_the_log():
    place = InboxOnPostgres(KEY).on_postgres
    with pytest.raises(JournalError, match="wanted its key, got none"):
        PostgresInbox(place.url, name=place.name)
    with pytest.raises(JournalError, match="got a different key"):
        PostgresInbox(place.url, name=place.name, key=JournalKey.generate())
    with pytest.raises(JournalError, match="none of this name"):
        PostgresInbox(place.url, name="nobody")


def test_an_inbox_needs_a_database(tmp_path, monkeypatch):
    with pytest.raises(JournalError, match="in a database only"):
        open_inbox(str(tmp_path / "journal.db"))
    monkeypatch.setenv("VFB_TEST_URL", postgres_url())
    place = InboxOnPostgres()
    open_inbox("env:VFB_TEST_URL", name=place.on_postgres.name).close()
