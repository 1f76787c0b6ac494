"""Damaged records are set aside: the journal opens, verifies and goes on."""

import asyncio
import json

import numpy as np
import pytest
from journals import KEY, PLACES, OnSqlite, flip, harm, make_place
from logged_runs import Run, maker
from typer.testing import CliRunner

from vfbandits.campaign.events import Rewarded, SetAside
from vfbandits.cli.main import app
from vfbandits.errors import JournalError, JournalLossError
from vfbandits.journal.compact import compact
from vfbandits.journal.repair import repair, survey
from vfbandits.journal.verify import difference, verify
from vfbandits.serving.durable import DurableBandit


@pytest.fixture(params=PLACES)
def place(request, tmp_path):
    return make_place(request.param, tmp_path)


def last_of(place):
    journal = place.open()
    last = journal.last_position
    journal.close()
    return last


def kinds(place):
    journal = place.open()
    found = [(position, event) for position, event in journal.read()]
    journal.close()
    return found


def test_a_covered_record_is_set_aside_and_the_journal_verifies_and_goes_on(place):
    run = Run(place)
    end = run.visit(20, "save", 5)
    bytes_before = dict(place.records())[7]
    harm(place, 7)
    journal = place.open()
    assert verify(journal).problems
    faults = survey(journal)
    (saved, _) = journal.latest_snapshot()
    assert [(fault.position, fault.covered_by) for fault in faults] == [(7, saved)]
    repair(journal, faults, by="ops@shop")
    found = verify(journal)
    assert found.problems == ()
    assert found.counts["SetAside"] == 1
    assert survey(journal) == []
    aside = dict(journal.read())[7]
    assert (aside.covered_by, aside.by) == (saved, "ops@shop")
    journal.close()
    assert difference(run.visit(0), end) is None
    assert run.visit(5, "save", 5, "save", 5)
    journal = place.open()
    assert compact(journal) is not None
    journal.close()
    assert bytes_before not in [record for _, record in place.records()]


async def teach(place, names):
    """One decision and its reward for each name."""
    bandit = DurableBandit.open(place.open(), maker())
    for name in names:
        decision = await bandit.decide(np.ones(3), arms=["tea", "milk"], event_id=name)
        await bandit.reward(decision, 1.0)
    await bandit.close()


def test_a_record_that_no_snapshot_covers_is_left_alone_unless_its_loss_is_accepted(place):
    asyncio.run(teach(place, ["a", "b", "c"]))
    harm(place, 3)  # the decision "b", whose reward is record 4
    before = place.records()
    journal = place.open()
    with pytest.raises(JournalLossError, match="record 3, which none does"):
        repair(journal, survey(journal), by="ops")
    assert place.records() == before
    done = repair(journal, survey(journal), by="ops", accept_loss=True)
    assert [fault.position for fault in done] == [3, 4]  # the reward does not fit without it
    assert verify(journal).problems == ()
    assert journal.find("b") == []
    journal.close()
    asyncio.run(teach(place, ["d"]))
    journal = place.open()
    assert verify(journal).problems == ()
    journal.close()


def test_a_lost_change_of_masks_cannot_be_repaired(place):
    run = Run(place)
    run.visit(10, "save", 4)
    moved = last_of(place) + 1
    run.visit("move", 4)
    harm(place, moved)
    journal = place.open()
    before = place.records()
    with pytest.raises(JournalError, match="is a mask change"):
        repair(journal, survey(journal), by="ops", accept_loss=True)
    journal.close()
    assert place.records() == before


def test_if_the_covering_snapshots_are_lost_later_that_is_said(place):
    run = Run(place)
    run.visit(20, "save", 5)
    harm(place, 7)
    journal = place.open()
    (saved, _) = journal.latest_snapshot()
    repair(journal, survey(journal), by="ops")
    journal.close()
    place.put_snapshot(saved, flip(place.get_snapshot(saved)))
    journal = place.open()
    with pytest.raises(JournalError, match=f"record 7 .* snapshot of position {saved} replaces it"):
        DurableBandit.open(journal, maker())
    journal.close()


def test_only_records_that_the_log_has_had_are_set_aside(place):
    Run(place).visit(5)
    journal = place.open()
    for position in (0, journal.last_position + 1):
        with pytest.raises(JournalError, match=f"got {position}"):
            journal.set_aside({position: SetAside("", None, "ops")})
    journal.close()


def test_the_end_of_the_log_is_read_without_what_is_damaged(place, caplog):
    run = Run(place)
    run.visit(20, "save", 5)
    harm(place, 7)
    harm(place, 9)

    async def read():
        bandit = DurableBandit.open(place.open(), maker())
        last = bandit.position
        found = [position for position, _ in await bandit.read_end(1_000)]
        await bandit.close()
        return found, last

    found, last = asyncio.run(read())
    assert found == [at for at in range(1, last + 1) if at not in (7, 9)]
    assert caplog.text.count("2 records of the journal cannot be read") == 1


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture(params=["OnSqlite", "OnPostgres"])
def shared(request, tmp_path):
    return make_place(request.param, tmp_path)


def vfb_log(place, command, *flags):
    name = ["--name", place.name] if hasattr(place, "name") else []
    target = place.target if hasattr(place, "target") else place.url
    return CliRunner().invoke(app, ["journal", command, target, *name, *flags])


def test_the_command_says_first_and_does_it_when_asked(shared):
    run = Run(shared)
    run.visit(20, "save", 5)
    assert "nothing to repair" in vfb_log(shared, "repair").stdout
    harm(shared, 7)
    shared.remove_record(9)
    before = shared.records()
    done = vfb_log(shared, "repair")
    assert done.exit_code == 1
    assert "record 7: the snapshot of position" in done.stdout
    assert "record 9 of the journal is missing" in done.stdout
    assert "2 records would be set aside; nothing was changed" in done.stdout
    assert shared.records() == before
    done = vfb_log(shared, "repair", "--apply", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["set_aside"] is True
    assert [fault["position"] for fault in told["faults"]] == [7, 9]
    assert vfb_log(shared, "verify").stdout.endswith("no problems\n")
    run.visit(3)


def test_the_command_refuses_what_no_snapshot_covers_and_the_end(shared):
    run = Run(shared)
    run.visit(20, "save", 10)
    last = last_of(shared)
    harm(shared, last)
    harm(shared, last - 5)
    before = shared.records()
    done = vfb_log(shared, "repair", "--apply")
    assert done.exit_code == 2
    assert f"acknowledged up to {last}, got an end at {last - 1}" in done.stderr
    assert shared.records() == before
    done = vfb_log(shared, "repair", "--apply", "--accept-loss")
    assert done.exit_code == 0, done.output
    assert f"record {last}: no snapshot covers it" in done.stdout
    assert vfb_log(shared, "verify").stdout.endswith("no problems\n")


def test_an_encrypted_journal_is_repaired_with_its_key_and_stays_encrypted(tmp_path):
    place = OnSqlite(tmp_path, KEY)
    run = Run(place)
    run.visit(20, "save", 5)
    harm(place, 7)
    journal = place.open()
    repair(journal, survey(journal), by="who-did-it")
    journal.close()
    assert verify(place.reader()).problems == ()
    assert b"who-did-it" not in place.path.read_bytes()


def test_a_reward_alone_may_be_lost_and_the_rest_is_learnt(place):
    run = Run(place)
    run.visit("save", 10)
    events = kinds(place)
    position = next(at for at, event in events if isinstance(event, Rewarded))
    harm(place, position)
    journal = place.open()
    done = repair(journal, survey(journal), by="ops", accept_loss=True)
    assert [fault.position for fault in done] == [position]
    found = verify(journal)
    assert found.problems == ()
    assert found.n_open is not None
    journal.close()
