"""Masks and members of a live federation change, and nothing that was learnt is lost."""

import asyncio
import signal
from contextlib import closing

import pytest
from live_world import LiveWorld, Session, client_of, wait_until_connected

from vfbandits import LinUCB
from vfbandits.admin.federation_files import ROSTER, with_member, without_member
from vfbandits.core.move import Narrowing, Widening
from vfbandits.errors import VFBanditsError
from vfbandits.journal.audit import changes_in
from vfbandits.journal.sqlite.reader import SqliteReader
from vfbandits.protocol.application import ChangeRequest
from vfbandits.protocol.roster import Terms

WIDTHS = {"shop": 4, "bank": 3, "news": 5, "post": 2}
FIRST = {"shop": 4, "bank": 3, "news": 5}


def request_for(federation, epoch, roster=None):
    after = roster or federation.roster
    envelopes = federation.deal(after, epoch) if after.terms.mask == "dense" else {}
    return ChangeRequest(federation.sign(roster) if roster else b"", envelopes)


async def change(federation, request):
    operator = client_of(federation, "operator")
    try:
        return await operator.change(request, timeout_s=20.0)
    finally:
        await operator.close()


@pytest.mark.parametrize(
    ("mask", "aggregation", "layout"),
    [
        ("blockwise", "plain", "per_arm"),
        pytest.param("dense", "plain", "disjoint", marks=pytest.mark.long),
        ("dense", "secure", "outer"),
    ],
)
def test_rotate_add_and_remove_decide_as_the_central_twin(tmp_path, mask, aggregation, layout):
    terms = Terms(mask, aggregation, layout, arm_dim=2 if layout == "outer" else 0)
    world = LiveWorld(tmp_path, widths=WIDTHS, terms=terms)
    federation = world.federation(widths=FIRST)
    central = world.central(LinUCB(beta=0.5), dim=sum(FIRST.values()))

    async def whole():
        async with Session(world, federation, central) as session:
            session.names = list(FIRST)
            await wait_until_connected(session)
            await session.play(15)

            reply = await change(federation, request_for(federation, 2))
            assert reply.epoch == 2
            await session.play(10)

            approved = federation.admit_passive("post", 2, world.features("post"))
            federation.roster = with_member(federation.roster, approved.member)
            signed = federation.sign(federation.roster)
            (federation.folder / "post" / ROSTER).write_bytes(signed)
            federation.start("post")  # refused until it is in the roster, and keeps dialling
            await change(federation, request_for(federation, 3, federation.roster))
            central.move(Widening(2))
            session.names = [*FIRST, "post"]
            await session.wait_for("bank", "news", "post", timeout_s=30.0)
            await session.play(15)

            federation.roster = without_member(federation.roster, "bank")
            await change(federation, request_for(federation, 4, federation.roster))
            central.move(Narrowing(4, 7))
            session.names = ["shop", "news", "post"]
            await session.play(15)
            assert session.contributors[-1] == ("shop", "news", "post")

            # A restart comes back to the same epoch, roster and model.
            federation.kill("shop")
            federation.kill("news")
            federation.start("shop", "news")
            await wait_until_connected(session)
            await session.play(10)
            assert (await session.status())["epoch"] == 4
            return session

    with federation:
        session = asyncio.run(whole())
    assert session.is_lossless, (session.equal, session.total, session.largest_difference)
    # Who changed what is on record.
    with closing(SqliteReader(federation.folder / "shop" / "state" / "journal.db")) as reader:
        found = [(change.by, change.what, change.detail) for change in changes_in(reader)]
    assert found == [
        ("operator", "masks", "mask epoch 2, roster 1"),
        ("operator", "members", "mask epoch 3, roster 2"),
        ("operator", "members", "mask epoch 4, roster 3"),
    ]


def test_a_change_needs_everybody_and_otherwise_nothing_changes(tmp_path):
    world = LiveWorld(tmp_path, widths=FIRST)
    with world.federation(patience="change_s = 1.0\n") as federation:

        async def whole():
            async with Session(world, federation, world.central(LinUCB(beta=0.5))) as session:
                await wait_until_connected(session)
                await session.play(10)
                federation.signal("news", signal.SIGSTOP)
                with pytest.raises(VFBanditsError, match="news"):
                    await change(federation, request_for(federation, 2))
                federation.signal("news", signal.SIGCONT)
                await session.wait_for("bank", "news", timeout_s=30.0)
                await session.play(10)
                assert (await session.status())["epoch"] == 1
                await change(federation, request_for(federation, 2))
                await session.play(10)
                return session

        session = asyncio.run(whole())
    assert session.is_lossless


def test_a_change_is_finished_even_if_the_operator_hangs_up(tmp_path):
    world = LiveWorld(tmp_path, widths=FIRST)
    with world.federation() as federation:

        async def whole():
            async with Session(world, federation, world.central(LinUCB(beta=0.5))) as session:
                await wait_until_connected(session)
                await session.play(10)
                federation.signal("news", signal.SIGSTOP)
                operator = client_of(federation, "operator")
                with pytest.raises(VFBanditsError):
                    await operator.change(request_for(federation, 2), timeout_s=0.5)
                await operator.close()
                federation.signal("news", signal.SIGCONT)
                async with asyncio.timeout(20.0):
                    while (await session.status())["epoch"] < 2:  # noqa: ASYNC110  (it is far away)
                        await asyncio.sleep(0.02)
                await session.play(10)
                return session

        session = asyncio.run(whole())
    assert session.is_lossless
    assert session.contributors[-1] == ("shop", "bank", "news")


def test_decisions_go_on_while_the_masks_change(tmp_path):
    world = LiveWorld(tmp_path, widths=FIRST)
    with world.federation() as federation:

        async def whole():
            async with Session(world, federation, world.central(LinUCB(beta=0.5))) as session:
                await wait_until_connected(session)
                playing = asyncio.ensure_future(session.play(150))
                for epoch in (2, 3, 4, 5):
                    await asyncio.sleep(0.05)
                    await change(federation, request_for(federation, epoch))
                await playing
                return session

        session = asyncio.run(whole())
    assert session.is_lossless
    assert {reply.epoch for reply in session.replies} >= {1, 5}
