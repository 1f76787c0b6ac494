"""A whole log is found whole, and every harm is found and named."""

import asyncio
from contextlib import closing

import numpy as np
import pytest
from journals import InMemory, flip, harm
from logged_runs import LAYOUTS, Run, maker

import vfbandits as vfb
from vfbandits.campaign.events import (
    Activated,
    Administered,
    Configured,
    Decided,
    Forgotten,
    MasksChanged,
    Reported,
    Rewarded,
)
from vfbandits.campaign.model import Model, fold
from vfbandits.core.snapshot import Snapshot
from vfbandits.journal.codec import Codec
from vfbandits.journal.memory import MemoryDisk, MemoryJournal
from vfbandits.journal.models import export_model, model_at, restore_model
from vfbandits.journal.recover import own_model, recover
from vfbandits.journal.verify import MAX_PROBLEMS, verify
from vfbandits.serving.durable import DurableBandit


@pytest.fixture
def place(tmp_path):
    return InMemory(tmp_path)


def check(place):
    journal = place.open()
    found = verify(journal)
    journal.close()
    return found


def played(place, layout="disjoint"):
    """Snapshots of 0, 9 and 13, and some events behind."""
    run = Run(place, layout)
    run.visit(5, "save")
    run.visit("move", "save", 3)
    return run


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_log_is_whole_after_moves_restarts_and_other_policies(place, layout):
    run = Run(place, layout)
    run.visit(20, "save", 10, "move", 10)
    thompson = vfb.LinTS(posterior_scale=0.3, space="parameter" if layout == "per_arm" else "auto")
    run.visit(15, "save", "move", 7, "save", policy=thompson)
    end = run.visit(9, policy=vfb.LinGreedy(epsilon=0.1))
    found = check(place)
    assert found.problems == ()
    assert found.last == sum(found.counts.values())
    assert found.counts["Decided"] == 71
    assert found.counts["MasksChanged"] == 2
    assert found.counts["Rewarded"] == len(run.rewards)
    assert (found.folded_from, len(found.snapshots)) == (0, 3)
    assert found.n_open == len(end.header["open"]) > 0
    assert 1e9 < found.first_at <= found.last_at


def test_events_of_every_kind_are_counted_and_tell_when(place):
    x = np.ones(2)
    journal = place.open()
    model, _ = recover(journal, Model(vfb.Bandit(vfb.LinUCB(), dim=2)))
    journal.append(
        [
            Configured(b"all", 100.0),
            Decided("a", "tea", 0, x, held=True, at=101.0),
            Activated("a", 200.0, 102.0),
            MasksChanged(1, np.eye(2)),
            Reported("a", 1.0, "r", "counted", 103.0),
        ]
    )
    journal.save_snapshot(5, fold(journal.read(), model).snapshot())
    found = verify(journal)
    assert found.problems == ()
    assert (found.first_at, found.last_at, found.n_open) == (100.0, 103.0, 1)
    assert (found.counts["Configured"], found.counts["Activated"]) == (1, 1)
    assert (found.counts["Reported"], found.snapshots) == (1, (0, 5))
    model.apply(6, Reported("a", 2.0, "s", "counted"))
    journal.save_snapshot(5, model.snapshot())
    assert verify(journal).problems == (
        "snapshot of position 5 must equal the events up to it, got a different open",
    )
    journal.close()


def test_an_empty_log_is_whole(place):
    found = check(place)
    assert (found.last, found.counts, found.problems) == (0, {}, ())
    assert (found.folded_from, found.n_open, found.first_at) == (None, None, None)


@pytest.mark.parametrize("part", ["learner/", "open"])
def test_a_snapshot_that_is_off_by_one_bit_is_found(place, part):
    played(place)
    codec = Codec(place.disk.identity)
    position = sorted(place.disk.snapshots)[1]
    snapshot = codec.open_snapshot(place.get_snapshot(position), position)
    name = next(n for n, a in snapshot.arrays.items() if n.startswith(part) and a.any())
    changed = snapshot.arrays[name].copy()
    place_of_it = np.unravel_index(np.abs(changed).argmax(), changed.shape)
    changed[place_of_it] = np.nextafter(changed[place_of_it], 0.0)
    other = Snapshot(snapshot.header, {**snapshot.arrays, name: changed})
    place.put_snapshot(position, codec.seal_snapshot(position, other))
    found = check(place)
    assert found.problems == (
        f"snapshot of position {position} must equal the events up to it, "
        f"got a different array {name}",
    )
    assert position not in found.snapshots


def test_a_snapshot_with_another_count_is_found(place):
    played(place)
    codec = Codec(place.disk.identity)
    last = max(place.disk.snapshots)
    snapshot = codec.open_snapshot(place.get_snapshot(last), last)
    settled = snapshot.header["settled"][1:]
    other = Snapshot({**snapshot.header, "settled": settled}, snapshot.arrays)
    place.put_snapshot(last, codec.seal_snapshot(last, other))
    assert "got a different settled" in check(place).problems[0]


def test_a_damaged_record_is_named_and_the_next_snapshot_gives_ground_again(place):
    played(place)
    harm(place, 3)
    found = check(place)
    assert found.problems == ("record 3 of the journal is damaged: its checksum is wrong",)
    assert (found.folded_from, len(found.snapshots)) == (0, 3)
    assert found.n_open is not None


def test_a_damaged_snapshot_is_named(place):
    played(place)
    position = sorted(place.disk.snapshots)[1]
    place.put_snapshot(position, flip(place.get_snapshot(position)))
    (problem,) = check(place).problems
    assert problem.startswith(f"snapshot of position {position}: ")
    assert "checksum" in problem


def test_an_event_that_does_not_fit_is_named(place):
    played(place)
    journal = place.open()
    last = journal.append([Rewarded("never decided", 1.0), Forgotten("nor this")])
    found = verify(journal)
    journal.close()
    assert f"record {last - 1} of the journal does not fit" in found.problems[0]
    assert found.n_open is None


def test_too_much_damage_ends_the_reading(place):
    Run(place).visit(60)
    for position in range(10, 60):
        harm(place, position)
    found = check(place)
    assert len(found.problems) == MAX_PROBLEMS
    assert found.problems[-1] == "and more: reading was given up"
    assert found.counts["Decided"] < 60


def test_what_a_writer_adds_meanwhile_is_left_for_the_next_time(place):
    run = Run(place)
    run.visit(5, "save")
    journal = place.open()
    steps = []

    def add(position):
        steps.append(position)
        journal.append([Forgotten("later")])

    found = verify(journal, on_step=add)
    journal.close()
    assert found.problems == ()
    assert steps[-1] == found.last < place.open().last_position


def as_written_before(snapshot):
    """A snapshot without what older ones do not have."""
    newer = ("comparison", "tripped", "n_retracted")
    durable = {key: one for key, one in snapshot.header["durable"].items() if key not in newer}
    held = {name: one for name, one in snapshot.held.items() if name != "comparison"}
    return Snapshot({**snapshot.header, "durable": durable}, held)


@pytest.mark.parametrize("keeps_older", [True, False])
def test_a_journal_with_retractions_and_snapshots_of_an_older_version_is_whole(keeps_older):
    disk = MemoryDisk()

    async def play(names):
        bandit = DurableBandit.open(MemoryJournal(disk), maker("per_arm"))
        for name in names:
            await bandit.decide(np.eye(3), event_id=name)
            await bandit.reward(name, 1.0)
            await bandit.retract(name, by="ops")
        await bandit.close()

    asyncio.run(play("ab"))
    with closing(MemoryJournal(disk)) as journal:
        last = journal.last_position
        journal.save_snapshot(last, as_written_before(model_at(journal, last).snapshot()))
    asyncio.run(play("c"))
    with closing(MemoryJournal(disk)) as journal:
        for _ in range(1 if keeps_older else 3):  # the oldest ones go
            model = own_model(journal)
            note = Administered("note", "", "ops", 1.0)
            model.enter(journal.append([note]), note)
            journal.save_snapshot(model.position, model.snapshot())
        assert (last in journal.snapshot_positions()) == keeps_older
        assert verify(journal).problems == ()
        early = export_model(journal, 0)
        assert restore_model(journal, early, by="ops", reason="a test", now=2.0).of == 0
