"""Rankers keep nothing: what they promise stands in the inbox, and the leader's log has it once."""

import asyncio

import msgspec
import numpy as np
import pytest
from ranker_world import RankerWorld, asked, soon

import vfbandits as vfb
from vfbandits.errors import ConflictError, LinkError, SettingError, UnknownEventError
from vfbandits.service.tail import Tail
from vfbandits.store.compact import compact
from vfbandits.store.events import Decided, Moved, Reported, Rewarded
from vfbandits.store.fold import Model, fold
from vfbandits.store.inbox_memory import MemoryInbox
from vfbandits.store.sqlite_journal import SqliteJournal
from vfbandits.store.sqlite_reader import SqliteReader
from vfbandits.web.types import RankResponse


def run(main):
    return asyncio.run(main)


def read(answer):
    return msgspec.json.decode(answer, type=RankResponse)


def logged(world, kind=object):
    reader = SqliteReader(world.path)
    events = [event for _, event in reader.read() if isinstance(event, kind)]
    reader.close()
    return events


POLICIES = {
    "linucb": vfb.LinUCB(beta=0.5),
    "lints": vfb.LinTS(posterior_scale=0.3),
    "parameter": vfb.LinTS(posterior_scale=0.3, space="parameter", n_draws=5),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_rankers_model_equals_the_leaders_bit_for_bit(tmp_path, policy):
    """Exact: Lambda, u, inverse, open decisions and the book, at the same position."""

    async def main():
        world = RankerWorld(tmp_path, policy=POLICIES[policy], bandit={"max_open": 12})
        async with world.leading() as leader, world.ranking() as one, world.ranking() as two:
            for k in range(60):
                ranker = (one, two)[k % 2]
                await ranker.rank(asked(f"e{k}", user=f"u{k % 7}"))
                if k % 3 and k > 2:
                    await ranker.reward(f"e{k - 2}", k / 10.0)
                if k % 20 == 10:
                    await leader.model.snapshot()
            assert await world.same(one)
            assert await world.same(two)
            async with world.ranking() as late:
                assert await world.same(late)
            assert leader.model.book.n_learnt > 20
            assert world.refused == world.failed == []
            assert world.entered == [f"e{k}" for k in range(60)]
            learnt = leader.model.bandit.states[None].Lambda.tobytes()
        new = Model(vfb.Bandit(world.policy, dim=5, **world.bandit), epoch=1)
        scratch = fold(enumerate(logged(world), start=1), new)
        assert scratch.bandit.states[None].Lambda.tobytes() == learnt

    run(main())


def test_a_ranker_decides_as_the_leader_would(tmp_path):
    async def main():
        world = RankerWorld(tmp_path, policy=vfb.LinTS(posterior_scale=0.5), holdback=0.3)
        async with world.leading() as leader, world.ranking() as ranker:
            for k in range(5):
                await ranker.rank(asked(f"a{k}"))
                await ranker.reward(f"a{k}", k / 5.0)
            await world.level(ranker)
            told = [await ranker.rank(asked(f"b{k}")) for k in range(20)]
        twin = RankerWorld(tmp_path / "twin", policy=world.policy, holdback=0.3)
        twin.path.parent.mkdir()
        async with twin.leading() as leader:
            for k in range(5):
                await leader.rank(asked(f"a{k}"))
            for k in range(5):
                await leader.reward(f"a{k}", k / 5.0)
            own = [await leader.rank(asked(f"b{k}")) for k in range(20)]
        seen = [[(read(a).arm, read(a).group) for a in answers] for answers in (told, own)]
        assert seen[0] == seen[1]
        assert {group for _, group in seen[0]} == {"policy", "holdback"}

    run(main())


def test_an_event_has_one_answer_at_all_rankers_and_at_the_leader(tmp_path):
    async def main():
        world = RankerWorld(tmp_path, policy=vfb.LinTS(posterior_scale=0.5))
        async with world.leading() as leader, world.ranking() as one, world.ranking() as two:
            both = await asyncio.gather(
                *(ranker.rank(asked("e", user=user)) for ranker in (one, two) for user in "ab")
            )
            assert len(set(both)) == 1
            assert await two.rank(asked("e", user="c")) == both[0]
            assert await leader.rank(asked("e", user="d")) == both[0]
            await world.level(one)
            own = await leader.rank(asked("own"))
            assert await one.rank(asked("own", user="f")) == own
            async with world.ranking() as fresh:
                assert await fresh.rank(asked("e", user="g")) == both[0]
        assert [event.decision_id for event in logged(world, Decided)] == ["e", "own"]

    run(main())


def test_a_reward_counts_once_wherever_it_is_sent_and_a_contradiction_is_refused(tmp_path):
    async def main():
        world = RankerWorld(tmp_path)
        async with world.leading() as leader, world.ranking() as one, world.ranking() as two:
            await one.rank(asked("e"))
            statuses = await asyncio.gather(
                *(ranker.reward("e", 1.0, reward_id="r") for ranker in (one, two, one, two))
            )
            assert sorted(statuses) == ["queued", "repeated", "repeated", "repeated"]
            for ranker in (one, two):
                with pytest.raises(ConflictError, match=r"is 1\.0 already, got 0\.5"):
                    await ranker.reward("e", 0.5, reward_id="r")
            await world.level(one)
            with pytest.raises(ConflictError, match="already"):
                await one.reward("e", 0.5, reward_id="r")
            with pytest.raises(ConflictError, match="already"):
                await leader.reward("e", 0.5, reward_id="r")
            assert await leader.reward("e", 1.0, reward_id="r") == "repeated"
            assert await two.reward("e", 0.25, reward_id="second") == "queued"
            await world.level(two)
        assert [(e.value, e.reward_id) for e in logged(world, Rewarded)] == [(1.0, "r")]
        assert [(e.value, e.why) for e in logged(world, Reported)] == [(0.25, "ignored")]
        assert world.refused == []

    run(main())


def test_a_reward_that_the_leader_took_itself_is_known_at_once(tmp_path):
    """Though the ranker's model has not come so far yet."""

    async def main():
        world = RankerWorld(tmp_path)
        async with world.leading() as leader, world.ranking() as ranker:
            for k in range(20):
                name = f"e{k}"
                await leader.rank(asked(name))
                if k % 2:
                    await world.level(ranker)
                assert await leader.reward(name, 1.0) == "learnt"
                with pytest.raises(ConflictError, match="already"):
                    await ranker.reward(name, 0.0)
                assert await ranker.reward(name, 1.0) == "repeated"

    run(main())


def test_a_reward_of_an_event_that_nobody_knows_is_refused(tmp_path):
    async def main():
        world = RankerWorld(tmp_path)
        async with world.leading(), world.ranking() as ranker:
            with pytest.raises(UnknownEventError):
                await ranker.reward("nobody", 1.0)
            with pytest.raises(UnknownEventError):
                await ranker.activate("nobody")
            assert MemoryInbox(world.drawer).waiting(10) == []

    run(main())


def test_while_nobody_leads_rewards_are_kept_and_decisions_are_not_made(tmp_path):
    async def main():
        world = RankerWorld(tmp_path, reward_wait_s=60.0)
        async with world.leading(), world.ranking() as ranker:
            await ranker.rank(asked("a"))
            await ranker.rank(asked("b"))
            await world.level(ranker)
        async with world.ranking() as ranker:
            assert await ranker.reward("a", 1.0) == "queued"
            with pytest.raises(LinkError):
                await ranker.rank(asked("c"))
            world.clock.now += 600.0  # the leader is away for longer than a reward is waited for
            async with world.leading() as leader:
                await soon(lambda: world.consumer.complete_to > 0.0)
                await leader.settle()
                assert leader.n_waiting == 0
        learnt = {event.decision_id: event for event in logged(world, Rewarded)}
        assert (learnt["a"].value, learnt["a"].at) == (1.0, 1_000.0)
        assert (learnt["b"].value, learnt["b"].reward_id) == (0.0, None)

    run(main())


def test_no_wait_ends_before_what_came_in_time_is_taken_in(tmp_path):
    async def main():
        world = RankerWorld(tmp_path, reward_wait_s=60.0)
        async with world.leading(), world.ranking() as ranker:
            await ranker.rank(asked("a"))
            await world.level(ranker)
        async with world.ranking() as ranker, world.leading(consuming=False) as leader:
            world.clock.now += 59.0
            await ranker.reward("a", 1.0)
            world.clock.now += 60.0
            leader.arrivals = world.consumer
            assert await leader.settle() == 0
            await world.consumer.drain()
            await leader.settle()
        assert [event.value for event in logged(world, Rewarded)] == [1.0]

    run(main())


def test_what_a_killed_leader_had_logged_but_not_marked_is_not_counted_twice(tmp_path):
    async def main():
        world = RankerWorld(tmp_path, aggregation="sum")
        async with world.leading(), world.ranking() as ranker:
            await ranker.rank(asked("a"))
            await ranker.rank(asked("b", activate=False))
            await ranker.reward("a", 1.0, reward_id="x")
            assert await ranker.activate("b")
            assert not await ranker.activate("b")
            await ranker.reward("b", 2.0)
            await ranker.configure({"default_reward": None})
            await world.level(ranker)
        before = len(logged(world))
        for slip in world.drawer.slips.values():
            slip.taken_at = None
        async with world.leading() as leader:
            await soon(lambda: not MemoryInbox(world.drawer).waiting(10))
            assert leader.config_version == 1
        assert len(logged(world)) == before
        assert world.refused == []

    run(main())


def test_an_event_that_is_held_waits_to_be_activated_at_any_ranker(tmp_path):
    async def main():
        world = RankerWorld(tmp_path, activation_wait_s=100.0)
        async with world.leading() as leader, world.ranking() as one, world.ranking() as two:
            await one.rank(asked("a", activate=False))
            with pytest.raises(ConflictError, match="is held"):
                await two.reward("a", 1.0)
            assert await two.activate("a")
            assert not await one.activate("a")
            assert await one.reward("a", 1.0) == "queued"
            await one.rank(asked("b", activate=False))
            await world.level(two)
            world.clock.now += 200.0
            with pytest.raises(ConflictError, match="not activated in time"):
                await two.activate("b")
            past = await one.history("a")
            assert (past.status, past.learnt) == ("learnt", 1.0)
            await soon(lambda: world.consumer.complete_to > 1_100.0)
            await leader.settle()
            await world.level(one)
            with pytest.raises(ConflictError, match="not activated in time"):
                await one.activate("b")
        assert world.refused == []

    run(main())


def test_settings_change_everywhere_and_a_bad_change_nowhere(tmp_path):
    async def main():
        world = RankerWorld(tmp_path)
        async with world.leading() as leader, world.ranking() as one, world.ranking() as two:
            changed = await one.configure({"mode": "frozen", "policy": {"beta": 0.125}})
            await world.level(two)
            for each in (one, two, leader):
                assert each.settings == changed
                assert each.config_version == 1
            assert two.model.bandit.policy == vfb.LinUCB(beta=0.125)
            with pytest.raises(SettingError):
                await two.configure({"holdback": 2.0})
            assert await two.configure({"mode": "frozen"}) == changed
            await two.rank(asked("e"))
            assert await two.reward("e", 1.0) == "queued"
            await world.level(one)
            assert await one.reward("e", 1.0) == "repeated"
            with pytest.raises(ConflictError):
                await one.reward("e", 0.0)
        assert [event.why for event in logged(world, Reported)] == ["logged"]

    run(main())


@pytest.mark.parametrize("is_leader_new", [False, True])
def test_a_decision_behind_older_masks_is_carried_to_those_in_force(tmp_path, is_leader_new):
    """Up to rounding: the same Lambda as when the decision had come before the masks changed."""
    rotations = [np.linalg.qr(np.random.default_rng(k).standard_normal((5, 5)))[0] for k in (1, 2)]

    async def change(leader):
        for epoch, rotation in enumerate(rotations, start=2):
            await leader.model.move(rotation, epoch=epoch, note=b"%d" % epoch)

    async def main():
        world = RankerWorld(tmp_path)
        async with world.leading(consuming=False) as leader, world.ranking() as ranker:
            await ranker.rank(asked("a"))
            await change(leader)
            if not is_leader_new:
                await world.consumer.drain()
        async with world.leading() as leader, world.ranking() as ranker:
            await ranker.reward("a", 1.0)
            assert await world.same(ranker)
            moved = leader.model.bandit.states[None].Lambda
        twin = RankerWorld(tmp_path / "twin")
        twin.path.parent.mkdir()
        async with twin.leading() as leader:
            await leader.rank(asked("a"))
            await change(leader)
            await leader.reward("a", 1.0)
            assert np.abs(leader.model.bandit.states[None].Lambda - moved).max() < 1e-12
        assert [event.epoch for event in logged(world, Decided)] == [3]
        assert world.refused == []

    run(main())


def test_decisions_of_several_older_epochs_are_carried_however_late_they_come(tmp_path):
    """Exact, up to the rotations: each context arrives turned by all that it has missed."""
    rotations = [np.linalg.qr(np.random.default_rng(k).standard_normal((5, 5)))[0] for k in (1, 2)]
    x = np.arange(5.0)

    async def main():
        world = RankerWorld(tmp_path)
        inbox = MemoryInbox(world.drawer, clock=world.clock)
        async with world.leading(consuming=False) as leader:
            await leader.model.move(rotations[0], epoch=2)
        async with world.leading() as leader:
            await leader.model.move(rotations[1], epoch=3)
            for name, epoch in (("late", 2), ("later", 1), ("now", 3)):
                inbox.put([Decided(name, "tea", 0, x, epoch=epoch)])
                await soon(lambda: not inbox.waiting(10))
            assert world.refused == []
            inbox.put([Decided("ahead", "tea", 0, x, epoch=4)])
            await soon(lambda: not inbox.waiting(10))
            assert ["cannot be carried" in reason for reason in world.refused] == [True]
        found = {event.decision_id: event.x for event in logged(world, Decided)}
        assert list(found) == ["late", "later", "now"]
        assert np.allclose(found["late"], rotations[1] @ x, atol=1e-12)
        assert np.allclose(found["later"], rotations[1] @ rotations[0] @ x, atol=1e-12)

    run(main())


def test_a_ranker_waits_for_its_tail_instead_of_mixing_masks(tmp_path):
    async def main():
        world = RankerWorld(tmp_path)
        rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((5, 5)))[0]
        async with world.leading() as leader, world.ranking() as ranker:
            await ranker.rank(asked("a"))
            await world.level(ranker)
            await leader.model.move(rotation, epoch=2)
            world.masked = lambda rows: rows @ rotation.T
            answer = read(await ranker.rank(asked("b")))
            assert answer.epoch == 2
            await world.level(ranker)
        epochs = [e.epoch for e in logged(world, Decided | Moved)]
        assert epochs == [1, 2, 2]

    run(main())


def test_what_cannot_be_taken_is_set_aside_and_the_rest_goes_on(tmp_path):
    async def main():
        world = RankerWorld(tmp_path)
        async with world.leading() as leader:
            inbox = MemoryInbox(world.drawer, clock=world.clock)
            await leader.rank(asked("a"))
            inbox.put([
                Reported("nobody", 1.0, "", "queued", 1_000.0),
                Reported("a", 1.0, "", "queued", 1_000.0),
                Decided("b", "tea", 0, np.ones(7), epoch=1),
            ])  # fmt: skip
            await soon(lambda: not inbox.waiting(10))
            assert (await leader.history("a")).learnt == 1.0
        assert len(world.refused) == 2
        assert sum(slip.is_aside for slip in world.drawer.slips.values()) == 2

    run(main())


def test_a_tail_begins_anew_when_the_log_was_compacted_past_it(tmp_path):
    async def main():
        world = RankerWorld(tmp_path)
        async with world.leading() as leader:
            tail = Tail(SqliteReader(world.path))
            for k in range(10):
                await leader.rank(asked(f"e{k}"))
                await leader.reward(f"e{k}", 1.0)
                if k in (6, 9):
                    await leader.model.snapshot()
        journal = SqliteJournal(world.path)
        assert compact(journal).dropped
        journal.close()
        tail.start()
        assert await tail.until(lambda model: model.position == 20, timeout_s=10.0)
        await tail.stop()

    run(main())
