"""Workers on one log, killed at random moments, each going on where the last was stopped.

    python killed_worker.py FOLDER CASE KILLS SEED [NAME]

Writes FOLDER/log.db, or the log NAME in the database of the environment's KILLED_LOG, and, line
by line, what was answered to FOLDER/answers: a line is there only if the answer was.  The
processes are real and so are the signals; they are forked, not started anew, which saves an import
for each.
"""

import asyncio
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

import vfbandits as vfb
from vfbandits.journal.open import open_journal
from vfbandits.journal.sqlite.journal import SqliteJournal
from vfbandits.serving.durable import DurableBandit

DIM = 6
ARMS = ["a", "b", "c", "d", "e", "f", "g", "h"]
CASES = {
    "shared": {"layout": "per_arm", "discount": 0.99, "max_open": 20},
    "disjoint": {"layout": "disjoint", "intercept": True, "max_settled": 50},
}


def make_bandit(case):
    policy = vfb.LinTS(posterior_scale=0.5, space="parameter", n_draws=5)
    return vfb.Bandit(policy, dim=DIM, seed=1, **CASES[case])


def open_log(folder, name):
    if name is not None:
        return open_journal("env:KILLED_LOG", name=name, wait_s=30.0)
    return SqliteJournal(folder / "log.db", checkpoint_pages=30)  # often, to be killed in one


class Worker:
    """Decides, rewards, moves and takes snapshots until it is killed."""

    def __init__(self, folder, case, seed, name):
        self.case, self.rng = case, np.random.default_rng(seed)
        self.later = []
        self.answers = os.open(folder / "answers", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.bandit = DurableBandit.open(
            open_log(folder, name),
            lambda: make_bandit(case),
            log_probabilities=False,
        )

    def answered(self, *what):
        os.write(self.answers, json.dumps(what).encode() + b"\n")

    async def run(self):
        for waiting in self.bandit.bandit.open_decisions[::2]:
            await self.reward(waiting)
        await asyncio.gather(self.others(), *(self.visitor(n) for n in range(12)))

    async def reward(self, event_id):
        value = float(self.rng.standard_normal())
        assert await self.bandit.reward(event_id, value)  # in memory or not
        self.answered("rewarded", event_id, value)
        assert not await self.bandit.reward(event_id, value)

    async def visitor(self, number):
        shape = (8, DIM) if self.case == "shared" else DIM
        for visit in range(1_000_000):
            name = f"{os.getpid()}-{number}-{visit}" if visit % 2 else None
            contexts = self.rng.standard_normal(shape)
            decision = await self.bandit.decide(contexts, arms=ARMS, event_id=name)
            self.answered("decided", decision.id, decision.arm)
            if self.rng.random() < 0.7:
                await self.reward(decision.id)
            else:
                self.later.append(decision.id)
            if len(self.later) > 100:  # most of these have left memory
                await self.reward(self.later.pop(0))

    async def others(self):
        while True:
            await asyncio.sleep(0.02)
            await self.bandit.snapshot()
            R = np.linalg.qr(self.rng.standard_normal((DIM, DIM)))[0]
            epoch = self.bandit.epoch + 1
            await self.bandit.change_masks(R, epoch=epoch, signed_roster=b"%d" % epoch)
            self.answered("moved", epoch)


def warm_up(case):
    """Load the compiled loops once, before the forks."""
    bandit = make_bandit(case)
    for _ in range(2):
        contexts = np.ones((8, DIM)) if case == "shared" else np.ones(DIM)
        bandit.reward(bandit.decide(contexts, arms=ARMS), 1.0)


def wait_for_answers(folder):
    """Let a life get somewhere, however slow the machine is; the others may die while they open."""
    path, deadline = folder / "answers", time.monotonic() + 60.0
    start = path.stat().st_size if path.exists() else 0
    while not path.exists() or path.stat().st_size < start + 5_000:
        if time.monotonic() > deadline:
            sys.exit("a worker has answered next to nothing in a minute")
        time.sleep(0.002)


def main(folder, case, kills, seed, name=None):
    warm_up(case)
    chance = random.Random(seed)  # noqa: S311  (when to kill)
    for life in range(kills):
        child = os.fork()
        if child == 0:
            asyncio.run(Worker(folder, case, seed + life, name).run())
            os._exit(1)
        if life % 2:
            wait_for_answers(folder)
        time.sleep(chance.uniform(0.0, 0.2))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            sys.exit(f"a worker ended by itself in life {life}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:])
