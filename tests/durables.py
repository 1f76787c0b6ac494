"""Bandits behind a log in memory, and a world that drives one."""

import asyncio
import time

import numpy as np
import pytest

import vfbandits as vfb
from vfbandits.errors import RewardError
from vfbandits.journal.memory import MemoryDisk, MemoryJournal
from vfbandits.journal.record import decode
from vfbandits.serving.durable import DurableBandit

ARMS = ["w", "x", "y", "z"]


def linucb(**options):
    return lambda: vfb.Bandit(vfb.LinUCB(beta=0.5), dim=2, **{"seed": 5, **options})


def open_on(disk, make=None, **more):
    return DurableBandit.open(MemoryJournal(disk), make or linucb(), **more)


def logged(disk):
    return [decode(record, 1) for record in disk.records]


def parts(bandit):
    """All that was learnt and is kept, to the last bit; not the policy's randomness."""
    snapshot = bandit.snapshot()
    header = {key: value for key, value in snapshot.header.items() if key != "rng"}
    return header, {name: array.tobytes() for name, array in snapshot.arrays.items()}


class SlowJournal(MemoryJournal):
    """A disk whose commits take a moment, so that events gather."""

    def append(self, events):
        time.sleep(0.005)
        return super().append(events)


class World:
    """A durable bandit and the moves one can make with it."""

    def __init__(self, layout, policy, discount, seed):
        self.rng = np.random.default_rng(seed)
        self.layout, self.disk, self.dim, self.names = layout, MemoryDisk(), 3, 0
        self.make = lambda: vfb.Bandit(
            policy,
            dim=3,
            layout=layout,
            arm_dim=2 if layout == "outer" else None,
            intercept=layout != "per_arm",
            discount=discount,
            max_open=6,
            max_settled=4,
            seed=5,
        )
        self.bandit = open_on(self.disk, self.make)

    def contexts(self):
        shape = (4, self.dim) if self.layout == "per_arm" else self.dim
        features = self.rng.standard_normal((4, 2)) if self.layout == "outer" else None
        return self.rng.standard_normal(shape), {"arms": ARMS, "arm_features": features}

    async def decide(self, named):
        contexts, more = self.contexts()
        self.names += named
        name = f"named-{self.names}" if named else None
        return await self.bandit.decide(contexts, event_id=name, user="u", **more)

    async def reward(self, which):
        waiting = self.bandit.bandit.open_decisions
        if waiting:
            value = float(self.rng.standard_normal())
            chosen = waiting[which % len(waiting)]
            answers = await asyncio.gather(
                self.bandit.reward(chosen, value), self.bandit.reward(chosen, value)
            )
            assert answers == [True, False]
            with pytest.raises(RewardError, match="already has the reward"):
                await self.bandit.reward(chosen, value + 1.0)

    async def forget(self, which):
        waiting = self.bandit.bandit.open_decisions
        if waiting:
            await self.bandit.forget(waiting[which % len(waiting)])

    async def rush(self, count):
        """Decisions and rewards all at once."""

        async def one(named):
            decision = await self.decide(named)
            if decision.id in self.bandit.bandit.open_decisions:
                await self.bandit.reward(decision, 0.5)

        await asyncio.gather(*(one(number % 2) for number in range(count)))

    async def move(self, new_dim):
        rng = self.rng
        wide = max(self.dim, new_dim)
        R = np.linalg.qr(rng.standard_normal((wide, wide)))[0][:new_dim, : self.dim]
        if new_dim != self.dim:  # a participant left, or joined: the smaller space is kept whole
            kept = min(new_dim, self.dim)
            left = np.linalg.qr(rng.standard_normal((new_dim, kept)))[0]
            right = np.linalg.qr(rng.standard_normal((self.dim, kept)))[0]
            R = left @ right.T
        await self.bandit.change_masks(
            R, epoch=self.bandit.epoch + 1, signed_roster=b"to %d" % new_dim
        )
        self.dim = new_dim

    async def snapshot(self):
        assert await self.bandit.snapshot() == len(self.disk.records)
        assert self.bandit.since_snapshot == 0

    async def reopen(self, kindly):
        before = parts(self.bandit.bandit), self.bandit.epoch, self.bandit.signed_roster
        if kindly:
            await self.bandit.close()
        self.disk.is_taken = False  # a killed process has no lock
        self.bandit = open_on(self.disk, self.make)
        assert (parts(self.bandit.bandit), self.bandit.epoch, self.bandit.signed_roster) == before
