"""When the log cannot be written, nothing is answered and nobody waits for ever."""

import asyncio
import threading

import numpy as np
import pytest
from durables import SlowJournal, linucb, open_on, parts

from vfbandits.errors import JournalError, NumericalError
from vfbandits.journal.memory import MemoryDisk, MemoryJournal
from vfbandits.journal.recent import RecentJournal
from vfbandits.serving.durable import DurableBandit


def test_after_a_failed_commit_everything_is_refused_until_it_is_opened_again():
    async def run():
        disk = MemoryDisk(capacity=3)
        bandit = open_on(disk)
        decisions = [await bandit.decide(np.eye(2)) for _ in range(2)]
        assert await bandit.reward(decisions[0], 1.0)
        before = parts(bandit.bandit)
        with pytest.raises(JournalError, match=r"not acknowledged: .* full at 3 records"):
            await bandit.reward(decisions[1], 1.0)
        for use in (
            bandit.decide(np.eye(2)),
            bandit.reward(decisions[0], 1.0),
            bandit.forget(decisions[1]),
            bandit.snapshot(),
            bandit.change_masks(np.eye(2), epoch=1),
        ):
            with pytest.raises(
                JournalError, match=r"until the journal is opened again: .* full at 3"
            ):
                await use
        with pytest.raises(JournalError, match="until the journal is opened again"):
            bandit.bandit.decide(np.eye(2))
        await bandit.close()
        disk.capacity = None
        again = open_on(disk)
        assert parts(again.bandit) == before
        assert await again.reward(decisions[0], 1.0) is False
        assert await again.reward(decisions[1], 1.0) is True
        await again.close()

    asyncio.run(run())


def test_all_who_wait_hear_of_a_failed_commit():
    async def run():
        disk = MemoryDisk(capacity=10)
        bandit = DurableBandit.open(SlowJournal(disk), linucb())
        made = await asyncio.gather(
            *(bandit.decide(np.eye(2)) for _ in range(40)), return_exceptions=True
        )
        assert all(isinstance(answer, JournalError) for answer in made)
        await bandit.close()
        assert disk.records == []
        again = open_on(disk)
        assert (await again.decide(np.eye(2))).id == 0
        await again.close()

    asyncio.run(run())


def test_those_behind_a_failing_commit_hear_of_it_too():
    async def run():
        disk = MemoryDisk(capacity=1)
        bandit = DurableBandit.open(SlowJournal(disk), linucb())
        await bandit.decide(np.eye(2))
        tasks = []
        for _ in range(3):  # one in the commit that fails, two behind it
            tasks.append(asyncio.create_task(bandit.decide(np.eye(2))))
            await asyncio.sleep(0.001)
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(answer) for answer in answers] == [JournalError] * 3
        await bandit.close()

    asyncio.run(run())


def test_a_journal_with_a_bug_leaves_nobody_waiting():
    class Buggy(MemoryJournal):
        def append(self, events):
            raise ZeroDivisionError(len(events))

    async def run():
        bandit = DurableBandit.open(Buggy(), linucb())
        with pytest.raises(JournalError, match="not acknowledged: ZeroDivisionError"):
            await asyncio.wait_for(bandit.decide(np.eye(2)), 30.0)
        await bandit.close()

    asyncio.run(run())


def test_a_quick_journal_is_written_without_a_thread_and_its_bug_ends_everything():
    threads = []

    class Buggy(RecentJournal):
        def append(self, events):
            threads.append(threading.current_thread())
            if self.last_position:
                raise ZeroDivisionError
            return super().append(events)

    async def run():
        bandit = DurableBandit.open(Buggy(), linucb())
        await bandit.decide(np.eye(2))
        assert bandit.commits == (1, 1)
        with pytest.raises(JournalError, match="not acknowledged: ZeroDivisionError"):
            await bandit.decide(np.eye(2))
        with pytest.raises(
            JournalError, match="writes are refused until the journal is opened again"
        ):
            await bandit.decide(np.eye(2))
        assert {*threads} == {threading.main_thread()}
        await bandit.close()

    asyncio.run(run())


def test_a_log_that_somebody_else_wrote_to_is_noticed():
    async def run():
        disk = MemoryDisk()
        bandit = open_on(disk)
        await bandit.decide(np.eye(2))
        disk.records.append(disk.records[0])
        with pytest.raises(JournalError, match="the journal must end at 2, got 3"):
            await bandit.decide(np.eye(2))
        await bandit.close()

    asyncio.run(run())


def test_a_model_that_fails_half_way_is_not_used_again():
    class Halfway:
        """A move that carries contexts and then fails on the design matrix."""

        def vector(self, x):
            return 2.0 * x

        def matrix(self, Lambda, ridge):
            raise NumericalError("no such matrix")

        def lifted(self, *, before, factor):
            return self

    async def run():
        disk = MemoryDisk()
        bandit = open_on(disk, make_move=lambda matrix: Halfway())
        decision = await bandit.decide(np.eye(2))
        with pytest.raises(NumericalError, match="no such matrix"):
            await bandit.change_masks(np.eye(2), epoch=1)
        with pytest.raises(JournalError, match="the model failed with NumericalError"):
            await bandit.reward(decision, 1.0)
        await bandit.close()
        again = open_on(disk)
        assert await again.reward(decision, 1.0)
        assert again.bandit.states[None].u.tolist() == [1.0, 0.0]
        await again.close()

    asyncio.run(run())


def test_a_failed_snapshot_stops_nothing():
    class NoRoom(MemoryJournal):
        def save_snapshot(self, position, snapshot):
            if position:
                raise JournalError("no room")
            super().save_snapshot(position, snapshot)

    async def run():
        bandit = DurableBandit.open(NoRoom(), linucb())
        decision = await bandit.decide(np.eye(2))
        with pytest.raises(JournalError, match="no room"):
            await bandit.snapshot()
        assert bandit.since_snapshot == 1
        assert await bandit.reward(decision, 1.0)
        await bandit.close()

    asyncio.run(run())
