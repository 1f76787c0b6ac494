"""The other ends of links, as processes of their own, for the tests of real connections."""

import asyncio
import subprocess
import sys
from pathlib import Path

import fork_server
from certificates import FEDERATION
from networks import ACTIVE_NAME, files

from vfbandits.errors import LinkError
from vfbandits.protocol.messages import Ping, Pong
from vfbandits.transport.rpc.client import RpcDialer
from vfbandits.transport.rpc.server import RpcListener
from vfbandits.transport.rpc.tls import host_name


def start(role, address, folder, name):
    """A peer as a process; its first line says that it is there."""
    command = [sys.executable, __file__, role, address, str(folder), name]
    return fork_server.Popen(command, stdout=subprocess.PIPE, text=True)


async def answer(address, folder, name):
    """Dial, and answer every ping."""
    dialer = RpcDialer(
        address,
        tls=files(folder, name),
        name=name,
        role="passive",
        server_name=host_name(ACTIVE_NAME, FEDERATION),
    )
    link = await dialer.dial(timeout_s=60.0)
    print("ready", flush=True)
    while True:
        message = await link.receive()
        if isinstance(message, Ping):
            await link.send(Pong(message.number))


async def listen(address, folder, name):
    """Listen, and read whatever comes."""

    async def read(link):
        while True:
            await link.receive()

    listener = RpcListener(address, tls=files(folder, name))
    print(await listener.start(read), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    role, address, folder, name = sys.argv[1:]
    try:
        asyncio.run({"answer": answer, "listen": listen}[role](address, Path(folder), name))
    except LinkError as error:
        print(error, flush=True)
