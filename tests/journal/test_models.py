"""A model is exported from its journal and put back: what was learnt then, and nothing else."""

import asyncio
import json
import signal
import stat
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime

import numpy as np
import pytest
from journals import make_place
from logged_runs import LAYOUTS, Run, maker
from typer.testing import CliRunner

import vfbandits as vfb
from vfbandits.campaign.events import Administered, ArmsDropped, MasksChanged, Restored, Rewarded
from vfbandits.campaign.exported import learnt_by
from vfbandits.campaign.model import Model
from vfbandits.cli.main import app
from vfbandits.errors import ConflictError, JournalError, SettingError, SnapshotError
from vfbandits.journal.audit import changes_in
from vfbandits.journal.compact import compact
from vfbandits.journal.erase import ErasureRequest, erase_user
from vfbandits.journal.memory import MemoryJournal
from vfbandits.journal.models import (
    export_model,
    model_at,
    position_at,
    read_model,
    restore_model,
    write_model,
)
from vfbandits.journal.snapshot import save, seal_snapshot
from vfbandits.journal.verify import verify
from vfbandits.serving.durable import DurableBandit

ASKED = {"by": "ops@shop", "reason": "a bad feed", "now": 7.0}


@pytest.fixture(params=["InMemorySealed", "OnSqlite", "OnPostgres"])
def place(request, tmp_path):
    return make_place(request.param, tmp_path)


@pytest.fixture
def memory(tmp_path):
    return make_place("InMemory", tmp_path)


def restored(place, exported, **more):
    with closing(place.open()) as journal:
        return restore_model(journal, exported, **{**ASKED, **more})


def exported(place, position=None):
    with closing(place.open()) as journal:
        return export_model(journal, position)


def learnt(place):
    with closing(place.open()) as journal:
        return learnt_by(model_at(journal, journal.last_position).bandit)


def events(place):
    with closing(place.open()) as journal:
        return [event for _, event in journal.read()]


def problems(place):
    with closing(place.open()) as journal:
        return verify(journal).problems


def same(one, other):
    """Whether two bandits have learnt the same, bit for bit."""
    headers = [json.dumps(part.header["learner"]) for part in (one, other)]
    arrays = [{n: a.tobytes() for n, a in part.arrays.items()} for part in (one, other)]
    return headers[0] == headers[1] and arrays[0] == arrays[1]


def with_moves(snapshot, moves):
    """The obvious way: the same bandit, carried along by each mask change."""
    bandit = vfb.Bandit.restore(snapshot)
    for moved in moves:
        bandit.move(Model(bandit).make_move(moved.matrix))
    return learnt_by(bandit)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_restored_model_is_the_exported_one_behind_the_masks_in_force(place, layout):
    run = Run(place, layout)
    run.visit(9, "save", 6)
    early = exported(place)
    run.visit("move", 8, "move", 3)
    before = learnt(place)
    moves = [event for event in events(place) if isinstance(event, MasksChanged)]
    assert restored(place, early).of == early.position
    assert same(learnt(place), with_moves(early.snapshot, moves))
    assert not same(learnt(place), before)
    assert problems(place) == ()
    live = run.visit(7)  # it serves on
    assert same(learnt_by(vfb.Bandit.restore(live)), learnt(place))
    assert problems(place) == ()


def test_every_position_has_the_model_that_the_live_run_had_there(memory):
    run = Run(memory)
    live = {}
    for _ in range(5):
        end = run.visit(3)
        with closing(memory.open()) as journal:
            live[journal.last_position] = end
    run.visit("save", 2, "save")
    for position, snapshot in live.items():
        bandit = vfb.Bandit.restore(snapshot)
        assert same(exported(memory, position).snapshot, learnt_by(bandit))


def test_pending_decisions_outlive_a_restore_and_teach_the_restored_model(memory):
    async def main():
        bandit = DurableBandit.open(memory.open(), maker("per_arm"))
        first = await bandit.decide(np.eye(3))
        await bandit.close()
        early = exported(memory)
        bandit = DurableBandit.open(memory.open(), maker("per_arm"))
        second = await bandit.decide(np.eye(3))
        await bandit.reward(second, 1.0)
        await bandit.close()
        assert restored(memory, early) is not None
        bandit = DurableBandit.open(memory.open(), maker("per_arm"))
        assert bandit.bandit.estimate_norm() == 0.0
        assert not await bandit.reward(second, 1.0)  # it was learnt once, and is not again
        assert await bandit.reward(first, 1.0)
        assert bandit.bandit.estimate_norm() > 0.0
        await bandit.close()

    asyncio.run(main())
    assert problems(memory) == ()


def test_the_same_restore_again_changes_nothing(place):
    run = Run(place)
    run.visit(6)
    early = exported(place)
    run.visit(6)
    assert restored(place, early) is not None
    n_events = len(events(place))
    assert restored(place, early) is None
    assert restored(place, exported(place)) is None
    assert len(events(place)) == n_events


KILLED = """
import os, pathlib, signal, sys
from vfbandits.journal.models import read_model, restore_model
from vfbandits.journal.sqlite.journal import SqliteJournal
SqliteJournal.save_snapshot = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
journal = SqliteJournal(sys.argv[1])
model = read_model(pathlib.Path(sys.argv[2]))
restore_model(journal, model, by="ops", reason="r", now=1.0)
"""


def test_a_restore_that_is_killed_after_its_record_is_whole_and_the_next_does_nothing(tmp_path):
    place = make_place("OnSqlite", tmp_path)
    run = Run(place)
    run.visit(6)
    early = exported(place)
    write_model(tmp_path / "model.vfb", early)
    run.visit(6)
    words = [sys.executable, "-c", KILLED, place.target, str(tmp_path / "model.vfb")]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    assert problems(place) == ()
    assert same(learnt(place), early.snapshot)
    assert restored(place, early) is None


async def play_retractions(journal):
    """Three rewards, of which the first is retracted after position 2, the third before 8."""
    bandit = DurableBandit.open(journal, maker("per_arm"))
    names = []
    for number in range(3):
        decision = await bandit.decide(np.eye(3) + number, event_id=f"e{number}", user="ann")
        names.append(decision.id)
        await bandit.reward(decision, 1.0 + number)
    await bandit.retract("e0", by="ops")
    await bandit.retract("e2", by="ops")
    await bandit.close()


def test_a_reward_that_was_retracted_since_stays_retracted(memory):
    asyncio.run(play_retractions(memory.open()))
    early = exported(memory, 4)  # it has learnt e0 and e1
    contexts = {e.event_id: e.x for e in events(memory) if type(e).__name__ == "Decided"}
    assert restored(memory, early) is not None
    wanted = vfb.Bandit(vfb.LinUCB(), dim=3).fit([contexts["e1"]], [2.0]).states[None]
    state = vfb.Bandit.restore(learnt(memory)).states[None]
    np.testing.assert_allclose(state.Lambda, wanted.Lambda, atol=1e-12)
    np.testing.assert_allclose(state.u, wanted.u, atol=1e-12)


def test_a_model_is_refused_if_what_was_retracted_since_is_no_longer_on_record(memory):
    asyncio.run(play_retractions(memory.open()))
    early = exported(memory, 4)
    Run(memory, "per_arm").visit(2, "save", 2, "save")
    with closing(memory.open()) as journal:
        compact(journal)
        n_events = journal.last_position
    with pytest.raises(
        ConflictError, match="2 rewards were retracted or unlearnt since position 4"
    ):
        restored(memory, early)
    with closing(memory.open()) as journal:
        assert journal.last_position == n_events


def test_an_unlearnt_user_does_not_come_back_by_a_restore(place):
    asyncio.run(play_retractions(place.open()))
    early = exported(place, 4)
    assert restored(place, early) is not None
    inside = early.snapshot.arrays["learner/A"].tobytes()[:64]
    with closing(place.open()) as journal:
        request = ErasureRequest("ann", "asked", "ops", 5.0)
        assert erase_user(journal, request, unlearn=True).unlearnt == 1  # the others are retracted
        assert not [e for _, e in journal.read() if isinstance(e, Restored)]
        assert inside not in b"".join(seal_snapshot(journal.load_snapshot(at))
                                      for at in journal.snapshot_positions())  # fmt: skip
    state = vfb.Bandit.restore(learnt(place)).states[None]
    np.testing.assert_allclose(state.Lambda, np.eye(3), atol=1e-12)
    with pytest.raises(ConflictError, match="would bring them back"):
        restored(place, early)
    with pytest.raises(JournalError, match="erased with its user"):
        exported(place, 4)
    assert problems(place) == ()


async def play_one_reward(journal, **options):
    bandit = DurableBandit.open(journal, maker("disjoint", floor=0.0, **options))
    await bandit.decide(np.ones(3), arms=["tea"], event_id="e0", user="ann")
    await bandit.reward("e0", 1.0)
    await bandit.close()


async def drop_tea(journal):
    bandit = DurableBandit.open(journal, maker("disjoint", floor=0.0))
    await bandit.log(ArmsDropped(("tea",), 1.0))
    await bandit.close()


@pytest.mark.parametrize("gone_by", ["an earlier model", "a dropped arm"])
def test_a_user_unlearnt_when_no_model_held_her_does_not_come_back_either(memory, gone_by):
    asyncio.run(play_one_reward(memory.open()))
    with_her = exported(memory)
    if gone_by == "an earlier model":
        assert restored(memory, exported(memory, 1)) is not None
    else:
        asyncio.run(drop_tea(memory.open()))
    before = learnt(memory)
    with closing(memory.open()) as journal:
        request = ErasureRequest("ann", "asked", "ops", 5.0)
        assert erase_user(journal, request, unlearn=True).unlearnt == 0
    assert same(learnt(memory), before)
    with pytest.raises(ConflictError, match="would bring them back"):
        restored(memory, with_her)
    assert same(learnt(memory), before)
    assert problems(memory) == ()


def test_a_mask_change_that_is_gone_is_named(memory):
    run = Run(memory)
    run.visit(4)
    early = exported(memory)
    run.visit("move", 4, "save")
    for _ in range(2):
        asyncio.run(forget_all(memory))
        run.visit(2, "save")
    with closing(memory.open()) as journal:
        compact(journal)
    with pytest.raises(
        ConflictError, match="must be carried to epoch 1, got the mask changes up to 0"
    ):
        restored(memory, early)


async def forget_all(place):
    bandit = DurableBandit.open(place.open(), maker())
    for name in bandit.bandit.open_decisions:
        await bandit.forget(name)
    await bandit.close()


@pytest.mark.parametrize(
    ("layout", "options", "said"),
    [
        ("outer", {}, "the model must have layout 'disjoint', got 'outer'"),
        ("disjoint", {"ridge": 2.0}, "the model must have ridge 1.0, got 2.0"),
        ("disjoint", {"discount": 0.9}, "the model must have discount 1.0, got 0.9"),
    ],
)
def test_a_model_of_other_settings_is_refused_and_nothing_changes(tmp_path, layout, options, said):
    place, other = (make_place("InMemory", tmp_path) for _ in range(2))
    Run(place).visit(4)
    Run(other, layout, **options).visit(4)
    n_events = len(events(place))
    with pytest.raises(SettingError, match=said):
        restored(place, exported(other))
    assert len(events(place)) == n_events


def test_a_model_of_another_journal_needs_the_callers_word_for_its_masks(tmp_path):
    places = [make_place("InMemory", tmp_path) for _ in range(3)]

    async def begun(place, note, seed):
        bandit = DurableBandit.open(place.open(), maker(seed=seed), epoch=1, signed_roster=note)
        decision = await bandit.decide(np.ones(3), arms=["tea", "milk"])
        await bandit.reward(decision, float(seed))
        await bandit.close()

    for place, note, seed in zip(places, (b"roster", b"roster", b"other"), (1, 2, 3), strict=True):
        asyncio.run(begun(place, note, seed))
    mine, twin, other = places
    with pytest.raises(ConflictError, match="wanted --same-masks"):
        restored(mine, exported(twin))
    with pytest.raises(ConflictError, match="and the same roster, got epoch 1 and another roster"):
        restored(mine, exported(other), same_masks=True)
    assert restored(mine, exported(twin), same_masks=True).of is None
    assert same(learnt(mine), learnt(twin))

    async def retract(name):
        bandit = DurableBandit.open(mine.open(), maker(seed=1))
        try:
            await bandit.retract(name, by="ops")
        finally:
            await bandit.close()

    with pytest.raises(ConflictError, match="an earlier one was restored since"):
        asyncio.run(retract(0))


def test_two_journals_of_the_same_seed_are_told_apart_by_their_records(tmp_path):
    places = [make_place("InMemory", tmp_path) for _ in range(2)]
    for number, place in enumerate(places):
        Run(place, seed=number).visit(4)
    assert restored(places[0], exported(places[1])).of is None


def test_who_restored_a_model_and_why_stays_on_record(memory):
    run = Run(memory)
    run.visit(4)
    early = exported(memory)
    run.visit(4)
    restored(memory, early)
    run.visit(2, "save", 2, "save")
    with closing(memory.open()) as journal:
        compact(journal)
        assert not [e for _, e in journal.remains() if isinstance(e, Restored)]
        (change,) = changes_in(journal)
    said = f"restored to that of position {early.position}: a bad feed"
    assert (change.by, change.what, change.detail) == ("ops@shop", "model", said)
    with pytest.raises(SettingError, match="wanted the reason"):
        restored(memory, early, reason=" ")


def test_a_time_stands_for_the_last_record_before_it():
    journal = MemoryJournal()
    journal.append([Administered("settings", "", "ops", at) for at in (1.0, 2.0, 2.0, 5.0)])
    assert [position_at(journal, time) for time in (0.5, 2.0, 4.9, 9.0)] == [0, 3, 3, 4]


def test_a_time_from_before_a_compaction_is_refused(memory):
    run = Run(memory)
    run.visit(4, "save", 4)
    with closing(memory.open()) as journal:
        before = max(e.at for _, e in journal.read() if isinstance(e, Rewarded))
    run.visit("save", 4, "save", 2)
    with closing(memory.open()) as journal:
        compact(journal)
        assert position_at(journal, before + 1e9) == journal.last_position
        with pytest.raises(JournalError, match="wanted the time of a later record"):
            position_at(journal, before)


def test_a_position_that_no_snapshot_leads_to_is_refused_with_the_first_that_one_does(memory):
    run = Run(memory)
    run.visit(4, "save", 4, "save")
    with closing(memory.open()) as journal:
        compact(journal)
        first = journal.compacted_to
    with pytest.raises(JournalError, match=f"got the first at {first}: records before it may be"):
        exported(memory, 2)
    with pytest.raises(SettingError, match="from 0 to"):
        exported(memory, 10**6)


# --- the file -------------------------------------------------------------------------------------


def test_a_file_is_a_bandit_for_its_owner_and_names_no_decision(tmp_path, memory):
    Run(memory, "per_arm").visit(6)
    path = tmp_path / "model.vfb"
    write_model(path, exported(memory))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    bandit = vfb.load(path)
    assert bandit.open_decisions == ()
    assert same(learnt_by(bandit), learnt(memory))
    assert b"order-" not in path.read_bytes()
    assert same(read_model(path).snapshot, learnt(memory))


def test_what_is_no_model_is_refused(tmp_path, memory):
    Run(memory).visit(3)
    path = tmp_path / "model.vfb"
    with pytest.raises(SnapshotError, match=r"wanted a model in .*: No such file"):
        read_model(path)
    write_model(path, exported(memory))
    data = path.read_bytes()
    path.write_bytes(data[:-20] + b"?" * 20)
    with pytest.raises(SnapshotError, match="its checksum is wrong"):
        read_model(path)
    bandit = vfb.Bandit(vfb.LinUCB(), dim=1)
    path.write_bytes(seal_snapshot(bandit.snapshot()))
    with pytest.raises(SnapshotError, match="that `vfb model export` wrote, got a snapshot"):
        read_model(path)
    save(bandit, path)
    with pytest.raises(SnapshotError, match="its checksum is wrong"):
        read_model(path)
    broken = exported(memory)
    broken.snapshot.held["learner/b"][0][0] = np.nan
    write_model(path, broken)
    with pytest.raises(
        SnapshotError, match="finite numbers, got NaN or infinity in the array 'learner/b'"
    ):
        read_model(path)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sealed_file_with_a_matrix_that_no_reward_could_leave_is_refused(
    tmp_path, memory, layout
):
    Run(memory, layout).visit(6)
    path = tmp_path / "model.vfb"
    write_model(path, exported(memory))
    read_model(path)
    forged = exported(memory)
    first = forged.snapshot.held["learner/A"][0]
    first[:] = -first
    write_model(path, forged)
    with pytest.raises(SnapshotError, match="has a design matrix of at least the ridge, got"):
        read_model(path)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sealed_file_that_claims_a_size_is_refused_before_memory_is_asked_for(
    tmp_path, memory, layout
):
    Run(memory, layout).visit(6)
    path = tmp_path / "model.vfb"
    for place, name in ((), "dim"), (("learner",), "dim"), (("options",), "arm_dim"):
        forged = exported(memory)
        part = forged.snapshot.header
        for key in place:
            part = part[key]
        if not isinstance(part.get(name), int):
            continue  # not of this layout
        part[name] = 10**7
        write_model(path, forged)
        with pytest.raises(SnapshotError, match=r"at most 536870912 bytes|needs an array 'A'"):
            read_model(path)


# --- the command ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["OnSqlite", "OnPostgres"])
def test_the_commands_export_and_restore(kind, tmp_path):
    place = make_place(kind, tmp_path)
    flags = [place.target] if kind == "OnSqlite" else [place.url, "--name", place.name]
    model = str(tmp_path / "model.vfb")

    def vfb_model(*words):
        return CliRunner().invoke(app, ["model", words[0], *flags, *words[1:]])

    run = Run(place)
    run.visit(6)
    with closing(place.open()) as journal:
        middle = journal.last_position
    run.visit(6)
    done = vfb_model("export", "--out", model, "--at", str(middle), "--json")
    assert json.loads(done.stdout) == {"position": middle, "epoch": 0, "file": model}
    with closing(place.open()):  # a server has it
        assert vfb_model("export", "--out", model, "--at", str(middle)).exit_code == 0
        done = vfb_model("restore", model, "--reason", "bad feed")
        assert (done.exit_code, "one writer" in done.stderr) == (2, True)
    done = vfb_model("restore", model, "--reason", "bad feed")
    assert done.exit_code == 0, done.output
    assert f"restored the model of position {middle}" in done.stdout
    assert "has this model already" in vfb_model("restore", model, "--reason", "again").stdout
    with closing(place.open()) as journal:
        last = max(e.at for _, e in journal.read() if isinstance(e, Rewarded))
    before = datetime.fromtimestamp(last, UTC).isoformat()
    done = vfb_model("restore", "--at", before, "--reason", "better so", "--json")
    assert json.loads(done.stdout)["restored"]["of"] > middle
    assert problems(place) == ()


def test_a_command_with_wrong_words_says_so_and_makes_no_journal(tmp_path):
    place = make_place("OnSqlite", tmp_path)
    Run(place).visit(2)
    reason = ["--reason", "r"]
    for words, said in (
        (["export", place.target, "--out", str(tmp_path / "no" / "m.vfb")], "cannot be written to"),
        (["restore", place.target, *reason], "either a FILE or --at, got neither"),
        (["restore", place.target, "m.vfb", "--at", "1", *reason], "got both"),
        (["restore", place.target, "--at", "noon", *reason], "or a time such as"),
        (["restore", place.target, "--at", "99", *reason], "a position of the journal, from 0 to"),
        (["restore", place.target, "--at", "1", "--reason", ""], "wanted the reason for a restore"),
        (["restore", str(tmp_path / "no.db"), "--at", "1", *reason], "cannot be opened"),
    ):
        done = CliRunner().invoke(app, ["model", *words])
        assert (done.exit_code, said in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "no.db").exists()
