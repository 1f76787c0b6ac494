"""The guardrail of a served campaign: durable, on record, told, followed, and re-armed by hand."""

import asyncio

import msgspec
import pytest
from campaign_world import ARMS, World
from ranker_world import RankerWorld, asked, soon
from structlog.testing import capture_logs

from vfbandits.campaign.events import GUARDRAIL, Administered, GuardrailRearmed, GuardrailTripped
from vfbandits.campaign.query import Query
from vfbandits.campaign.settings import Guardrail
from vfbandits.client.schemas import ConfigChange, GuardrailChange
from vfbandits.errors import ConflictError
from vfbandits.http.handlers import guardrail_of
from vfbandits.journal.audit import changes_in
from vfbandits.journal.memory import MemoryJournal
from vfbandits.journal.verify import verify

RULES = {"holdback": 0.5, "guardrail": Guardrail(min_events=20)}


async def lose(campaign, n_events=200, *, start=0):
    """The policy's events bring 0, the others 1, but for a few."""
    for number in range(start, start + n_events):
        name = f"e{number}"
        await campaign.rank(Query("ann", ARMS, name))
        group = (await campaign.history(name)).decided.group
        lucky = number % 10 == 0
        await campaign.reward(name, float((group != "policy") != lucky))


def view(campaign):
    return guardrail_of(campaign, campaign.settings)


def test_a_losing_policy_is_stopped_on_record_and_stays_so_after_a_restart():
    async def main():
        world = World(**RULES)
        campaign = world.open()
        assert not await campaign.watch()
        assert (view(campaign).state, view(campaign).difference) == ("watching", None)
        await lose(campaign)
        before = view(campaign)
        assert before.high < 0.0
        with capture_logs() as lines:
            assert await campaign.watch()
            assert not await campaign.watch()
        (line,) = [one for one in lines if one["event"] == "guardrail_tripped"]
        assert (line["campaign"], line["log_level"]) == ("default", "warning")
        assert line["n_policy"] + line["n_holdback"] == 200
        (seen,) = world.watcher.trips
        assert seen.is_tripped
        assert "the baseline is shown: the policy brings 0.1" in seen.text
        tripped = view(campaign).tripped
        await campaign.durable.close()
        again = world.open()
        assert (view(again).state, view(again).tripped) == ("tripped", tripped)
        await again.rank(Query("ann", ARMS, "after", baseline=2))
        decided = (await again.history("after")).decided
        assert (decided.group, decided.arm, decided.probability) == ("guardrail", "milk", 1.0)
        await again.durable.close()
        journal = MemoryJournal(world.disk)
        assert verify(journal).problems == ()
        kinds = [type(event) for _, event in journal.read()]
        assert kinds.count(GuardrailTripped) == 1
        assert kinds[kinds.index(GuardrailTripped) + 1] is Administered
        (change,) = changes_in(journal)
        assert (change.what, change.by) == (GUARDRAIL, "guardrail")
        assert "over 200 events" in change.detail

    asyncio.run(main())


def test_an_operator_lets_the_policy_decide_again_and_is_on_record():
    async def main():
        world = World(**RULES)
        campaign = world.open()
        await lose(campaign)
        await campaign.watch()
        with capture_logs() as lines:
            await campaign.rearm_guardrail(by="ops")
        assert [(one["event"], one["by"]) for one in lines] == [("guardrail_rearmed", "ops")]
        assert [seen.is_tripped for seen in world.watcher.trips] == [True, False]
        now = view(campaign)
        assert (now.state, now.since, now.n_policy, now.n_holdback) == ("watching", None, 0, 0)
        await lose(campaign, start=200)
        assert await campaign.watch()  # as it loses again
        await campaign.durable.close()
        journal = MemoryJournal(world.disk)
        assert [one.by for one in changes_in(journal)] == ["guardrail", "ops", "guardrail"]
        rearmed = [event for _, event in journal.read() if isinstance(event, GuardrailRearmed)]
        assert [event.by for event in rearmed] == ["ops"]

    asyncio.run(main())


def test_settings_of_the_guardrail_are_changed_while_it_runs():
    async def main():
        campaign = World(**RULES).open()
        await lose(campaign)
        await campaign.configure({"guardrail": {"enabled": False}}, by="ops")
        assert not await campaign.watch()
        assert view(campaign).state == "off"
        settings = await campaign.configure({"guardrail": {"enabled": True, "alpha": 0.01}}, by="o")
        assert settings.guardrail == Guardrail(alpha=0.01, min_events=20)
        assert await campaign.watch()
        await campaign.durable.close()

    asyncio.run(main())


def test_a_change_over_http_says_only_what_changes():
    change = ConfigChange(guardrail=GuardrailChange(alpha=0.01))
    assert msgspec.to_builtins(change) == {"guardrail": {"alpha": 0.01}}


def test_rankers_follow_the_leader_and_do_not_re_arm_themselves(tmp_path):
    async def main():
        world = RankerWorld(tmp_path, **RULES)
        async with world.leading() as leader, world.ranking() as ranker:
            await lose(leader, 100)
            assert await leader.watch()
            await soon(lambda: ranker.model.tripped is not None)
            assert ranker.model.tripped == leader.model.tripped
            await ranker.rank(asked("here"))
            assert (await ranker.history("here")).decided.group == "guardrail"
            assert await world.same(ranker)
            with pytest.raises(ConflictError, match="cannot re-arm the guardrail"):
                await ranker.rearm_guardrail(by="ops")
            await leader.rearm_guardrail(by="ops")
            await soon(lambda: ranker.model.tripped is None)

    asyncio.run(main())
