"""What a campaign promises to an application: the same answer, each reward once, nothing lost."""

import asyncio
import math

import msgspec
import numpy as np
import pytest
from campaign_world import ARMS, World

import vfbandits as vfb
from vfbandits.campaign.query import Query
from vfbandits.client.schemas import RankResponse
from vfbandits.errors import (
    ArmError,
    ConflictError,
    RecordError,
    RewardError,
    SettingError,
    UnknownEventError,
)


def run(main):
    return asyncio.run(main)


def read(answer):
    return msgspec.json.decode(answer, type=RankResponse)


def asked(event_id=None, *, user="ann", arms=ARMS, **more):
    return Query(user, arms, event_id, **more)


def test_the_same_event_gets_the_same_answer_also_after_a_restart():
    async def main():
        world = World(policy=vfb.LinTS(posterior_scale=0.3))
        campaign = world.open()
        first = await campaign.rank(asked("e"))
        await campaign.reward("e", 1.0)
        again = await campaign.rank(asked("e", user="somebody else"))
        await campaign.durable.close()
        restarted = world.open()
        after = await restarted.rank(asked("e"))
        await restarted.durable.close()
        assert first == again == after
        assert world.source.n_asked == 1
        assert len(world.watcher.decisions) == 1

    run(main())


def test_requests_for_one_event_at_the_same_time_make_one_decision():
    async def main():
        world = World(policy=vfb.LinTS(posterior_scale=0.3))
        campaign = world.open()
        answers = await asyncio.gather(*(campaign.rank(asked("e")) for _ in range(20)))
        assert len(set(answers)) == 1
        assert campaign.model.position == 1
        await campaign.durable.close()

    run(main())


def test_a_caller_that_hangs_up_does_not_take_the_answer_from_another():
    async def main():
        world = World()
        campaign = world.open()
        first = asyncio.ensure_future(campaign.rank(asked("e")))
        second = asyncio.ensure_future(campaign.rank(asked("e")))
        await asyncio.sleep(0)
        first.cancel()
        assert read(await second).event_id == "e"
        await campaign.durable.close()

    run(main())


def test_a_lone_caller_that_hangs_up_leaves_a_decision_that_is_durable_and_counted():
    async def main():
        world = World()
        campaign = world.open()
        caller = asyncio.ensure_future(campaign.rank(asked()))
        while not campaign.durable.position:  # noqa: ASYNC110  (decided, not durable yet)
            await asyncio.sleep(0)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        async with asyncio.timeout(30.0):
            while not world.watcher.decisions:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        assert campaign.durable.commits == (1, 1)
        assert world.source.n_leased == 0
        await campaign.durable.close()

    run(main())


def test_draws_come_from_the_event_so_that_the_same_events_give_the_same_decisions():
    async def decisions(names):
        world = World(policy=vfb.LinTS(posterior_scale=0.5))
        campaign = world.open()
        answers = [read(await campaign.rank(asked(name))) for name in names]
        await campaign.durable.close()
        return {answer.event_id: (answer.arm, answer.ranking[0].score) for answer in answers}

    names = [f"e{k}" for k in range(30)]
    forwards, backwards = run(decisions(names)), run(decisions(names[::-1]))
    assert forwards == backwards
    assert len({arm for arm, _ in forwards.values()}) > 1


def test_a_reward_is_learnt_once_repeated_ones_are_ignored_and_others_refused():
    async def main():
        world = World()
        campaign = world.open()
        await campaign.rank(asked("e"))
        assert await campaign.reward("e", 1.0) == "learnt"
        version = campaign.model.n_learnt
        assert await campaign.reward("e", 1.0) == "repeated"
        with pytest.raises(ConflictError, match=r"is 1\.0 already, got 0\.5; nothing was changed"):
            await campaign.reward("e", 0.5)
        assert await campaign.reward("e", 0.5, reward_id="second") == "ignored"
        assert campaign.model.n_learnt == version == 1
        past = await campaign.history("e")
        assert (past.status, past.learnt, set(past.came)) == ("learnt", 1.0, {"", "second"})
        await campaign.durable.close()

    run(main())


@pytest.mark.parametrize("value", [math.nan, math.inf, "1", None, 1e200])
def test_a_reward_that_is_no_number_changes_nothing(value):
    async def main():
        campaign = World().open()
        await campaign.rank(asked("e"))
        with pytest.raises(RewardError):
            await campaign.reward("e", value)
        assert campaign.model.position == 1
        await campaign.durable.close()

    run(main())


def test_an_unknown_event_is_refused_by_name():
    async def main():
        campaign = World().open()
        for deed in (campaign.reward("x", 1.0), campaign.activate("x"), campaign.history("x")):
            with pytest.raises(UnknownEventError, match="'x'"):
                await deed
        await campaign.durable.close()

    run(main())


def test_when_the_wait_is_over_the_default_is_learnt_and_a_late_reward_is_logged_only():
    async def main():
        world = World(reward_wait_s=60.0, default_reward=-1.0)
        campaign = world.open()
        await campaign.rank(asked("e"))
        assert await campaign.settle() == 0
        world.clock.now += 61.0
        assert await campaign.settle() == 1
        past = await campaign.history("e")
        assert (past.status, past.learnt, past.came) == ("learnt", -1.0, {})
        learnt = theta(campaign)
        assert await campaign.reward("e", 5.0) == "late"
        assert await campaign.reward("e", 5.0) == "repeated"
        with pytest.raises(ConflictError):
            await campaign.reward("e", 4.0)
        assert np.array_equal(theta(campaign), learnt)
        told = [seen.status for seen in world.watcher.rewards]
        assert told == ["default", "late", "repeated"]
        await campaign.durable.close()

    run(main())


def test_a_reward_after_the_wait_is_late_even_before_the_wait_was_ended():
    async def main():
        world = World(reward_wait_s=60.0)
        campaign = world.open()
        await campaign.rank(asked("e"))
        world.clock.now += 61.0
        assert await campaign.reward("e", 5.0) == "late"
        assert await campaign.settle() == 1
        assert (await campaign.history("e")).learnt == 0.0
        await campaign.durable.close()

    run(main())


def test_without_a_default_an_event_is_forgotten_and_nothing_learnt():
    async def main():
        world = World(reward_wait_s=60.0, default_reward=None)
        campaign = world.open()
        await campaign.rank(asked("e"))
        world.clock.now += 61.0
        await campaign.settle()
        assert (await campaign.history("e")).status == "forgotten"
        assert campaign.model.n_learnt == 0
        await campaign.durable.close()

    run(main())


def test_sums_count_each_reward_id_once_and_are_learnt_at_the_end_of_the_wait():
    async def main():
        world = World(reward_wait_s=60.0, aggregation="sum")
        campaign = world.open()
        await campaign.rank(asked("e"))
        for value, name, status in (
            (1.0, "a", "counted"),
            (1.0, "a", "repeated"),
            (2.5, "b", "counted"),
        ):
            assert await campaign.reward("e", value, reward_id=name) == status
        with pytest.raises(ConflictError):
            await campaign.reward("e", 9.0, reward_id="a")
        await campaign.durable.close()
        restarted = world.open()  # what was counted is in the log
        assert await restarted.reward("e", 1.0, reward_id="a") == "repeated"
        world.clock.now += 61.0
        await restarted.settle()
        assert (await restarted.history("e")).learnt == 3.5
        assert await restarted.reward("e", 1.0, reward_id="c") == "late"
        await restarted.durable.close()

    run(main())


def test_waits_go_on_after_a_restart():
    async def main():
        world = World(reward_wait_s=60.0)
        campaign = world.open()
        for name in ("a", "b"):
            await campaign.rank(asked(name))
        await campaign.durable.snapshot()
        await campaign.rank(asked("c"))
        await campaign.durable.close()
        world.clock.now += 61.0
        restarted = world.open()
        assert restarted.n_waiting == 3
        assert await restarted.settle() == 3
        assert restarted.n_waiting == 0
        await restarted.durable.close()

    run(main())


def test_an_event_that_is_held_waits_for_its_activation_first():
    async def main():
        world = World(reward_wait_s=60.0, activation_wait_s=100.0)
        campaign = world.open()
        await campaign.rank(asked("e", activate=False))
        world.clock.now += 90.0
        assert await campaign.activate("e")
        assert not await campaign.activate("e")
        world.clock.now += 50.0
        assert await campaign.settle() == 0
        assert await campaign.reward("e", 1.0) == "learnt"
        assert not await campaign.activate("e")
        await campaign.durable.close()

    run(main())


def test_an_event_that_is_not_activated_in_time_teaches_nothing():
    async def main():
        world = World(activation_wait_s=100.0)
        campaign = world.open()
        await campaign.rank(asked("e", activate=False))
        world.clock.now += 101.0
        with pytest.raises(ConflictError, match="in time"):
            await campaign.activate("e")
        await campaign.settle()
        with pytest.raises(ConflictError, match="in time"):
            await campaign.activate("e")
        assert (await campaign.history("e")).status == "forgotten"
        assert campaign.model.n_learnt == 0
        await campaign.durable.close()

    run(main())


def test_shadow_mode_shows_the_baseline_and_learns_from_what_is_shown():
    async def main():
        world = World(mode="shadow", policy=vfb.LinTS(posterior_scale=2.0))
        campaign = world.open()
        for k in range(20):
            answer = read(await campaign.rank(asked(f"e{k}", user=f"u{k}", baseline=1)))
            assert (answer.arm, answer.group) == (ARMS[1], "shadow")
            assert {r.id: r.probability for r in answer.ranking}[ARMS[1]] == 1.0
            x, _ = campaign.model.bandit.observation(f"e{k}")
            assert np.allclose(x, (await rows(world, f"u{k}"))[1])
            await campaign.reward(f"e{k}", 1.0)
        choices = {seen.choice for seen in world.watcher.decisions}
        assert len(choices) > 1
        assert campaign.model.n_learnt == 20
        await campaign.durable.close()

    run(main())


def test_a_frozen_model_decides_and_does_not_change():
    async def main():
        world = World(mode="frozen", reward_wait_s=60.0)
        campaign = world.open()
        await campaign.rank(asked("e"))
        before = theta(campaign)
        assert await campaign.reward("e", 1.0) == "logged"
        assert await campaign.reward("e", 1.0) == "repeated"
        with pytest.raises(ConflictError):
            await campaign.reward("e", 0.0)
        world.clock.now += 61.0
        await campaign.settle()
        assert np.array_equal(theta(campaign), before)
        assert (await campaign.history("e")).status == "forgotten"
        await campaign.durable.close()

    run(main())


def test_a_holdback_gets_the_baseline_and_the_probability_of_being_shown_says_so():
    async def main():
        world = World(holdback=0.3)
        campaign = world.open()
        groups = []
        for k in range(400):
            answer = read(await campaign.rank(asked(f"e{k}", user=f"u{k}", baseline=2)))
            shares = {r.id: r.probability for r in answer.ranking}
            best = answer.ranking[0].id
            assert shares[ARMS[2]] == pytest.approx(1.0 if best == ARMS[2] else 0.3)
            assert sum(shares.values()) == pytest.approx(1.0)
            if answer.group == "holdback":
                assert answer.arm == ARMS[2]
            groups.append(answer.group)
        # Five standard deviations of a binomial share.
        assert abs(groups.count("holdback") / 400 - 0.3) < 5 * math.sqrt(0.21 / 400)
        await campaign.durable.close()

    run(main())


def test_settings_change_at_run_time_are_logged_and_hold_after_a_restart():
    async def main():
        world = World()
        campaign = world.open()
        assert read(await campaign.rank(asked("a"))).config_version == 0
        await campaign.configure(
            {"mode": "frozen", "policy": {"beta": 2.0}, "floor": 0.1}, by="ops"
        )
        assert read(await campaign.rank(asked("b"))).config_version == 1
        assert campaign.model.bandit.policy == vfb.LinUCB(beta=2.0)
        with pytest.raises(SettingError, match="mode must be one of"):
            await campaign.configure({"mode": "asleep"}, by="ops")
        with pytest.raises(SettingError, match="parameters of linucb are beta, got gamma"):
            await campaign.configure({"policy": {"gamma": 2.0}}, by="ops")
        await campaign.configure({"mode": "frozen"}, by="ops")  # as it is already: nothing to log
        assert campaign.config_version == 1
        await campaign.durable.close()
        restarted = world.open()
        assert restarted.settings.mode == "frozen"
        assert (restarted.model.bandit.policy, restarted.model.bandit.floor) == (
            vfb.LinUCB(beta=2.0),
            0.1,
        )
        await restarted.durable.close()

    run(main())


def test_observers_hear_who_contributed_and_how_the_estimate_is_made_up():
    async def main():
        world = World()
        campaign = world.open()
        await campaign.rank(asked("a"))
        await campaign.reward("a", 1.0)
        world.source.away = {"bank"}
        answer = read(await campaign.rank(asked("b")))
        assert (answer.contributors, answer.degraded) == (["shop"], True)
        seen = world.watcher.decisions[-1]
        assert (seen.contributors, seen.missing) == (("shop",), ("bank",))
        assert sum(seen.parts.values()) == pytest.approx(seen.estimate)
        assert seen.parts["bank"] == 0.0
        ranked = {r.id: r for r in answer.ranking}[seen.arm]
        assert ranked.score == pytest.approx(seen.estimate + seen.bonus)
        await campaign.durable.close()

    run(main())


def test_arms_come_and_go_and_none_is_an_error_that_changes_nothing():
    async def main():
        campaign = World().open()
        with pytest.raises(ArmError, match="at least one arm"):
            await campaign.rank(asked("e", arms=()))
        assert campaign.model.position == 0
        assert read(await campaign.rank(asked("e", arms=("new",)))).arm == "new"
        await campaign.durable.close()

    run(main())


def theta(campaign):
    return campaign.model.bandit.states[None].theta.copy()


async def rows(world, user):
    request = Query(user, ARMS)
    (contexts,) = await world.source.contexts([request], campaign="default")
    return contexts.rows


def test_a_damaged_record_fails_the_event_that_it_belongs_to_and_no_other():
    async def main():
        world = World()
        campaign = world.open()
        names = ["a", "b", "c"]
        before = await campaign.rank_many([asked(name) for name in names])
        world.disk.records[1] = b"torn"
        again = await campaign.rank_many([asked(name) for name in [*names, "new"]])
        assert [again[0], again[2]] == [before[0], before[2]]
        assert isinstance(again[1], RecordError)
        assert isinstance(again[3], bytes)
        found = await asyncio.gather(
            *(campaign.history(name) for name in names), return_exceptions=True
        )
        assert [type(one).__name__ for one in found] == ["History", "RecordError", "History"]
        assert await campaign.reward("b", 1.0) == "learnt"  # the model has what it needs
        await campaign.durable.close()

    asyncio.run(main())


def test_another_policy_takes_over_what_was_learnt_also_after_a_restart():
    async def main():
        world = World(policy=vfb.LinUCB(beta=0.5))
        campaign = world.open()
        for number in range(5):
            await campaign.rank(asked(f"e{number}", user=f"u{number}"))
            await campaign.reward(f"e{number}", 1.0)
        before = campaign.model.bandit.states[None].Lambda.copy()
        await campaign.configure({"policy": {"name": "lints", "posterior_scale": 0.2}}, by="ops")
        assert (campaign.model.bandit.states[None].Lambda == before).all()
        first = await campaign.rank(asked("a"))
        await campaign.durable.close()
        restarted = world.open()
        assert restarted.settings.policy == vfb.LinTS(posterior_scale=0.2)
        assert restarted.model.bandit.policy == vfb.LinTS(posterior_scale=0.2)
        assert await restarted.rank(asked("a")) == first
        await restarted.rank(asked("b"))
        await restarted.durable.close()

    run(main())
