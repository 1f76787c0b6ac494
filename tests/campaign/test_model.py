"""The model is a fold: the same from any snapshot, with pending decisions within its bound."""

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
    MasksChanged,
    Reported,
    Rewarded,
)
from vfbandits.campaign.model import Model, fold, total
from vfbandits.core.pending import Pending
from vfbandits.core.snapshot import Snapshot
from vfbandits.errors import SnapshotError
from vfbandits.journal.memory import MemoryDisk, MemoryJournal
from vfbandits.journal.recover import recover
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
            answer=st.binary(max_size=3),
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
        "move": st.builds(
            MasksChanged, st.just(model.epoch + 1), st.just(QUARTER), st.binary(max_size=3)
        ),
    }
    return made[kind]


def packed(model):
    waiting = {key: pending.pack() for key, pending in model.pending.items()}
    return copy.deepcopy((model.pack(), waiting))


@given(events=logs(), data=st.data())
@settings(max_examples=50)
def test_from_a_snapshot_at_any_position_it_is_that_of_an_uninterrupted_run(events, data):
    numbered = list(enumerate(events, start=1))
    whole = Model(bandit())
    for position, event in numbered:
        whole.apply(position, event)
        assert len(whole.pending) <= MOST
    cut = data.draw(st.integers(0, len(events)))
    frozen = seal_snapshot(fold(numbered[:cut], Model(bandit())).snapshot())
    half = Model.restore(cut, open_sealed(frozen, name="half"))
    again = fold(numbered[cut:], half)
    assert packed(again) == packed(whole)
    assert again.settings == whole.settings
    assert difference(again.snapshot(), whole.snapshot()) is None


@given(events=logs(), data=st.data())
@settings(max_examples=50)
def test_a_log_that_is_opened_again_brings_it_all_back(events, data):
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


def test_past_its_bound_the_oldest_pending_decision_leaves():
    model = Model(bandit())
    for number in range(MOST + 3):
        model.apply(number + 1, decided(f"order-{number}"))
    kept = tuple(f"order-{number}" for number in range(3, MOST + 3))
    assert tuple(model.pending) == kept


def folded(*events):
    return fold(enumerate(events, start=1), Model(bandit()))


def test_an_event_is_held_until_it_is_activated():
    first = decided("a", due=5.0, held=True, group="holdback", at=1.0)
    pending = folded(first).pending["a"]
    assert (pending.arm, pending.group, pending.at) == ("tea", "holdback", 1.0)
    assert (pending.due, pending.held, pending.position) == (5.0, True, 1)
    model = folded(first, Activated("a", 60.0, 3.0), Activated("b", 60.0, 3.0))
    assert [*model.pending] == ["a"]
    assert (model.pending["a"].due, model.pending["a"].held) == (60.0, False)


def test_only_rewards_that_count_are_noted_each_id_once():
    came = [(0.5, "x", "counted"), (2.0, "y", "late"), (1.0, "z", "counted"),
            (0.25, "x", "counted"), (9.0, "q", "logged")]  # fmt: skip
    reports = [Reported("a", value, name, why) for value, name, why in came]
    model = folded(decided("a"), *reports, Reported("b", 1.0, "x", "counted"))
    assert model.pending["a"].reports == {"x": 0.25, "z": 1.0}
    assert model.pending["a"].logged
    assert list(model.pending) == ["a"]


def test_the_sum_does_not_depend_on_when_rewards_came():
    values = {"a": 1e16, "b": 1.0, "c": -1e16}
    assert total(values) == total(dict(reversed(values.items())))
    assert total({}) == 0.0


def test_settings_are_the_latest_and_changes_are_counted_and_so_is_what_was_learnt():
    model = folded(
        Configured(b"one"),
        Configured(b"\xfftwo"),
        decided("a"),
        Rewarded("a", 1.0),
        decided("b"),
        Forgotten("b"),
    )
    assert (model.settings, model.n_settings, model.n_learnt) == (b"\xfftwo", 2, 1)
    assert not model.pending


@given(events=logs(), data=st.data())
@settings(max_examples=50)
def test_a_snapshot_does_not_change_with_the_model(events, data):
    """Its lists are made when it is written, which may be after later events."""
    numbered = list(enumerate(events, start=1))
    cut = data.draw(st.integers(0, len(events)))
    model = fold(numbered[:cut], Model(bandit()))
    snapshot = model.snapshot()
    before = seal_snapshot(snapshot)
    fold(numbered[cut:], model)
    assert seal_snapshot(snapshot) == before


def test_to_take_a_snapshot_packs_no_pending_decision(monkeypatch):
    """Decisions wait while it is taken, and not while it is written."""
    model, packed = folded(decided("a"), decided("b")), []
    pack = Pending.pack

    def counted(pending):
        packed.append(pending.position)
        return pack(pending)

    monkeypatch.setattr(Pending, "pack", counted)
    snapshot = model.snapshot()
    assert packed == []
    seal_snapshot(snapshot)
    assert packed == [1, 2]


PENDING = [None, "tea", "policy", 0.0, None, False, True, [["x", 1.0]], 1]


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
        {"mask_changes": [[1]]},
        {"mask_changes_after": "first"},
    ],
)
def test_a_model_whose_facts_are_wrong_makes_a_bad_snapshot(change):
    good = folded(decided("a")).snapshot()
    changed = {**good.header["durable"], **change}
    with pytest.raises(SnapshotError):
        Model.restore(1, Snapshot({**good.header, "durable": changed}, good.arrays))


@pytest.mark.parametrize(
    "entry",
    [
        "a",
        ["a"],
        ["a", PENDING[:-1]],
        [True, PENDING],
        [None, PENDING],
        ["a", [True, *PENDING[1:]]],
        ["a", [None, False, *PENDING[2:]]],
        ["a", [None, "tea", 7, *PENDING[3:]]],
        ["a", [*PENDING[:3], "noon", *PENDING[4:]]],
        ["a", [*PENDING[:3], float("nan"), *PENDING[4:]]],
        ["a", [*PENDING[:3], True, *PENDING[4:]]],
        ["a", [*PENDING[:4], "soon", *PENDING[5:]]],
        ["a", [*PENDING[:5], 1, *PENDING[6:]]],
        ["a", [*PENDING[:6], 1, *PENDING[7:]]],
        ["a", [*PENDING[:7], {"x": 1.0}, 1]],
        ["a", [*PENDING[:7], ["x"], 1]],
        ["a", [*PENDING[:7], [["x"]], 1]],
        ["a", [*PENDING[:7], [[7, 1.0]], 1]],
        ["a", [*PENDING[:7], [["x", "much"]], 1]],
        ["a", [*PENDING[:7], [["x", float("inf")]], 1]],
        ["a", [*PENDING[:8], "first"]],
    ],
)
def test_a_bad_pending_decision_makes_a_bad_snapshot(entry):
    good = folded(decided("a")).snapshot()
    with pytest.raises(SnapshotError):
        Model.restore(1, Snapshot({**good.header, "open": [entry]}, good.arrays))
    fitting = Snapshot({**good.header, "open": [["a", PENDING]]}, good.arrays)
    restored = Model.restore(1, fitting)
    assert restored.pending["a"].reports == {"x": 1.0}
    assert restored.pending["a"].logged


@pytest.mark.parametrize("n_open", [0, 2])
def test_a_snapshot_needs_a_context_for_each_pending_decision(n_open):
    good = folded(decided("a")).snapshot()
    opened = [[name, PENDING] for name in "ab"[:n_open]]
    with pytest.raises(SnapshotError, match=f"{n_open} decisions are open, got 1 contexts"):
        Model.restore(1, Snapshot({**good.header, "open": opened}, good.arrays))


def test_a_snapshot_of_a_bare_bandit_is_refused():
    snapshot = Model(bandit()).snapshot()
    del snapshot.header["durable"]
    with pytest.raises(SnapshotError, match="a record at 'durable'"):
        Model.restore(0, snapshot)
