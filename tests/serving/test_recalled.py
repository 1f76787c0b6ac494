"""Decisions that have left memory: a reward finds them in the journal, and nothing differs.

Equality with a campaign whose memory holds everything is exact: the same answers, the same bits.
"""

import asyncio
import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest
from campaign_world import World
from hypothesis import given, settings
from hypothesis import strategies as st
from journals import make_place
from ranker_world import RankerWorld, asked
from structlog.testing import capture_logs

import vfbandits as vfb
from vfbandits.campaign.events import Rewarded
from vfbandits.campaign.model import Model, fold
from vfbandits.campaign.query import Query
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.errors import ConflictError, RewardError, UnknownDecisionError, VFBanditsError
from vfbandits.journal.compact import compact
from vfbandits.journal.memory import MemoryJournal
from vfbandits.journal.verify import verify
from vfbandits.serving.durable import DurableBandit
from vfbandits.serving.leader import Leader

ARMS = ("tea", "coffee")
KINDS = ("InMemory", "OnSqlite", "OnPostgres")


class PlacedWorld(World):
    """A world whose journal is in a ``place``."""

    def __init__(self, place, **more):
        super().__init__(**more)
        self.place = place

    def open(self):
        model = DurableBandit.open(
            self.place.open(),
            lambda: vfb.Bandit(self.policy, dim=5, **self.bandit),
            epoch=1,
            clock=self.clock,
        )
        settings = CampaignSettings(self.policy, **self.settings)
        campaign = Leader("default", model, self.source, settings, clock=self.clock)
        campaign.observe([self.watcher])
        return campaign


@pytest.fixture(params=KINDS)
def place(request, tmp_path):
    return make_place(request.param, tmp_path)


def learnt(campaign):
    """All that was learnt, to the last bit."""
    found = []
    for arm, state in campaign.model.bandit.states.items():
        header, arrays = state.pack()
        found.append((arm, header, {name: array.tobytes() for name, array in arrays.items()}))
    return found


def rotation(seed):
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(5, 5)))[0]


def statuses(world):
    return {seen.event_id: seen.status for seen in world.watcher.rewards}


async def rank(campaign, names, **more):
    for name in names:
        await campaign.rank(Query(name, ARMS, name, **more))


# --- one rule at a time -----------------------------------------------------------------------


def test_a_reward_past_the_memory_is_learnt(place):
    async def main():
        world = PlacedWorld(place, bandit={"max_open": 2})
        campaign = world.open()
        await rank(campaign, "abcde")
        x = np.array(campaign.model.bandit.observation("e").x)
        assert (campaign.n_waiting, len(campaign.model.pending)) == (5, 2)
        assert await campaign.reward("a", 1.0) == "learnt"
        assert await campaign.reward("a", 1.0) == "repeated"
        with pytest.raises(ConflictError, match=r"is 1\.0 already"):
            await campaign.reward("a", 2.0)
        assert campaign.n_waiting == 4
        assert campaign.durable.n_recalled == 1
        assert (await campaign.history("a")).learnt == 1.0
        before = learnt(campaign)
        await campaign.durable.close()
        restarted = world.open()
        assert learnt(restarted) == before
        assert restarted.n_waiting == 4
        assert np.array_equal(restarted.model.bandit.observation("e").x, x)
        await restarted.durable.close()

    asyncio.run(main())


def test_a_reward_is_carried_through_changes_of_masks_that_came_after_its_decision(place):
    async def life(world):
        campaign = world.open()
        await rank(campaign, "a")
        await campaign.durable.change_masks(rotation(1), epoch=2)
        await rank(campaign, "b")
        await campaign.durable.snapshot()
        await campaign.durable.change_masks(rotation(2), epoch=3)
        await rank(campaign, "c")
        await campaign.durable.close()
        campaign = world.open()
        for name in "bac":
            assert await campaign.reward(name, 1.0) == "learnt"
        await campaign.durable.close()
        campaign = world.open()
        found = learnt(campaign)
        await campaign.durable.close()
        return found

    async def main():
        small, large = PlacedWorld(place, bandit={"max_open": 1}), World()
        assert await life(small) == await life(large)

    asyncio.run(main())


def test_waits_that_left_memory_end_too_also_after_a_restart(place):
    async def main():
        world = PlacedWorld(place, bandit={"max_open": 2}, reward_wait_s=60.0, aggregation="sum")
        campaign = world.open()
        await rank(campaign, "abcde")
        await campaign.reward("a", 1.0, reward_id="r1")
        await campaign.reward("a", 2.0, reward_id="r2")
        assert await campaign.reward("a", 2.0, reward_id="r2") == "repeated"
        world.clock.now += 30.0
        await rank(campaign, "f")
        await campaign.durable.snapshot()
        await campaign.durable.close()
        campaign = world.open()
        world.clock.now += 31.0
        assert await campaign.settle() == 5
        assert await campaign.settle() == 0
        assert statuses(world) == {"a": "summed"} | dict.fromkeys("bcde", "default")
        assert (await campaign.history("a")).learnt == 3.0
        world.clock.now += 30.0
        assert await campaign.settle() == 1
        assert campaign.n_waiting == 0
        assert await campaign.reward("b", 1.0) == "late"
        await campaign.durable.close()

    asyncio.run(main())


def test_an_event_that_is_held_can_be_activated_after_it_left_memory(place):
    async def main():
        world = PlacedWorld(place, bandit={"max_open": 1}, activation_wait_s=100.0)
        campaign = world.open()
        await rank(campaign, "ab", activate=False)
        await rank(campaign, "c")
        assert await campaign.reward("a", 1.0) == "counted"
        assert await campaign.activate("a")
        assert not await campaign.activate("a")
        await campaign.durable.close()
        campaign = world.open()
        world.clock.now += 101.0  # b was not activated in time, a waits for longer
        await campaign.settle()
        assert statuses(world) == {"a": "counted", "b": "forgotten"}
        with pytest.raises(ConflictError, match="not activated in time"):
            await campaign.activate("b")
        assert await campaign.reward("a", 1.0) == "repeated"
        world.clock.now += 600.0  # the wait that began with the activation
        await campaign.settle()
        assert (await campaign.history("a")).learnt == 1.0
        await campaign.durable.close()

    asyncio.run(main())


def test_while_frozen_an_event_that_left_memory_is_logged_once(place):
    async def main():
        world = PlacedWorld(place, bandit={"max_open": 1}, mode="frozen")
        campaign = world.open()
        await rank(campaign, "ab")
        assert await campaign.reward("a", 1.0) == "logged"
        assert await campaign.reward("a", 1.0) == "repeated"
        await campaign.configure({"mode": "learn"}, by="ops")
        assert await campaign.reward("a", 2.0, reward_id="r") == "ignored"
        world.clock.now += 601.0
        await campaign.settle()
        assert (await campaign.history("a")).status == "forgotten"
        assert (await campaign.history("b")).status == "learnt"
        await campaign.durable.close()

    asyncio.run(main())


def test_rewards_that_come_at_the_same_time_are_learnt_once(place):
    async def main():
        world = PlacedWorld(place, bandit={"max_open": 1})
        campaign = world.open()
        await rank(campaign, "ab")
        told = await asyncio.gather(*(campaign.reward("a", 1.0) for _ in range(8)))
        assert sorted(told) == ["learnt", *["repeated"] * 7]
        bare = campaign.durable
        await rank(campaign, "c")
        got = await asyncio.gather(*(bare.reward("b", 1.0) for _ in range(8)))
        assert sorted(got) == [False] * 7 + [True]
        with pytest.raises(RewardError, match=r"already has the reward 1\.0"):
            await bare.reward("a", 5.0)
        with pytest.raises(UnknownDecisionError):
            await bare.reward("never", 1.0)
        await bare.close()

    asyncio.run(main())


def test_compaction_keeps_what_is_waited_for_in_memory_or_not(place):
    async def main():
        world = PlacedWorld(place, bandit={"max_open": 2}, reward_wait_s=60.0)
        campaign = world.open()
        await rank(campaign, "abcdef")
        await campaign.reward("b", 1.0)
        await campaign.durable.change_masks(rotation(1), epoch=2)
        for names in ("gh", "ij"):
            await rank(campaign, names)
            await campaign.durable.snapshot()
        before = learnt(campaign)
        await campaign.durable.close()
        journal = place.open()
        assert compact(journal).dropped
        assert not verify(journal).problems
        journal.close()
        campaign = world.open()
        assert learnt(campaign) == before
        assert await campaign.reward("a", 1.0) == "learnt"
        world.clock.now += 61.0
        assert await campaign.settle() == 8
        assert statuses(world) == {"a": "learnt", "b": "learnt"} | dict.fromkeys(
            "cdefghij", "default"
        )
        await campaign.durable.close()
        journal = place.open()
        assert not verify(journal).problems
        journal.close()

    asyncio.run(main())


def test_the_number_kept_in_memory_may_be_changed_for_the_same_journal(place):
    async def main():
        world = PlacedWorld(place, bandit={"max_open": 4})
        for max_open in (4, 2, 1, 3, 100):
            world.bandit["max_open"] = max_open
            campaign = world.open()
            before = learnt(campaign)
            await rank(campaign, [f"{max_open}-{k}" for k in range(4)])
            await campaign.reward(f"{max_open}-0", 1.0)
            assert len(campaign.model.pending) <= max_open
            assert learnt(campaign) != before
            last = learnt(campaign)
            await campaign.durable.close()
        campaign = world.open()
        assert learnt(campaign) == last
        assert campaign.n_waiting == 15
        await campaign.durable.close()
        journal = place.open()
        assert not verify(journal).problems  # folded from the very beginning
        journal.close()

    asyncio.run(main())


def test_a_damaged_record_of_one_event_does_not_keep_others_waiting(tmp_path):
    place = make_place("OnSqlite", tmp_path)

    async def main():
        world = PlacedWorld(place, bandit={"max_open": 1}, reward_wait_s=60.0)
        campaign = world.open()
        await rank(campaign, "abcd")
        await campaign.durable.snapshot()
        await rank(campaign, "e")
        await campaign.durable.close()
        record = dict(place.records())[2]
        place.put_record(2, record[:-6] + bytes([record[-6] ^ 1]) + record[-5:])
        campaign = world.open()
        world.clock.now += 61.0
        with capture_logs() as lines:
            while await campaign.settle():
                pass
            assert await campaign.settle() == 0
        assert statuses(world) == dict.fromkeys("acde", "default")
        assert {line["event"] for line in lines} >= {"record_unreadable", "event_unreadable"}
        assert campaign.durable.broken_by is None
        await campaign.durable.close()

    asyncio.run(main())


def test_the_record_of_a_recalled_reward_is_enough_to_replay_it(place):
    """No lookup is needed: snapshot and tail, rankers and standbys fold the same bits."""

    async def main():
        world = PlacedWorld(place, bandit={"max_open": 1})
        campaign = world.open()
        first = Model(vfb.Bandit(world.policy, dim=5, **world.bandit), epoch=1)
        await rank(campaign, "ab")
        await campaign.durable.change_masks(rotation(1), epoch=2)
        await campaign.reward("a", 1.0)
        before = campaign.model.bandit.states[None].theta.tobytes()
        await campaign.durable.close()
        journal = place.open()
        events = list(journal.read())
        (rewarded,) = [event for _, event in events if isinstance(event, Rewarded)]
        assert rewarded.recalled.opened == 1
        assert fold(events, first).bandit.states[None].theta.tobytes() == before
        journal.close()

    asyncio.run(main())


def test_a_decision_whose_wait_has_no_end_is_learnt_behind_the_masks_of_today(place):
    """As applications without HTTP decide; changes of masks are read from the journal."""

    async def life(journal, max_open):
        def make():
            return vfb.Bandit(vfb.LinUCB(), dim=3, seed=1, max_open=max_open)

        rng = np.random.default_rng(0)
        bandit = DurableBandit.open(journal, make)
        for number in range(6):
            await bandit.decide(rng.standard_normal((2, 3)), arms=ARMS, event_id=f"e{number}")
            matrix = np.linalg.qr(rng.standard_normal((3, 3)))[0]
            moving = bandit.change_masks(matrix, epoch=10 * number + 10)
            await asyncio.gather(moving, *([bandit.reward("e0", 1.0)] if number == 4 else []))
        for number in (1, 5, 3):
            assert await bandit.reward(f"e{number}", 1.0)
        await bandit.forget("e2")
        with pytest.raises(UnknownDecisionError):
            await bandit.reward("e2", 1.0)
        recalled, found = bandit.n_recalled, bandit.bandit.states[None]
        await bandit.close()
        return recalled, found.Lambda.tobytes(), found.theta.tobytes()

    async def main():
        small = await life(place.open(), 1)
        large = await life(MemoryJournal(), 100)
        assert small[1:] == large[1:]
        assert (small[0], large[0]) == (3, 0)

    asyncio.run(main())


def test_rankers_follow_rewards_for_decisions_that_left_memory(tmp_path):
    async def main():
        world = RankerWorld(tmp_path, bandit={"max_open": 2}, reward_wait_s=60.0)
        async with world.leading() as leader, world.ranking() as ranker:
            for number in range(6):
                await ranker.rank(asked(f"e{number}"))
            await world.level(ranker)
            assert len(leader.model.pending) == 2
            assert (leader.n_waiting, ranker.n_waiting) == (6, 6)
            assert await ranker.reward("e0", 1.0) == "queued"
            assert await world.same(ranker)
            assert (await leader.history("e0")).learnt == 1.0
            await leader.durable.snapshot()
            world.clock.now += 100.0
            await leader.arrivals.drain()
            while await leader.settle():
                pass
            assert await world.same(ranker)
            assert (leader.n_waiting, ranker.n_waiting) == (0, 0)
            cold = [one.model.cold.pack() for one in (leader, ranker)]
            assert np.array_equal(*cold)
            async with world.ranking() as another:  # from the snapshot and what is behind it
                assert await world.same(another)

    asyncio.run(main())


# --- everything in any order ------------------------------------------------------------------

EVENTS = st.integers(0, 11)
ANY = st.one_of(
    st.tuples(st.just("rank"), st.booleans()),
    st.tuples(st.just("rank"), st.just(value=False)),
    st.tuples(
        st.just("reward"), EVENTS, st.sampled_from([0.0, 1.0, -2.5]), st.sampled_from(["", "r"])
    ),
    st.tuples(st.just("activate"), EVENTS),
    st.tuples(st.just("wait"), st.sampled_from([1.0, 20.0, 45.0])),
    st.tuples(st.just("settle")),
    st.tuples(st.just("move"), st.integers(0, 9)),
    st.tuples(st.just("snapshot")),
    st.tuples(st.just("restart"), st.integers(1, 4)),
    st.tuples(st.just("compact")),
    st.tuples(
        st.just("configure"),
        st.sampled_from(
            [
                {"mode": "frozen"},
                {"mode": "learn"},
                {"aggregation": "sum"},
                {"aggregation": "earliest"},
                {"default_reward": None},
                {"default_reward": 0.5},
            ]
        ),
    ),
)
# Most of what happens are decisions and rewards, so that many leave memory and are rewarded.
RANK = st.tuples(st.just("rank"), st.just(value=False))
REWARD = st.tuples(st.just("reward"), EVENTS, st.just(1.0), st.just(""))
STEPS = st.lists(st.one_of(RANK, RANK, REWARD, ANY), min_size=20, max_size=50)


class Life:
    """One campaign that lives through the steps."""

    def __init__(self, place, max_open, *, is_small):
        self.is_small = is_small
        self.place = place
        self.world = PlacedWorld(
            place, bandit={"max_open": max_open}, reward_wait_s=60.0, activation_wait_s=90.0
        )
        self.campaign = self.world.open()
        self.n_events = 0

    async def step(self, name, *more):
        try:
            return await getattr(self, name)(*more)
        except VFBanditsError as error:
            return type(error).__name__

    async def rank(self, held):
        self.n_events += 1
        name = f"e{self.n_events - 1}"
        await self.campaign.rank(Query(name, ARMS, name, activate=not held))

    async def reward(self, event, value, reward_id):
        name = f"e{event % max(1, self.n_events)}"
        return await self.campaign.reward(name, value, reward_id=reward_id)

    async def activate(self, event):
        return await self.campaign.activate(f"e{event % max(1, self.n_events)}")

    async def wait(self, seconds):
        self.world.clock.now += seconds

    async def settle(self):
        return await self.campaign.settle()

    async def move(self, seed):
        model = self.campaign.durable
        await model.change_masks(rotation(seed), epoch=model.epoch + 1)

    async def snapshot(self):
        await self.campaign.durable.snapshot()

    async def configure(self, changes):
        await self.campaign.configure(changes, by="ops")

    async def past(self, number):
        """What is known of an event; compaction may have dropped one that was settled."""
        past = await self.campaign.history(f"e{number}")
        return past.status, past.learnt, past.due

    async def restart(self, max_open):
        await self.campaign.durable.close()
        if self.is_small:
            self.world.bandit["max_open"] = max_open
        self.campaign = self.world.open()

    async def compact(self):
        await self.campaign.durable.close()
        journal = self.place.open()
        compact(journal)
        journal.close()
        self.campaign = self.world.open()


async def live(kind, max_open, steps):
    with tempfile.TemporaryDirectory() as folder:
        homes = [Path(folder) / name for name in ("small", "large")]
        for home in homes:
            home.mkdir()
        small = Life(make_place(kind, homes[0]), max_open, is_small=True)
        large = Life(make_place("InMemory", homes[1]), 10_000, is_small=False)
        for step in steps:
            assert await small.step(*step) == await large.step(*step), step
            assert learnt(small.campaign) == learnt(large.campaign), step
            assert small.campaign.n_waiting == large.campaign.n_waiting, step
            assert len(small.campaign.model.pending) <= small.world.bandit["max_open"]
        for life in (small, large):  # in the end all waits end alike
            life.world.clock.now += 1_000.0
            while await life.campaign.settle():
                pass
            assert life.campaign.n_waiting == 0
        assert learnt(small.campaign) == learnt(large.campaign)
        told = [sorted(statuses(life.world).items()) for life in (small, large)]
        assert told[0] == told[1]
        for number in range(small.n_events):
            pasts = [await life.step("past", number) for life in (small, large)]
            assert pasts[0] == pasts[1]
        for life in (small, large):
            await life.campaign.durable.close()
            journal = life.place.open()
            assert not verify(journal).problems
            journal.close()


@given(max_open=st.integers(1, 4), steps=STEPS)
@settings(deadline=None, max_examples=15)
def test_a_small_memory_makes_no_difference(max_open, steps):
    asyncio.run(live("InMemory", max_open, steps))


@pytest.mark.parametrize("kind", ["OnSqlite", "OnPostgres"])
@given(max_open=st.integers(1, 4), steps=STEPS)
@settings(deadline=None, max_examples=8)
def test_a_small_memory_makes_no_difference_on_a_disk(kind, max_open, steps):
    asyncio.run(live(kind, max_open, steps))


def test_many_that_left_memory_are_ended_in_batches():
    async def main():
        world = World(bandit={"max_open": 10}, reward_wait_s=60.0)
        campaign = world.open()
        names = [f"e{k}" for k in range(2_500)]
        await campaign.rank_many([Query("ann", ARMS, name) for name in names])
        world.clock.now += 61.0
        counts = [await campaign.settle() for _ in itertools.repeat(None, 4)]
        assert counts == [1_000, 1_000, 500, 0]
        assert campaign.model.n_learnt == 2_500
        await campaign.durable.close()

    asyncio.run(main())
