"""Two servers of secret shares with disks: rewards once, slots once, old copies refused."""

import asyncio
import shutil
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from durable_shares import DealtWorld, decide, reward_of, rows_of, run, shared_blocks

from vfbandits.core.ring import add, decode
from vfbandits.core.shares import messages as m
from vfbandits.errors import (
    ConflictError,
    JournalError,
    LinkError,
    RewardError,
    RollbackError,
    SharesError,
    StockError,
    UnknownDecisionError,
)
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.shares.active_log import ActiveLog
from vfbandits.journal.shares.helper_log import HelperLog
from vfbandits.protocol.receipts import Greeting, Own, Receipt, Seen, Standing, check_standing


@pytest.fixture(scope="module")
def dealt(tmp_path_factory):
    """A folder with windows, which takes longer to make than to copy."""
    folder = tmp_path_factory.mktemp("dealt")
    DealtWorld(folder, windows=12)
    return folder


@pytest.fixture
def world(dealt, tmp_path):
    shutil.copytree(dealt, tmp_path, dirs_exist_ok=True)
    return DealtWorld(tmp_path)


async def some_rounds(active, participants, n, *, start=0):
    """Decisions of which all but each fourth get their reward; returns the rewarded ones."""
    rewarded = []
    for k in range(start, start + n):
        event = await decide(active, participants, f"e{k}")
        if k % 4:
            await active.learn(f"e{k}", reward_of(event))
            rewarded.append(event)
    return rewarded


def back_up(folder):
    shutil.copytree(folder, folder.with_name(f"{folder.name}-backup"))


def put_back(folder):
    shutil.rmtree(folder)
    folder.with_name(f"{folder.name}-backup").rename(folder)


def test_a_reward_is_learnt_once_also_after_a_restart(world):
    async def first():
        async with world.pair() as (active, _):
            await active.start()
            participants = world.participants()
            events = [await decide(active, participants, ref) for ref in ("a", "b")]
            assert await active.learn("a", 0.5)
            assert not await active.learn("a", 0.5)
            with pytest.raises(RewardError, match=r"wanted 0\.5, got 1"):
                await active.learn("a", 1.0)
            with pytest.raises(RewardError, match="at most 16"):
                await active.learn("b", 17.0)
            with pytest.raises(UnknownDecisionError, match="'c'"):
                await active.learn("c", 0.5)
            with pytest.raises(ConflictError, match="was learnt before"):
                await decide(active, participants, "a")
            assert [active.status(ref) for ref in "abc"] == ["learnt", "waits", "unknown"]
            return events

    async def second():
        async with world.pair() as (active, _):
            await active.start()
            assert [active.status(ref) for ref in "abc"] == ["learnt", "waits", "unknown"]
            assert not await active.learn("a", 0.5)
            assert await active.learn("b", 0.25)

    run(first())
    run(second())


class Broken:
    """A link that fails at one message, before or after the helper has answered it."""

    def __init__(self, at, *, after):
        self.at, self.after, self.n = at, after, 0

    def __call__(self, answer):
        async def ask(data):
            self.n += 1
            if self.n == self.at and not self.after:
                raise LinkError("lost")
            reply = await answer(data)
            if self.n == self.at:
                raise LinkError("lost")
            return reply

        return ask


def opened_state(active, helper):
    both = zip(active.held(), helper.held(), strict=True)
    root, theta, a, g, h = (decode(add(*sides)) / 2.0 for sides in both)
    G = root - g.T @ a
    return G @ G.T, theta + h @ g


def plain_state(rewards, terms):
    inverse, u = np.eye(terms.dim), np.zeros(terms.dim)
    for x, reward in rewards:
        inverse, u = inverse + np.outer(x, x), u + reward * x
    covariance = np.linalg.inv(inverse)
    return covariance, covariance @ u


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", [1, 2, 5, 7, 8, 9, 10, 11, 33, 34, 35, 36, 37])
def test_a_lost_message_loses_a_decision_at_most_and_no_reward(world, at, after):
    async def scenario():
        link = Broken(at, after=after)
        async with world.pair(ask=link) as (active, helper):
            participants, rewards, waiting = world.participants(), [], {}
            k = 0
            while len(rewards) < 5:
                k += 1
                try:
                    async with active.decision() as slot:
                        blocks = shared_blocks(participants, slot.place, world.terms)
                        opened = await slot.decide(await slot.prepare(), blocks)
                        event = await slot.pick(opened, opened.arm, ref=f"e{k}")
                    x = np.hstack(rows_of(slot.place, world.terms))[opened.arm]
                    waiting[f"e{k}"] = event, x
                    for ref in list(waiting)[-1:]:
                        await active.learn(ref, reward_of(event))
                except LinkError:
                    pass
                for ref, (event, x) in list(waiting.items()):
                    if active.status(ref) == "learnt":
                        rewards.append((x, reward_of(event)))
                        del waiting[ref]
            assert link.n > at
            await active.start()  # finishes a reward that was under way
            rewards += [
                (x, reward_of(e)) for r, (e, x) in waiting.items() if active.status(r) == "learnt"
            ]
            for ours, plain in zip(
                opened_state(active, helper), plain_state(rewards, world.terms), strict=True
            ):
                np.testing.assert_allclose(ours, plain, atol=1e-8)

    run(scenario())


def test_the_helper_repeats_the_same_bytes_and_answers_no_other_message(world):
    sent = []

    def watched(answer):
        async def ask(data):
            sent.append((data, await answer(data)))
            return sent[-1][1]

        return ask

    async def first():
        async with world.pair(ask=watched) as (active, helper):
            await active.start()
            await some_rounds(active, world.participants(), 5)
            assert active.window == 1
            await replay(helper)

    async def replay(helper):
        """Late and repeated deliveries: the same bytes, or a refusal."""
        messages = [(data, reply) for data, reply in sent if not Greeting.is_in(data)]
        last_fold = max(
            i for i, (d, _) in enumerate(messages) if isinstance(m.read_message(d), m.Fold)
        )
        for data, reply in messages[last_fold:]:
            assert await helper.answer(data) == reply
            assert await asyncio.gather(*(helper.answer(data) for _ in range(3))) == [reply] * 3
            changed = data[:-1] + bytes([data[-1] ^ 1])
            if m.read_message(changed).to_bytes() == data:  # a bit that fills a byte up
                assert await helper.answer(changed) == reply
                continue
            with pytest.raises(SharesError):
                await helper.answer(changed)
        for data, _ in messages[:last_fold]:
            with pytest.raises(SharesError, match="window 1 is open"):
                await helper.answer(data)
        for data, reply in messages[last_fold:]:
            assert await helper.answer(data) == reply

    async def second():
        helper = world.helper()
        await replay(helper)
        await helper.close()

    run(first())
    run(second())


def test_an_old_copy_of_the_helper_s_disk_is_refused_at_the_greeting(world):
    async def go_on(n, start):
        async with world.pair() as (active, _):
            await active.start()
            await some_rounds(active, world.participants(), n, start=start)

    async def refused():
        async with world.pair() as (active, _):
            with pytest.raises(RollbackError, match="the helper runs on an older copy"):
                await active.start()
            with pytest.raises(RollbackError, match="a new roster and a new deal"):
                await decide(active, world.participants(), "x")
            with pytest.raises(RollbackError):
                await active.learn("e0", 0.5)

    run(go_on(2, 0))
    back_up(world.folder / "b")
    run(go_on(2, 2))
    put_back(world.folder / "b")
    run(refused())
    run(refused())  # A has not changed: the newest files may still come


def test_an_old_copy_of_the_helper_is_refused_while_server_a_goes_on(world):
    async def scenario():
        helpers = [world.helper()]

        async def ask(data):
            return await helpers[-1].answer(data)

        active = world.active(ask)
        try:
            await active.start()
            participants = world.participants()
            await some_rounds(active, participants, 1)
            await helpers[0].close()
            back_up(world.folder / "b")
            helpers.append(world.helper())
            await some_rounds(active, participants, 1, start=4)
            await helpers[1].close()
            put_back(world.folder / "b")
            helpers.append(world.helper())
            with pytest.raises(RollbackError, match=r"answered message \d+ twice"):
                await decide(active, participants, "x")
            with pytest.raises(RollbackError):
                await active.learn("e0", 0.5)
        finally:
            await _close_both(active, helpers[-1])

    run(scenario())


def test_an_old_copy_of_server_a_s_disk_is_refused(world):
    async def go_on(n, start):
        async with world.pair() as (active, _):
            await active.start()
            await some_rounds(active, world.participants(), n, start=start)

    async def refused(match):
        async with world.pair() as (active, _):
            with pytest.raises(RollbackError, match=match):
                await active.start()

    run(go_on(3, 0))
    back_up(world.folder / "a")
    shutil.copytree(world.folder / "out", world.folder / "out-backup")
    run(go_on(6, 3))
    newest = world.folder / "a-newest"
    shutil.copytree(world.folder / "a", newest)
    put_back(world.folder / "a")
    put_back(world.folder / "out")
    run(refused("server A runs on an older copy"))
    shutil.rmtree(world.folder / "a")  # and one that knows nothing at all
    run(refused("server A runs on an older copy"))
    shutil.rmtree(world.folder / "a")
    newest.rename(world.folder / "a")
    run(go_on(3, 9))  # the old folder of windows does not matter


@pytest.mark.parametrize(("folder", "name"), [("a", "shares.db"), ("b", "helper.db")])
def test_a_file_that_is_older_than_its_lock_is_not_opened(world, folder, name):
    async def go_on(start):
        async with world.pair() as (active, _):
            await active.start()
            await some_rounds(active, world.participants(), 2, start=start)

    run(go_on(0))
    old = (world.folder / folder / name).read_bytes()
    run(go_on(2))
    (world.folder / folder / name).write_bytes(old)
    with pytest.raises(RollbackError, match="it is an older copy"):
        run(go_on(4))
    (world.folder / folder / name).unlink()
    with pytest.raises(RollbackError, match="got an empty one"):
        run(go_on(4))


def test_files_have_their_owner_s_mode_and_with_a_key_no_reference(world):
    key = JournalKey.generate()
    helper = world.helper(key=key)
    active = world.active(helper.answer, key=key)
    ref = "visit-of-somebody"

    async def scenario(active, helper):
        await active.start()
        await decide(active, world.participants(), ref)
        assert await active.learn(ref, 0.5)
        assert ref not in repr(active) + repr(helper)

    run(scenario(active, helper))
    files = [*(world.folder / "a").iterdir(), *(world.folder / "b").iterdir()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert len(files) >= 5
    for path in files:
        assert ref.encode() not in path.read_bytes()
    run(_close_both(active, helper))
    with pytest.raises(JournalError, match="opens with its key, got none"):
        world.helper()
    with pytest.raises(JournalError, match="got a different key"):
        world.active(None, key=JournalKey.generate())

    async def again():
        helper = world.helper(key=key)
        active = world.active(helper.answer, key=key)
        await active.start()
        assert active.status(ref) == "learnt"
        await _close_both(active, helper)

    run(again())


async def _close_both(active, helper):
    await active.close()
    await helper.close()


def test_contexts_that_wait_are_bounded_and_can_be_forgotten(world):
    async def scenario():
        async with world.pair(max_open=2) as (active, _):
            await active.start()
            participants = world.participants()
            for ref in ("a", "b", "c"):
                await decide(active, participants, ref)
            assert [active.status(ref) for ref in "abc"] == ["unknown", "waits", "waits"]
            await active.forget(["b", "nobody"])
            await decide(active, participants, "c")  # once more, for the same event
            assert await active.learn("c", 0.5)

    run(scenario())

    async def again():
        async with world.pair(max_open=2) as (active, _):
            await active.start()
            assert [active.status(ref) for ref in "abc"] == ["unknown", "unknown", "learnt"]

    run(again())


def test_a_context_is_dropped_by_age_before_the_helper_drops_it(world):
    async def scenario():
        async with world.pair(max_open=2) as (active, _):
            await active.start()
            participants = world.participants()
            for ref in ("a", "b", "c"):
                await decide(active, participants, ref)
                assert active.status("a") == ("waits" if ref != "c" else "unknown")
                await active.forget([ref] if ref != "a" else [])  # none but "a" waits

    run(scenario())


def test_what_is_kept_does_not_grow_with_the_windows(world):
    async def scenario(n):
        async with world.pair() as (active, _):
            await active.start()
            for k in range(n):
                await decide(active, world.participants(), f"{n}-{k}")
                await active.learn(f"{n}-{k}", 0.5)

    def n_rows():
        total = 0
        for path, tables in (
            ("a/shares.db", ("context", "reward")),
            ("b/helper.db", ("context", "message", "receipt")),
        ):
            with closing(sqlite3.connect(world.folder / path)) as db:
                for table in tables:
                    total += db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
        return total

    run(scenario(6))
    first = n_rows()
    run(scenario(12))
    assert n_rows() == first


def test_an_empty_stock_says_how_to_refill_it_and_goes_on_then(tmp_path):
    world = DealtWorld(tmp_path, windows=1)

    async def scenario():
        async with world.pair() as (active, _):
            await active.start()
            participants = world.participants()
            await some_rounds(active, participants, 4)
            assert active.left().windows == 0
            with pytest.raises(StockError, match="vfb masks deal"):
                await decide(active, participants, "x")
            with pytest.raises(StockError):
                await active.learn("e0", 0.5)
            world.deal(1)
            await active.learn("e0", 0.5)
            await decide(active, participants, "x")

    run(scenario())


@pytest.mark.parametrize("kind", [ActiveLog, HelperLog])
def test_after_a_failed_write_nothing_more_is_sent(world, monkeypatch, kind):
    async def scenario():
        async with world.pair() as (active, _):
            await active.start()
            participants = world.participants()
            await decide(active, participants, "a")

            def fail(*_):
                raise JournalError("the disk is full")

            monkeypatch.setattr(kind, "append", fail)
            with pytest.raises(JournalError, match="disk is full"):
                await active.learn("a", 0.5)
            monkeypatch.undo()
            with pytest.raises(JournalError, match="opened again"):
                await decide(active, participants, "b")

    async def again():
        async with world.pair() as (active, _):
            await active.start()
            assert active.status("a") == ("waits" if kind is ActiveLog else "learnt")

    run(scenario())
    run(again())


def test_words_of_another_deal_are_refused(world, tmp_path):
    (tmp_path / "other").mkdir()
    other = DealtWorld(tmp_path / "other", windows=1)

    async def scenario():
        helper = other.helper()
        active = world.active(helper.answer)
        with pytest.raises(SharesError, match="both must open envelopes of one deal"):
            await active.start()
        await _close_both(active, helper)

    run(scenario())
    shutil.copytree(tmp_path / "other" / "b", world.folder / "b")
    with pytest.raises(JournalError, match="each deal needs a file of its own"):
        world.helper()


def test_receipts_may_come_in_any_order_but_not_twice():
    head = Receipt()
    chain = []
    for k in range(4):
        head = head.then(b"ask %d" % k, b"answer %d" % k)
        chain.append((b"ask %d" % k, b"answer %d" % k, head))
    seen = Seen(Receipt())
    for k in (2, 0, 3, 1, 1):
        seen.note(*chain[k])
    assert seen.head == head
    fork = chain[1][2].then(b"another", b"answer")
    with pytest.raises(RollbackError, match="answered message 3 twice"):
        seen.note(b"another", b"answer", fork)
    unknown = Seen(chain[0][2])
    with pytest.raises(RollbackError):
        unknown.note(b"ask 1", b"another answer", chain[1][2])


def standing(window, n_rows, *, next_slot=0, has_seen=True):
    return Standing(window, n_rows, next_slot, Receipt(), has_seen)


def own(window, n_rows, *, next_slot=4, is_learning=False, is_full=False):
    return Own(window, n_rows, next_slot, is_learning, is_full)


@pytest.mark.parametrize(
    ("there", "before", "after"),
    [
        (standing(2, 1), own(2, 1), own(2, 1)),
        (standing(2, 2), own(2, 1, is_learning=True), own(2, 1, is_learning=True)),
        (standing(2, 1), own(2, 1, is_learning=True), own(2, 2)),  # learnt meanwhile
        (standing(3, 0), own(2, 3, is_full=True), own(2, 3, is_full=True)),
        (standing(2, 3), own(2, 3, is_full=True), own(3, 0)),  # folded meanwhile
        (standing(2, 1, next_slot=4), own(2, 1), own(2, 1)),
    ],
)
def test_servers_that_are_apart_by_a_message_go_on(there, before, after):
    check_standing(there, seen=Receipt(), before=before, after=after)


@pytest.mark.parametrize(
    ("there", "where", "match"),
    [
        (standing(2, 2), own(2, 1), "server A runs"),
        (standing(3, 0), own(2, 1), "server A runs"),
        (standing(3, 1), own(2, 3, is_full=True), "server A runs"),
        (standing(2, 1, next_slot=5), own(2, 1), "server A runs"),
        (standing(2, 0), own(2, 1), "the helper runs"),
        (standing(1, 2), own(2, 0), "the helper runs"),
        (standing(2, 1, has_seen=False), own(2, 1), "the helper runs"),
    ],
)
def test_servers_that_are_further_apart_do_not(there, where, match):
    with pytest.raises(RollbackError, match=match):
        check_standing(there, seen=Receipt(), before=where, after=where)


def test_a_reward_whose_caller_went_away_is_learnt_by_the_next_call(world):
    gate, reached = asyncio.Event(), asyncio.Event()

    def slow(answer):
        async def ask(data):
            if not Greeting.is_in(data) and isinstance(m.read_message(data), m.Whiten):
                reached.set()
                await gate.wait()
            return await answer(data)

        return ask

    async def scenario():
        async with world.pair(ask=slow) as (active, _):
            await active.start()
            participants = world.participants()
            for ref in ("a", "b"):
                await decide(active, participants, ref)
            learning = asyncio.create_task(active.learn("a", 0.5))
            await reached.wait()
            learning.cancel()
            with pytest.raises(asyncio.CancelledError):
                await learning
            assert active.status("a") == "waits"
            gate.set()
            assert await active.learn("b", 0.25)
            assert active.status("a") == "learnt"
            assert not await active.learn("a", 0.5)

    run(scenario())


def test_decisions_and_rewards_may_run_side_by_side(world):
    async def scenario():
        async with world.pair() as (active, helper):
            await active.start()
            participants = world.participants()
            rewards = {}

            async def visitor(k):
                for n in range(4):
                    ref = f"{k}-{n}"
                    async with active.decision() as slot:
                        blocks = shared_blocks(participants, slot.place, world.terms)
                        opened = await slot.decide(await slot.prepare(), blocks)
                        event = await slot.pick(opened, opened.arm, ref=ref)
                    x = np.hstack(rows_of(slot.place, world.terms))[opened.arm]
                    if n % 3:
                        assert await active.learn(ref, reward_of(event))
                        rewards[ref] = x, reward_of(event)

            await asyncio.gather(*(visitor(k) for k in range(6)))
            assert len(rewards) == 12
            for ours, plain in zip(
                opened_state(active, helper),
                plain_state(rewards.values(), world.terms),
                strict=True,
            ):
                np.testing.assert_allclose(ours, plain, atol=1e-8)

    run(scenario())
