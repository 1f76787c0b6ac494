"""A listening process that says on its standard output whom gRPC's core turned away, and why.

Run as ``python refusal_watcher.py FOLDER``; a line on its standard input ends it.
"""

import asyncio
import os
import sys
from pathlib import Path

from vfbandits.transport.rpc.core_log import CoreLog


def say(reason, address):
    print(f"refused {address}: {reason}", flush=True)


async def listen(folder):
    # Not before the log has been started.
    from networks import ACTIVE_NAME, files  # noqa: PLC0415  (after the log is led through a pipe)

    from vfbandits.transport.rpc.server import RpcListener  # noqa: PLC0415  (after the log is led through a pipe)

    async def read(link):
        while True:
            await link.receive()

    listener = RpcListener("127.0.0.1:0", tls=files(folder, ACTIVE_NAME))
    print(await listener.start(read), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    await listener.stop(grace_s=0.0)


if __name__ == "__main__":
    log = CoreLog(say)
    log.start()
    print("before", file=sys.stderr)
    asyncio.run(listen(Path(sys.argv[1])))
    os.write(2, b"I am no record\nprogress 50 %\r")
    print("after", file=sys.stderr)
    log.stop()
    print("at the end", file=sys.stderr)
    print("GRPC_TRACE" in os.environ, flush=True)
