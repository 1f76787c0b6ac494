"""Records that are older than ``retain_days`` leave the journal, and nothing else changes."""

import asyncio
import contextlib
import sqlite3
import time
from contextlib import closing

import numpy as np
import pytest
from campaign_world import Clock, PlainSource
from durables import parts
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from journals import InMemory, OnSqlite, make_place
from ranker_world import ErrorLines, asked, soon

import vfbandits as vfb
from vfbandits.campaign.events import (
    Administered,
    Decided,
    Erased,
    MasksChanged,
    Reported,
    Rewarded,
)
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.errors import ConfigError, ConflictError, JournalError, UnknownEventError
from vfbandits.journal.erase import ErasureRequest, erase_user
from vfbandits.journal.memory import MemoryJournal
from vfbandits.journal.retain import Waited, old_records
from vfbandits.journal.verify import verify
from vfbandits.serving import leader as leading
from vfbandits.serving.campaigns import Campaigns
from vfbandits.serving.durable import DurableBandit
from vfbandits.serving.leader import Leader
from vfbandits.serving.tail import Tail
from vfbandits.settings.decode import decode as read
from vfbandits.settings.http import CampaignTable
from vfbandits.settings.services import ActiveConfig

DAY_S = 86_400.0


class Lines(ErrorLines):
    """A logger that keeps what it is told."""

    info = ErrorLines.error


class RetainWorld:
    def __init__(self, place, *, days=30.0, wait_days=None, **options):
        self.place, self.clock, self.lines, self.options = place, Clock(), Lines(), options
        self.days, self.wait_s = days, None if wait_days is None else wait_days * DAY_S

    def open(self):
        policy = vfb.LinUCB(beta=0.5)
        make = lambda: vfb.Bandit(policy, dim=5, seed=1, **self.options)  # noqa: E731
        model = DurableBandit.open(self.place.open(), make, epoch=1, clock=self.clock)
        settings = CampaignSettings(policy, reward_wait_s=self.wait_s)
        campaign = Leader("default", model, PlainSource(), settings, clock=self.clock)
        campaign.retain_s, campaign.log = self.days * DAY_S, self.lines
        return campaign

    def whole(self):
        with closing(self.place.open()) as journal:
            return verify(journal)

    def left(self):
        """Ids of the decisions in the journal, and how many rewards."""
        with closing(self.place.open()) as journal:
            events = [*journal.remains(), *journal.read(journal.compacted_to)]
        decided = [event.event_id for _, event in events if isinstance(event, Decided)]
        return decided, sum(isinstance(event, Rewarded) for _, event in events)


@pytest.fixture(params=["InMemorySealed", "OnSqlite", "OnPostgres"])
def place(request, tmp_path):
    return make_place(request.param, tmp_path)


async def visit(campaign, name, *, reward=1.0, user="ann"):
    await campaign.rank(asked(name, user=user))
    if reward is not None:
        await campaign.reward(name, reward)


async def days(world, campaign, first, last):
    """One visit a day, and all that the ticker does."""
    for day in range(first, last):
        await visit(campaign, f"day-{day}", reward=0.1 * day)
        world.clock.now += DAY_S
        while await campaign.retain():
            pass


def test_what_is_older_leaves_what_is_younger_stays_and_the_model_is_the_same(place):
    world = RetainWorld(place, days=30.0)

    async def main():
        campaign = world.open()
        await days(world, campaign, 0, 45)
        before = parts(campaign.model.bandit)
        retired = campaign.durable.n_retired
        with pytest.raises(UnknownEventError):
            await campaign.history("day-14")
        assert (await campaign.history("day-16")).learnt == pytest.approx(1.6)
        assert await campaign.reward("day-40", 4.0) == "repeated"
        await campaign.durable.close()
        again = world.open()
        assert parts(again.model.bandit) == before
        await days(world, again, 45, 46)
        await again.durable.close()
        return retired

    retired = asyncio.run(main())
    assert retired == 2 * 15  # decisions and their rewards
    kept, n_rewards = world.left()
    assert kept == [f"day-{day}" for day in range(16, 46)]
    assert n_rewards == 30
    assert world.whole().problems == ()
    told = [line for line in world.lines if line["event"] == "records_retired"]
    assert sum(line["records"] for line in told) == retired + 2
    assert {(line["campaign"], line["days"]) for line in told} == {("default", 30.0)}


def test_the_id_of_an_event_that_was_retired_is_a_conflict_and_not_a_new_event(place):
    world = RetainWorld(place, days=30.0)

    async def main():
        campaign = world.open()
        await days(world, campaign, 0, 45)
        with pytest.raises(
            ConflictError, match="'day-3': it was ranked before, and its answer has"
        ):
            await visit(campaign, "day-3")
        await campaign.durable.close()

    asyncio.run(main())


def test_nothing_of_a_retired_record_stays_in_the_files(tmp_path):
    world = RetainWorld(OnSqlite(tmp_path), days=1.0)

    def files():
        return b"".join(path.read_bytes() for path in sorted(tmp_path.rglob("*")))

    async def main():
        campaign = world.open()
        for number in range(200):
            user = "ann-4711" if number < 150 else "bob-4712"
            world.clock.now += 2 * DAY_S if number == 150 else 0.0
            await visit(campaign, f"e{number}", user=user)
        await campaign.durable.snapshot()
        assert b"ann-4711" in files()
        assert await campaign.retain() == 300
        found = files()
        assert b"ann-4711" not in found
        assert b"bob-4712" in found
        await campaign.durable.close()

    asyncio.run(main())
    assert world.whole().problems == ()


def test_pending_decisions_stay_with_their_masks_in_memory_or_not_and_learn_late(place):
    world = RetainWorld(place, days=1.0, wait_days=100.0, max_open=2)

    async def main():
        campaign = world.open()
        await visit(campaign, "learnt")
        for name in ("cold", "warm", "hot"):
            await visit(campaign, name, reward=None)
        rotation = vfb.core.mask.sample_mask(5)
        await campaign.durable.change_masks(rotation, epoch=2)
        world.clock.now += 3 * DAY_S
        assert await campaign.retain() == 2
        await campaign.durable.close()
        campaign = world.open()
        for name in ("cold", "warm", "hot"):
            assert await campaign.reward(name, 0.5) == "learnt"
        assert campaign.durable.n_recalled == 1
        await campaign.durable.close()

    asyncio.run(main())
    with closing(place.open()) as journal:
        events = [event for _, event in journal.remains()]
        assert [type(event) for event in events if not isinstance(event, Administered)] == [
            Decided, Decided, Decided, MasksChanged
        ]  # fmt: skip
        assert verify(journal).problems == ()


def test_a_late_reward_without_its_decision_has_no_context_after_an_erasure(place):
    """It came when the decision had left memory, so it holds the context itself."""
    world = RetainWorld(place, days=10.0, wait_days=9.0, max_open=1)

    async def main():
        campaign = world.open()
        for name in ("late", "next", "last"):
            await visit(campaign, name, reward=None)
        world.clock.now += 8 * DAY_S
        assert await campaign.reward("late", 0.5) == "learnt"
        while await campaign.settle():
            pass
        world.clock.now += 3 * DAY_S
        assert await campaign.retain() == 1
        await campaign.durable.close()

    def with_context():
        with closing(place.open()) as journal:
            events = [
                event for _, event in (*journal.remains(), *journal.read(journal.compacted_to))
            ]
        rewards = [event for event in events if isinstance(event, Rewarded)]
        return [event.event_id for event in rewards if event.recalled is not None]

    asyncio.run(main())
    assert with_context() == ["late"]
    with closing(place.open()) as journal:
        done = erase_user(journal, ErasureRequest("ann", "asked", "ops", 1.0))
        assert verify(journal).problems == ()
    assert (done.decisions, done.records) == (2, 3)
    assert with_context() == []


def test_the_page_has_its_charts_after_a_restart_in_a_retained_journal(place):
    world = RetainWorld(place, days=2.0)

    async def main():
        campaign = world.open()
        await days(world, campaign, 0, 6)
        await campaign.durable.close()
        campaign = world.open()
        events = [event for _, event in await campaign.durable.read_end(20_000)]
        await campaign.durable.close()
        return [event.event_id for event in events if isinstance(event, Decided)]

    assert asyncio.run(main()) == ["day-4", "day-5"]
    if not isinstance(place, InMemory):

        async def follow():
            tail = Tail(place.reader())
            events = [event for _, event in await tail.read_end(20_000)]
            await tail.stop()
            return [event.event_id for event in events if isinstance(event, Decided)]

        assert asyncio.run(follow()) == ["day-4", "day-5"]


def test_a_reader_does_not_hold_up_the_writer(tmp_path, monkeypatch):
    monkeypatch.setattr("vfbandits.journal.sqlite.journal.BUSY_TIMEOUT_S", 120.0)
    place = OnSqlite(tmp_path)
    world = RetainWorld(place, days=1.0)

    async def main():
        campaign = world.open()
        await visit(campaign, "old")
        world.clock.now += 2 * DAY_S
        with closing(sqlite3.connect(place.path)) as other:
            reading = other.execute("SELECT * FROM event")
            reading.fetchone()
            began = time.monotonic()
            assert await campaign.retain() == 2
            waited = time.monotonic() - began
            reading.close()
        await campaign.durable.close()
        return waited

    assert asyncio.run(main()) < 60.0
    assert world.whole().problems == ()


DEEDS = st.one_of(
    st.tuples(st.just("visit"), st.booleans()),
    st.tuples(st.just("reward"), st.integers(0, 30)),
    st.tuples(st.just("wait"), st.floats(0.1, 3.0)),
    st.tuples(st.just("masks"), st.just(0)),
    st.tuples(st.just("snapshot"), st.just(0)),
    st.tuples(st.just("restart"), st.just(0)),
)


async def lived(deeds, days):
    """What was learnt and is waited for after all deeds; every restart comes to the same."""
    place = InMemory(None)
    world = RetainWorld(place, days=days, wait_days=2.5, max_open=2, max_settled=3)
    campaign, names, epoch = world.open(), [], 1
    for deed, value in deeds:
        if deed == "visit":
            names.append(f"e{len(names)}")
            await visit(campaign, names[-1], reward=0.5 if value else None)
        elif deed == "reward" and names:
            with contextlib.suppress(UnknownEventError, ConflictError):
                await campaign.reward(names[value % len(names)], 0.25, reward_id="late")
        elif deed == "wait":
            world.clock.now += value * DAY_S
            while await campaign.settle():
                pass
        elif deed == "masks":
            epoch += 1
            rotation = np.linalg.qr(np.random.default_rng(epoch).standard_normal((5, 5)))[0]
            await campaign.durable.change_masks(rotation, epoch=epoch)
        elif deed == "snapshot":
            await campaign.durable.snapshot()
        elif deed == "restart":
            before = parts(campaign.model.bandit)
            await campaign.durable.close()
            campaign = world.open()
            assert parts(campaign.model.bandit) == before
        while await campaign.retain():
            pass
    _, arrays = parts(campaign.model.bandit)
    waits = [*campaign.model.pending], len(campaign.model.cold)
    await campaign.durable.close()
    assert world.whole().problems == ()
    return {name: one for name, one in arrays.items() if name.startswith("learner/")}, waits


@given(deeds=st.lists(DEEDS, max_size=30))
@hypothesis_settings(deadline=None, max_examples=40)
def test_retention_never_changes_what_is_learnt_nor_what_is_waited_for(deeds):
    """To the bit, against a journal that keeps everything."""
    assert asyncio.run(lived(deeds, 1.0)) == asyncio.run(lived(deeds, 1e6))


def test_it_looks_once_an_hour_a_part_at_a_time_and_never_without_the_setting(monkeypatch):
    class Memory:
        def open(self):
            return MemoryJournal()

    monkeypatch.setattr(leading, "RETIRED_PER_BATCH", 4)
    world = RetainWorld(Memory(), days=1.0)

    async def main():
        campaign = world.open()
        for number in range(5):
            await visit(campaign, f"e{number}")
        assert await campaign.retain() == 0
        world.clock.now += 2 * DAY_S
        assert [await campaign.retain() for _ in range(5)] == [4, 4, 2, 0, 0]
        await visit(campaign, "later")
        world.clock.now += 3_599.0
        campaign.retain_s = 1.0
        assert await campaign.retain() == 0
        world.clock.now += 1.0
        assert await campaign.retain() == 2
        campaign.retain_s = None
        await visit(campaign, "last")
        world.clock.now += 9 * DAY_S
        assert await campaign.retain() == 0
        await campaign.durable.close()

    asyncio.run(main())


def test_the_one_ticker_does_it_and_a_failure_is_logged_and_stops_nothing(monkeypatch):
    class Memory:
        def open(self):
            return MemoryJournal()

    world = RetainWorld(Memory(), days=1.0)

    async def main():
        campaign = world.open()
        await visit(campaign, "old")
        world.clock.now += 2 * DAY_S
        with monkeypatch.context() as broken:
            broken.setattr(MemoryJournal, "retire", _no_room)
            assert await campaign.retain() == 0
        assert [line["event"] for line in world.lines] == ["retention_failed"]
        await visit(campaign, "new")
        world.clock.now += 3_600.0
        campaigns = Campaigns([campaign], log=world.lines, snapshot_every=0)
        campaigns.start()
        await soon(lambda: campaign.durable.n_retired >= 2)
        await campaigns.stop()

    asyncio.run(main())


def _no_room(self, positions, *, covered_by):
    raise JournalError("there is no room")


def test_records_are_dropped_only_if_a_snapshot_covers_them(place):
    world = RetainWorld(place)

    async def main():
        campaign = world.open()
        await days(world, campaign, 0, 3)
        await campaign.durable.snapshot()
        await days(world, campaign, 3, 5)
        await campaign.durable.close()

    asyncio.run(main())
    with closing(place.open()) as journal:
        newest = journal.snapshot_positions()[0]
        for positions, covered_by in (([newest + 1], newest), ([1], newest + 1), ([1], 2)):
            with pytest.raises(JournalError, match="or later covers them"):
                journal.retire(positions, covered_by=covered_by)
        assert journal.compacted_to == 0


def test_a_record_without_a_time_is_as_old_as_the_next_one_with_one():
    journal, nobody = MemoryJournal(), Waited((), (), None)
    events = [Erased("a", None), Administered("settings", "", "ops", 1.0), Erased("b", None)]
    journal.append([*events, Reported("c", 1.0, "", "late", 5.0), Erased("d", None)])
    assert old_records(journal, before=3.0, waited=nobody, most=9) == (1,)
    assert old_records(journal, before=9.0, waited=nobody, most=9) == (1, 3, 4)


def test_the_setting_is_a_campaigns_and_needs_a_journal():
    assert read({"retain_days": 0.5}, CampaignTable).plan("", vfb_model()).retain_s == 43_200.0
    assert read({}, CampaignTable).plan("", vfb_model()).retain_s is None
    with pytest.raises(ConfigError, match="retain_days must be a number above 0"):
        read({"retain_days": 0}, CampaignTable)
    place = {"name": "shop", "role": "active", "address": "h:1", "journal": False}
    with pytest.raises(ConfigError, match=r"campaigns\.default\.retain_days is about the journal"):
        read({**place, "campaigns": {"default": {"retain_days": 1.0}}}, ActiveConfig)


def vfb_model():
    return read({}, ActiveConfig.__annotations__["model"])
