"""Processes on secret shares change secrets and members under load and kills, and lose nothing."""

import asyncio
import random
import sqlite3
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
from live_world import LiveWorld, client_of, wait_until_connected
from shared_sessions import SharedSession

from vfbandits import Bandit, LinGreedy
from vfbandits.admin.federation_files import ROSTER, with_member, without_member
from vfbandits.campaign.events import Decided, MasksChanged, Rewarded
from vfbandits.core.move import Narrowing, Widening
from vfbandits.core.shares.slots import ALONE, event_of
from vfbandits.errors import VFBanditsError
from vfbandits.journal.open import open_journal
from vfbandits.protocol.application import ChangeRequest
from vfbandits.protocol.roster import SharesRules, Terms

WIDTHS = {"shop": 2, "bank": 3, "news": 2, "post": 1}
FIRST = {"shop": 2, "bank": 3, "news": 2}
RULES = SharesRules(helper="bank", max_arms=4, window=4, decisions=6, reads="means")
TERMS = Terms(bound=4.0, shares=RULES)
MODEL = 'policy = "lingreedy"\nseed = 7\n'
MOVES = {3: (Widening(1), (*FIRST, "post")), 4: (Narrowing(5, 7), ("shop", "bank", "post"))}


async def asked(federation, request):
    operator = client_of(federation, "operator")
    try:
        await operator.change(request, timeout_s=20.0)
    finally:
        await operator.close()


async def changed(federation, session, request, epoch, *, victim, rng):
    """Ask for a change, kill one of the processes meanwhile, and ask again until it is in force."""
    async with asyncio.timeout(120.0):
        asking = asyncio.create_task(asked(federation, request))
        await asyncio.sleep(rng.uniform(0.0, 0.15))  # where the change is by then does not matter
        federation.kill(victim)
        federation.start(victim)
        with_error = await asyncio.gather(asking, return_exceptions=True)
        assert all(error is None or isinstance(error, VFBanditsError) for error in with_error)
        await wait_until_connected(session)
        while (await session.status())["epoch"] < epoch:
            try:
                await asked(federation, request)
            except VFBanditsError:
                await asyncio.sleep(0.05)


async def load(session, stop):
    """Decisions, whose rewards come some decisions later."""
    waiting = []
    while not stop.is_set() or waiting:
        try:
            if not stop.is_set():
                await session.play(1, learn=False)
                waiting.append(session.replies[-1])
            if waiting and (len(waiting) > 4 or stop.is_set()):
                await session.reward(*waiting[0])
                waiting.pop(0)
        except VFBanditsError:  # shop is not there; what was not acknowledged is sent again
            await asyncio.sleep(0.05)


async def some_more(session, *names):
    """Wait until a dozen more decisions were made, the last one with exactly these members."""
    wanted = session.total + 12
    async with asyncio.timeout(60.0):
        while session.total < wanted or {*session.contributors[-1]} != {*names}:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def replay(world, federation, moves=MOVES):
    """Each decision of both servers is that of a plain bandit, in the journal's order."""
    twin, names = Bandit(LinGreedy(), dim=sum(FIRST.values())), tuple(FIRST)
    decisions, n_rewards, epochs = {}, 0, []
    journal = open_journal(federation.folder / "shop" / "state" / "journal.db")
    for _, event in journal.read(after=0):
        if isinstance(event, MasksChanged):
            epochs.append(event.epoch)
            if event.epoch in moves:
                move, names = moves[event.epoch]
                twin.move(move)
        elif isinstance(event, Decided) and event_of(event.x) != ALONE:
            contexts = world.context(event.user, event.contributors, names)
            decision = twin.decide(contexts, arms=world.arms)
            assert (decision.arm, len(decisions)) == (event.arm, len(decisions))
            decisions[event.event_id] = decision
        elif isinstance(event, Rewarded) and event.event_id in decisions:
            twin.reward(decisions[event.event_id], event.value)
            n_rewards += 1
    journal.close()
    return len(decisions), n_rewards, epochs


@asynccontextmanager
async def under_load(world, federation):
    """A session that decides and learns meanwhile, and one to watch; at the end all is learnt."""
    async with (
        SharedSession(world, federation) as session,
        SharedSession(world, federation) as watcher,
    ):
        await wait_until_connected(watcher)
        stop = asyncio.Event()
        loading = asyncio.create_task(load(session, stop))
        await some_more(session, *FIRST)
        yield session, watcher
        stop.set()
        await loading
        await watcher.wait_until_learnt()
        assert (await watcher.status())["shares"]["away"] == ""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [1, 2])
def test_changes_under_load_and_kills_lose_nothing(tmp_path, seed):
    world = LiveWorld(tmp_path, widths=WIDTHS, terms=TERMS, n_users=6)
    rng = random.Random(seed)  # noqa: S311

    async def whole(federation):
        async with under_load(world, federation) as (session, watcher):
            victims = ["shop", "bank", "news"]
            envelopes = await asyncio.to_thread(federation.deal_shares, 25, epoch=2)
            request = ChangeRequest(b"", envelopes)
            await changed(federation, watcher, request, 2, victim=victims[seed % 3], rng=rng)
            await some_more(session, *FIRST)

            before = federation.roster
            approved = federation.admit_passive("post", 1, world.features("post"))
            federation.roster = with_member(before, approved.member)
            signed = federation.sign(federation.roster)
            (federation.folder / "post" / ROSTER).write_bytes(signed)
            envelopes = await asyncio.to_thread(federation.deal_shares, 25, epoch=3, before=before)
            federation.start("post")
            request = ChangeRequest(signed, envelopes)
            await changed(federation, watcher, request, 3, victim=victims[(seed + 1) % 3], rng=rng)
            await some_more(session, *WIDTHS)

            before = federation.roster
            federation.roster = without_member(before, "news")
            envelopes = await asyncio.to_thread(federation.deal_shares, 25, epoch=4, before=before)
            request = ChangeRequest(federation.sign(federation.roster), envelopes)
            await changed(federation, watcher, request, 4, victim="shop", rng=rng)
            await some_more(session, "shop", "bank", "post")

    options = {"widths": FIRST, "model": MODEL, "windows": 40, "patience": "deadline_s = 5.0\n"}
    with world.federation(**options) as federation:
        asyncio.run(whole(federation))
    n_shared, n_rewards, epochs = replay(world, federation)
    assert epochs == [2, 3, 4]
    assert n_shared >= 40
    with sqlite3.connect(federation.folder / "shop" / "state" / "shares.db") as db:
        assert db.execute("SELECT count(*) FROM learnt").fetchone()[0] == n_rewards
        assert db.execute("SELECT epoch FROM about").fetchone()[0] == 4


MOMENTS = ("mask_change_started", "mask_change_completed")


async def killed_at_each_moment(federation, session, request, epoch, *, victim):
    """Ask for a change again and again; kill a process when it starts, and when it is in force."""

    def count(event):
        return sum(line["event"] == event for line in federation.events("shop"))

    async with asyncio.timeout(120.0):
        for moment in MOMENTS:
            before = count(moment)
            asking = asyncio.create_task(asked(federation, request))
            while count(moment) == before and not asking.done():  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            federation.kill(victim)
            federation.start(victim)
            await asyncio.gather(asking, return_exceptions=True)
            await wait_until_connected(session)
        while (await session.status())["epoch"] < epoch:
            with suppress(VFBanditsError):
                await asked(federation, request)


@pytest.mark.parametrize("victim", ["shop", "judge"])
def test_a_join_and_a_leave_are_done_or_repeated_after_a_kill_of_either_server(tmp_path, victim):
    terms = replace(TERMS, shares=replace(RULES, helper="judge"))
    world = LiveWorld(tmp_path, widths=WIDTHS, terms=terms, n_users=6)

    async def whole(federation):
        async with under_load(world, federation) as (session, watcher):
            for epoch, prepare in ((2, joined), (3, left)):
                before = federation.roster
                federation.roster = prepare(world, federation)
                envelopes = await asyncio.to_thread(
                    federation.deal_shares, 25, epoch=epoch, before=before
                )
                request = ChangeRequest(federation.sign(federation.roster), envelopes)
                if epoch == 2:
                    federation.start("post")  # it is let in when the roster is in force
                await killed_at_each_moment(federation, watcher, request, epoch, victim=victim)
                await some_more(session, *federation.roster.split.names)
            assert (await watcher.status())["shares"]["helper"] == "judge"

    options = {"widths": FIRST, "model": MODEL, "windows": 40, "patience": "deadline_s = 5.0\n"}
    with world.federation(**options) as federation:
        asyncio.run(whole(federation))
    moves = {epoch - 1: move for epoch, move in MOVES.items()}
    n_shared, n_rewards, epochs = replay(world, federation, moves)
    assert epochs == [2, 3]
    assert n_shared >= 24
    with sqlite3.connect(federation.folder / "shop" / "state" / "shares.db") as db:
        assert db.execute("SELECT count(*) FROM learnt").fetchone()[0] == n_rewards
    # Nothing came a second time in another spelling.
    assert "help_refused" not in [line["event"] for line in federation.events("judge")]


def joined(world, federation):
    """The next roster, with a newcomer."""
    approved = federation.admit_passive("post", 1, world.features("post"))
    roster = with_member(federation.roster, approved.member)
    (federation.folder / "post" / ROSTER).write_bytes(federation.sign(roster))
    return roster


def left(_, federation):
    return without_member(federation.roster, "news")
