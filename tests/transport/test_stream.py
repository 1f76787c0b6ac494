"""A link on a stream that takes messages at once, or not for a while."""

import asyncio

from vfbandits.protocol.messages import Ping
from vfbandits.transport.channel import Peer
from vfbandits.transport.rpc.codec import decode_to_active, decode_to_passive
from vfbandits.transport.rpc.stream import End, StreamLink
from vfbandits.transport.rpc.waiting import MAX_MESSAGES


class GatedStream:
    """Takes nothing until it is opened, then everything without waiting."""

    def __init__(self):
        self.is_open = asyncio.Event()
        self.written = []

    async def read(self):
        await asyncio.Event().wait()

    async def write(self, message, /):
        if not self.is_open.is_set():
            await self.is_open.wait()
        self.written.append(decode_to_passive(message).number)


def test_whoever_waited_for_room_is_written_too_though_the_writer_had_nothing_left():
    async def main():
        stream = GatedStream()
        link = StreamLink(Peer("bank", "passive", ""), End(stream, decode_to_active))
        numbers = range(3 * MAX_MESSAGES)
        sending = asyncio.gather(*(link.send(Ping(number)) for number in numbers))
        await asyncio.sleep(0.01)
        assert not sending.done()
        stream.is_open.set()
        await asyncio.wait_for(sending, 30.0)
        await link.close()
        assert stream.written == [*numbers]

    asyncio.run(main())
