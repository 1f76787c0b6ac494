"""Logs that a durable bandit wrote: decisions, rewards, changes of masks, snapshots, restarts."""

import asyncio

import numpy as np

import vfbandits as vfb
from vfbandits.serving.durable import DurableBandit

ARMS = ["tea", "milk", "beer"]
LAYOUTS = {
    "per_arm": {"layout": "per_arm"},
    "outer": {"layout": "outer", "arm_dim": 2, "intercept": True},
    "disjoint": {"layout": "disjoint", "intercept": True},
}


def maker(layout="disjoint", policy=None, **options):
    """Makes the bandit that a log begins with."""
    settings = {**LAYOUTS[layout], "seed": 3, "floor": 0.5, "max_settled": 30, **options}
    return lambda: vfb.Bandit(policy or vfb.LinUCB(beta=0.5), dim=3, **settings)


def rotation(rng):
    return np.linalg.qr(rng.standard_normal((3, 3)))[0]


class Run:
    """Plays on a place, one visit after the other; ``contexts`` are those that were plain."""

    def __init__(self, place, layout="disjoint", *, seed=0, **options):
        self.place, self.layout, self.options = place, layout, options
        self.rng = np.random.default_rng(seed)
        self.turn = np.eye(3)
        self.plain, self.rewards = {}, {}

    def visit(self, *deeds, policy=None):
        """Open, do what is asked for, close; a deed is a number of rounds, or "move" or "save"."""
        return asyncio.run(self._visit(deeds, policy))

    async def _visit(self, deeds, policy):
        make = maker(self.layout, policy, **self.options)
        bandit = DurableBandit.open(self.place.open(), make)
        for deed in deeds:
            if deed == "save":
                await bandit.snapshot()
            elif deed == "move":
                R = rotation(self.rng)
                self.turn = R @ self.turn
                await bandit.change_masks(R, epoch=bandit.epoch + 1)
            else:
                for number in range(deed):
                    await self._round(bandit, number)
        end = bandit.bandit.snapshot()
        await bandit.close()
        return end

    async def _round(self, bandit, number):
        shape = (3, 3) if self.layout == "per_arm" else 3
        plain = self.rng.standard_normal(shape)
        features = np.eye(3)[:, :2] if self.layout == "outer" else None
        name = f"order-{len(self.plain)}" if number % 2 else None
        decision = await bandit.decide(
            plain @ self.turn.T, arms=ARMS, arm_features=features, event_id=name, user="ann"
        )
        self.plain[decision.id] = plain
        if number % 4:
            self.rewards[decision.id] = float(self.rng.standard_normal())
            await bandit.reward(decision, self.rewards[decision.id])
        elif number % 8 == 4:
            await bandit.forget(decision)
