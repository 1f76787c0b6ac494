"""Two servers of secret shares with disks hand over to the next epoch, killed wherever they are."""

import shutil

import numpy as np
import pytest
from dealt_words import NAMES
from durable_shares import (
    NEXT,
    STAY,
    TwoEpochs,
    before_it,
    decide,
    go_on,
    n_messages_of,
    revealed,
    reward_of,
    run,
)

from vfbandits.errors import LinkError, RollbackError, SharesError, StockError
from vfbandits.protocol.dealt import (
    first_window,
)
from vfbandits.serving.share_server import Successor

WITHOUT_NOISE = {"posterior_scale": 0.0}  # so that two runs show the same arms
COVARIANCE = {"reads": "widths", "posterior_scale": 0.0, "beta": 0.5, "release": "arm"}
OTHER_LAYOUTS = {
    "same, disjoint": (NAMES, {**WITHOUT_NOISE, "layout": "disjoint"}),
    "left, disjoint": (STAY, {**WITHOUT_NOISE, "reads": "means", "layout": "disjoint"}),
    "same, outer": (NAMES, {**WITHOUT_NOISE, "layout": "outer", "arm_dim": 2}),
    "left, outer": (STAY, {**WITHOUT_NOISE, "layout": "outer", "arm_dim": 2}),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two epochs of each kind, which take longer to deal than to copy."""
    made = {}
    for kind, names, rules in (
        ("same", NAMES, WITHOUT_NOISE),
        ("left", STAY, WITHOUT_NOISE),
        ("left, widths", STAY, COVARIANCE),
        *((kind, names, rules) for kind, (names, rules) in OTHER_LAYOUTS.items()),
    ):
        made[kind] = tmp_path_factory.mktemp("dealt")
        TwoEpochs(made[kind], after=names, **rules)
    return made


@pytest.fixture(params=["same", "left", "left, widths"])
def world(request, folders, tmp_path):
    shutil.copytree(folders[request.param], tmp_path, dirs_exist_ok=True)
    return TwoEpochs(tmp_path)


@pytest.fixture(params=OTHER_LAYOUTS)
def in_layout(request, folders, tmp_path):
    shutil.copytree(folders[request.param], tmp_path, dirs_exist_ok=True)
    return TwoEpochs(tmp_path)


@pytest.fixture
def same(folders, tmp_path):
    shutil.copytree(folders["same"], tmp_path, dirs_exist_ok=True)
    return TwoEpochs(tmp_path)


class Cut:
    """A link that is lost once, before or after a message of the hand-over was answered."""

    def __init__(self, at, *, is_answered):
        self.at, self.is_answered, self.n = at, is_answered, 0

    def __call__(self, answer):
        async def ask(data):
            if data[0] in (70, 72):  # HandOver, Eliminate
                self.n += 1
                if self.n == self.at:
                    if self.is_answered:
                        await answer(data)
                    raise LinkError("the link was cut")
            return await answer(data)

        return ask


def whole(world):
    """The state at the end of a hand-over that nothing disturbed."""

    async def played():
        await before_it(world)
        async with world.pair(is_moving=True) as (active, helper):
            await active.start()
            await go_on(active, world)
            assert (active.epoch, helper.epoch, active.is_moving) == (NEXT, NEXT, False)
            return revealed(active, helper)

    return run(played())


def test_what_was_learnt_and_waits_goes_over(world):
    M, theta = whole(world)
    assert np.isfinite(M).all()
    assert np.abs(theta).max() > 0.01


@pytest.mark.parametrize("is_answered", [False, True], ids=["message lost", "answer lost"])
@pytest.mark.parametrize("at", ["first", "third", "last"])
def test_killed_anywhere_both_servers_finish_the_hand_over(world, tmp_path, at, is_answered):
    n_messages = n_messages_of(world)
    at = {"first": 1, "third": 3, "last": n_messages}[at]
    if at > n_messages:
        pytest.skip("new secrets for the same participants take one message")
    interrupted(world, tmp_path, at, is_answered=is_answered)


def test_blocks_and_products_go_over_killed_before_the_end(in_layout, tmp_path):
    interrupted(in_layout, tmp_path, n_messages_of(in_layout), is_answered=True)


def interrupted(world, tmp_path, at, *, is_answered):
    """The link is lost at a message of the hand-over, and both servers are started again."""
    other = tmp_path / "undisturbed"
    shutil.copytree(world.folder, other)
    wanted = whole(TwoEpochs(other))

    async def played():
        await before_it(world)
        cut = Cut(at, is_answered=is_answered)
        async with world.pair(ask=cut, is_moving=True) as (active, _):
            with pytest.raises(LinkError):
                await active.start()
        # Both are started again: A finds its journal in the next epoch, B what it has written.
        async with world.pair(is_moving=True) as (active, helper):
            await active.start()
            await go_on(active, world)
            return revealed(active, helper)

    for came, want in zip(run(played()), wanted, strict=True):
        # Blinds of a window are random only in words: numbers are the same.
        assert np.abs(came - want).max() < 1e-9


def test_both_can_be_started_again_after_it(world):
    async def played():
        await before_it(world)
        async with world.pair(is_moving=True) as (active, helper):
            await active.start()
            before = revealed(active, helper)
        async with world.pair() as (active, helper):
            await active.start()
            after = revealed(active, helper)
            await go_on(active, world)
        assert all((a == b).all() for a, b in zip(before, after, strict=True))

    run(played())


def test_no_message_of_the_old_epoch_is_answered_after_it(same):
    async def played():
        await before_it(same)
        sent = []

        def record(answer):
            async def ask(data):
                sent.append(data)
                return await answer(data)

            return ask

        async with same.pair(ask=record) as (active, _):
            await active.start()
            await decide(active, same.participants(), "late")
        async with same.pair(is_moving=True) as (active, helper):
            await active.start()
            for data in sent:
                if data[:1] != b"\xff":
                    with pytest.raises(SharesError, match="epoch 2 is open, got a message for 1"):
                        await helper.answer(data)

    run(played())


def test_nothing_on_the_disks_has_the_seed_afterwards(same):
    async def played():
        await before_it(same)
        seeds = []

        def record(answer):
            async def ask(data):
                if data[0] == 70:
                    seeds.append(data[33 + 5 : 33 + 5 + 32])
                return await answer(data)

            return ask

        async with same.pair(ask=record, is_moving=True) as (active, _):
            await active.start()
        return seeds

    (seed,) = run(played())
    files = [path.read_bytes() for path in same.folder.rglob("*") if path.is_file()]
    assert len(seed) == 32
    assert not any(seed in data for data in files)


@pytest.mark.parametrize(
    ("server", "n_decisions", "reason"),
    [
        ("a", 1, "server A runs on an older copy"),  # in the window after the hand-over
        ("a", 9, "and server A those of epoch 1"),
        ("b", 1, "the helper has the secrets of epoch 1"),
    ],
)
def test_an_older_copy_of_a_disk_is_refused_after_it(same, server, n_decisions, reason):
    folder, old = same.folder / server, same.folder / f"{server}-old"
    sent = []

    def record(answer):
        async def ask(data):
            sent.append(data)
            return await answer(data)

        return ask

    async def played():
        await before_it(same)
        shutil.copytree(folder, old)
        shutil.copytree(same.folder / "out", same.folder / "out-old")
        async with same.pair(is_moving=True) as (active, _):
            await active.start()
            for k in range(n_decisions):
                participants = same.next_participants(active.terms)
                event = await decide(active, participants, f"f{k}")
                await active.learn(f"f{k}", reward_of(event))
        shutil.rmtree(folder)
        old.rename(folder)
        shutil.copytree(same.folder / "out-old", same.folder / "out", dirs_exist_ok=True)
        async with same.pair(ask=record, is_moving=server == "a") as (active, _):
            with pytest.raises((RollbackError, SharesError), match=reason):
                await decide(active, same.next_participants(active.terms), "late")

    run(played())
    # Nothing was sent under words that were used but the same bytes, and questions of who is where.
    assert {data[0] for data in sent} <= {0xFF, 70}


def test_a_hand_over_needs_its_words_and_its_epoch(same):
    async def played():
        await before_it(same)
        async with same.pair() as (active, helper):
            successor = same.successor()
            successor.refuse_unless_ready(active.terms)
            with pytest.raises(
                SharesError, match="wanted a hand-over to epoch 2, once, got one to 1"
            ):
                active.move_on(Successor(successor.secrets, same.stock(), same.plan))
            first = same.folder / "out" / f"shop.epoch-2.window-{first_window(2):08d}.deal"
            first.unlink()
            with pytest.raises(StockError, match="no dealt words are left"):
                successor.refuse_unless_ready(active.terms)
            assert helper.epoch == 1

    run(played())


@pytest.mark.parametrize("n_before", [6, 8], ids=["between windows", "within a window"])
def test_an_older_copy_of_server_a_does_not_hand_over_a_second_time(same, n_before):
    """Its state is another one, and would be under the same words: the helper tells it apart."""
    folder, old = same.folder / "a", same.folder / "a-old"
    sent = []

    async def played():
        helper = same.helper()

        async def ask(data):
            sent.append(data)
            return await helper.answer(data)

        async def some(active, start, stop):
            for k in range(start, stop):
                event = await decide(active, same.participants(), f"e{k}")
                await active.learn(f"e{k}", reward_of(event))

        active = same.active(ask)
        await some(active, 0, n_before)
        await active.close()
        shutil.copytree(folder, old)
        shutil.copytree(same.folder / "out", same.folder / "out-old")
        active = same.active(ask)
        await some(active, n_before, n_before + 3)
        active.move_on(same.successor())
        await active.start()
        await active.close()
        shutil.rmtree(folder)
        old.rename(folder)
        shutil.copytree(same.folder / "out-old", same.folder / "out", dirs_exist_ok=True)
        sent.clear()
        active = same.active(ask, is_moving=True)
        with pytest.raises(RollbackError, match="server A runs on an older copy"):
            await active.start()
        await active.close()
        await helper.close()

    run(played())
    assert {data[0] for data in sent} == {0xFF}  # a greeting, and nothing else
