"""Processes on secret shares over mutual TLS decide as one bandit would, whatever is killed."""

import asyncio
import re
import sqlite3
from dataclasses import replace

import httpx2
from live_world import LiveWorld, wait_until_connected
from ports import free_port
from shared_sessions import MODEL, SCALE, SharedSession, replay

from vfbandits.admin.preflight import preflight
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


def test_a_killed_helper_without_features_answers_again_where_it_was(tmp_path):
    terms = replace(TERMS, shares=replace(RULES, helper="notary"))
    world = LiveWorld(tmp_path, widths=WIDTHS, terms=terms, n_users=6)
    federation = world.federation(model=MODEL, windows=40)
    port = free_port()
    with federation.config("notary").open("a") as config:
        config.write(f'\n[status]\naddress = "127.0.0.1:{port}"\n')
    with federation:
        asyncio.run(help_and_kill(world, federation, f"http://127.0.0.1:{port}"))
        report = preflight(federation.config("notary"))
        said = {one.what: one.says for one in report.findings}
        assert "is locked by another process" in said["helper log"]
        assert report.problems == []
    n_shared, n_alone, n_rewards = replay(world, federation)
    assert n_shared >= 20
    assert n_alone >= 1
    with sqlite3.connect(federation.folder / "shop" / "state" / "shares.db") as db:
        assert db.execute("SELECT count(*) FROM learnt").fetchone()[0] == n_rewards


async def help_and_kill(world, federation, url):
    async with SharedSession(world, federation) as session, httpx2.AsyncClient() as http:
        await wait_until_connected(session)
        await session.wait_for("bank", "news")
        await session.play(8)
        assert set(session.contributors[-1]) == set(WIDTHS)  # it contributes no features
        assert (await http.get(f"{url}/readyz")).status_code == 200
        answered = await scraped(http, url, 'vfb_helper_messages_total{outcome="answered"}')
        assert answered > 8
        for _ in range(2):
            before = session.total
            playing = asyncio.create_task(session.play(12))
            async with asyncio.timeout(60):
                while session.total < before + 3:  # noqa: ASYNC110  (answers of a process)
                    await asyncio.sleep(0.001)
            federation.kill("notary")  # in the middle of decisions and rewards
            await playing
            await session.wait_for()  # on own features alone
            shares = (await session.status())["shares"]
            assert (shares["helper"], "helper" in shares["away"]) == ("notary", True)
            federation.start("notary")
            await session.wait_for("bank", "news")
            await session.play(5)
        await session.wait_until_learnt()
        facts = (await session.status())["participants"]["notary"]
        assert (facts["width"], facts["connected"], facts["circuit"]) == (0, True, "closed")
        assert "asks" not in facts or facts["asks"] == 0
        assert await scraped(http, url, "vfb_helper_window") >= 1
    async with SharedSession(world, federation, name="notary") as own:
        status = await own.status()
        assert "shares" not in status  # decisions are not shown to it
        assert status["participants"]["notary"]["connected"]


async def scraped(http, url, name):
    text = (await http.get(f"{url}/metrics")).text
    return float(re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)[1])
