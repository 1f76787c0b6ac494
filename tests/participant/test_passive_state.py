"""A passive participant's state folder: one process uses it, and what is lost of it is noticed."""

import asyncio
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import fork_server
import pytest
from live_world import LiveWorld
from preflights import check, says, states
from served_federation import ServedFederation

from vfbandits.errors import ConfigError
from vfbandits.participant.run import build_passive
from vfbandits.participant.state_lock import StateLock
from vfbandits.protocol.roster import Terms
from vfbandits.settings.services import load_passive
from vfbandits.telemetry.log import logger_for

WIDTHS = {"shop": 3, "bank": 2, "news": 2}
PASSIVE = ("bank", "news")
START_S = 120.0


def made(folder, mode=("dense", "secure")):
    world = LiveWorld(folder, widths=WIDTHS, terms=Terms(*mode), n_users=2)
    return ServedFederation(world, "memory")


async def learn(served):
    try:
        await served.start_active()
        await served.start(*PASSIVE)
        await served.decide_with(*PASSIVE)
    finally:
        await served.close()


def build(served, name="bank"):
    return build_passive(load_passive(served.files.config(name)), logger_for(name, "passive"))


class Serving:
    """``vfb serve passive`` in a process of its own."""

    def __init__(self, served, name="bank"):
        self.process = fork_server.Popen(
            [sys.executable, "-m", "vfbandits.cli.serve", "passive", "--config",
             str(served.files.config(name))],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def wait_until_ready(self):
        assert self.process.stdout.readline().startswith("ready")

    def end(self, how=signal.SIGKILL):
        with self.process:
            self.process.send_signal(how)
            self.process.communicate(timeout=START_S)

    def refusal(self):
        with self.process:
            _, error = self.process.communicate(timeout=START_S)
        assert self.process.returncode != 0
        return " ".join(error.split())


@pytest.mark.parametrize("mode", [("blockwise", "plain"), ("dense", "secure")])
def test_a_second_process_with_the_same_state_is_refused(tmp_path, mode):
    served = made(tmp_path, mode)
    first = Serving(served)
    try:
        first.wait_until_ready()
        refusal = Serving(served).refusal()
        assert "is in use by another process" in refusal
        assert "passive.lock" in refusal
        assert "if vfb serve passive is running" in says(
            check(served.files, "bank"), "state", "warning"
        )
        assert first.process.poll() is None  # and the first is not disturbed
    finally:
        first.end()
    after = Serving(served)  # a killed process holds no lock
    try:
        after.wait_until_ready()
    finally:
        after.end(signal.SIGTERM)


def test_a_lost_outbox_is_refused_while_shares_are_kept(tmp_path):
    served = made(tmp_path)
    asyncio.run(learn(served))
    state = served.state("bank")
    for path in state.glob("outbox.db*"):
        path.unlink()
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"outbox\.db is not there") as refused:
            build(served)
        assert "new keys" in str(refused.value)
        assert not (state / "outbox.db").exists()
    assert "outbox.db is not there" in says(check(served.files, "bank"), "outbox")
    shutil.rmtree(state / "shares")  # the lock notes what was reserved: they are not all
    with pytest.raises(ConfigError, match=r"outbox\.db is not there"):
        build(served)
    assert "outbox.db is not there" in says(check(served.files, "bank"), "outbox")


def test_an_old_copy_of_the_outbox_is_refused(tmp_path):
    served = made(tmp_path)
    asyncio.run(learn(served))
    state = served.state("bank")
    shutil.copy(state / "outbox.db", tmp_path / "old.db")
    asyncio.run(learn(served))
    now = build(served)
    now_at = now._role.next_round  # noqa: SLF001
    now._outbox.close()  # noqa: SLF001
    now._lock.release()  # noqa: SLF001
    for path in state.glob("outbox.db*"):
        path.unlink()
    shutil.copy(tmp_path / "old.db", state / "outbox.db")
    with closing(sqlite3.connect(state / "outbox.db")) as db:
        assert db.execute("SELECT round FROM reservation").fetchone()[0] < now_at - 1
    with pytest.raises(ConfigError, match="it is an old copy, or was lost"):
        build(served)


def test_a_first_start_and_later_ones_are_let_in(tmp_path):
    served = made(tmp_path)
    assert "problem" not in states(check(served.files, "bank"), "outbox")
    for _ in range(2):
        asyncio.run(learn(served))
    assert "problem" not in states(check(served.files, "bank"), "outbox")


def test_a_start_that_failed_leaves_no_lock(tmp_path):
    served = made(tmp_path)
    config = served.files.config("bank")
    text = config.read_text()
    config.write_text(text.replace('"f0", "f1"', '"f0"'))
    with pytest.raises(ConfigError):
        build(served)
    StateLock(served.state("bank")).release()


def test_a_damaged_lock_is_refused(tmp_path):
    (tmp_path / "passive.lock").write_bytes(b"damaged")
    lock = StateLock(tmp_path)
    with pytest.raises(ConfigError, match=r"passive\.lock must hold a round"):
        lock.noted()
    lock.release()
