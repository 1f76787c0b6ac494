"""A bandit behind a log: answered means durable."""

import asyncio
import time

import numpy as np
import pytest
from durables import SlowJournal, linucb, logged, open_on, parts

import vfbandits as vfb
from vfbandits.campaign.events import Decided, Forgotten, MasksChanged, Rewarded
from vfbandits.core.move import Rotation
from vfbandits.errors import (
    ContextError,
    JournalError,
    MaskError,
    RewardError,
    SettingError,
    SnapshotError,
    UnknownDecisionError,
)
from vfbandits.journal.memory import MemoryDisk, MemoryJournal
from vfbandits.journal.sqlite.journal import SqliteJournal
from vfbandits.serving.durable import DurableBandit


def test_the_log_tells_what_was_decided_rewarded_moved_and_forgotten():
    async def run():
        disk = MemoryDisk()
        ticks = iter(range(100, 200))
        bandit = open_on(disk, epoch=3, clock=lambda: float(next(ticks)))
        first = await bandit.decide(np.eye(2), arms=["tea", "milk"], contributors=("shop", "bank"))
        await bandit.decide([[3.0, 4.0]], event_id="order-17", user="ann")
        await bandit.reward(first, 1)
        await bandit.change_masks([[0.0, 1.0], [1.0, 0.0]], epoch=7, signed_roster=b"roster")
        await bandit.forget("order-17")
        await bandit.close()
        return logged(disk)

    one, two, three, four, five = asyncio.run(run())
    assert isinstance(one, Decided)
    assert (one.event_id, one.arm, one.index, one.model) == (0, "tea", 0, None)
    assert (one.probability, one.contributors, one.epoch) == (1.0, ("shop", "bank"), 3)
    assert (one.x.tolist(), one.user, one.at) == ([1.0, 0.0], None, 100.0)
    assert (two.event_id, two.user, two.x.tolist()) == ("order-17", "ann", [3.0, 4.0])
    assert three == Rewarded(0, 1.0, 102.0)
    assert isinstance(four, MasksChanged)
    assert (four.epoch, four.signed_roster, four.matrix.tolist()) == (
        7,
        b"roster",
        [[0, 1], [1, 0]],
    )
    assert five == Forgotten("order-17")


def test_probabilities_may_be_left_out_of_the_log():
    async def run():
        disk = MemoryDisk()
        bandit = open_on(disk, log_probabilities=False)
        decision = await bandit.decide(np.eye(2))
        await bandit.close()
        assert decision.probability == 1.0
        return logged(disk)[0].probability

    assert asyncio.run(run()) is None


def test_a_new_log_decides_as_the_bandit_alone_would():
    def make():
        return vfb.Bandit(vfb.LinTS(posterior_scale=0.5), dim=2, seed=8)

    async def run():
        bandit, alone = open_on(MemoryDisk(), make), make()
        for _ in range(20):
            decision, other = await bandit.decide(np.eye(2)), alone.decide(np.eye(2))
            assert decision.scores.tolist() == other.scores.tolist()
            await bandit.reward(decision, 1.0)
            alone.reward(other, 1.0)
        await bandit.close()

    asyncio.run(run())


def test_numbers_go_on_after_a_restart():
    async def run():
        disk = MemoryDisk()
        for wanted in range(3):
            bandit = open_on(disk)
            assert (await bandit.decide(np.eye(2))).id == wanted
            await bandit.close()

    asyncio.run(run())


def test_nothing_is_answered_before_it_is_in_the_log():
    class Checked(MemoryJournal):
        def append(self, events):
            assert not answered & {event.event_id for event in events}
            time.sleep(0.002)
            return super().append(events)

    answered, disk = set(), MemoryDisk()

    async def run():
        bandit = DurableBandit.open(Checked(disk), linucb())

        async def one(n):
            await bandit.decide(np.eye(2), event_id=f"d{n}")
            assert f"d{n}" in {event.event_id for event in logged(disk)}
            answered.add(n)

        await asyncio.gather(*(one(n) for n in range(30)))
        await bandit.close()

    asyncio.run(run())
    assert len(disk.records) == 30


def test_under_load_many_events_share_a_commit_and_keep_their_order():
    async def run():
        disk = MemoryDisk()
        bandit = DurableBandit.open(SlowJournal(disk), linucb())

        async def one(n):
            decision = await bandit.decide(np.eye(2), event_id=f"d{n}")
            assert await bandit.reward(decision, float(n))

        await asyncio.gather(*(one(n) for n in range(100)))
        n_commits, n_events = bandit.commits
        await bandit.close()
        assert n_events == 200
        assert n_commits <= 6
        assert [e.event_id for e in logged(disk)][:100] == [f"d{n}" for n in range(100)]

    asyncio.run(run())


def test_a_repeated_reward_is_answered_only_when_the_first_is_durable():
    async def run():
        disk = MemoryDisk()
        bandit = DurableBandit.open(SlowJournal(disk), linucb())
        decision = await bandit.decide(np.eye(2))
        first = asyncio.create_task(bandit.reward(decision, 1.0))
        await asyncio.sleep(0)
        assert await bandit.reward(decision, 1.0) is False
        assert len(disk.records) == 2
        other = await bandit.decide(np.eye(2))
        second = asyncio.create_task(bandit.reward(other, 1.0))
        await asyncio.sleep(0)
        with pytest.raises(RewardError, match="already has the reward"):
            await bandit.reward(other, 0.0)
        assert len(disk.records) == 4
        assert (await first, await second) == (True, True)
        await bandit.close()

    asyncio.run(run())


def test_a_caller_that_gives_up_takes_nothing_back():
    async def run():
        disk = MemoryDisk()
        bandit = DurableBandit.open(SlowJournal(disk), linucb())
        decision = await bandit.decide(np.eye(2))
        impatient = asyncio.create_task(bandit.reward(decision, 1.0))
        await asyncio.sleep(0.001)
        impatient.cancel()
        with pytest.raises(asyncio.CancelledError):
            await impatient
        assert await bandit.reward(decision, 1.0) is False
        assert logged(disk)[1].value == 1.0
        await bandit.close()

    asyncio.run(run())


def test_closing_finishes_what_is_under_way():
    async def run():
        disk = MemoryDisk()
        bandit = DurableBandit.open(SlowJournal(disk), linucb())
        tasks = [asyncio.create_task(bandit.decide(np.eye(2))) for _ in range(5)]
        saving = asyncio.create_task(bandit.snapshot())
        await asyncio.sleep(0)
        await bandit.close()
        assert [(await task).id for task in tasks] == [0, 1, 2, 3, 4]
        assert await saving == 5
        assert len(disk.records) == 5
        assert 5 in disk.snapshots
        await bandit.close()
        for use in (
            bandit.decide(np.eye(2)),
            bandit.reward(0, 1.0),
            bandit.forget(0),
            bandit.snapshot(),
            bandit.change_masks(np.eye(2), epoch=1),
        ):
            with pytest.raises(JournalError, match="closed; open it again"):
                await use

    asyncio.run(run())


def test_a_snapshot_is_of_the_moment_it_was_asked_for():
    async def run():
        disk = MemoryDisk()
        bandit = DurableBandit.open(SlowJournal(disk), linucb())
        first = asyncio.create_task(bandit.decide(np.eye(2)))
        await asyncio.sleep(0)
        saving = asyncio.create_task(bandit.snapshot())
        await asyncio.sleep(0)
        await asyncio.gather(*(bandit.decide(np.eye(2)) for _ in range(4)))
        assert await saving == 1
        await first
        await bandit.close()
        again = open_on(disk)
        assert again.recovery.start == 1
        assert again.recovery.replayed == 4
        assert again.bandit.open_decisions == (0, 1, 2, 3, 4)
        await again.close()

    asyncio.run(run())


def test_bad_input_gets_one_error_and_changes_neither_model_nor_log():
    async def run():
        disk = MemoryDisk()
        bandit = open_on(disk)
        await bandit.decide(np.eye(2), event_id="a")
        before = parts(bandit.bandit)
        for use, error in (
            (bandit.decide([[np.nan, 1.0]]), ContextError),
            (bandit.decide(np.eye(2), event_id="a"), SettingError),
            (bandit.decide(np.eye(2), contributors=("shop", 3)), SettingError),
            (bandit.decide(np.eye(2), user=0), SettingError),
            (bandit.reward("a", float("nan")), RewardError),
            (bandit.reward("b", 1.0), UnknownDecisionError),
            (bandit.forget("b"), UnknownDecisionError),
            (bandit.change_masks(np.eye(2), epoch=0), SettingError),
            (bandit.change_masks(np.eye(2), epoch="1"), SettingError),
            (bandit.change_masks(np.eye(2), epoch=1, signed_roster="text"), SettingError),
            (bandit.change_masks(np.eye(3), epoch=1), SettingError),
            (bandit.change_masks(np.ones(2), epoch=1), SettingError),
            (bandit.change_masks(np.full((2, 2), np.inf), epoch=1), SettingError),
            (bandit.change_masks(np.full((2, 2), 0.7), epoch=1), MaskError),
        ):
            with pytest.raises(error):
                await use
        assert parts(bandit.bandit) == before
        assert len(disk.records) == 1
        assert await bandit.reward("a", 1.0)
        await bandit.close()

    asyncio.run(run())


def test_a_policy_without_a_name_cannot_be_durable():
    class Mine:
        def score(self, statistics, rng):
            return vfb.core.policy.Scored(statistics.means)

    with pytest.raises(SnapshotError, match="got a Mine"):
        open_on(MemoryDisk(), lambda: vfb.Bandit(Mine(), dim=2))


def test_it_runs_on_sqlite_and_tells_how_it_came_back(tmp_path):
    async def run():
        for visit in range(3):
            bandit = DurableBandit.open(
                SqliteJournal(tmp_path / "log.db"), linucb(), make_move=Rotation
            )
            assert bandit.recovery.start == (None, 0, 4)[visit]
            assert bandit.recovery.replayed == (0, 4, 1)[visit]
            if visit == 0:
                made = [await bandit.decide(np.eye(2), user="ann") for _ in range(2)]
                await bandit.change_masks([[0.0, 1.0], [-1.0, 0.0]], epoch=1)
                await bandit.reward(made[0], 1.0)
            elif visit == 1:
                await bandit.snapshot()
                await bandit.reward(1, 1.0)
            await bandit.close()

    asyncio.run(run())
