"""Requests to rank that arrive in the same turn of the event loop are decided in one batch.

A batch costs little more than a single decision, and its records are made durable together.
"""

import asyncio
from collections.abc import Sequence
from typing import TypeAlias

from vfbandits.campaign.query import Query
from vfbandits.serving.served import BATCH_SIZE, Served

_Waiting: TypeAlias = tuple[Query, "asyncio.Future[bytes]"]


class RankBatcher:
    """Collects requests for one turn of the loop, separately for each campaign."""

    def __init__(self) -> None:
        self._waiting: dict[Served, list[_Waiting]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, campaign: Served, asked: Query) -> "asyncio.Future[bytes]":
        """The answer, once its batch is decided; its error if this request fails."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._start)
        answer: asyncio.Future[bytes] = loop.create_future()
        self._waiting.setdefault(campaign, []).append((asked, answer))
        return answer

    def _start(self) -> None:
        waiting, self._waiting = self._waiting, {}
        loop = asyncio.get_running_loop()
        for campaign, requests in waiting.items():
            # A larger batch would save little, and all would wait for its last decision.
            for start in range(0, len(requests), BATCH_SIZE):
                batch = requests[start : start + BATCH_SIZE]
                task = loop.create_task(_decide(campaign, batch))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)


async def _decide(campaign: Served, batch: Sequence[_Waiting]) -> None:
    results: Sequence[bytes | Exception]
    try:
        results = await campaign.rank_many([asked for asked, _ in batch])
    except Exception as error:  # noqa: BLE001  (raised again to each that waits)
        results = [error] * len(batch)
    for (_, answer), result in zip(batch, results, strict=True):
        if answer.done():  # cancelled: the server stops, and the decision is durable all the same
            continue
        if isinstance(result, Exception):
            answer.set_exception(result)
        else:
            answer.set_result(result)
