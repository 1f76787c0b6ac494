"""A process that dials out and answers every frame it gets with one; it ends with the connection.

The orchestrator starts it as ``python -m benchmarks.raw_answerer`` with its settings as JSON.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, TypeAlias

from benchmarks.loopback_tls import HOST, LoopbackCertificates
from benchmarks.masked_arithmetic import Participant, RoundShape, make_participant
from benchmarks.raw_frames import HEADER, FrameConnection

Mode: TypeAlias = Literal["ready", "compute"]
Answer: TypeAlias = Callable[[FrameConnection, memoryview], None]
LARGEST_REQUEST_BYTES = 4096


@dataclass(frozen=True, slots=True)
class AnswererSettings:
    """Whom to dial, and what to answer: ``shape`` is (n_participants, n_arms, dim)."""

    port: int
    certificates: str
    mode: Mode
    position: int
    shape: tuple[int, int, int]


async def answer_until_closed(settings: AnswererSettings) -> None:
    """Dial, and answer until the other end closes."""
    loop = asyncio.get_running_loop()
    closed = loop.create_future()
    connection = partial(
        FrameConnection,
        LARGEST_REQUEST_BYTES,
        on_made=lambda _: None,
        on_frame=make_answer(settings),
        on_lost=lambda: closed.set_result(None),
    )
    certificates = LoopbackCertificates(Path(settings.certificates))
    await loop.create_connection(connection, HOST, settings.port, ssl=certificates.dialler())
    await closed


def make_answer(settings: AnswererSettings) -> Answer:
    """Prepare what can be: all of a ready answer, the length of a computed one."""
    shape = RoundShape(*settings.shape)
    header = HEADER.pack(shape.size_bytes)
    if settings.mode == "ready":
        # One piece: a header of its own would be a record of its own.
        return partial(_answer_ready, header + os.urandom(shape.size_bytes))
    return partial(_answer_computed, header, make_participant(shape, settings.position))


def _answer_ready(frame: bytes, connection: FrameConnection, request: memoryview) -> None:
    del request
    connection.send(frame)


def _answer_computed(
    header: bytes, participant: Participant, connection: FrameConnection, request: memoryview
) -> None:
    del request
    connection.send(header, participant.masked_block().data.cast("B"))


if __name__ == "__main__":
    asyncio.run(answer_until_closed(AnswererSettings(**json.loads(sys.argv[1]))))
