"""A campaign on a log in memory, with contexts that need no federation, and a clock to turn."""

from hashlib import blake2b

import numpy as np

import vfbandits as vfb
from vfbandits.campaign.query import Contexts
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.core.context import Split
from vfbandits.journal.memory import MemoryDisk, MemoryJournal
from vfbandits.serving.durable import DurableBandit
from vfbandits.serving.leader import Leader

ARMS = ("tea", "coffee", "milk")


class PlainSource:
    """Contexts drawn from the names of user and arm; ``away`` participants count as zeros."""

    max_rows = 1_000
    keep = None

    def __init__(self):
        self.split = Split.of({"shop": 2, "bank": 3})
        self.away = set()
        self.n_asked = self.n_leased = 0

    def n_rows(self, query):
        return len(query.arms)

    async def contexts(self, queries, *, campaign):
        self.n_asked += 1
        self.n_leased += 1
        came = tuple(name for name in self.split.names if name not in self.away)
        missing = tuple(name for name in self.split.names if name in self.away)
        some = []
        for query in queries:
            rows = np.array([row_of(query.user, arm) for arm in query.arms])
            for name in self.away:
                rows[:, self.split.columns(name)] = 0.0
            size = 24 * len(query.arms)
            some.append(Contexts(rows, came, missing, split=self.split, bytes_received=size))
        return some

    def release(self):
        self.n_leased -= 1


def row_of(user, arm):
    digest = blake2b(f"{user}/{arm}".encode(), digest_size=8).digest()
    return np.random.default_rng(int.from_bytes(digest)).standard_normal(5) / 3.0


class Clock:
    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now


class Watcher:
    """An observer that remembers."""

    def __init__(self):
        self.calls = 0
        self.decisions = []
        self.rewards = []
        self.changes = []
        self.trips = []

    def on_ranked(self, seen):
        self.calls += 1
        self.decisions.extend(seen)

    def on_reward(self, seen):
        self.rewards.append(seen)

    def on_configured(self, seen):
        self.changes.append(seen)

    def on_guardrail(self, seen):
        self.trips.append(seen)


class World:
    """A disk that outlives processes; ``open`` starts one."""

    def __init__(self, *, policy=None, bandit=None, **settings):
        self.disk = MemoryDisk()
        self.source = PlainSource()
        self.clock = Clock()
        self.watcher = Watcher()
        self.policy = policy or vfb.LinUCB(beta=0.5)
        self.settings = settings
        self.bandit = {"seed": 1, **(bandit or {})}

    def open(self):
        journal = MemoryJournal(self.disk)
        model = DurableBandit.open(
            journal,
            lambda: vfb.Bandit(self.policy, dim=5, **self.bandit),
            epoch=1,
            clock=self.clock,
        )
        settings = CampaignSettings(self.policy, **self.settings)
        campaign = Leader("default", model, self.source, settings, clock=self.clock)
        campaign.observe([self.watcher])
        return campaign
