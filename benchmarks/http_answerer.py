"""The other end of ``http_fan_out``: a process that answers with ready bytes on one gRPC stream.

``python -m benchmarks.http_answerer folder port bytes``: dials over mutual TLS, and answers each
message that asks for n rounds with n times as many bytes, until the stream ends.
"""

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

import grpc

from benchmarks.http_fan_out import ASKED_BYTES, CLIENT, JOIN
from benchmarks.loopback_tls import HOST, LoopbackCertificates
from vfbandits.transport.event_loop import run

MAX_ROUNDS = 64


async def answer(folder: Path, port: int, size_bytes: int) -> None:
    """Answer until the other end has had enough."""
    made = LoopbackCertificates(folder)
    credentials = grpc.ssl_channel_credentials(
        made.authority.read_bytes(), made.key.read_bytes(), made.certificate.read_bytes()
    )
    values = os.urandom(MAX_ROUNDS * size_bytes)
    async with grpc.aio.secure_channel(f"{HOST}:{port}", credentials, options=CLIENT) as channel:
        stream: grpc.aio.StreamStreamCall[bytes, bytes] = channel.stream_stream(JOIN)()
        with suppress(grpc.aio.AioRpcError, grpc.aio.BaseError, asyncio.InvalidStateError):
            await stream.write(b"here")
            while isinstance(asked := await stream.read(), bytes):
                await stream.write(values[: len(asked) // ASKED_BYTES * size_bytes])


if __name__ == "__main__":
    run(answer(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
