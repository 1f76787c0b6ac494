"""A campaign on a log in memory, with contexts that need no federation, and a clock to turn."""

from contextlib import asynccontextmanager
from hashlib import blake2b

import numpy as np

import vfbandits as vfb
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.core.context import Split
from vfbandits.http.asking import answer_of
from vfbandits.journal.memory import MemoryDisk, MemoryJournal
from vfbandits.serving.durable import DurableBandit
from vfbandits.serving.leader import Campaign
from vfbandits.serving.rounds import Contexts

ARMS = ("tea", "coffee", "milk")


class PlainSource:
    """Contexts drawn from the names of user and arm; ``away`` participants count as zeros."""

    is_blockwise = True
    is_per_arm = True
    most_rows = 1_000

    def __init__(self):
        self.split = Split.of({"shop": 2, "bank": 3})
        self.away = set()
        self.n_asked = 0

    def arm_features(self, request):
        return None

    @asynccontextmanager
    async def contexts(self, *requests):
        self.n_asked += 1
        rows = np.array([row_of(one.user, arm) for one in requests for arm in one.arms])
        for name in self.away:
            rows[:, self.split.columns(name)] = 0.0
        came = tuple(name for name in self.split.names if name not in self.away)
        yield Contexts(rows, came, 24 * len(requests[0].arms))


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

    def ranked(self, seen):
        self.calls += 1
        self.decisions.extend(seen)

    def heard(self, seen):
        self.rewards.append(seen)

    def configured(self, seen):
        self.changes.append(seen)


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
        campaign = Campaign(
            "default", model, self.source, settings, encode=answer_of, clock=self.clock
        )
        campaign.observe([self.watcher])
        return campaign
