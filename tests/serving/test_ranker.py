"""Replicas keep nothing: promises are in the inbox, and the leader's journal has each once."""

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from campaign_world import ARMS
from ranker_world import RankerWorld, asked, soon

import vfbandits as vfb
from vfbandits.campaign.events import Decided, MasksChanged, Reported, Rewarded
from vfbandits.campaign.model import Model, fold
from vfbandits.client.schemas import RankResponse
from vfbandits.errors import (
    ArmError,
    ConflictError,
    ContextError,
    JournalError,
    LinkError,
    SettingError,
    UnknownEventError,
)
from vfbandits.journal.compact import compact
from vfbandits.journal.inbox.memory import MemoryInbox
from vfbandits.journal.models import export_model, restore_model
from vfbandits.journal.sqlite.journal import SqliteJournal
from vfbandits.journal.sqlite.reader import SqliteReader
from vfbandits.serving.event_ids import EventIds
from vfbandits.serving.tail import Tail


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


def test_a_ranker_says_for_which_campaign_it_gathers(tmp_path):
    async def main():
        world, named = RankerWorld(tmp_path), []
        gather = world.gather

        async def look(requests, *, size_bytes):
            named.extend(one.campaign for one in requests)
            return await gather(requests, size_bytes=size_bytes)

        world.gather = look
        async with world.leading(), world.ranking() as ranker:
            await ranker.rank(asked("e1"))
        return named

    assert run(main()) == ["default"]


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
                    await leader.durable.snapshot()
            assert await world.same(one)
            assert await world.same(two)
            async with world.ranking() as late:
                assert await world.same(late)
            assert leader.model.n_learnt > 20
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
        assert [event.event_id for event in logged(world, Decided)] == ["e", "own"]

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
            assert MemoryInbox(world.inbox_records).waiting(10) == []

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
        learnt = {event.event_id: event for event in logged(world, Rewarded)}
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
            await ranker.configure({"default_reward": None}, by="ops")
            await world.level(ranker)
        before = len(logged(world))
        for queued in world.inbox_records.by_key.values():
            queued.taken_at = None
        async with world.leading() as leader:
            await soon(lambda: not MemoryInbox(world.inbox_records).waiting(10))
            assert leader.config_version == 1
        assert len(logged(world)) == before
        assert world.refused == []

    run(main())


def test_a_reward_at_a_ranker_may_come_before_the_activation(tmp_path):
    async def main():
        world = RankerWorld(tmp_path, activation_wait_s=100.0, reward_wait_s=50.0)
        async with world.leading() as leader, world.ranking() as one, world.ranking() as two:
            await one.rank(asked("a", activate=False))
            assert await two.reward("a", 1.0) == "queued"
            assert await two.reward("a", 1.0) == "repeated"
            assert await one.activate("a")
            await world.level(two)
            world.clock.now += 60.0
            await soon(lambda: world.consumer.complete_to > 1_055.0)
            await leader.settle()
            past = await leader.history("a")
            assert (past.status, past.learnt) == ("learnt", 1.0)
        assert world.refused == []

    run(main())


def test_an_event_that_is_held_waits_to_be_activated_at_any_ranker(tmp_path):
    async def main():
        world = RankerWorld(tmp_path, activation_wait_s=100.0)
        async with world.leading() as leader, world.ranking() as one, world.ranking() as two:
            await one.rank(asked("a", activate=False))
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
            changed = await one.configure({"mode": "frozen", "policy": {"beta": 0.125}}, by="ops")
            await world.level(two)
            for each in (one, two, leader):
                assert each.settings == changed
                assert each.config_version == 1
            assert two.model.bandit.policy == vfb.LinUCB(beta=0.125)
            with pytest.raises(SettingError):
                await two.configure({"holdback": 2.0}, by="ops")
            assert await two.configure({"mode": "frozen"}, by="ops") == changed
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
            await leader.durable.change_masks(rotation, epoch=epoch, signed_roster=b"%d" % epoch)

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


def test_a_ranker_keeps_the_contexts_of_the_events_that_a_leader_would(tmp_path):
    """Up to rounding: they are carried to the masks that are in force when they arrive."""
    names = [f"e{number}" for number in range(40)]
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((5, 5)))[0]

    async def main():
        world = RankerWorld(tmp_path, log_contexts=0.5)
        async with world.leading(consuming=False) as leader, world.ranking() as ranker:
            for name in names:
                await ranker.rank(asked(name, user=name))
            await leader.durable.change_masks(turn, epoch=2, signed_roster=b"2")
            await world.consumer.drain()
        twin = RankerWorld(tmp_path / "twin", log_contexts=0.5)
        twin.path.parent.mkdir()
        async with twin.leading() as leader:
            for name in names:
                await leader.rank(asked(name, user=name))
        mine, other = ({event.event_id: event.offered for event in logged(one, Decided)}
                       for one in (world, twin))  # fmt: skip
        kept = {name for name, offered in other.items() if offered is not None}
        assert {name for name, offered in mine.items() if offered is not None} == kept
        assert 10 < len(kept) < 30
        for name in kept:
            assert mine[name].arms == other[name].arms == ARMS
            np.testing.assert_allclose(mine[name].rows, other[name].rows @ turn.T, atol=1e-12)
        assert world.refused == []

    run(main())


def test_decisions_of_several_older_epochs_are_carried_however_late_they_come(tmp_path):
    """Exact, up to the rotations: each context arrives turned by all that it has missed."""
    rotations = [np.linalg.qr(np.random.default_rng(k).standard_normal((5, 5)))[0] for k in (1, 2)]
    x = np.arange(5.0)

    async def main():
        world = RankerWorld(tmp_path)
        inbox = MemoryInbox(world.inbox_records, clock=world.clock)
        async with world.leading(consuming=False) as leader:
            await leader.durable.change_masks(rotations[0], epoch=2)
        async with world.leading() as leader:
            await leader.durable.change_masks(rotations[1], epoch=3)
            for name, epoch in (("late", 2), ("later", 1), ("now", 3)):
                inbox.put([Decided(name, "tea", 0, x, epoch=epoch)])
                await soon(lambda: not inbox.waiting(10))
            assert world.refused == []
            inbox.put([Decided("ahead", "tea", 0, x, epoch=4)])
            await soon(lambda: not inbox.waiting(10))
            assert ["cannot be carried" in reason for reason in world.refused] == [True]
        found = {event.event_id: event.x for event in logged(world, Decided)}
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
            await leader.durable.change_masks(rotation, epoch=2)
            world.masked = lambda rows: rows @ rotation.T
            answer = read(await ranker.rank(asked("b")))
            assert answer.epoch == 2
            await world.level(ranker)
        epochs = [e.epoch for e in logged(world, Decided | MasksChanged)]
        assert epochs == [1, 2, 2]

    run(main())


def test_what_cannot_be_taken_is_set_aside_and_the_rest_goes_on(tmp_path):
    async def main():
        world = RankerWorld(tmp_path)
        async with world.leading() as leader:
            inbox = MemoryInbox(world.inbox_records, clock=world.clock)
            await leader.rank(asked("a"))
            inbox.put([
                Reported("nobody", 1.0, "", "queued", 1_000.0),
                Reported("a", 1.0, "", "queued", 1_000.0),
                Decided("b", "tea", 0, np.ones(7), epoch=1),
            ])  # fmt: skip
            await soon(lambda: not inbox.waiting(10))
            assert (await leader.history("a")).learnt == 1.0
        assert len(world.refused) == 2
        assert sum(queued.is_aside for queued in world.inbox_records.by_key.values()) == 2

    run(main())


def test_a_ranker_follows_a_model_that_is_restored_while_nobody_leads(tmp_path):
    async def main():
        world = RankerWorld(tmp_path)
        async with world.leading() as leader, world.ranking() as ranker:
            await leader.rank(asked("a"))
            await leader.reward("a", 1.0)
            early = await asyncio.to_thread(export_model, SqliteReader(world.path))
            await leader.rank(asked("b"))
            await leader.reward("b", 1.0)
            assert await world.same(ranker)
            learnt = leader.model.bandit.estimate_norm()
            await leader.durable.close()
            with closing(SqliteJournal(world.path)) as journal:
                asked_by = {"by": "ops", "reason": "a bad feed", "now": world.clock.now}
                assert restore_model(journal, early, **asked_by).of == early.position
            async with world.leading() as next_leader:
                assert await world.same(ranker)
                assert next_leader.model.bandit.estimate_norm() != learnt
                assert next_leader.model.n_learnt == 3

    run(main())


def test_what_was_set_aside_is_kept_no_longer_than_records_of_the_journal(tmp_path):
    async def main():
        world = RankerWorld(tmp_path)
        async with world.leading() as leader:
            leader.retain_s = 3_600.0
            inbox = MemoryInbox(world.inbox_records, clock=world.clock)
            inbox.put([Reported("nobody", 1.0, "", "queued", world.clock.now)])
            await soon(lambda: world.refused)
            assert len(world.inbox_records.by_key) == 1
            world.clock.now += 7_300.0
            await soon(lambda: not world.inbox_records.by_key)
        assert world.failed == []

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
                    await leader.durable.snapshot()
        journal = SqliteJournal(world.path)
        assert compact(journal).dropped
        journal.close()
        tail.start()
        assert await tail.until(lambda model: model.position == 20, timeout_s=10.0)
        await tail.stop()

    run(main())


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("named", [True, False])
def test_a_batch_is_answered_as_each_alone_and_as_the_leader_would(
    tmp_path, monkeypatch, policy, named
):
    """Exact: the same bytes, whether 40 events come together or one by one.

    So is what the leader answers, but for the Monte Carlo behind the probabilities of LinTS, whose
    draws are numbered by the decisions of a process.
    """

    async def learnt(folder):
        folder.mkdir()
        world = RankerWorld(folder, policy=POLICIES[policy], holdback=0.3)
        async with world.leading() as leader:
            for k in range(5):
                await leader.rank(asked(f"a{k}", user=f"u{k}"))
                await leader.reward(f"a{k}", k / 5.0)
        return world

    def events():
        return [asked(f"e{k}", user=f"u{k % 7}", arms=ARMS[: 1 + k % 4]) for k in range(40)]

    async def main():
        answers = []
        for name in ("batch", "alone", "leader"):
            world = await learnt(tmp_path / name)
            async with world.leading(consuming=False) as leader, world.ranking() as ranker:
                requests = events()
                if not named:  # the draws come from the id: all get the same ones
                    monkeypatch.setattr(EventIds, "draw", Names(f"e{k}" for k in range(40)))
                    requests = [replace(one, event_id=None) for one in requests]
                if name == "batch":
                    answers.append(await ranker.rank_many(requests))
                    assert [count for count, _ in world.batches] == [16, 16, 8]
                    assert ranker.journal.commits[1] == 40
                    assert ranker.journal.commits[0] <= 3
                elif name == "alone":
                    answers.append([await ranker.rank(one) for one in requests])
                else:
                    answers.append(await leader.rank_many(requests))
        assert answers[0] == answers[1]
        assert [*map(certain, answers[0])] == [*map(certain, answers[2])]
        if policy == "linucb":
            assert answers[0] == answers[2]
        assert {read(answer).group for answer in answers[0]} == {"policy", "holdback"}

    run(main())


class Names:
    """Gives one after the other, instead of random ids."""

    def __init__(self, names):
        self.names = iter(names)

    def __call__(self):
        return next(self.names)


def certain(answer):
    """An answer without its probabilities."""
    response = read(answer)
    ranking = [(arm.id, arm.score, arm.estimate) for arm in response.ranking]
    return ranking, msgspec.structs.replace(response, ranking=[])


def test_one_bad_request_of_a_batch_fails_alone(tmp_path):
    async def main():
        world = RankerWorld(tmp_path)
        bad = ContextError("features of 'shop': wanted 2 numbers in each of 3 rows, got 5 bytes")
        outcome = world.outcome

        async def picky(request):
            if request.event_id == "short":
                return replace(await outcome(request), rows=bytes(8))
            return bad if request.user == "bad" else await outcome(request)

        world.outcome = picky
        async with world.leading(), world.ranking() as ranker:
            batch = [
                asked("a"), asked("none", arms=()), asked("b", user="bad"), asked("short"), asked(),
            ]  # fmt: skip
            good, none, refused, short, last = await ranker.rank_many(batch)
            assert read(good).event_id == "a"
            assert isinstance(none, ArmError)
            assert str(refused) == str(bad)
            assert "wanted contexts of 3 rows and 5 columns, got 8 bytes" in str(short)
            assert isinstance(last, bytes)
            with pytest.raises(ContextError, match="features of 'shop'"):
                await ranker.rank(asked("b", user="bad"))
            await world.level(ranker)
        assert len(logged(world, Decided)) == 2
        assert world.refused == []

    run(main())


def test_an_event_that_comes_twice_in_a_batch_or_at_two_rankers_is_decided_once(tmp_path):
    async def main():
        world = RankerWorld(tmp_path, policy=vfb.LinTS(posterior_scale=0.5))
        async with world.leading() as leader, world.ranking() as one, world.ranking() as two:

            def batch(first):
                return [asked(f"e{k % 5}", user=f"{first}{k}") for k in range(10)]

            found = await asyncio.gather(
                one.rank_many(batch("a")), two.rank_many(batch("b")), one.rank_many(batch("c"))
            )
            assert found[0] == found[1] == found[2]
            assert found[0][:5] == found[0][5:]
            assert all(isinstance(answer, bytes) for answer in found[0])
            await world.level(one)
            again = await two.rank_many([*batch("d"), asked("new")])
            assert again[:10] == found[0]
            assert await leader.rank_many(batch("e")) == found[0]
        names = [event.event_id for event in logged(world, Decided)]
        assert sorted(names) == ["e0", "e1", "e2", "e3", "e4", "new"]
        assert world.refused == []

    run(main())


def test_masks_that_change_under_a_batch_are_waited_for_and_old_contexts_are_asked_again(tmp_path):
    rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((5, 5)))[0]

    async def main():
        world = RankerWorld(tmp_path)
        async with world.leading() as leader, world.ranking() as ranker:
            gather = world.gather

            async def change_meanwhile(requests, *, size_bytes):
                """The first half is behind the old masks, the rest behind the new ones."""
                world.gather = gather
                half = len(requests) // 2
                old = await gather(requests[:half], size_bytes=size_bytes)
                await leader.durable.change_masks(rotation, epoch=2)
                world.masked = lambda rows: rows @ rotation.T
                return old + await gather(requests[half:], size_bytes=size_bytes)

            world.gather = change_meanwhile
            answers = await ranker.rank_many([asked(f"e{k}", user=f"u{k}") for k in range(8)])
            assert [read(answer).epoch for answer in answers] == [2] * 8
            assert [count for count, _ in world.batches] == [4, 4, 4]
            await world.level(ranker)
        contexts = {event.event_id: event.x for event in logged(world, Decided)}
        twin = RankerWorld(tmp_path / "twin")
        twin.path.parent.mkdir()
        async with twin.leading() as leader:
            await leader.rank_many([asked(f"e{k}", user=f"u{k}") for k in range(8)])
        for event in logged(twin, Decided):
            assert np.allclose(contexts[event.event_id], rotation @ event.x, atol=1e-12)

    run(main())


def test_a_batch_whose_leader_dies_gets_errors_and_its_events_can_be_asked_again(tmp_path):
    async def main():
        world = RankerWorld(tmp_path)
        async with world.leading(), world.ranking() as ranker:
            outcome = world.outcome

            async def dying(request):
                if request.user == "late":
                    world.leader, world.kept = None, world.leader
                return await outcome(request)

            world.outcome = dying
            users = ["ann", "bob", "late", "eve"]
            batch = [asked(user, user=user) for user in users]
            answers = await ranker.rank_many(batch)
            assert [isinstance(answer, bytes) for answer in answers] == [True, True, False, False]
            assert [type(answer) for answer in answers[2:]] == [LinkError, LinkError]
            world.leader, world.outcome = world.kept, outcome
            again = await ranker.rank_many(batch)
            assert again[:2] == answers[:2]
            assert all(isinstance(answer, bytes) for answer in again)
            await world.level(ranker)
        assert len(logged(world, Decided)) == 4

    run(main())


def test_batches_have_a_limit_of_bytes(tmp_path, monkeypatch):
    row = 8 * 5
    monkeypatch.setattr("vfbandits.serving.replica.MAX_BATCH_BYTES", 4 * (3 * row + 20))

    async def main():
        world = RankerWorld(tmp_path)
        async with world.leading(), world.ranking() as ranker:
            answers = await ranker.rank_many([asked(f"e{k}") for k in range(10)])
            assert all(isinstance(answer, bytes) for answer in answers)
        assert [count for count, _ in world.batches] == [4, 4, 2]
        assert all(size <= 4 * (3 * row + 20) for _, size in world.batches)
        assert all(size >= count * 3 * row for count, size in world.batches)

    run(main())


def test_decisions_that_wait_in_the_inbox_are_taken_in_by_one_commit_and_in_order(tmp_path):
    async def main():
        world = RankerWorld(tmp_path)
        async with world.leading(consuming=False) as leader, world.ranking() as ranker:
            await ranker.rank_many([asked(f"a{k}") for k in range(30)])
            commits, events = leader.durable.commits
            await world.consumer.drain()
            assert leader.durable.commits == (commits + 1, events + 30)
            await ranker.rank_many([asked("b0"), asked("b1")])
            await ranker.reward("a3", 1.0)
            await ranker.rank(asked("c"))
            await ranker.reward("b0", 0.5)
            await ranker.reward("c", 0.25)
            commits, events = leader.durable.commits
            await world.consumer.drain()
            assert leader.durable.commits == (commits + 1, events + 6)
            leader.arrivals = world.consumer
            assert await world.same(ranker)
        assert world.entered == [*[f"a{k}" for k in range(30)], "b0", "b1", "c"]
        seen = [(type(event), event.event_id) for event in logged(world)][30:]
        assert seen == [
            (Decided, "b0"), (Decided, "b1"), (Rewarded, "a3"), (Decided, "c"),
            (Rewarded, "b0"), (Rewarded, "c"),
        ]  # fmt: skip

    run(main())


def test_a_decision_that_cannot_be_taken_is_set_aside_and_its_neighbours_are_entered(tmp_path):
    async def main():
        world = RankerWorld(tmp_path)
        async with world.leading() as leader:
            inbox = MemoryInbox(world.inbox_records, clock=world.clock)
            await leader.rank(asked("own"))
            inbox.put([
                Decided("a", "tea", 0, np.ones(5), epoch=1),
                Decided("wide", "tea", 0, np.ones(7), epoch=1),
                Decided("ahead", "tea", 0, np.ones(5), epoch=4),
                Decided("own", "tea", 0, np.ones(5), epoch=1),
                Decided("b", "tea", 0, np.ones(5), epoch=1),
            ])  # fmt: skip
            await soon(lambda: not inbox.waiting(10))
        assert len(world.refused) == 2
        assert world.entered == ["a", "b"]
        assert [event.event_id for event in logged(world, Decided)] == ["own", "a", "b"]

    run(main())


def test_a_ranker_starts_although_a_record_that_a_snapshot_covers_is_damaged(tmp_path):
    async def main():
        world = RankerWorld(tmp_path)
        async with world.leading(consuming=False):
            for number in range(6):
                await world.leader.rank(asked(f"e{number}"))
            await world.leader.durable.snapshot()
        with closing(sqlite3.connect(world.path)) as database:
            database.execute("UPDATE event SET record = zeroblob(50) WHERE position = 3")
            database.commit()
        async with world.ranking() as ranker:
            shown = [event.event_id for _, event in await ranker.tail.read_end(100)]
            assert shown == ["e0", "e1", "e3", "e4", "e5"]

    asyncio.run(main())


class Gappy:
    """A journal for reading that leaves records out."""

    def __init__(self, reader):
        self._reader = reader
        self.left_out = frozenset()

    def read(self, after=0):
        return (one for one in self._reader.read(after) if one[0] not in self.left_out)

    def __getattr__(self, name):
        return getattr(self._reader, name)


@pytest.mark.parametrize("left_out", [{3}, {3, 4}, {4}])
def test_a_tail_notices_records_that_are_missing_and_goes_no_further(tmp_path, left_out):
    async def main():
        world = RankerWorld(tmp_path)
        async with world.leading() as leader:
            await leader.rank(asked("e1"))
            await leader.rank(asked("e2"))
            reader = Gappy(SqliteReader(world.path))
            tail = Tail(reader)
            reader.left_out = left_out
            for name in ("e3", "e4", "e5"):
                await leader.rank(asked(name))
            tail.start()
            await soon(lambda: tail.failing is not None)
            first, following = min(left_out), max(left_out) + 1
            missing = f"wanted record {first} of the journal, got {following}"
            assert (tail.failing, tail.model.position < first) == (missing, True)
            reader.left_out = frozenset()
            await soon(lambda: tail.failing is None and tail.model.n_decided == 5)
            reader.left_out = left_out
            with pytest.raises(JournalError, match=missing):
                Tail(reader)
            await tail.stop()

    run(main())


def test_a_tail_notices_a_row_that_was_deleted(tmp_path):
    async def main():
        world = RankerWorld(tmp_path)
        async with world.leading() as leader:
            tail = Tail(SqliteReader(world.path))
            for name in ("e1", "e2", "e3"):
                await leader.rank(asked(name))
            with closing(sqlite3.connect(world.path)) as database, database:
                database.execute("DELETE FROM event WHERE position = 2")
            with pytest.raises(JournalError, match="record 2 of the journal is missing"):
                await tail.follow()
            assert tail.model.position == 0
            await tail.stop()

    run(main())
