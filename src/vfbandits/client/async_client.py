"""The methods of ``client.py`` as coroutines."""

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Self, TypeVar, Unpack

import httpx2

from vfbandits.client import schemas
from vfbandits.client.calls import (
    ArmLike,
    Call,
    Calls,
    Changes,
    FeaturesLike,
    RewardLike,
    rank_request,
)
from vfbandits.client.connection import Certificate, Connection, Verify
from vfbandits.client.retry import Tries, retry_after_s

Answer = TypeVar("Answer")


class AsyncClient:
    """``Client`` for asyncio: the same calls, many at a time over a pool of connections.

    Examples
    --------
    >>> def server(request: httpx2.Request) -> httpx2.Response:  # replaces a running server
    ...     return httpx2.Response(200, json={"event_id": "e1", "status": "learnt"})
    >>> async def shop() -> schemas.RewardResponse:
    ...     transport = httpx2.MockTransport(server)
    ...     async with AsyncClient("http://localhost", transport=transport) as client:
    ...         return await client.reward("e1", 1.0)
    >>> asyncio.run(shop())
    RewardResponse(event_id='e1', status='learnt')
    """

    def __init__(  # noqa: PLR0913  (one argument for each setting)
        self,
        base_url: str,
        *,
        key: str | None = None,
        campaign: str = "default",
        timeout_s: float = 5.0,
        retries: int | None = None,
        verify: Verify = None,
        cert: Certificate = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._connection = Connection(
            base_url, key=key, timeout_s=timeout_s, retries=retries, verify=verify, cert=cert
        )
        self._calls = Calls(campaign)
        self._http = httpx2.AsyncClient(**self._connection.options(), transport=transport)

    async def rank(
        self,
        user: str,
        arms: Iterable[ArmLike],
        *,
        event_id: str | None = None,
        exclude: Iterable[str] = (),
        baseline: str | None = None,
        features: FeaturesLike | None = None,
        activate: bool = True,
    ) -> schemas.RankResponse:
        """Choose an arm; ``schemas.RankRequest`` describes the parameters.

        An arm is an id, a pair of id and features, or a ``schemas.Arm``.  Features are numbers as
        the model sees them, or names with raw values, such as ``{"age": 31}``.  The same
        ``event_id`` gets the same answer; by default the client makes one.
        """
        request = rank_request(
            user,
            arms,
            event_id=event_id,
            exclude=exclude,
            baseline=baseline,
            features=features,
            activate=activate,
        )
        return await self._send(self._calls.rank(request))

    async def rank_many(self, requests: Iterable[schemas.RankRequest]) -> list[schemas.RankResult]:
        """One result for each request, in the order of the requests: an answer or a problem."""
        return (await self._send(self._calls.rank_many(requests))).results

    async def reward(
        self, event_id: str, value: float, *, reward_id: str = ""
    ) -> schemas.RewardResponse:
        """Send the reward of an event.  Sending it again changes nothing."""
        return await self._send(self._calls.reward(event_id, value, reward_id))

    async def reward_many(self, rewards: Iterable[RewardLike]) -> list[schemas.RewardResult]:
        """Send several rewards: pairs of event id and value, or ``schemas.EventReward``."""
        return (await self._send(self._calls.reward_many(rewards))).results

    async def activate(self, event_id: str) -> schemas.ActivateResponse:
        """Activate an event that was ranked with ``activate=False``: its arm is shown now."""
        return await self._send(self._calls.activate(event_id))

    async def retract(self, event_id: str) -> schemas.RetractResponse:
        """Retract a learnt reward; needs the scope "admin"."""
        return await self._send(self._calls.retract(event_id))

    async def event(self, event_id: str) -> schemas.EventResponse:
        """The state of an event."""
        return await self._send(self._calls.event(event_id))

    async def model(self) -> schemas.ModelResponse:
        """The state of the model, without its weights."""
        return await self._send(self._calls.model())

    async def config(self) -> schemas.ConfigResponse:
        """The settings in force."""
        return await self._send(self._calls.config())

    async def change_config(self, **changes: Unpack[Changes]) -> schemas.ConfigResponse:
        """Change settings, such as ``holdback=0.05``; those that are left out stay.

        Unlike the other calls this one is not sent again if its answer was lost.
        """
        return await self._send(self._calls.change_config(changes))

    async def rearm_guardrail(self) -> schemas.ConfigResponse:
        """Let the policy decide again, and compare it with the holdback from now on.

        Needs the scope "admin".  Not sent again if its answer was lost.
        """
        return await self._send(self._calls.rearm_guardrail())

    async def campaigns(self) -> list[str]:
        """Names of the campaigns."""
        return (await self._send(self._calls.campaigns())).campaigns

    async def ready(self) -> schemas.Health:
        """Whether the server is ready for traffic, with the reasons if not."""
        return await self._send(self._calls.ready())

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        """Enter a block, at the end of which the client is closed."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all connections."""
        await self.close()

    def __repr__(self) -> str:
        """URL and campaign, without the key."""
        return f"AsyncClient({self._connection.base_url!r}, campaign={self._calls.campaign!r})"

    async def _send(self, call: Call[Answer]) -> Answer:
        tries = Tries(call, self._connection)
        while True:
            try:
                response = await self._http.request(**tries.request())
            except httpx2.RequestError as error:
                pause_s = tries.pause_after_failure(error)
            else:
                wanted_s = tries.pause_after_answer(response)
                if wanted_s is None:
                    return call.read(response, retry_after_s=retry_after_s(response))
                pause_s = wanted_s
            await asyncio.sleep(pause_s)
