"""One server of secret shares, to be killed: ``active FOLDER SOCKET`` or ``helper FOLDER SOCKET``.

``moving FOLDER SOCKET`` is server A in a hand-over.

The test stands between the two servers.  A frame is a length, a number, a mark and bytes; the mark
of an answer says whether it is one, a refusal, or that the helper is gone.
"""

import asyncio
import itertools
import json
import os
import random
import struct
import sys
from contextlib import suppress
from pathlib import Path

from durable_shares import AFTER, ARMS, DealtWorld, TwoEpochs, arms_of, reward_of, shared_blocks

from vfbandits.errors import LinkError, SharesError

HEAD = struct.Struct("<IQB")
ANSWER, REFUSED, GONE = range(3)
N_WORKERS = 3


def frame(number, mark, data):
    return HEAD.pack(len(data), number, mark) + data


async def read_frame(reader):
    size, number, mark = HEAD.unpack(await reader.readexactly(HEAD.size))
    return number, mark, await reader.readexactly(size)


def dump(server, path):
    """The words of a server's side of the state, in a file."""
    held = [part.tobytes().hex() for part in server.held()]
    path.with_suffix(".part").write_text(json.dumps(held))
    path.with_suffix(".part").rename(path)


def world_of(folder):
    return (TwoEpochs if (folder / AFTER).exists() else DealtWorld)(folder)


async def helper_main(folder, address):
    helper = world_of(folder).helper()
    tasks = set()

    async def answer(writer, number, data):
        try:
            reply = frame(number, ANSWER, await helper.answer(data))
        except SharesError as error:
            reply = frame(number, REFUSED, str(error).encode())
        writer.write(reply)

    async def serve(reader, writer):
        with suppress(asyncio.IncompleteReadError):
            while True:
                number, _, data = await read_frame(reader)
                task = asyncio.create_task(answer(writer, number, data))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        dump(helper, folder / "b.held")
        await helper.close()
        done.set()

    done = asyncio.Event()
    await asyncio.start_unix_server(serve, address)
    await done.wait()


class Link:
    """Messages to the test, by number."""

    def __init__(self, reader, writer):
        self._reader, self._writer = reader, writer
        self._numbers = itertools.count()
        self._waiting = {}
        self._task = asyncio.create_task(self._read())

    async def ask(self, data):
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        self._writer.write(frame(number, ANSWER, data))
        mark, answer = await self._waiting[number]
        if mark == GONE:
            raise LinkError("the helper is gone")
        if mark == REFUSED:
            raise SharesError(answer.decode())
        return answer

    async def _read(self):
        while True:
            number, mark, data = await read_frame(self._reader)
            self._waiting.pop(number).set_result((mark, data))


class Campaign:
    """Decides and rewards; what it knows of earlier lives is a file of references."""

    def __init__(self, folder, active, participants):
        self.active, self.participants = active, participants
        self.stop, self.refs = folder / "stop", folder / "refs"
        self.rng = random.Random(os.getpid())  # noqa: S311
        refs = self.refs.read_text().split() if self.refs.exists() else []
        self.waiting = [ref for ref in refs if active.status(ref) == "waits"]

    async def work(self):
        while not self.stop.exists():
            with suppress(LinkError):
                if self.waiting and self.rng.random() < 0.4:
                    await self.reward()
                else:
                    self.waiting.append(await self.decide())

    async def decide(self):
        """A decision whose reference is its slot."""
        async with self.active.decision() as slot:
            ref = f"{slot.place.window}/{slot.place.slot}"
            with self.refs.open("a") as file:
                file.write(f"{ref}\n")
            blocks = shared_blocks(self.participants, slot.place, self.active.terms)
            offer = await self.active.offer(*arms_of(slot.place, self.active.terms))
            opened = await slot.decide(await slot.prepare(), blocks, offer)
            await slot.pick(opened, opened.arm, ref=ref)
            return ref

    async def reward(self):
        ref = self.waiting.pop(self.rng.randrange(len(self.waiting)))
        try:
            await self.active.learn(ref, reward_of(tuple(map(int, ref.split("/")))))
        finally:
            if self.active.status(ref) == "waits":
                self.waiting.append(ref)


async def active_main(folder, address):
    world = DealtWorld(folder)
    link = Link(*await asyncio.open_unix_connection(address))
    active = world.active(link.ask)
    while True:
        with suppress(LinkError):
            await active.start()
            break
    campaign = Campaign(folder, active, world.participants())
    # The first life numbers the arms, in an order of its own.
    await active.offer(campaign.rng.sample(ARMS, len(ARMS)), None)
    async with asyncio.TaskGroup() as group:
        for _ in range(N_WORKERS):
            group.create_task(campaign.work())
    await active.close()
    dump(active, folder / "a.held")


async def moving_main(folder, address):
    """Server A that hands its state over to the next epoch, and ends."""
    link = Link(*await asyncio.open_unix_connection(address))
    active = TwoEpochs(folder).active(link.ask, is_moving=True)
    while True:
        with suppress(LinkError):
            await active.start()
            break
    await active.close()
    dump(active, folder / "a.held")


if __name__ == "__main__":
    role, folder, address = sys.argv[1:]
    main = {"active": active_main, "helper": helper_main, "moving": moving_main}[role]
    asyncio.run(main(Path(folder), address))
