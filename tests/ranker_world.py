"""One leader and several rankers on one log and one inbox, all in this process."""

import asyncio
from contextlib import asynccontextmanager

from campaign_world import ARMS, Clock, PlainSource, Watcher
from durables import parts

import vfbandits as vfb
from vfbandits.campaign.query import Query
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.errors import LinkError, VFBanditsError
from vfbandits.journal.inbox.memory import InboxRecords, MemoryInbox
from vfbandits.journal.sqlite.journal import SqliteJournal
from vfbandits.journal.sqlite.reader import SqliteReader
from vfbandits.protocol.application import GatherReply
from vfbandits.serving.consumer import Consumer
from vfbandits.serving.durable import DurableBandit
from vfbandits.serving.leader import Leader
from vfbandits.serving.replica import Replica, Shape, Sources
from vfbandits.serving.replica_journal import ReplicaJournal
from vfbandits.serving.tail import Tail


def asked(event_id=None, *, user="ann", arms=ARMS, **more):
    return Query(user, arms, event_id, **more)


class ErrorLines(list):
    """A logger that keeps errors."""

    def error(self, event, **facts):
        self.append({"event": event, **facts})

    def info(self, event, **facts):
        """Not kept."""

    warning = info


class RankerWorld:
    """``async with world.leading()`` and ``world.ranking()`` start processes, as it were."""

    def __init__(self, folder, *, policy=None, bandit=None, **settings):
        self.path = folder / "log.db"
        self.inbox_records = InboxRecords()
        self.source = PlainSource()
        self.clock = Clock()
        self.watcher = Watcher()
        self.policy = policy or vfb.LinUCB(beta=0.5)
        self.bandit = {"seed": 1, **(bandit or {})}
        self.settings = CampaignSettings(self.policy, **settings)
        self.leader = None
        self.consumer = None
        self.n_gathered = 0
        self.batches = []
        self.errors, self.entered = ErrorLines(), []

    @property
    def refused(self):
        """Why arrivals were set aside."""
        return [line["reason"] for line in self.errors if line["event"] == "inbox_record_refused"]

    @property
    def failed(self):
        """Why the inbox could not be read."""
        return [line["reason"] for line in self.errors if line["event"] == "inbox_failed"]

    @asynccontextmanager
    async def leading(self, *, consuming=True):
        model = DurableBandit.open(
            SqliteJournal(self.path),
            lambda: vfb.Bandit(self.policy, dim=5, **self.bandit),
            epoch=1,
            clock=self.clock,
        )
        self.leader = Leader("default", model, self.source, self.settings, clock=self.clock)
        self.leader.observe([self.watcher])
        self.leader.log = self.errors
        self.consumer = Consumer(
            self.leader,
            MemoryInbox(self.inbox_records, clock=self.clock),
            is_in_use=lambda: self.n_gathered > 0,
            clock=self.clock,
        )
        self.consumer.on_entered = lambda _, events: self.entered.extend(
            event.event_id for event in events
        )
        if consuming:
            self.consumer.start()
        try:
            yield self.leader
        finally:
            await self.consumer.stop()
            await model.close()
            self.leader = None

    @asynccontextmanager
    async def ranking(self):
        tail = Tail(SqliteReader(self.path))
        log = ReplicaJournal(
            MemoryInbox(self.inbox_records, clock=self.clock), SqliteReader(self.path)
        )
        ranker = Replica(
            "default",
            tail,
            log,
            Sources(self.asked, self.shape),
            self.settings,
            clock=self.clock,
        )
        tail.start()
        try:
            yield ranker
        finally:
            await ranker.close()

    def shape(self, note):
        del note
        return Shape(self.source.split, is_blockwise=True, is_per_arm=True)

    async def asked(self, requests, *, size_bytes):
        return await self.gather(requests, size_bytes=size_bytes)

    async def gather(self, requests, *, size_bytes):
        self.batches.append((len(requests), size_bytes))
        return [await self.outcome(request) for request in requests]

    async def outcome(self, request):
        if self.leader is None:
            return LinkError("nobody leads")
        self.n_gathered += 1
        try:
            (contexts,) = await self.source.contexts([request], campaign="default")
            rows = self.masked(contexts.rows)
        except VFBanditsError as error:
            return error
        return GatherReply(rows.tobytes(), contexts.contributors, self.leader.model.epoch, 24)

    def masked(self, rows):
        return rows

    async def level(self, ranker):
        """Until the ranker has read all that the leader has written."""
        await self.leader.arrivals.drain()
        await self.leader.durable.flush()
        position = self.leader.model.position
        assert await ranker.tail.until(lambda m: m.position >= position, timeout_s=60.0)

    async def same(self, ranker):
        """Whether the ranker's model equals the leader's at the end of the log, bit for bit."""
        await self.level(ranker)
        leader = self.leader.model
        assert ranker.model.position == leader.position
        assert ranker.model.pack() == leader.pack()
        return parts(ranker.model.bandit) == parts(leader.bandit)


async def soon(is_so, timeout_s=60.0):
    async with asyncio.timeout(timeout_s):
        while not is_so():  # noqa: ASYNC110  (a test may poll)
            await asyncio.sleep(0.01)
