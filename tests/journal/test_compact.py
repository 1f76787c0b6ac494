"""A compacted log has lost nothing that is still needed, whenever the work was cut short."""

import asyncio
import os
import signal
import time

import numpy as np
import pytest
from durables import parts
from journals import InMemory, OnPostgres, OnSqlite, harm
from logged_runs import LAYOUTS, Run, maker

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
from vfbandits.campaign.model import Model, fold
from vfbandits.errors import JournalError
from vfbandits.journal.compact import Compaction, compact
from vfbandits.journal.recover import recover
from vfbandits.journal.verify import verify
from vfbandits.serving.durable import DurableBandit


def compacted(place):
    journal = place.open()
    done = compact(journal)
    journal.close()
    return done


def reopened(place, layout="disjoint"):
    async def run():
        bandit = DurableBandit.open(place.open(), maker(layout))
        found = parts(bandit.bandit)
        await bandit.close()
        return found

    return asyncio.run(run())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_model_is_the_same_and_open_decisions_are_kept(tmp_path, layout):
    place = InMemory(tmp_path)
    run = Run(place, layout)
    run.visit(30, "save", "move", 20, "save", 10)
    before = reopened(place, layout)
    positions = sorted(place.disk.snapshots)
    done = compacted(place)
    assert done.position == positions[1]
    assert done.dropped + done.kept == done.position
    assert 0 < done.kept < done.dropped
    assert reopened(place, layout) == before
    journal = place.open()
    assert verify(journal).problems == ()
    remains = [event.event_id for _, event in journal.remains() if isinstance(event, Decided)]
    journal.close()
    still_open = [key for key, _ in before[0]["open"]]
    assert set(remains) <= {*still_open, *run.plain}
    assert [key for key in still_open if key in remains] == remains

    async def reward_all():
        bandit = DurableBandit.open(place.open(), maker(layout))
        for decision in bandit.bandit.open_decisions:
            assert await bandit.reward(decision, 1.0)
        await bandit.close()

    asyncio.run(reward_all())
    journal = place.open()
    assert verify(journal).n_open == 0
    journal.close()


def test_what_happened_to_open_decisions_is_kept_and_settings_are_in_the_snapshot(tmp_path):
    x = np.ones(2)
    events = [
        Configured(b"first"),
        Decided("again", "tea", 0, x),  # 2: another life of the name
        Reported("again", 1.0, "r", "counted"),
        Forgotten("again"),
        Decided("done", "tea", 0, x),
        MasksChanged(1, np.eye(2)),  # 6: before all that is open
        Decided("open", "tea", 0, x, held=True),
        Rewarded("done", 1.0),
        Reported("done", 1.0, "r", "ignored"),
        Configured(b"second"),
        Activated("open", 60.0),  # 11
        Decided("again", "tea", 0, x),
        Reported("open", 0.5, "click", "counted"),
        MasksChanged(2, np.eye(2)),  # 14
        Reported("again", 0.5, "click", "late"),
    ]
    journal = InMemory(tmp_path).open()
    make = lambda: Model(vfb.Bandit(vfb.LinUCB(), dim=2))  # noqa: E731
    model, _ = recover(journal, make())
    for _ in range(2):
        last = journal.append(events if not model.position else [Configured(b"third")])
        fold(journal.read(after=model.position), model)
        journal.save_snapshot(last, model.snapshot())
    assert compact(journal) == Compaction(15, dropped=9, kept=6)
    assert [position for position, _ in journal.remains()] == [7, 11, 12, 13, 14, 15]
    assert [position for position, _ in journal.find("open")] == [7, 11, 13]
    assert [position for position, _ in journal.find("again")] == [12, 15]
    assert journal.find("done") == []
    assert verify(journal).problems == ()
    again, _ = recover(journal, make())
    assert (again.settings, again.n_settings) == (b"third", 3)
    assert [one.pack() for one in again.pending.values()] == [
        one.pack() for one in model.pending.values()
    ]
    assert again.pending["open"].reports == {"click": 0.5}


def test_it_can_be_done_again_and_again(tmp_path):
    place = InMemory(tmp_path)
    run = Run(place, max_open=8)
    for _ in range(4):
        run.visit(10, "move", "save", 10, "save")
        assert compacted(place) is not None
        run.visit(5)
        assert compacted(place) is None
        journal = place.open()
        assert verify(journal).problems == ()
        assert sum(1 for _ in journal.remains()) <= 8 + 4
        journal.close()


@pytest.mark.parametrize("deeds", [(), (5,), (5, "save"), ("save", 5, "save")])
def test_with_fewer_than_two_snapshots_to_stand_on_nothing_is_dropped(tmp_path, deeds):
    place = InMemory(tmp_path)
    Run(place).visit(*deeds)
    assert compacted(place) is None
    assert place.disk.compacted_to == 0


def test_a_log_that_is_not_whole_is_not_compacted(tmp_path):
    place = InMemory(tmp_path)
    Run(place).visit(10, "save", 10, "save")
    harm(place, 4)
    with pytest.raises(JournalError, match=r"must verify to be compacted, got 1 .*record 4"):
        compacted(place)
    assert place.disk.compacted_to == 0


def test_without_its_snapshots_a_compacted_log_is_refused_and_not_begun_anew(tmp_path):
    place = OnSqlite(tmp_path)
    Run(place).visit(10, "save", 10, "save")
    assert compacted(place) is not None
    for file in tmp_path.glob("*.snapshot-*"):
        file.unlink()
    with pytest.raises(JournalError, match="wanted an undamaged snapshot"):
        reopened(place)


def test_the_file_gets_smaller(tmp_path):
    place = OnSqlite(tmp_path)
    Run(place).visit(120, "save", 5, "save")
    before = place.path.stat().st_size
    assert isinstance(compacted(place), Compaction)
    assert place.path.stat().st_size < before / 2


def compact_in_a_child(place, *, kill_after):
    """Whether the child got to the end before it was killed."""
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        journal = place.open()
        os.write(tell, b".")
        journal.compact(journal.snapshot_positions()[1], keep=[])
        os._exit(0)
    assert os.read(ready, 1) == b"."
    time.sleep(kill_after)
    os.kill(child, signal.SIGKILL)
    os.close(ready)
    os.close(tell)
    return not os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.parametrize(("kind", "trials"), [(OnSqlite, 10), (OnPostgres, 5)])
def test_a_kill_at_any_moment_leaves_the_log_as_it_was_or_compacted(tmp_path, kind, trials):
    place, rng = kind(tmp_path), np.random.default_rng(0)
    run, longest = Run(place), 0.02
    for _ in range(trials):
        run.visit(6, "save", 2, "save", 1)
        before = reopened(place)
        journal = place.open()
        possible = {journal.compacted_to, journal.snapshot_positions()[1]}
        last = journal.last_position
        journal.close()
        if compact_in_a_child(place, kill_after=rng.uniform(0.0, longest)):
            longest /= 2  # aim at the time that it takes
        journal = place.open()
        assert journal.compacted_to in possible
        assert journal.last_position == last
        assert verify(journal).problems == ()
        journal.close()
        assert reopened(place) == before
