"""Both servers of secret shares are killed under load, and go on as if they had not been."""

import asyncio
import itertools
import json
import random
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import shares_server_child
from dealt_words import EPOCH, NAMES
from durable_shares import (
    NEXT,
    STAY,
    DealtWorld,
    TwoEpochs,
    arms_of,
    before_it,
    go_on,
    n_messages_of,
    revealed,
    reward_of,
    shared_blocks,
)
from fork_server import Popen
from shares_server_child import ANSWER, GONE, frame, read_frame

from vfbandits.core.shares import messages as m
from vfbandits.core.shares.active import BLANK, ActiveServer
from vfbandits.core.shares.covariance import messages as c
from vfbandits.core.shares.helper import Helper
from vfbandits.core.shares.kept import Kept
from vfbandits.core.shares.offer import ArmBlocks, Offer
from vfbandits.journal.shares.active_log import ActiveLog
from vfbandits.journal.shares.helper_log import HelperLog
from vfbandits.protocol.dealt import window_name
from vfbandits.protocol.receipts import Greeting, Receipt

CHILD = Path(shares_server_child.__file__)
TIMEOUT_S = 60


class HelperLink:
    """The connection to one life of the helper."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer
        self.waiting = {}
        self.numbers = itertools.count()
        self.is_gone = False
        self.reading = asyncio.create_task(self.read())

    async def ask(self, data):
        if self.is_gone:
            return GONE, b""
        number = next(self.numbers)
        self.waiting[number] = asyncio.get_running_loop().create_future()
        self.writer.write(frame(number, ANSWER, data))
        return await self.waiting[number]

    async def read(self):
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                number, mark, data = await read_frame(self.reader)
                self.waiting.pop(number).set_result((mark, data))
        self.is_gone = True
        for answer in self.waiting.values():
            answer.set_result((GONE, b""))
        self.writer.close()


class Wire:
    """Stands between the servers, remembers all that passes, and kills one of them at times."""

    def __init__(self, folder, *, kills, seed):
        self.folder, self.kills = folder, kills
        self.rng = random.Random(seed)  # noqa: S311
        self.answers = {}
        self.n_killed = {"active": 0, "helper": 0}
        self.helper = self.active = self.link = None
        self.tasks = set()
        self.lives = itertools.count()
        self.countdown = self.next_countdown()
        self.starting = asyncio.Lock()

    def next_countdown(self):
        return self.rng.randrange(1, 30)

    roles: ClassVar = {"active": "active", "helper": "helper"}

    def spawn(self, role, address):
        role = self.roles[role]
        return Popen([sys.executable, str(CHILD), role, str(self.folder), str(address)])

    async def run(self):
        address = self.folder / "wire"
        async with await asyncio.start_unix_server(self.serve, address):
            await self.start_helper()
            self.active = self.spawn("active", address)
            while (code := self.active.poll()) != 0:
                assert code in (None, -9), f"server A has ended with {code}"
                if code == -9:
                    self.active = self.spawn("active", address)
                await asyncio.sleep(0.01)
            await asyncio.gather(*self.tasks)
        self.link.writer.close()
        assert await ended(self.helper) == 0

    async def start_helper(self):
        code = -9
        while True:
            if code == -9:  # perhaps killed while it was started
                address = self.folder / f"helper-{next(self.lives)}"
                self.helper = self.spawn("helper", address)
            code = self.helper.poll()
            assert code in (None, -9), f"the helper has ended with {code}"
            with suppress(FileNotFoundError, ConnectionRefusedError):
                self.link = HelperLink(*await asyncio.open_unix_connection(address))
                return
            await asyncio.sleep(0.005)

    async def serve(self, reader, writer):
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                number, _, data = await read_frame(reader)
                task = asyncio.create_task(self.relay(writer, number, data))
                self.tasks.add(task)
                task.add_done_callback(self.tasks.discard)
        writer.close()

    async def relay(self, writer, number, data):
        victim, is_early = self.plan(data)
        if victim and is_early:  # before the message has arrived
            victim = await self.kill(victim)
        async with self.starting:
            if self.helper.poll() is not None:
                await self.start_helper()
        mark, answer = await self.link.ask(data)
        if mark == ANSWER and not Greeting.is_in(data):
            self.answers.setdefault(data, set()).add(answer)
        if victim:  # before the answer has
            await self.kill(victim)
            mark, answer = self.after_kill(mark, answer)
        writer.write(frame(number, mark, answer))

    def after_kill(self, mark, answer):
        """What of an answer gets through whose sender was killed."""
        return mark, answer

    def plan(self, data):
        """Who is killed with this message, and whether before it has arrived."""
        del data
        return self.victim(), self.rng.random() < 0.3

    def victim(self):
        self.countdown -= 1
        if self.countdown > 0 or sum(self.n_killed.values()) >= self.kills:
            return None
        self.countdown = self.next_countdown()
        victim = self.rng.choice(["active", "helper"])
        self.n_killed[victim] += 1
        if sum(self.n_killed.values()) == self.kills:
            (self.folder / "stop").touch()
        return victim

    async def kill(self, victim):
        process = getattr(self, victim)
        process.kill()
        await ended(process)


async def ended(process):
    """Its exit code; the test's own timeout ends the waiting."""
    while (code := process.poll()) is None:  # noqa: ASYNC110  (nothing tells of its end)
        await asyncio.sleep(0.005)
    return code


def in_order(answers):
    """Every message that was answered, in the order of the helper's receipts."""
    found = {}
    for request, replies in answers.items():
        (reply,) = replies  # the same bytes, also after a restart
        receipt, message = Receipt.split(reply)
        assert found.setdefault(receipt.position, (request, message)) == (request, message)
    return [found[position] for position in sorted(found)]


class Uninterrupted:
    """Both servers in this process, doing what those that were killed have done."""

    def __init__(self, world, folder, exchanged):
        self.world, self.folder = world, folder
        self.replies = dict(exchanged)
        noises = [noise_of(kind, world, name) for kind, name in STORES]
        self.active = ActiveServer(
            world.terms, world.secrets["shop"].server, entropy=lambda _: noises[0]
        )
        self.helper = Helper(
            world.terms, world.secrets["bank"].server, entropy=lambda _: noises[1], epoch=EPOCH
        )
        self.participants = world.participants()
        self.blocks = ArmBlocks(world.terms.max_arms, arms_in(world))
        self.recalled = BLANK

    def follow(self, request, reply):
        message = m.read_message(request)
        assert self.helper.answer(message).to_bytes() == reply
        if self.active.needs_deal:
            window = self.active.window
            data = (self.folder / window_name("shop", EPOCH, window)).read_bytes()
            opener = self.world.opener("shop")
            self.active.take(opener.window(data, window, deal=self.world.deal_name))
        match message:
            case m.Ask() | c.Score():
                self.decide(message.place)
            case m.Recall():
                self.recalled = (message.window, message.slot)
            case m.Fold() | c.Shrink():
                self.carry_out(self.active.fold())
        if self.helper.n_rows > self.active.n_rows:  # decisions may come before it is learnt
            self.learn(self.recalled)

    def learn(self, event):
        if event == BLANK:
            self.carry_out(self.active.fill())
        else:
            self.carry_out(self.active.learn(event, reward_of(event)))

    def decide(self, place):
        blocks = shared_blocks(self.participants, place, self.world.terms)
        ready = self.carry_out(self.active.prepare(place))
        arms, features = arms_of(place, self.world.terms)
        offer = None if features is None else Offer(features=features)
        if self.world.terms.layout == "disjoint":
            offer = self.blocks.offer(arms)
        decided = self.active.decide(ready, blocks, offer) if ready is not None else None
        opened = None if decided is None else self.carry_out(decided)
        if opened is not None:
            self.carry_out(self.active.pick(opened, opened.arm))

    def carry_out(self, exchange):
        """The result, from the answers that were given; None if it was never finished."""
        try:
            message = next(exchange)
            while message.to_bytes() in self.replies:
                message = exchange.send(m.read_message(self.replies[message.to_bytes()]))
        except StopIteration as end:
            return end.value
        kinds = {type(m.read_message(data)) for data in self.replies if same_slot(data, message)}
        assert type(message) not in kinds, "server A has sent other bytes in this slot"
        return None


def same_slot(data, message):
    return m.read_message(data).place == message.place


STORES = (ActiveLog, "a/shares.db"), (HelperLog, "b/helper.db")


def noise_of(kind, world, name):
    store = kind(world.folder / name, dealt=world.dealt)
    try:
        return Kept.from_bytes(store.state).secret("noise")
    finally:
        store.close()


def arms_in(world):
    """Arms in the order of their blocks, as the life that was killed last has left them."""
    store = ActiveLog(world.folder / "a/shares.db", dealt=world.dealt)
    try:
        return store.arms()
    finally:
        store.close()


def words(held):
    return [part.tobytes().hex() for part in held]


LONG = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("kills", "rules"),
    [
        (20, {}),
        (8, {"reads": "widths", "beta": 0.5}),
        (8, {"layout": "disjoint"}),
        (6, {"layout": "outer", "arm_dim": 2}),
        pytest.param(200, {}, marks=LONG),
        pytest.param(200, {"reads": "widths", "beta": 0.5}, marks=LONG),
    ],
)
def test_killed_servers_have_the_words_of_servers_that_were_not(tmp_path, kills, rules):
    world = DealtWorld(tmp_path, windows=10 + kills, **rules)
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    wire_of = {}

    async def run():
        wire_of["it"] = Wire(tmp_path, kills=kills, seed=kills)
        await asyncio.wait_for(wire_of["it"].run(), 4 * kills + TIMEOUT_S)

    asyncio.run(run())
    wire = wire_of["it"]
    assert min(wire.n_killed.values()) > kills // 5
    exchanged = in_order(wire.answers)
    whole = Uninterrupted(world, tmp_path / "copy", exchanged)
    for request, reply in exchanged:
        whole.follow(request, reply)
    assert whole.active.window > kills // 10
    for name, server in (("a", whole.active), ("b", whole.helper)):
        assert words(server.held()) == json.loads((tmp_path / f"{name}.held").read_text())


HANDED_OVER = (70, 72)  # the kinds of HandOver and Eliminate
# With the last one the answer gets through: the helper was started again before the message came.
KILLS = (("active", True), ("active", False), ("helper", False), ("helper", True))


class HandoverWire(Wire):
    """Kills both servers with each message of a hand-over: before it has come, and after."""

    roles: ClassVar = {"active": "moving", "helper": "helper"}

    def __init__(self, folder):
        super().__init__(folder, kills=0, seed=0)
        self.planned = {}

    def after_kill(self, mark, answer):
        return GONE, b""

    def plan(self, data):
        if data[0] not in HANDED_OVER:
            return None, False
        left = self.planned.setdefault(data, [*KILLS])
        if not left:
            return None, False
        victim, is_early = left.pop(0)
        self.n_killed[victim] += 1
        return victim, is_early


@pytest.mark.parametrize(
    ("before", "after", "rules"),
    [
        (STAY, NAMES, {}),
        (NAMES, STAY, {}),
        (NAMES, STAY, {"reads": "widths", "beta": 0.5}),
    ],
    ids=["join", "leave", "leave, widths"],
)
def test_servers_that_are_killed_with_each_message_of_a_join_or_leave_finish_it(
    tmp_path, before, after, rules
):
    # Without noise two runs show the same arms.
    killed = TwoEpochs(tmp_path, after=after, names=before, posterior_scale=0.0, **rules)
    copy = tmp_path / "undisturbed"
    asyncio.run(before_it(killed))
    shutil.copytree(tmp_path, copy, ignore=shutil.ignore_patterns("undisturbed"))
    wires = []

    async def hand_over():
        wires.append(HandoverWire(tmp_path))
        await asyncio.wait_for(wires[0].run(), TIMEOUT_S)

    async def state_of(world):
        async with world.pair(is_moving=True) as (active, helper):
            await active.start()
            assert (active.epoch, helper.epoch) == (NEXT, NEXT)
            handed_over = [words(server.held()) for server in (active, helper)]
            await go_on(active, world)
            return handed_over, revealed(active, helper)

    asyncio.run(hand_over())
    n_messages = n_messages_of(killed)
    assert wires[0].n_killed == {"active": 2 * n_messages, "helper": 2 * n_messages}
    # Each message was sent in one spelling, and got one answer.
    sent = [request for request, _ in in_order(wires[0].answers)]
    assert len(sent) == len(wires[0].answers)
    assert sum(data[0] in HANDED_OVER for data in sent) == n_messages
    (handed_over, learnt), (wanted, also_learnt) = (
        asyncio.run(state_of(world)) for world in (killed, TwoEpochs(copy))
    )
    assert handed_over == [json.loads((tmp_path / f"{s}.held").read_text()) for s in "ab"]
    assert handed_over == wanted
    for came, want in zip(learnt, also_learnt, strict=True):
        assert np.abs(came - want).max() < 1e-9
