"""A server in this process whose contexts are what came with the request; nothing is looked up."""

import asyncio
import gc
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace

import httpx2
import numpy as np
import structlog

import vfbandits as vfb
from vfbandits.campaign.query import Contexts
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.core.context import Split
from vfbandits.http.access.gate import guarded, limits_of
from vfbandits.http.app import Parts, build_app
from vfbandits.http.handlers import Handlers
from vfbandits.http.personalizer import build_personalizer
from vfbandits.journal.memory import MemoryDisk, MemoryJournal
from vfbandits.serving.campaigns import Campaigns
from vfbandits.serving.durable import DurableBandit
from vfbandits.serving.leader import Leader
from vfbandits.settings.http import HttpSettings
from vfbandits.telemetry.metrics import Metrics
from vfbandits.telemetry.readings import Readings


class RequestSource:
    """Contexts of the active participant alone, from the bytes of each query."""

    max_rows = 1_000
    keep = None

    def __init__(self, layout, dim, arm_dim):
        self.layout, self.dim, self.arm_dim = layout, dim, arm_dim
        self.queries = []

    def n_rows(self, query):
        return len(query.arms) if self.layout == "per_arm" else 1

    async def contexts(self, queries, *, campaign):
        self.queries += queries
        return [self._contexts(query) for query in queries]

    def _contexts(self, query):
        rows = np.frombuffer(query.own).reshape(self.n_rows(query), self.dim)
        of_arms = None
        if self.arm_dim:
            of_arms = np.frombuffer(query.arm_features).reshape(len(query.arms), self.arm_dim)
        return Contexts(rows, ("shop",), (), of_arms)

    def release(self):
        pass


class RequestWorld:
    """A campaign on a journal in memory; ``run`` talks to it over HTTP."""

    def __init__(self, *, layout, dim, arm_dim=None, names=None, personalizer=None, keys=None,
                 decides=True, **settings):  # fmt: skip
        self.disk, self.layout = MemoryDisk(), layout
        self.bandit = {"dim": dim, "layout": layout, "arm_dim": arm_dim, "seed": 1}
        self.source = RequestSource(layout, dim, arm_dim)
        self.names, self.personalizer, self.decides = names, personalizer, decides
        self.keys, self.settings = keys, settings
        self.policy = vfb.LinTS()

    @asynccontextmanager
    async def client(self):
        model = DurableBandit.open(
            MemoryJournal(self.disk), lambda: vfb.Bandit(self.policy, **self.bandit), epoch=1
        )
        rules = CampaignSettings(self.policy, **self.settings)
        self.leader = Leader("default", model, self.source, rules)
        campaigns = Campaigns([self.leader], log=structlog.get_logger(), snapshot_every=0)
        http = HttpSettings("127.0.0.1:0", keys=self.keys, insecure=self.keys is None)
        limits = limits_of(http)
        handlers = Handlers(
            campaigns, model_facts=lambda: None, limits=limits, names=self.names,
            decides=self.decides,
        )  # fmt: skip
        parts = Parts(Metrics(Readings(list, list, lambda: 1, lambda: True)))
        app = guarded(self.app(handlers, parts), http, limits)
        self.transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(
            transport=self.transport, base_url="http://localhost"
        ) as client:
            yield client
        await model.close()

    def app(self, handlers, parts):
        if self.personalizer is None:
            return build_app(handlers, parts)
        dim, arm_dim = self.bandit["dim"], self.bandit["arm_dim"]
        terms = SimpleNamespace(layout=self.layout, arm_dim=arm_dim, bound=64.0, shares=None)
        roster = SimpleNamespace(terms=terms, split=Split.of({"shop": dim, "bank": 1}))
        facade = build_personalizer(
            self.personalizer, find_campaign=handlers.campaign, names=self.names, roster=roster
        )
        return build_app(handlers, replace(parts, personalizer=facade))

    def run(self, talk):
        """``await talk(client)`` in a loop of its own."""

        async def whole():
            async with self.client() as client:
                return await asyncio.wait_for(talk(client), 60.0)

        try:
            return asyncio.run(whole())
        finally:
            gc.unfreeze()
