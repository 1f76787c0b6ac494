"""The book is a part of the fold: the same from any snapshot, and bounded as the bandit is."""

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vfbandits as vfb
from vfbandits.campaign.events import (
    Activated,
    Configured,
    Decided,
    Forgotten,
    Moved,
    Reported,
    Rewarded,
)
from vfbandits.campaign.pending import Book, Entry, total
from vfbandits.core.snapshot import Record, Snapshot
from vfbandits.errors import SnapshotError
from vfbandits.journal.fold import Model, fold, recover
from vfbandits.journal.memory import MemoryDisk, MemoryJournal
from vfbandits.journal.snapshot import open_sealed, seal_snapshot
from vfbandits.journal.verify import difference

MOST = 4
QUARTER = np.array([[0.0, 1.0], [-1.0, 0.0]])
KINDS = ("decide", "reward", "forget", "activate", "report", "ignore", "configure", "move")
numbers = st.floats(-1e6, 1e6)


def bandit():
    return vfb.Bandit(vfb.LinUCB(beta=0.5), dim=2, seed=3, max_open=MOST, max_settled=3)


def decided(name, **more):
    return Decided(name, "tea", 0, np.ones(2), **more)


@st.composite
def logs(draw):
    """Events of every kind, each of which fits behind those before it."""
    model, events = Model(bandit()), []
    for kind in draw(st.lists(st.sampled_from(KINDS), max_size=40)):
        event = draw(_event(kind, model, len(events)))
        model.apply(model.position + 1, event)
        events.append(event)
    return events


def _event(kind, model, number):
    """The strategy of an event that fits now."""
    due = st.none() | numbers
    opened = model.bandit.open_decisions
    waiting = st.sampled_from([*opened, "nobody"])
    if kind in ("reward", "forget"):
        kind = kind if opened else "decide"
        waiting = st.sampled_from(opened or ("nobody",))
    made = {
        "decide": st.builds(
            Decided,
            st.just(f"order-{number}"),
            st.sampled_from(["tea", 7]),
            st.just(0),
            st.just(np.array([1.0, float(number)])),
            at=numbers,
            group=st.sampled_from(["policy", "holdback", "\ud800"]),
            due=due,
            held=st.booleans(),
            note=st.binary(max_size=3),
        ),
        "reward": st.builds(Rewarded, waiting, numbers, numbers, st.none() | st.text(max_size=2)),
        "forget": st.builds(Forgotten, waiting),
        "activate": st.builds(Activated, waiting, due, numbers),
        "report": st.builds(
            Reported, waiting, numbers, st.sampled_from("abc"), st.just("counted"), numbers
        ),
        "ignore": st.builds(
            Reported,
            waiting,
            numbers,
            st.text(max_size=2),
            st.sampled_from(["late", "ignored", "logged"]),
        ),
        "configure": st.builds(Configured, st.binary(max_size=5), numbers),
        "move": st.builds(Moved, st.just(model.epoch + 1), st.just(QUARTER), st.binary(max_size=3)),
    }
    return made[kind]


def packed(model):
    return copy.deepcopy(model.book.pack())


@given(events=logs(), data=st.data())
@settings(max_examples=50)
def test_from_a_snapshot_at_any_position_the_book_is_that_of_an_uninterrupted_run(events, data):
    numbered = list(enumerate(events, start=1))
    whole = Model(bandit())
    for position, event in numbered:
        whole.apply(position, event)
        assert tuple(whole.book.entries) == whole.bandit.open_decisions  # so at most MOST, too
    cut = data.draw(st.integers(0, len(events)))
    frozen = seal_snapshot(fold(numbered[:cut], Model(bandit())).snapshot())
    half = Model.restore(cut, open_sealed(frozen, name="half"))
    again = fold(numbered[cut:], half)
    assert packed(again) == packed(whole)
    assert again.book.entries == whole.book.entries
    assert again.book.settings == whole.book.settings
    assert difference(again.snapshot(), whole.snapshot()) is None


@given(events=logs(), data=st.data())
@settings(max_examples=50)
def test_a_log_that_is_opened_again_brings_its_book_back(events, data):
    disk = MemoryDisk()
    journal = MemoryJournal(disk)
    model, _ = recover(journal, Model(bandit()))
    cut = data.draw(st.integers(0, len(events)))
    for some in (events[:cut], events[cut:]):
        journal.append(some)
        fold(journal.read(after=model.position), model)
        if some is not events[cut:]:
            journal.save_snapshot(model.position, model.snapshot())
    journal.close()
    again, _ = recover(MemoryJournal(disk), Model(bandit()))
    assert packed(again) == packed(model)


def test_past_its_bound_the_book_drops_the_oldest_as_the_bandit_does():
    model = Model(bandit())
    for number in range(MOST + 3):
        model.apply(number + 1, decided(f"order-{number}"))
    kept = tuple(f"order-{number}" for number in range(3, MOST + 3))
    assert tuple(model.book.entries) == model.bandit.open_decisions == kept


def test_an_event_is_held_until_it_is_activated():
    book = Book(most=9)
    book.apply(decided("a", due=5.0, held=True, group="holdback", at=1.0))
    assert book.entries["a"] == Entry("tea", "holdback", 1.0, 5.0, held=True)
    book.apply(Activated("a", 60.0, 3.0))
    book.apply(Activated("b", 60.0, 3.0))
    assert book.entries == {"a": Entry("tea", "holdback", 1.0, 60.0, held=False)}


def test_only_rewards_that_count_are_noted_each_id_once():
    book = Book(most=9)
    book.apply(decided("a"))
    for value, name, why in ((0.5, "x", "counted"), (2.0, "y", "late"), (1.0, "z", "counted"),
                             (0.25, "x", "counted"), (9.0, "q", "logged")):  # fmt: skip
        book.apply(Reported("a", value, name, why))
    book.apply(Reported("b", 1.0, "x", "counted"))
    assert book.entries["a"].reports == {"x": 0.25, "z": 1.0}
    assert list(book.entries) == ["a"]


def test_the_sum_does_not_depend_on_when_rewards_came():
    values = {"a": 1e16, "b": 1.0, "c": -1e16}
    assert total(values) == total(dict(reversed(values.items())))
    assert total({}) == 0.0


def test_settings_are_the_latest_and_changes_are_counted_and_so_is_what_was_learnt():
    book = Book(most=9)
    book.apply(Configured(b"one"))
    book.apply(Configured(b"\xfftwo"))
    book.apply(decided("a"))
    book.learnt("a")
    book.apply(decided("b"))
    book.close("b")
    assert (book.settings, book.n_settings, book.n_learnt, len(book.entries)) == (
        b"\xfftwo", 2, 1, 0,
    )  # fmt: skip


def test_a_packed_book_does_not_change_with_the_book():
    book = Book(most=9)
    book.apply(decided("a"))
    book.apply(Reported("a", 1.0, "x", "counted"))
    before = book.pack()
    kept = copy.deepcopy(before)
    book.apply(Reported("a", 2.0, "x", "counted"))
    book.apply(Activated("a", 7.0))
    assert before == kept
    other = Book(most=9)
    other.unpack(Record(before))
    assert other.entries["a"].reports == {"x": 1.0}


ENTRY = ["a", "tea", "policy", 0.0, None, False, True, [["x", 1.0]]]


@pytest.mark.parametrize(
    "change",
    [
        {"settings": "?"},
        {"settings": 7},
        {"settings": "ü"},
        {"n_settings": 1.5},
        {"n_learnt": None},
        {"n_learnt": True},
        {"arms_shown": [["tea"]]},
        {"arms_shown": [[1.5, 2.0]]},
        {"arms_shown": [["tea", "noon"]]},
        {"entries": {}},
        {"entries": ["a"]},
        {"entries": [ENTRY[:-1]]},
        {"entries": [[True, *ENTRY[1:]]]},
        {"entries": [[None, *ENTRY[1:]]]},
        {"entries": [["a", False, *ENTRY[2:]]]},
        {"entries": [["a", "tea", 7, *ENTRY[3:]]]},
        {"entries": [[*ENTRY[:3], "noon", *ENTRY[4:]]]},
        {"entries": [[*ENTRY[:3], float("nan"), *ENTRY[4:]]]},
        {"entries": [[*ENTRY[:3], True, *ENTRY[4:]]]},
        {"entries": [[*ENTRY[:4], "soon", *ENTRY[5:]]]},
        {"entries": [[*ENTRY[:5], 1, *ENTRY[6:]]]},
        {"entries": [[*ENTRY[:6], 1, ENTRY[7]]]},
        {"entries": [[*ENTRY[:7], {"x": 1.0}]]},
        {"entries": [[*ENTRY[:7], ["x"]]]},
        {"entries": [[*ENTRY[:7], [["x"]]]]},
        {"entries": [[*ENTRY[:7], [[7, 1.0]]]]},
        {"entries": [[*ENTRY[:7], [["x", "much"]]]]},
        {"entries": [[*ENTRY[:7], [["x", float("inf")]]]]},
        {"entries": []},  # but the bandit has one that is open
        {"entries": [["b", *ENTRY[1:]]]},
        {"entries": [ENTRY, ["b", *ENTRY[1:]]]},
    ],
)
def test_a_bad_book_makes_a_bad_snapshot(change):
    model = Model(bandit())
    model.apply(1, decided("a"))
    good = model.snapshot()
    durable = good.header["durable"]
    changed = {**durable, "book": {**durable["book"], **change}}
    bad = Snapshot({**good.header, "durable": changed}, good.arrays)
    with pytest.raises(SnapshotError):
        Model.restore(1, bad)
    entries = {"entries": [ENTRY]}
    fitting = {**durable, "book": {**durable["book"], **entries}}
    restored = Model.restore(1, Snapshot({**good.header, "durable": fitting}, good.arrays))
    assert restored.book.entries["a"].reports == {"x": 1.0}
    assert restored.book.entries["a"].logged


def test_a_snapshot_without_a_book_is_refused():
    snapshot = Model(bandit()).snapshot()
    del snapshot.header["durable"]["book"]
    with pytest.raises(SnapshotError, match="a record at 'book'"):
        Model.restore(0, snapshot)
