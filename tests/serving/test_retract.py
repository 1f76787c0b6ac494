"""A learnt reward is taken back: exactly, once, on record, and wherever the journal is read."""

import asyncio
import json

import numpy as np
import polars as pl
import pytest
from campaign_world import ARMS, World
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from journals import PLACES, OnSqlite, make_place
from logged_runs import LAYOUTS, maker, rotation
from ranker_world import RankerWorld, asked, soon
from typer.testing import CliRunner

import vfbandits as vfb
from vfbandits.campaign.events import ArmsDropped, Retracted, Rewarded
from vfbandits.campaign.model import Model
from vfbandits.cli.main import app
from vfbandits.errors import ConflictError, SettingError, UnknownEventError
from vfbandits.evaluate.export import export_log
from vfbandits.journal.compact import compact
from vfbandits.journal.memory import MemoryDisk, MemoryJournal
from vfbandits.journal.verify import verify
from vfbandits.serving.durable import DurableBandit


@pytest.fixture(params=PLACES)
def place(request, tmp_path):
    return make_place(request.param, tmp_path)


async def play(bandit, layout, rng, names, *, moves=()):
    """Decisions with rewards; before those in ``moves`` the masks change."""
    for name in names:
        if name in moves:
            await bandit.change_masks(rotation(rng), epoch=bandit.epoch + 1)
        shape = (3, 3) if layout == "per_arm" else 3
        features = np.eye(3)[:, :2] if layout == "outer" else None
        decision = await bandit.decide(
            rng.standard_normal(shape),
            arms=["tea", "milk", "beer"],
            arm_features=features,
            event_id=name,
        )
        await bandit.reward(decision, float(rng.standard_normal()))


def numbers(bandit):
    """All that was learnt, by arm."""
    return {
        arm: np.concatenate([state.Lambda.ravel(), state.b, state.theta])
        for arm, state in bandit.states.items()
    }


def never_learnt(disk, name, layout):
    """The model of a journal in which the reward of ``name`` never came."""
    journal, model = MemoryJournal(disk), Model(maker(layout)(), epoch=0)
    for position, event in journal.read():
        is_its = getattr(event, "event_id", None) == name
        if not (is_its and isinstance(event, Rewarded | Retracted)):
            model.apply(position, event)
    journal.close()
    return model.bandit


@given(
    layout=st.sampled_from(sorted(LAYOUTS)),
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 12),
    which=st.integers(0, 11),
    moves=st.sets(st.integers(0, 11), max_size=3),
)
@hypothesis_settings(deadline=None, max_examples=40)
def test_the_model_is_the_one_that_never_learnt_it_and_the_replay_is_the_same_bit_for_bit(
    layout, seed, count, which, moves
):
    """Up to rounding for the first, exact for the second."""
    names = [f"e{number}" for number in range(count)]
    name, disk, rng = names[which % count], MemoryDisk(), np.random.default_rng(seed)

    async def main():
        bandit = DurableBandit.open(MemoryJournal(disk), maker(layout))
        await play(bandit, layout, rng, names, moves={f"e{number}" for number in moves})
        taken = (await bandit.retract(name, by="ops")).value
        live, learnt = bandit.bandit.snapshot(), numbers(bandit.bandit)
        await bandit.close()
        again = DurableBandit.open(MemoryJournal(disk), maker(layout))
        replayed = again.bandit.snapshot()
        (rewarded,) = [e for e in await again.find(name) if isinstance(e, Rewarded)]
        await again.close()
        return taken, live, replayed, learnt, rewarded

    taken, live, replayed, learnt, rewarded = asyncio.run(main())
    assert taken == rewarded.value
    assert {n: a.tobytes() for n, a in live.arrays.items()} == {
        n: a.tobytes() for n, a in replayed.arrays.items()
    }
    wanted = numbers(never_learnt(disk, name, layout))
    assert learnt.keys() == wanted.keys()
    for arm, values in wanted.items():
        np.testing.assert_allclose(learnt[arm], values, atol=1e-9)


def test_it_is_on_record_verifies_and_is_refused_a_second_time(place):
    async def main():
        bandit = DurableBandit.open(place.open(), maker())
        await play(bandit, "disjoint", np.random.default_rng(0), ["a", "b", "c"])
        value = (await bandit.retract("b", by="ops@shop")).value
        with pytest.raises(ConflictError, match=r"'b' needs a reward .* event that is retracted"):
            await bandit.retract("b", by="ops@shop")
        with pytest.raises(UnknownEventError, match="'never'"):
            await bandit.retract("never", by="ops@shop")
        with pytest.raises(ConflictError):
            await asyncio.gather(*(bandit.retract("c", by="ops") for _ in range(2)))
        await bandit.snapshot()
        found = [e for e in await bandit.find("b") if isinstance(e, Retracted)]
        n_learnt = bandit.model.n_learnt
        await bandit.close()
        return value, found, n_learnt

    value, (record,), n_learnt = asyncio.run(main())
    assert (record.value, record.by, record.epoch) == (value, "ops@shop", 0)
    assert n_learnt == 5  # a version for each change of the model
    journal = place.open()
    found = verify(journal)
    journal.close()
    assert found.problems == ()
    assert found.counts["Retracted"] == 2


def test_an_event_that_waits_has_nothing_to_take_back():
    async def main():
        campaign = World().open()
        await campaign.rank(asked("a"))
        with pytest.raises(ConflictError, match="event that is waiting"):
            await campaign.retract("a", by="ops")
        assert campaign.model.position == 1
        await campaign.durable.close()

    asyncio.run(main())


def test_the_event_stays_closed_and_its_history_says_so_also_after_a_restart():
    async def main():
        world = World()
        campaign = world.open()
        await campaign.rank(asked("a"))
        await campaign.reward("a", 1e5, reward_id="order")
        assert campaign.model.bandit.estimate_norm() > 0.0
        assert await campaign.retract("a", by="ops") == 1e5
        assert campaign.model.bandit.estimate_norm() == 0.0
        for _ in range(2):
            past = await campaign.history("a")
            assert (past.status, past.learnt) == ("retracted", None)
            assert past.came["order"].value == 1e5
            assert await campaign.reward("a", 1e5, reward_id="order") == "repeated"
            assert await campaign.reward("a", 1.0, reward_id="better") in ("ignored", "repeated")
            with pytest.raises(ConflictError):
                await campaign.retract("a", by="ops")
            assert campaign.model.bandit.estimate_norm() == 0.0
            await campaign.durable.close()
            campaign = world.open()
        await campaign.durable.close()

    asyncio.run(main())


def test_under_forgetting_it_is_refused_with_the_reason():
    async def main():
        make = maker(discount=0.99)
        bandit = DurableBandit.open(MemoryJournal(), make)
        await play(bandit, "disjoint", np.random.default_rng(0), ["a"])
        with pytest.raises(SettingError, match=r"only without forgetting, got discount 0\.99"):
            await bandit.retract("a", by="ops")
        assert bandit.position == 2
        await bandit.close()

    asyncio.run(main())


def test_after_a_compaction_it_works_for_what_is_kept_and_says_what_is_not(place):
    async def main(names, *deeds):
        bandit = DurableBandit.open(place.open(), maker())
        await play(bandit, "disjoint", np.random.default_rng(1), names, moves=names[:1])
        await bandit.snapshot()
        for deed in deeds:
            await deed(bandit)
        await bandit.close()

    asyncio.run(main(["a", "b"]))
    asyncio.run(main(["c", "d"]))
    asyncio.run(main(["e", "f"]))
    journal = place.open()
    assert compact(journal) is not None
    journal.close()

    async def retract(bandit):
        with pytest.raises(UnknownEventError):
            await bandit.retract("a", by="ops")
        await bandit.retract("e", by="ops")

    asyncio.run(main(["g"], retract))


def test_rankers_follow_bit_for_bit_and_do_not_take_back_themselves(tmp_path):
    async def main():
        world = RankerWorld(tmp_path)
        async with world.leading() as leader, world.ranking() as ranker:
            for number in range(6):
                await ranker.rank(asked(f"e{number}"))
                await ranker.reward(f"e{number}", float(number))
            await soon(lambda: leader.model.n_learnt == 6)
            with pytest.raises(ConflictError, match="a ranker does not learn"):
                await ranker.retract("e3", by="ops")
            n_rewards = leader.durable.n_rewards
            assert await leader.retract("e3", by="ops") == 3.0
            told = world.watcher.rewards[-1]
            assert (told.event_id, told.status, told.value) == ("e3", "retracted", 3.0)
            assert (told.group, told.arm in ARMS) == ("policy", True)
            assert leader.durable.n_rewards == n_rewards  # it is no reward
            assert await world.same(ranker)
            assert (await ranker.history("e3")).status == "retracted"

    asyncio.run(main())


def test_an_export_leaves_it_out_even_where_others_are_filled(tmp_path):
    place = OnSqlite(tmp_path)

    async def main():
        bandit = DurableBandit.open(place.open(), maker())
        await play(bandit, "disjoint", np.random.default_rng(0), ["a", "b", "c"])
        await bandit.retract("b", by="ops")
        await bandit.decide(np.ones(3), arms=["tea"], event_id="open")
        await bandit.close()

    asyncio.run(main())
    for unrewarded, wanted in ((None, ["a", "c"]), (0.0, ["a", "c", "open"])):
        reader = place.reader()
        made = export_log(reader, tmp_path / "log.parquet", unrewarded=unrewarded)
        reader.close()
        assert (made.rows, made.retracted, made.without_reward) == (len(wanted), 1, 1)
        assert pl.read_parquet(tmp_path / "log.parquet")["event_id"].to_list() == wanted


@pytest.mark.parametrize("kind", ["OnSqlite", "OnPostgres"])
def test_the_command_takes_back_in_a_journal_that_no_server_has_open(kind, tmp_path):
    place = make_place(kind, tmp_path)

    async def main():
        bandit = DurableBandit.open(place.open(), maker(policy=vfb.LinTS(posterior_scale=0.1)))
        await play(bandit, "disjoint", np.random.default_rng(0), ["a", "b", "c"], moves={"c"})
        await bandit.close()

    asyncio.run(main())
    target = place.target if kind == "OnSqlite" else place.url
    flags = ["--journal", target, *(["--name", place.name] if kind == "OnPostgres" else [])]

    def vfb_log(*words):
        return CliRunner().invoke(app, ["journal", *words])

    done = vfb_log("retract", "b", *flags, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["event_id"] == "b"
    done = vfb_log("retract", "b", *flags)
    assert done.exit_code == 2
    assert "event that is retracted" in done.stderr
    done = vfb_log("retract", "b")
    assert done.exit_code == 2
    assert "--url or --journal" in done.stderr
    journal = place.open()
    assert verify(journal).problems == ()
    (record,) = [e for _, e in journal.read() if isinstance(e, Retracted)]
    journal.close()
    assert record.epoch == 1
    assert "@" in record.by


def test_the_command_makes_no_journal_and_is_refused_while_one_is_open(tmp_path):
    missing = tmp_path / "none.db"
    done = CliRunner().invoke(app, ["journal", "retract", "b", "--journal", str(missing)])
    assert done.exit_code == 2
    assert not missing.exists()
    place = OnSqlite(tmp_path)
    journal = place.open()
    done = CliRunner().invoke(app, ["journal", "retract", "b", "--journal", place.target])
    journal.close()
    assert done.exit_code == 2
    assert "one writer" in done.stderr


def test_a_reward_that_went_with_its_arms_model_cannot_be_taken_back():
    async def main():
        bandit = DurableBandit.open(MemoryJournal(), maker(floor=0.0))
        for name in ("a", "b"):  # the same arm, the same context: a downdate would go through
            decision = await bandit.decide(np.ones(3), arms=["tea"], event_id=name)
            await bandit.reward(decision, 1.0)
            if name == "a":
                await bandit.log(ArmsDropped(("tea",), 1.0))
        with pytest.raises(ConflictError, match="'tea' that was dropped since"):
            await bandit.retract("a", by="ops")
        assert (await bandit.retract("b", by="ops")).value == 1.0
        await bandit.close()

    asyncio.run(main())
