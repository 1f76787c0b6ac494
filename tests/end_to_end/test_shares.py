"""Processes on secret shares over mutual TLS decide as one bandit would, whatever is killed."""

import asyncio
import sqlite3

from live_world import LiveWorld, wait_until_connected
from shared_sessions import MODEL, SCALE, SharedSession, replay

from vfbandits.protocol.roster import PSEUDONYMS, SharesRules, Terms

WIDTHS = {"shop": 2, "bank": 3, "news": 2}
RULES = SharesRules(helper="bank", max_arms=4, window=4, decisions=6, posterior_scale=SCALE)
TERMS = Terms(bound=4.0, users=PSEUDONYMS, shares=RULES)


def test_killed_servers_and_a_lost_participant_leave_one_model_that_learnt_each_reward_once(
    tmp_path,
):
    world = LiveWorld(tmp_path, widths=WIDTHS, terms=TERMS, n_users=6)
    with world.federation(model=MODEL, windows=40) as federation:
        asyncio.run(play(world, federation))
        events = [line["event"] for line in federation.events("shop")]
    assert "shares_away" in events
    n_shared, n_alone, n_rewards = replay(world, federation)
    assert n_shared >= 30
    assert n_alone >= 1
    with sqlite3.connect(federation.folder / "shop" / "state" / "shares.db") as db:
        assert db.execute("SELECT count(*) FROM learnt").fetchone()[0] == n_rewards


async def play(world, federation):
    async with SharedSession(world, federation) as session:
        await wait_until_connected(session)
        await session.wait_for("bank", "news")
        await session.play(10)
        assert set(session.contributors[-1]) == set(WIDTHS)

        federation.kill("bank")
        await session.wait_for()  # on own features alone
        assert session.contributors[-1] == ("shop",)
        assert "helper" in (await session.status())["shares"]["away"]
        federation.start("bank")
        await session.wait_for("bank", "news")
        await session.play(5)

        federation.kill("news")
        await session.wait_for("bank")
        federation.start("news")
        await session.wait_for("bank", "news")

        await session.play(3, learn=False)
        for user, reply in session.replies[-3:]:
            await session.reward(user, reply)
        federation.kill("shop")
        federation.start("shop")
        await wait_until_connected(session)
        await session.wait_for("bank", "news")
        await session.play(8)
        await session.wait_until_learnt()
        shares = (await session.status())["shares"]
        assert (shares["helper"], shares["away"]) == ("bank", "")
        assert shares["learns"] == "the arm of a decision"
        assert 0 < shares["windows"] < 40
