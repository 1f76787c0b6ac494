"""Events that are decided together are decided as one after another, and fail each for itself."""

import asyncio
import json

import pytest
from campaign_world import ARMS, World

import vfbandits as vfb
from vfbandits.campaign.query import Query
from vfbandits.errors import ArmError, ContextError, JournalError
from vfbandits.journal.memory import MemoryJournal
from vfbandits.serving.served import BATCH_SIZE

USERS = [f"user-{number}" for number in range(3 * BATCH_SIZE + 1)]


def asked(user, event_id=None, arms=ARMS):
    return Query(user, arms, event_id)


def without_id(answer):
    return {**json.loads(answer), "event_id": ""}


async def learnt(world):
    campaign = world.open()
    for name in "abc":
        await campaign.rank(asked(name, name))
        await campaign.reward(name, 1.0)
    return campaign


def test_together_they_are_decided_as_one_after_another():
    async def main():
        one, many = await learnt(World(mode="learn")), await learnt(World(mode="learn"))
        single = [
            await one.rank(asked(user, arms=ARMS[: 1 + k % 3])) for k, user in enumerate(USERS)
        ]
        together = await many.rank_many(
            [asked(user, arms=ARMS[: 1 + k % 3]) for k, user in enumerate(USERS)]
        )
        assert [*map(without_id, together)] == [*map(without_id, single)]
        assert len({json.loads(answer)["event_id"] for answer in together}) == len(USERS)
        for answer in together:
            assert await many.reward(json.loads(answer)["event_id"], 0.5) == "learnt"
        await one.durable.close()
        await many.durable.close()

    asyncio.run(main())


def test_they_share_rounds_and_commits_and_observers_hear_of_each():
    async def main():
        world = World()
        campaign = world.open()
        await campaign.rank_many([asked(user) for user in USERS])
        assert world.source.n_asked == -(-len(USERS) // BATCH_SIZE)
        n_commits, n_events = campaign.durable.commits
        assert n_events == len(USERS)
        assert n_commits <= world.source.n_asked
        await asyncio.sleep(0)
        assert [seen.user for seen in world.watcher.decisions] == USERS
        await campaign.durable.close()

    asyncio.run(main())


def test_observers_are_not_told_of_a_group_in_which_nothing_was_decided():
    async def main():
        world = World()
        campaign = world.open()
        twice = (ARMS[0], ARMS[0])
        answers = await campaign.rank_many([asked(user, arms=twice) for user in USERS[:2]])
        await asyncio.sleep(0)
        assert [type(answer) for answer in answers] == [ArmError, ArmError]
        assert world.watcher.calls == 0
        await campaign.durable.close()

    asyncio.run(main())


def test_no_more_rows_are_asked_for_together_than_fit():
    async def main():
        world = World()
        world.source.max_rows = 2 * len(ARMS)
        campaign = world.open()
        await campaign.rank_many([asked(user) for user in USERS[:7]])
        assert world.source.n_asked == 4
        await campaign.durable.close()

    asyncio.run(main())


def test_events_that_have_a_name_get_the_answer_that_they_got_before():
    async def main():
        world = World(policy=vfb.LinTS(posterior_scale=0.3))
        campaign = world.open()
        before = await campaign.rank(asked("ann", "known"))
        named = [asked("bob", "known"), asked("bob"), asked("eve", "new"), asked("eve", "new")]
        known, _, new, again = await campaign.rank_many(named)
        assert known == before
        assert new == again
        assert campaign.model.position == 3
        await campaign.durable.close()

    asyncio.run(main())


def test_events_that_have_names_are_looked_up_and_decided_together():
    async def main():
        world = World()
        campaign = world.open()
        names = [f"event-{number}" for number in range(BATCH_SIZE)]
        first = await campaign.rank_many([asked(name, name) for name in names])
        assert world.source.n_asked == 1
        assert campaign.durable.commits == (1, BATCH_SIZE)
        assert [json.loads(answer)["event_id"] for answer in first] == names
        assert await campaign.rank_many([asked("bob", name) for name in names]) == first
        assert world.source.n_asked == 1
        await campaign.durable.close()

    asyncio.run(main())


def test_callers_of_the_same_events_at_the_same_time_get_the_same_answers():
    async def main():
        world = World(policy=vfb.LinTS(posterior_scale=0.3))
        campaign = world.open()
        some = [asked("ann", name) for name in "abcd"]
        others = [asked("bob", name) for name in "cdef"]
        one, two = await asyncio.gather(campaign.rank_many(some), campaign.rank_many(others))
        assert one[2:] == two[:2]
        assert campaign.model.position == 6
        await campaign.durable.close()

    asyncio.run(main())


def test_nothing_asked_is_nothing_answered():
    async def main():
        campaign = World().open()
        assert await campaign.rank_many([]) == []
        await campaign.durable.close()

    asyncio.run(main())


def test_what_is_wrong_with_one_is_told_in_its_place():
    async def main():
        world = World()
        campaign = world.open()
        good, bad, fine = await campaign.rank_many(
            [asked("ann"), asked("bob", arms=()), asked("eve")]
        )
        assert isinstance(bad, ArmError)
        assert {json.loads(good)["group"], json.loads(fine)["group"]} == {"policy"}
        assert campaign.model.position == 2
        await campaign.durable.close()

    asyncio.run(main())


def test_one_whose_contexts_cannot_be_had_does_not_take_them_from_the_others():
    async def main():
        world = World()
        contexts = world.source.contexts

        async def refuse_bob(requests, *, campaign):
            if any(request.user == "bob" for request in requests):
                raise ContextError("bob has none")
            return await contexts(requests, campaign=campaign)

        world.source.contexts = refuse_bob
        campaign = world.open()
        answers = await campaign.rank_many([asked("ann"), asked("bob"), asked("eve")])
        assert isinstance(answers[1], ContextError)
        assert [json.loads(answers[k])["arm"] in ARMS for k in (0, 2)] == [True, True]
        assert world.source.n_leased == 0
        await campaign.durable.close()

    asyncio.run(main())


def test_one_that_fails_while_it_is_decided_leaves_the_others_decided():
    async def main():
        world = World()
        contexts = world.source.contexts

        async def spoilt(requests, *, campaign):
            got = await contexts(requests, campaign=campaign)
            for one, request in zip(got, requests, strict=True):
                if request.user == "bob":
                    one.rows[0] = float("nan")
            return got

        world.source.contexts = spoilt
        campaign = world.open()
        answers = await campaign.rank_many([asked("ann"), asked("bob"), asked("eve")])
        assert isinstance(answers[1], ContextError)
        assert campaign.model.position == 2
        assert all(isinstance(answers[k], bytes) for k in (0, 2))
        assert world.source.n_leased == 0
        await campaign.durable.close()

    asyncio.run(main())


def test_when_the_log_fails_none_of_them_is_acknowledged(monkeypatch):
    async def main():
        world = World()
        campaign = world.open()

        def fail(self, events):
            raise JournalError("the disk is full")

        monkeypatch.setattr(MemoryJournal, "append", fail)
        answers = await campaign.rank_many([asked(user) for user in USERS[:5]])
        assert all(isinstance(answer, JournalError) for answer in answers)
        assert "the disk is full" in str(answers[0])
        await asyncio.sleep(0)
        assert world.watcher.decisions == []
        with pytest.raises(JournalError):
            await campaign.rank(asked("ann"))
        await campaign.durable.close()

    asyncio.run(main())
