"""A bandit behind PostgreSQL: the server crashes under load, another trainer takes over."""

import asyncio

import numpy as np
import servers
from durables import linucb, parts
from journals import KEY, OnPostgres

from vfbandits.campaign.events import Decided, Rewarded
from vfbandits.campaign.model import Model, fold
from vfbandits.errors import JournalError
from vfbandits.serving.durable import DurableBandit


def test_when_the_server_crashes_under_load_nothing_that_was_answered_is_lost(tmp_path):
    """Exact: every answer is in the log once, and the model is the fold of it."""
    place, answered = OnPostgres(tmp_path, KEY), []

    async def visit(bandit):
        while True:
            decision = await bandit.decide(np.eye(2))
            answered.append(("decided", decision.id))
            await bandit.reward(decision, 1.0)
            answered.append(("rewarded", decision.id))

    async def run():
        bandit = DurableBandit.open(place.open(), linucb())
        visits = [asyncio.create_task(visit(bandit)) for _ in range(20)]
        while len(answered) < 300:  # noqa: ASYNC110  (a test may poll)
            await asyncio.sleep(0.005)
        await asyncio.to_thread(servers.postgres().kill)
        ends = await asyncio.wait_for(asyncio.gather(*visits, return_exceptions=True), 20.0)
        assert all(isinstance(end, JournalError) for end in ends)
        await bandit.close()

    try:
        asyncio.run(run())
    finally:
        servers.postgres().start()
    journal = place.open()
    log = [
        ("decided" if isinstance(event, Decided) else "rewarded", event.event_id)
        for _, event in journal.read()
        if isinstance(event, Decided | Rewarded)
    ]
    assert len(set(log)) == len(log)
    assert len(set(answered)) == len(answered)
    assert set(answered) <= set(log)
    scratch = fold(journal.read(), Model(linucb()()))
    again = DurableBandit.open(journal, linucb())
    assert parts(again.bandit) == parts(scratch.bandit)
    asyncio.run(again.close())


def test_a_trainer_that_was_cut_off_answers_nothing_more_and_the_next_goes_on(tmp_path):
    place = OnPostgres(tmp_path)

    async def run():
        first = DurableBandit.open(place.open(), linucb())
        decision = await first.decide(np.eye(2))
        place.cut_off()
        second = DurableBandit.open(place.open(), linucb())
        assert await second.reward(decision.id, 1.0)
        for use in (lambda: first.reward(decision, 0.0), lambda: first.decide(np.eye(2))):
            try:
                await use()
            except JournalError:
                continue
            raise AssertionError("it answered")
        assert (await second.decide(np.eye(2))).id == 1
        reader = place.reader()
        assert [type(event) for _, event in reader.read()] == [Decided, Rewarded, Decided]
        reader.close()
        await first.close()
        await second.close()

    asyncio.run(run())
