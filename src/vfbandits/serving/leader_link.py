"""A ranker's link to the leader: contexts for its decisions, and the federation's status."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple

from vfbandits.errors import LinkError, VFBanditsError, WireError
from vfbandits.protocol.application import (
    DecideRequest,
    GatherOutcome,
    GatherRequest,
    StatusRequest,
)
from vfbandits.serving.batches import MAX_BATCH_BYTES
from vfbandits.serving.concurrency import Batcher
from vfbandits.telemetry.supervised import Supervised, Supervisor
from vfbandits.transport.rpc.application import ApplicationClient

PATIENCE_S = 5.0
TRY_EVERY_S = 0.1
LOOK_EVERY_S = 1.0
STATUS_S = 2.0


class _Asked(NamedTuple):
    """Decisions whose contexts one caller wants."""

    requests: tuple[DecideRequest, ...]
    size_bytes: int


class LeaderLink:
    """Calls the present leader.

    A call that finds no leader, because the last one was killed, is retried for ``patience_s``:
    by then another has taken over, or there is none.  ``answer_s`` is the deadline of one call.
    """

    def __init__(
        self,
        client: ApplicationClient,
        *,
        answer_s: float,
        patience_s: float = PATIENCE_S,
        supervisor: Supervisor | None = None,
    ) -> None:
        self._client = client
        self._answer_s = answer_s
        self._patience_s = patience_s
        self._gathering: Batcher[_Asked, list[GatherOutcome]] = Batcher(
            self._gather_all,
            size_of=lambda asked: asked.size_bytes,
            max_size=MAX_BATCH_BYTES,
        )
        self._participants: Mapping[str, Mapping[str, object]] = {}
        self._supervisor = Supervisor() if supervisor is None else supervisor
        self._task: Supervised | None = None
        self._link_changes: list[tuple[float, str, str]] = []

    def participants(self) -> Mapping[str, Mapping[str, object]]:
        """Each participant as the leader saw it a second ago; empty without a leader."""
        return self._participants

    def link_changes(self) -> list[tuple[float, str, str]]:
        """Participants that came and went, as the last leader that answered saw it."""
        return self._link_changes

    def start(self) -> None:
        """Begin to look at the federation."""
        self._task = self._supervisor.start("leader", self._look_for_ever)

    async def stop(self) -> None:
        """Finish open calls and disconnect."""
        if self._task is not None:
            await self._task.stop()
        await self._gathering.close()
        await self._client.close()

    async def gather(
        self, requests: Sequence[DecideRequest], *, size_bytes: int
    ) -> list[GatherOutcome]:
        """The masked contexts of decisions, or why there are none, in their order.

        Requests of callers that wait together go into one call.  ``size_bytes`` is the size of the
        requests and their outcomes.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + self._patience_s
        outcomes = await self._gathering.submit(_Asked(tuple(requests), size_bytes))
        while loop.time() < end:
            lost = [place for place, one in enumerate(outcomes) if isinstance(one, LinkError)]
            if not lost:
                break
            await asyncio.sleep(TRY_EVERY_S)
            again = _Asked(tuple([requests[place] for place in lost]), size_bytes)
            for place, outcome in zip(lost, await self._gathering.submit(again), strict=True):
                outcomes[place] = outcome
        return outcomes

    async def _gather_all(self, asked: Sequence["_Asked"]) -> list[list[GatherOutcome]]:
        """Make one call for several callers; each gets the outcomes of its own requests."""
        requests = tuple(chain.from_iterable([one.requests for one in asked]))
        outcomes = iter(await self._call(requests))
        return [[*islice(outcomes, len(one.requests))] for one in asked]

    async def _call(self, requests: tuple[DecideRequest, ...]) -> Sequence[GatherOutcome]:
        try:
            replies = await self._client.gather(GatherRequest(requests), timeout_s=self._answer_s)
            if len(replies.outcomes) == len(requests):
                return replies.outcomes
            raise WireError(f"wanted {len(requests)} outcomes, got {len(replies.outcomes)}")
        except LinkError as error:
            return [error] * len(requests)
        except VFBanditsError as error:
            if len(requests) == 1:
                return [error]
        # At least one request cannot be sent or answered: send each alone.
        alone = await asyncio.gather(*(self._call((one,)) for one in requests))
        return [outcome for (outcome,) in alone]

    async def _look_for_ever(self) -> None:
        while True:
            try:
                reply = await self._client.status(StatusRequest(), timeout_s=STATUS_S)
                self._participants, self._link_changes = _read_status(reply.document)
            except VFBanditsError:  # no leader at present; decisions get their own errors
                self._participants = {}
            await asyncio.sleep(LOOK_EVERY_S)


def _read_status(
    document: str,
) -> tuple[dict[str, Mapping[str, object]], list[tuple[float, str, str]]]:
    """Participants, and the latest changes of their links."""
    try:
        status = json.loads(document)
        participants = status.get("participants", {}).items()
        changes = status.get("link_changes", [])
        return (
            {str(name): dict(facts) for name, facts in participants},
            [(float(at), str(name), str(event)) for at, name, event in changes],
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise WireError(f"wanted a status with participants, got {document[:60]!r}") from error
