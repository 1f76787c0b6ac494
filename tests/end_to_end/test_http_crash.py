"""A server that is killed with SIGKILL under load: what it acknowledged holds, and holds once."""

import json
import random
import threading
import time
from contextlib import closing

import pytest
from http_load import (
    DEFAULT,
    SECOND_CAMPAIGN,
    SUM_WAIT_S,
    SUMS,
    Ledger,
    Wire,
    check_against_log,
    prefix,
    visitors,
)
from http_world import HttpWorld

from vfbandits.campaign.model import Model, fold
from vfbandits.errors import LinkError
from vfbandits.journal.open import open_reader
from vfbandits.journal.verify import difference, verify

OFTEN = "snapshot_every = 40\n"
SETTLED_S = 30.0


def kill_at_some_time(local, rng, ledger):
    """While it answers, mostly; now and then while it starts, before it is ready."""
    wait_for_answers(ledger)
    if rng.random() < 0.2:
        starting = threading.Thread(target=is_started, args=(local,))
        local.kill("shop")
        starting.start()
        time.sleep(rng.uniform(0.3, 1.5))
        local.processes["shop"].kill()
        starting.join()
    else:
        time.sleep(rng.uniform(0.0, 0.3))
    if "shop" in local.processes:
        local.kill("shop")
    if not is_started(local):  # a machine that is busy elsewhere; then it was one kill more
        local.kill("shop")
        local.start("shop")


def wait_for_answers(ledger):
    """Let a life get somewhere, however slow the machine is."""
    wanted, limit = sum(ledger.calls.values()) + 30, time.monotonic() + SETTLED_S
    while sum(ledger.calls.values()) < wanted and time.monotonic() < limit:
        time.sleep(0.005)


def is_started(local):
    try:
        local.start("shop")
    except LinkError:
        return False
    return True


def logs_of(world):
    state = world.local.folder / "shop" / "state"
    return {DEFAULT: state / "journal.db", SUMS: state / "campaigns" / f"{SUMS}.db"}


def wait_until_snapshots_are_at_the_end(world, wire):
    """All waits over, and a snapshot taken of the model that this process has in memory."""
    time.sleep(SUM_WAIT_S + 0.5)
    logs, limit = logs_of(world), time.monotonic() + SETTLED_S
    told = {}
    while time.monotonic() < limit:
        for campaign in logs:
            told[campaign] = json.loads(wire.get(f"{prefix(campaign)}/model")[1])
        ends = {campaign: model["log_position"] for campaign, model in told.items()}
        if all(
            logs[name].with_name(f"{logs[name].name}.snapshot-{end:020d}").is_file()
            for name, end in ends.items()
        ):
            return told
        time.sleep(0.05)
    raise AssertionError(f"not settled: {told}")


def compare_with_the_fold(path, told):
    """Lambda and u of the server, as it wrote them, are those of a fold from scratch: the bits."""
    reader = open_reader(path)
    try:
        events = list(reader.read())
        scratch = fold(events, Model.restore(0, reader.load_snapshot(0)))
        end = reader.last_position
        served = Model.restore(end, reader.load_snapshot(end))
        for arm, state in scratch.bandit.states.items():
            assert state.Lambda.tobytes() == served.bandit.states[arm].Lambda.tobytes()
            assert state.u.tobytes() == served.bandit.states[arm].u.tobytes()
        assert difference(scratch.snapshot(), served.snapshot()) is None
        assert scratch.bandit.estimate_norm() == told["norm"]
        assert (scratch.n_learnt, end) == (told["version"], told["log_position"])
        assert verify(reader).problems == ()
        assert reader.damage.records == 0
        return [event for _, event in events]
    finally:
        reader.close()


def ask_all_again(world, wire, ledger, rng):
    """Asked anew, the last server gives the bytes that those before it gave."""
    events = rng.sample(sorted(ledger.answers), k=min(400, len(ledger.answers)))
    for campaign, event_id in events:
        body = {"user": world.town.users[0], "arms": ["other"], "event_id": event_id}
        answer = ledger.answers[campaign, event_id]
        assert wire.post(f"{prefix(campaign)}/rank", body) == (200, answer)


def crash(tmp_path, *, kills, seed):
    rng = random.Random(seed)  # noqa: S311  (when to kill)
    ledger = Ledger()
    with HttpWorld(tmp_path, tables=SECOND_CAMPAIGN, top=OFTEN) as world:
        with visitors(world, ledger, seed=seed):
            for _ in range(kills):
                kill_at_some_time(world.local, rng, ledger)
            wait_for_answers(ledger)
        world.local.kill("shop")
        config = world.local.config("shop")
        config.write_text(config.read_text().replace(OFTEN, "snapshot_every = 1\n"))
        world.local.start("shop")
        with closing(Wire(world.http_port)) as wire:
            ask_all_again(world, wire, ledger, rng)
            told = wait_until_snapshots_are_at_the_end(world, wire)
        assert world.local.stop("shop") == 0
        assert ledger.wrong == []
        for campaign, path in logs_of(world).items():
            events = compare_with_the_fold(path, told[campaign])
            n_rewards, n_learnt = check_against_log(events, campaign, ledger)
            assert n_rewards > 2 * kills
            assert n_learnt > 2 * kills
    assert sum(ledger.lost.values()) >= kills
    return ledger


def test_what_was_acknowledged_survives_kills_under_load_exactly_once(tmp_path):
    crash(tmp_path, kills=6, seed=5)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_what_was_acknowledged_survives_two_hundred_kills_exactly_once(tmp_path):
    crash(tmp_path, kills=200, seed=int(time.time()))
