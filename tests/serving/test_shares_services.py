"""Services on secret shares decide and learn as a plain bandit would."""

import asyncio
import contextlib
import shutil
import sqlite3
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy.linalg import block_diag
from shared_federation import (
    PASSIVE,
    RULES,
    SCALE,
    TERMS,
    WIDTHS,
    SharedFederation,
    connected,
    run,
    until,
)
from shares_world import GivenDraws
from structlog.testing import capture_logs

from vfbandits import LinGreedy, LinTS, LinUCB
from vfbandits.core.pads import Stamp
from vfbandits.core.ring import add, decode
from vfbandits.core.shares.messages import Absent, Place
from vfbandits.core.shares.slots import event_of
from vfbandits.errors import SharesError
from vfbandits.journal.mask_shares import ShareFiles
from vfbandits.protocol.application import RewardRequest
from vfbandits.protocol.messages import Answer, Declined, Help
from vfbandits.transport.rpc.codec import decode_to_active


@pytest.fixture
def federation(tmp_path, monkeypatch):
    return SharedFederation(tmp_path)


def twin_of(federation):
    """A central bandit whose normals are set before each decision."""
    twin = federation.world.central(LinTS(SCALE, space="parameter"))
    twin.draw_from(GivenDraws())
    return twin


def decide_as(federation, twin, user, reply):
    """What the twin decides with the noise that both servers drew."""
    pending = federation.active.leaders["default"].model.pending[reply.event_id]
    event = event_of(pending.observation.x)
    helper, _ = federation.passive["bank"]
    servers = (federation.active.shared._server._server, helper._helper._helper)  # noqa: SLF001
    halves = [server.half_noise(event) for server in servers]
    shares = [federation.active.role.share]
    shares += [ShareFiles(federation.state(name) / "shares").load()[1].share for name in PASSIVE]
    rotation = block_diag(*[share.columns for share in shares])
    twin.draws.normals = decode(add(*halves)) / SCALE @ rotation
    world = federation.world
    return twin.decide(world.context(user, reply.contributors), arms=world.arms)


async def play(federation, twin, n, *, start=0):
    world = federation.world
    for place in range(start, start + n):
        user = world.users[place % len(world.users)]
        reply = await federation.active.choose(world.request(user))
        decision = decide_as(federation, twin, user, reply)
        assert (reply.arm, place) == (decision.arm, place)
        value = world.reward(user, reply.index)
        await federation.active.learn(RewardRequest(reply.event_id, value))
        twin.reward(decision, value)


def n_learnt(federation):
    """How many rewards the two servers have learnt."""
    with sqlite3.connect(federation.state("shop") / "shares.db") as db:
        return db.execute("SELECT count(*) FROM learnt").fetchone()[0]


def test_decisions_and_rewards_equal_those_of_a_plain_bandit(federation):
    async def scenario():
        await federation.start_active()
        await federation.start("bank", "news")
        await connected(federation, "bank", "news")
        twin = twin_of(federation)
        await play(federation, twin, 20)
        return federation.active.shared

    shared = run(federation, scenario)
    assert (shared.n_released, shared.n_alone) == (20, 0)


def test_noise_is_exchanged_while_participants_are_asked(federation, monkeypatch):
    async def scenario():
        await federation.start_active()
        await federation.start("bank", "news")
        await connected(federation, "bank", "news")
        shared = federation.active.shared
        helper, _ = federation.passive["bank"]
        ask = shared._ask  # noqa: SLF001

        async def ask_later(*args):
            await until(lambda: helper._helper._helper.next_slot == 1)  # noqa: SLF001
            return await ask(*args)

        monkeypatch.setattr(shared, "_ask", ask_later)
        await play(federation, twin_of(federation), 1)
        return shared

    assert run(federation, scenario).n_released == 1


def test_over_grpc_and_tls_with_http_journal_and_restart_each_reward_is_learnt_once(
    tmp_path, monkeypatch
):
    federation = SharedFederation(tmp_path, kind="grpc")

    async def scenario():
        twin = twin_of(federation)
        await federation.start_active()
        await federation.start("bank", "news")
        for start in (0, 9):
            await connected(federation, "bank", "news")
            await play(federation, twin, 9, start=start)
            await federation.stop_active()
            await federation.start_active()
        await until(lambda: not federation.active.shared.learning.slots.queue)
        assert n_learnt(federation) == 18

    run(federation, scenario)


def test_after_a_restart_participants_are_let_in_however_many_slots_were_used(
    federation, monkeypatch
):
    monkeypatch.setattr("vfbandits.protocol.active.MAX_SLOT_STEP", 0)

    async def scenario():
        twin = twin_of(federation)
        await federation.start_active()
        await federation.start(*PASSIVE)
        await connected(federation, *PASSIVE)
        await play(federation, twin, 9)
        used = federation.active.role.next_round
        await federation.stop_active()
        await federation.start_active()
        assert federation.active.role.next_round >= used
        await connected(federation, *PASSIVE)
        await play(federation, twin, 3, start=9)

    run(federation, scenario)


def test_an_older_copy_of_the_active_participant_decides_alone_though_it_missed_no_reward(
    federation, tmp_path
):
    state, backup = federation.state("shop"), tmp_path / "backup"

    async def decided():
        reply = await federation.active.choose(federation.world.request(federation.world.users[0]))
        return reply.contributors

    async def restarted():
        await federation.start_active()
        await connected(federation, *PASSIVE)

    async def scenario():
        await federation.start(*PASSIVE)
        await restarted()
        assert await decided() == tuple(WIDTHS)
        await federation.stop_active()
        shutil.copytree(state, backup)
        await restarted()
        assert await decided() == tuple(WIDTHS)
        await federation.stop_active()
        shutil.rmtree(state)
        shutil.copytree(backup, state)
        await restarted()
        assert await decided() == ("shop",)
        assert "server A runs on an older copy of its disk" in federation.active.shared.away

    run(federation, scenario)


def test_an_older_copy_of_the_helper_gets_no_message_of_a_slot(federation, tmp_path):
    state, backup = federation.state("bank"), tmp_path / "backup"

    async def decided():
        user = federation.world.users[0]
        return (await federation.active.choose(federation.world.request(user))).contributors

    async def gone():
        await federation.stop("bank")
        await until(lambda: "bank" not in federation.active.role.askable())

    async def scenario():
        await federation.start_active()
        await federation.start(*PASSIVE)
        await connected(federation, *PASSIVE)
        assert await decided() == tuple(WIDTHS)
        await gone()
        shutil.copytree(state, backup)
        await federation.start("bank")
        await connected(federation, *PASSIVE)
        assert await decided() == tuple(WIDTHS)
        await gone()
        shutil.rmtree(state)
        shutil.copytree(backup, state)
        await federation.start("bank")
        await connected(federation, *PASSIVE)
        helper, _ = federation.passive["bank"]
        log = helper._helper._log  # noqa: SLF001
        answered = log.last_position
        assert await decided() == ("shop",)
        assert "the helper runs on an older copy of its disk" in federation.active.shared.away
        assert log.last_position == answered

    run(federation, scenario)


def test_rewards_that_come_while_the_helper_is_away_are_learnt_when_it_is_back(federation):
    async def scenario():
        world, twin = federation.world, twin_of(federation)
        await federation.start_active()
        await federation.start("bank", "news")
        await connected(federation, "bank", "news")
        await play(federation, twin, 3)
        replies, decisions = [], []
        for user in world.users[:2]:
            replies.append(await federation.active.choose(world.request(user)))
            decisions.append(decide_as(federation, twin, user, replies[-1]))
        await federation.stop("bank")
        await until(lambda: "bank" not in federation.active.role.askable())
        lone = await federation.active.choose(world.request(world.users[3]))
        assert lone.contributors == ("shop",)
        for reply, decision in zip(replies, decisions, strict=True):
            await federation.active.learn(RewardRequest(reply.event_id, 0.5))
            twin.reward(decision, 0.5)
        await federation.active.learn(RewardRequest(lone.event_id, 1.0))
        shared = federation.active.shared
        assert "helper" in shared.away
        assert len(shared.learning.slots.queue) == 2
        await federation.start("bank")
        await connected(federation, "bank", "news")
        await play(federation, twin, 9, start=5)
        assert shared.away == ""
        assert shared.n_alone == 1

    run(federation, scenario)


def test_a_late_participant_is_absent_from_a_fresh_slot_and_refuses_it_for_ever(
    tmp_path, monkeypatch
):
    federation = SharedFederation(tmp_path)
    served = federation.files.config("shop")
    text = served.read_text().replace("deadline_s = 5.0", "deadline_s = 0.4")
    served.write_text(text)

    async def scenario():
        world, twin = federation.world, twin_of(federation)
        await federation.start_active()
        await federation.start("bank", "news")
        await connected(federation, "bank", "news")
        await play(federation, twin, 2)
        service, _ = federation.passive["news"]
        held, fetch = asyncio.Event(), service._fetch  # noqa: SLF001
        asks = []

        async def slow(ask):
            asks.append(ask)
            if len(asks) == 1:
                await held.wait()
            return await fetch(ask)

        monkeypatch.setattr(service, "_fetch", slow)
        user = world.users[4]
        reply = await federation.active.choose(world.request(user))
        assert reply.contributors == ("shop", "bank")
        decision = decide_as(federation, twin, user, reply)
        assert decision.arm == reply.arm
        await federation.active.learn(RewardRequest(reply.event_id, 0.25))
        twin.reward(decision, 0.25)
        held.set()
        await connected(federation, "bank", "news")
        # Its late answer is of a slot whose masks stay closed; of the next one it sends nothing.
        late, opened = asks[0].place, asks[0].round + 1
        outbox = service._outbox  # noqa: SLF001
        await until(lambda: outbox.find(Stamp(1, opened)) is not None)
        kept = decode_to_active(outbox.find(Stamp(1, opened)).message)
        assert isinstance(kept, Declined)
        assert kept.code == "absent"
        again = asks[0]._replace(
            round=opened, place=Place(1, late.window, late.attempt, late.slot + 1)
        )
        (resend,) = service._role.hear(again)  # noqa: SLF001
        assert isinstance(service._again(resend), Declined)  # noqa: SLF001
        await play(federation, twin, 6, start=3)

    run(federation, scenario)


def test_a_helper_may_be_absent_and_keeps_masks_of_rows_that_it_has_sent_closed(
    tmp_path, monkeypatch
):
    federation = SharedFederation(tmp_path)

    async def scenario():
        await federation.start_active()
        await federation.start("bank", "news")
        await connected(federation, "bank", "news")
        service, _ = federation.passive["bank"]
        fetch, asks = service._fetch, []  # noqa: SLF001

        async def declined(ask):
            asks.append(ask)
            return service._role.over_limits(ask, "no")  # noqa: SLF001

        monkeypatch.setattr(service, "_fetch", declined)
        reply = await federation.active.choose(federation.world.request(federation.world.users[4]))
        assert reply.contributors == ("shop", "news")
        assert (
            federation.active.shared.n_released == 1
        )  # both servers have decided, with its masks opened
        monkeypatch.setattr(service, "_fetch", fetch)
        # Server A asks for rows, and then says that there are none.
        place = asks[0].place._replace(slot=asks[0].place.slot + 2)
        (answer,) = await service._answer(  # noqa: SLF001
            asks[0]._replace(round=asks[0].round + 2, place=place)
        )
        assert isinstance(answer, Answer)
        opening = Absent(place, 1, np.array([0, 1, 0], np.uint8))
        (helped,) = await service._answer(Help(99, opening.to_bytes()))  # noqa: SLF001
        assert not helped.data
        assert "'bank' was not named absent" in helped.problem

    run(federation, scenario)


def test_a_participant_that_is_late_in_the_last_slot_of_a_window_is_absent_from_the_next_window(
    tmp_path, monkeypatch
):
    federation = SharedFederation(tmp_path)
    served = federation.files.config("shop")
    served.write_text(served.read_text().replace("deadline_s = 5.0", "deadline_s = 0.4"))

    async def scenario():
        world = federation.world
        await federation.start_active()
        await federation.start(*PASSIVE)
        await connected(federation, *PASSIVE)
        for user in world.users[: RULES.decisions - 1]:
            reply = await federation.active.choose(world.request(user))
            assert reply.contributors == tuple(WIDTHS)
        service, _ = federation.passive["news"]
        held, fetch = asyncio.Event(), service._fetch  # noqa: SLF001

        async def slow(ask):
            await held.wait()
            return await fetch(ask)

        monkeypatch.setattr(service, "_fetch", slow)
        async with asyncio.timeout(20):
            reply = await federation.active.choose(world.request(world.users[0]))
        assert reply.contributors == ("shop", "bank")
        pending = federation.active.leaders["default"].model.pending[reply.event_id]
        assert event_of(pending.observation.x) == (1, 0)
        held.set()

    run(federation, scenario)


PLAIN = {
    ("arm", "means"): (LinGreedy(), 'policy = "lingreedy"\n'),
    ("arm", "widths"): (LinUCB(beta=0.5), 'policy = "linucb"\nbeta = 0.5\n'),
    ("statistics", "widths"): (LinUCB(beta=0.5), 'policy = "linucb"\nbeta = 0.5\n'),
}


@pytest.mark.parametrize(("release", "reads"), PLAIN)
def test_policies_without_noise_decide_as_a_plain_bandit_over_a_restart(tmp_path, release, reads):
    policy, model = PLAIN[release, reads]
    beta = 0.5 if (release, reads) == ("arm", "widths") else 0.0
    rules = replace(RULES, posterior_scale=0.0, release=release, reads=reads, beta=beta)
    terms = replace(TERMS, shares=rules)
    federation = SharedFederation(tmp_path, terms=terms, model=f"{model}seed = 7\n")

    async def scenario():
        world, twin = federation.world, federation.world.central(policy)
        await federation.start_active()
        await federation.start(*PASSIVE)
        for start in (0, 7):
            await connected(federation, *PASSIVE)
            for place in range(start, start + 7):
                user = world.users[place % len(world.users)]
                reply = await federation.active.choose(world.request(user))
                decision = twin.decide(world.context(user, reply.contributors), arms=world.arms)
                assert (reply.arm, reply.contributors) == (decision.arm, tuple(WIDTHS))
                scores = np.frombuffer(reply.scores)
                if release == "statistics":
                    assert np.abs(scores - decision.scores).max() < 1e-9
                else:
                    assert np.isnan(scores).all()
                await federation.active.learn(RewardRequest(reply.event_id, 0.5))
                twin.reward(decision, 0.5)
            if not start:
                await federation.stop_active()
                await federation.start_active()

    run(federation, scenario)


def test_a_decision_that_waits_too_long_for_its_turn_does_not_send_the_next_ones_away(
    federation, monkeypatch
):
    monkeypatch.setattr("vfbandits.serving.shares.WAIT_S", 0.05)

    async def scenario():
        await federation.start_active()
        await federation.start(*PASSIVE)
        await connected(federation, *PASSIVE)
        shared, world = federation.active.shared, federation.world
        assert (await federation.active.choose(world.request(world.users[0]))).contributors == (
            *WIDTHS,
        )
        await shared._lock.acquire()  # noqa: SLF001  (a burst before it)
        alone = await federation.active.choose(world.request(world.users[1]))
        assert alone.contributors == ("shop",)
        shared._lock.release()  # noqa: SLF001
        assert shared.away == ""
        reply = await federation.active.choose(world.request(world.users[2]))
        assert reply.contributors == (*WIDTHS,)
        assert shared.n_alone == 1

    run(federation, scenario)


@pytest.mark.parametrize("error", [SharesError("a number is too large"), ValueError("a bug")])
def test_an_error_after_the_arm_was_released_gives_the_slot_back(federation, monkeypatch, error):
    async def scenario():
        await federation.start_active()
        await federation.start(*PASSIVE)
        await connected(federation, *PASSIVE)
        twin, shared = twin_of(federation), federation.active.shared
        await play(federation, twin, 3)

        def fail(*_):
            raise error

        with monkeypatch.context() as broken:
            broken.setattr("vfbandits.serving.shares.rows_of", fail)
            with contextlib.suppress(ValueError):
                request = federation.world.request(federation.world.users[0])
                reply = await federation.active.choose(request)
                assert reply.contributors == ("shop",)
        assert not shared._lock.locked()  # noqa: SLF001
        await until(lambda: not shared.away)
        await play(federation, twin, 3, start=3)

    run(federation, scenario)


def test_a_row_that_is_too_long_is_told_to_its_owner_and_its_length_to_nobody(
    federation, monkeypatch
):
    notes = []
    monkeypatch.setattr(
        "vfbandits.participant.passive.log_line",
        lambda log, event, facts: notes.append((event, facts)),
    )
    table = federation.world.folder / "news.parquet"
    rows = pl.read_parquet(table)
    rows.with_columns(pl.Series("f0", [77.125] * len(rows))).write_parquet(table)

    async def scenario():
        await federation.start_active()
        await federation.start(*PASSIVE)
        await connected(federation, *PASSIVE)
        declined = []
        hear = federation.active.role.hear
        monkeypatch.setattr(
            federation.active.role, "hear", lambda *it: declined.append(it[1]) or hear(*it)
        )
        reply = await federation.active.choose(federation.world.request(federation.world.users[0]))
        assert reply.contributors == ("shop", "bank")
        (reason,) = {one.reason for one in declined if getattr(one, "code", "") == "features"}
        assert reason == "the rows cannot be shared under the terms"
        facts = next(facts for event, facts in notes if event == "rows_refused")
        assert "at most 4 long, the declared bound, got a longer one" in facts["reason"]
        assert "77" not in f"{notes}{declined}"

    run(federation, scenario)


def test_one_answer_that_is_late_does_not_keep_the_helper_away_while_decisions_go_on(
    federation, monkeypatch
):
    monkeypatch.setattr("vfbandits.serving.shares.RETRY_S", 0.3)

    async def scenario():
        await federation.start_active()
        await federation.start(*PASSIVE)
        await connected(federation, *PASSIVE)
        shared, world = federation.active.shared, federation.world
        post = federation.active.helper._post  # noqa: SLF001
        monkeypatch.setattr(federation.active.helper, "_timeout_s", 0.05)
        monkeypatch.setattr(federation.active.helper, "_post", lambda _: True)
        alone = await federation.active.choose(world.request(world.users[0]))
        assert alone.contributors == ("shop",)
        assert "did not answer" in shared.away
        monkeypatch.setattr(federation.active.helper, "_timeout_s", 10.0)
        monkeypatch.setattr(federation.active.helper, "_post", post)
        async with asyncio.timeout(30):
            while True:  # faster than the helper is tried again
                reply = await federation.active.choose(world.request(world.users[1]))
                if reply.contributors == (*WIDTHS,):
                    break
                await asyncio.sleep(0.01)
        assert shared.away == ""

    run(federation, scenario)


def noted(logs, *names):
    """The events of these names, in their order, with their facts."""
    return [line for line in logs if line["event"] in names]


def gauges_of(federation):
    gauges = federation.active.shared.describe()
    return bool(gauges.away), gauges.is_helper_away, gauges.is_out_of_words


def test_the_log_says_when_both_servers_decide_again_also_if_nobody_asks(federation, monkeypatch):
    monkeypatch.setattr("vfbandits.serving.shares.RETRY_S", 0.1)

    async def scenario():
        await federation.start_active()
        await federation.start(*PASSIVE)
        await connected(federation, *PASSIVE)
        shared, world = federation.active.shared, federation.world
        await federation.active.choose(world.request(world.users[0]))
        assert gauges_of(federation) == (False, False, False)
        await federation.stop("bank")
        await until(lambda: "bank" not in federation.active.role.askable())
        for _ in range(2):
            alone = await federation.active.choose(world.request(world.users[0]))
            assert alone.contributors == ("shop",)
        assert gauges_of(federation) == (True, True, False)
        assert noted(logs, "shares_back") == []
        await federation.start("bank")
        await until(lambda: noted(logs, "shares_back"))
        assert gauges_of(federation) == (False, False, False)
        assert shared.away == ""

    with capture_logs() as logs:
        run(federation, scenario)
    away, back = noted(logs, "shares_away", "shares_back")
    assert (away["event"], away["log_level"]) == ("shares_away", "warning")
    assert (back["event"], back["log_level"]) == ("shares_back", "info")
    assert back["decisions_alone"] == 2
    assert back["seconds"] > 0.0


def test_dealt_words_that_have_ended_do_not_count_as_a_helper_that_is_away(federation, monkeypatch):
    monkeypatch.setattr("vfbandits.serving.shares.RETRY_S", 0.1)

    async def scenario():
        await federation.start_active()
        await federation.start(*PASSIVE)
        await connected(federation, *PASSIVE)
        world, dealt = federation.world, federation.files.folder / "shop" / "dealt"
        windows = {path: path.read_bytes() for path in dealt.glob("*.deal")}
        for path in windows:
            path.unlink()
        alone = await federation.active.choose(world.request(world.users[0]))
        assert alone.contributors == ("shop",)
        assert gauges_of(federation) == (True, False, True)
        await federation.stop("bank")
        await until(lambda: "bank" not in federation.active.role.askable())
        assert gauges_of(federation)[1]  # both now
        await federation.start("bank")
        await connected(federation, *PASSIVE)
        for path, data in windows.items():
            path.write_bytes(data)
        await until(lambda: noted(logs, "shares_back"))
        assert gauges_of(federation) == (False, False, False)

    with capture_logs() as logs:
        run(federation, scenario)


def test_late_participants_do_not_count_as_a_helper_that_is_away(federation, monkeypatch):
    monkeypatch.setattr("vfbandits.serving.shares.MAX_ASKS", 0)

    async def scenario():
        await federation.start_active()
        await federation.start(*PASSIVE)
        await connected(federation, *PASSIVE)
        await federation.active.choose(federation.world.request(federation.world.users[0]))
        assert gauges_of(federation) == (True, False, False)

    run(federation, scenario)
