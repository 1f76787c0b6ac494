"""Applications that call over HTTP, many at a time: one process of load, as light as it can be.

Requests are ready bytes, answers are looked at no further than their length, and all connections
are kept alive.  As a program it plays a turn for each line that comes (see ``http_line``).
"""

import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, cycle
from typing import cast
from uuid import uuid4

from benchmarks.http_line import Turn, answer_lines
from benchmarks.loopback_tls import HOST
from vfbandits.transport.event_loop import run

HEAD_END = b"\r\n\r\n"
LENGTH = b"content-length: "
EVENT_ID = b'{"event_id":"'
PLACE = "@" * 32  # of an id
END_S = 30.0


@dataclass(frozen=True, slots=True)
class Load:
    """What is called: ``rewards`` says whether each decision is given a reward at once.

    ``named`` gives every event an id of its own, as applications do that may have to ask again.
    ``base`` is the beginning of every path, ``headers`` are lines that a proxy would add, and
    ``source`` is the address that is called from.
    """

    port: int
    users: tuple[str, ...]
    arms: tuple[str, ...]
    key: str = field(default="", repr=False)
    rewards: bool = False
    named: bool = False
    base: str = "/v1"
    headers: str = ""
    source: str = HOST

    def ranks(self) -> Iterator[bytes]:
        """Requests without end, for one user after the other."""
        id_of = {"event_id": PLACE} if self.named else {}
        bodies = [{"user": user, "arms": list(self.arms), **id_of} for user in self.users]
        requests = cycle([self.request("/rank", body) for body in bodies])
        if not self.named:
            return requests
        names = (b"%032x" % number for number in count(uuid4().int >> 1))
        return (
            one.replace(PLACE.encode(), name) for one, name in zip(requests, names, strict=True)
        )

    def request(self, path: str, body: object) -> bytes:
        """A whole request."""
        text = json.dumps(body, separators=(",", ":")).encode()
        head = (
            f"POST {self.base}{path} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\n"
        )
        who = f"authorization: Bearer {self.key}\r\n" if self.key else ""
        return f"{head}{who}{self.headers}content-length: {len(text)}\r\n\r\n".encode() + text


class Visitors:
    """Connections that send a request as soon as the one before it is answered."""

    def __init__(self, load: Load, *, end: float) -> None:
        self.end = end
        self.seconds: list[float] = []
        self.load = load
        self.ranks = load.ranks()
        self.is_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open: set[asyncio.Transport] = set()
        around = load.request("/events/@/reward", {"value": 1.0}).split(b"@")
        self._before, self._after = around

    def begin(self, connection: asyncio.Transport) -> None:
        """A connection has begun."""
        self._open.add(connection)

    def finish(self, connection: asyncio.Transport) -> None:
        """A connection has ended."""
        self._open.discard(connection)
        if not self._open and not self.is_over.done():
            self.is_over.set_result(None)

    def fail(self, reason: str) -> None:
        """End the turn: its time would mean nothing."""
        if not self.is_over.done():
            self.is_over.set_exception(ConnectionError(reason))

    async def hang_up(self) -> None:
        """End the connections that are left."""
        while self._open:
            for connection in self._open:
                connection.abort()
            await asyncio.sleep(0)

    def reward(self, answer: bytes, start: int) -> bytes:
        """The reward of the event that was answered."""
        start += len(EVENT_ID)
        return self._before + answer[start : answer.index(b'"', start)] + self._after


class Visitor(asyncio.Protocol):
    """One connection; a reward is sent after each decision if the load has them."""

    def __init__(self, visitors: Visitors) -> None:
        self._visitors = visitors
        self._came = b""
        self._is_ranking = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has its methods only
        self._visitors.begin(self._transport)
        self._send(next(self._visitors.ranks), is_ranking=True)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the turn, unless it was we who ended it."""
        if exc is not None or time.perf_counter() < self._visitors.end:
            self._visitors.fail("a connection was lost")
        self._visitors.finish(self._transport)

    def data_received(self, data: bytes) -> None:
        """Take note of a whole answer, and send the next request."""
        came = self._came + data if self._came else data
        start = came.find(HEAD_END) + len(HEAD_END)
        if start < len(HEAD_END):
            self._came = came
            return
        place = came.index(LENGTH) + len(LENGTH)
        if len(came) < start + int(came[place : came.index(b"\r", place)]):
            self._came = came
            return
        self._came = b""
        self._answered(came, start)

    def _answered(self, answer: bytes, start: int) -> None:
        visitors, now = self._visitors, time.perf_counter()
        if not answer.startswith(b"HTTP/1.1 200"):
            visitors.fail(f"wanted 200, got {answer[:200]!r}")
            return
        visitors.seconds.append(now - self._sent)
        if self._is_ranking and visitors.load.rewards:
            self._send(visitors.reward(answer, start), is_ranking=False)
        elif now < visitors.end:
            self._send(next(visitors.ranks), is_ranking=True)
        else:
            self._transport.close()

    def _send(self, request: bytes, *, is_ranking: bool) -> None:
        self._is_ranking = is_ranking
        self._sent = time.perf_counter()
        self._transport.write(request)


async def play(load: Load, *, connections: int, seconds: float) -> Turn:
    """Call for some seconds over so many connections."""
    loop = asyncio.get_running_loop()
    start = time.perf_counter()
    visitors = Visitors(load, end=start + seconds)
    for _ in range(connections):
        await loop.create_connection(
            lambda: Visitor(visitors), HOST, load.port, local_addr=(load.source, 0)
        )
    try:
        async with asyncio.timeout(seconds + END_S):
            await visitors.is_over
    finally:
        await visitors.hang_up()
    return Turn.of(visitors.seconds, time.perf_counter() - start)


async def _answer(line: str) -> Turn:
    asked = json.loads(line)
    return await play(
        Load(**asked["load"]), connections=asked["in_flight"], seconds=asked["seconds"]
    )


if __name__ == "__main__":
    run(answer_lines(_answer))
