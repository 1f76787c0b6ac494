"""A ranker's way to the leader: contexts for its decisions, and how the federation is."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping

from vfbandits.errors import LinkError, VFBanditsError, WireError
from vfbandits.protocol.application import DecideRequest, GatherReply, StatusRequest
from vfbandits.service.supervised import Supervised, Supervisor
from vfbandits.transport.rpc.application import ApplicationClient

PATIENCE_S = 5.0
TRY_EVERY_S = 0.1
LOOK_EVERY_S = 1.0
STATUS_S = 2.0


class Leader:
    """Asks whoever leads now.

    While nobody does, because the last one was killed, a call is made again for ``patience_s``:
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
        self._participants: Mapping[str, Mapping[str, object]] = {}
        self._supervisor = Supervisor() if supervisor is None else supervisor
        self._task: Supervised | None = None
        self._link_changes: list[tuple[float, str, str]] = []

    def participants(self) -> Mapping[str, Mapping[str, object]]:
        """Each participant as the leader saw it a second ago; nobody if there is no leader."""
        return self._participants

    def link_changes(self) -> list[tuple[float, str, str]]:
        """Participants that came and went, as the last leader that answered saw it."""
        return self._link_changes

    def start(self) -> None:
        """Begin to look at the federation."""
        self._task = self._supervisor.start("leader", self._look_for_ever)

    async def stop(self) -> None:
        """Hang up."""
        if self._task is not None:
            await self._task.stop()
        await self._client.close()

    async def gather(self, request: DecideRequest) -> GatherReply:
        """The masked contexts of a decision."""
        return await with_patience(
            lambda: self._client.gather(request, timeout_s=self._answer_s),
            patience_s=self._patience_s,
        )

    async def _look_for_ever(self) -> None:
        while True:
            try:
                reply = await self._client.status(StatusRequest(), timeout_s=STATUS_S)
                self._participants, self._link_changes = _read_status(reply.document)
            except VFBanditsError:  # nobody leads just now; decisions find out for themselves
                self._participants = {}
            await asyncio.sleep(LOOK_EVERY_S)


async def with_patience(
    call: Callable[[], Awaitable[GatherReply]], *, patience_s: float
) -> GatherReply:
    """What ``call`` gives, made again for a while as long as there is no link."""
    loop = asyncio.get_running_loop()
    end = loop.time() + patience_s
    while True:
        try:
            return await call()
        except LinkError:
            if loop.time() >= end:
                raise
        await asyncio.sleep(TRY_EVERY_S)


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
        raise WireError("wanted a status with participants, got another") from error
