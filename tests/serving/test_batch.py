"""Decisions that arrive together share a round, and a pause lets none slip through."""

import asyncio

import numpy as np
import pytest

from vfbandits.errors import WireError
from vfbandits.protocol.instructions import Gathered
from vfbandits.serving.batches import MAX_OPEN_ROUNDS, Batches


class Rounds:
    """Rounds that somebody else completes; a row is the number of its own round."""

    def __init__(self, *, row_bytes=8, at_once=False):
        self.batches = Batches(self.start, row_bytes=row_bytes)
        self.started = []
        self.at_once = at_once

    def start(self, batch):
        if any((waiting.own < 0.0).any() for waiting in batch):
            raise WireError("rows are not negative")
        number = len(self.started)
        self.started.append(batch)
        if self.at_once:
            self.complete(number)
        return number

    def complete(self, number):
        rows = np.concatenate([waiting.own for waiting in self.started[number]])
        self.batches.deliver(Gathered(number, rows, ("shop",), 80))

    async def decide(self, value, *, n_rows=1, trial=0, waits=True):
        own = np.full((n_rows, 1), float(value))
        contexts = await self.batches.gather(
            ("ann",), (("tea",),), own, trial=trial, campaign="", waits=waits
        )
        self.batches.release()
        return contexts.rows.ravel().tolist()


async def settled():
    for _ in range(5):
        await asyncio.sleep(0)


def test_decisions_that_arrive_together_make_one_round_and_each_gets_its_rows():
    async def whole():
        rounds = Rounds()
        decisions = [asyncio.ensure_future(rounds.decide(n, n_rows=n % 3 + 1)) for n in range(50)]
        await settled()
        assert [len(batch) for batch in rounds.started] == [50]
        rounds.complete(0)
        return await asyncio.gather(*decisions)

    assert asyncio.run(whole()) == [[float(n)] * (n % 3 + 1) for n in range(50)]


def test_one_that_does_not_wait_for_others_has_its_round_before_the_loop_turns():
    async def whole():
        rounds = Rounds()
        works = [rounds.decide(n, waits=False) for n in range(4)]
        tasks = [asyncio.ensure_future(work) for work in works]
        await asyncio.sleep(0)  # all of them have asked
        assert [len(batch) for batch in rounds.started] == [1]
        await asyncio.sleep(0)
        assert [len(batch) for batch in rounds.started] == [1, 3]
        rounds.complete(0)
        rounds.complete(1)
        return await asyncio.gather(*tasks)

    assert asyncio.run(whole()) == [[0.0], [1.0], [2.0], [3.0]]


def test_while_rounds_are_under_way_the_others_wait_and_gather():
    async def whole():
        rounds = Rounds()
        decisions = []
        for n in range(10):
            decisions.append(asyncio.ensure_future(rounds.decide(n)))
            await settled()
        assert [len(batch) for batch in rounds.started] == [1] * MAX_OPEN_ROUNDS
        rounds.complete(0)
        await settled()
        assert len(rounds.started[-1]) == 10 - MAX_OPEN_ROUNDS
        for number in range(1, MAX_OPEN_ROUNDS + 1):
            rounds.complete(number)
        return await asyncio.gather(*decisions)

    assert asyncio.run(whole()) == [[float(n)] for n in range(10)]


def test_a_round_that_is_complete_at_once_is_delivered():
    assert asyncio.run(Rounds(at_once=True).decide(3)) == [3.0]


def test_decisions_for_which_there_can_be_no_round_are_told_and_the_others_get_theirs():
    async def whole():
        rounds = Rounds(at_once=True)
        decisions = [asyncio.ensure_future(rounds.decide(n)) for n in (1, -2, 3)]
        told = await asyncio.gather(*decisions, return_exceptions=True)
        assert (told[0], told[2]) == ([1.0], [3.0])
        assert isinstance(told[1], WireError)
        with pytest.raises(WireError):
            await rounds.decide(-1)
        await asyncio.wait_for(rounds.batches.quiet(), 30.0)
        await asyncio.wait_for(rounds.batches.pause(), 30.0)

    asyncio.run(whole())


def test_bytes_are_shared_by_decisions_not_by_those_who_ask_together():
    async def whole():
        rounds = Rounds(at_once=True)
        own = np.zeros((3, 1))
        users, arms = ("ann", "bob", "eve"), (("tea",),) * 3
        contexts = await rounds.batches.gather(users, arms, own, trial=0, campaign="")
        return contexts.bytes_received, len(contexts.rows)

    assert asyncio.run(whole()) == (80 // 3, 3)


def test_trials_and_real_decisions_never_share_a_round():
    async def whole():
        rounds = Rounds()
        decisions = [asyncio.ensure_future(rounds.decide(n, trial=n % 2)) for n in range(4)]
        await settled()
        for number in range(4):
            assert len({waiting.trial for waiting in rounds.started[number]}) == 1
            rounds.complete(number)
            await settled()
        await asyncio.gather(*decisions)

    asyncio.run(whole())


def test_a_batch_is_no_larger_than_a_message():
    async def whole():
        rounds = Rounds(row_bytes=2 << 20)
        decisions = [asyncio.ensure_future(rounds.decide(n)) for n in range(4)]
        await settled()
        assert [len(batch) for batch in rounds.started] == [2, 2]
        rounds.complete(0)
        rounds.complete(1)
        await asyncio.gather(*decisions)

    asyncio.run(whole())


def test_a_pause_waits_for_rounds_and_for_those_that_use_their_contexts():
    async def whole():
        rounds = Rounds()
        go_on, seen = asyncio.Event(), []

        async def slow():
            own = np.zeros((1, 1))
            await rounds.batches.gather(("ann",), (("tea",),), own, trial=0, campaign="")
            await go_on.wait()
            seen.append("used")
            rounds.batches.release()

        using = asyncio.ensure_future(slow())
        await settled()
        pausing = asyncio.ensure_future(rounds.batches.pause())
        await settled()
        assert not pausing.done()
        rounds.complete(0)
        await settled()
        assert not pausing.done()
        late = asyncio.ensure_future(rounds.decide(1))
        go_on.set()
        await pausing
        assert seen == ["used"]
        assert len(rounds.started) == 1  # the late one waits
        rounds.batches.resume(row_bytes=8)
        await settled()
        rounds.complete(1)
        assert await late == [1.0]
        await using
        await asyncio.wait_for(rounds.batches.quiet(), 30.0)

    asyncio.run(whole())


def test_a_decision_that_is_given_up_holds_nothing_back():
    async def whole():
        rounds = Rounds()
        gone = asyncio.ensure_future(rounds.decide(1))
        stays = asyncio.ensure_future(rounds.decide(2))
        await settled()
        gone.cancel()
        await settled()
        rounds.complete(0)
        assert await stays == [2.0]
        with pytest.raises(asyncio.CancelledError):
            await gone
        await asyncio.wait_for(rounds.batches.pause(), 30.0)

    asyncio.run(whole())
