"""Killed with SIGKILL at random moments: nothing that was answered is lost or counted twice."""

import json
import os
import sys
import time
from collections import Counter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import fork_server
import pytest
from durables import parts
from journals import OnPostgres, OnSqlite

from vfbandits.campaign.events import Decided, MasksChanged, Rewarded
from vfbandits.campaign.model import Model, fold
from vfbandits.journal.base import Damage
from vfbandits.serving.durable import DurableBandit

WORKER = Path(__file__).with_name("killed_worker.py")
spec = spec_from_file_location("killed_worker", WORKER)
killed_worker = module_from_spec(spec)
spec.loader.exec_module(killed_worker)


def answers(folder, *, kills):
    """Those that were written whole: a kill may cut a line short, and the next one follows it."""
    lines = (folder / "answers").read_text().split("\n")[:-1]
    whole = [line for line in lines if line.startswith("[") and line.count("[") == 1]
    assert len(lines) - len(whole) <= kills
    return [tuple(json.loads(line)) for line in whole]


def in_the_log(event):
    if isinstance(event, Decided):
        return ("decided", event.event_id, event.arm)
    if isinstance(event, Rewarded):
        return ("rewarded", event.event_id, event.value)
    assert isinstance(event, MasksChanged)
    return ("moved", event.epoch)


def kill_and_compare(place, folder, case, kills, seed):
    command = [sys.executable, str(WORKER), str(folder), case, str(kills), str(seed)]
    is_file = isinstance(place, OnSqlite)
    done = fork_server.run(
        command if is_file else [*command, place.name],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ if is_file else {**os.environ, "KILLED_LOG": place.url},
    )
    assert done.returncode == 0, done.stderr
    journal = place.open()
    assert journal.damage == Damage()
    log = Counter(in_the_log(event) for _, event in journal.read())
    assert set(log.values()) == {1}
    assert len({entry[:2] for entry in log}) == len(log)  # no id decided or rewarded twice
    answered = answers(folder, kills=kills)
    assert len(set(answered)) == len(answered)
    assert set(answered) <= set(log)
    assert len(answered) > 20 * kills

    def make():
        return killed_worker.make_bandit(case)

    scratch = fold(journal.read(), Model(make()))
    again = DurableBandit.open(journal, make)
    assert again.recovery.start is not None
    assert parts(again.bandit) == parts(scratch.bandit)
    for arm, state in scratch.bandit.states.items():
        other = again.bandit.states[arm]
        assert state.Lambda.tobytes() == other.Lambda.tobytes()
        assert state.u.tobytes() == other.u.tobytes()
    assert again.epoch == scratch.epoch
    journal.close()


@pytest.mark.parametrize(
    ("kind", "case"), [(OnSqlite, "shared"), (OnSqlite, "disjoint"), (OnPostgres, "shared")]
)
def test_what_was_answered_survives_a_kill_exactly_once(tmp_path, kind, case):
    """Exact: every answer once in the log, and Lambda, u equal to the fold from scratch."""
    kill_and_compare(kind(tmp_path), tmp_path, case, kills=8, seed=7)


@pytest.mark.long
@pytest.mark.parametrize("kind", [OnSqlite, OnPostgres])
@pytest.mark.parametrize("case", killed_worker.CASES)
def test_what_was_answered_survives_a_hundred_kills_exactly_once(tmp_path, kind, case):
    kill_and_compare(kind(tmp_path), tmp_path, case, kills=100, seed=int(time.time()))
