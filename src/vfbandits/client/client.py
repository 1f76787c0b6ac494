"""A typed client of the HTTP interface; ``async_client.py`` has the same methods as coroutines."""

import time
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


class Client:
    """Requests decisions from a server, and sends it rewards.

    It keeps connections open: use one client for the life of the process, from any number of
    threads.  Calls raise ``ApiError`` if the server refuses and ``ApiUnreachable`` if it cannot be
    reached.  A call that was lost or refused for now is sent again, with exponential back-off,
    until ``timeout_s``, which is for the whole call, and at most ``retries`` times if that is a
    number; since every event has an id, nothing is done twice.

    Parameters
    ----------
    base_url
        URL of the server, such as ``https://bandit.internal:8443``.
    key
        API key; it is never shown.
    campaign
        Campaign of the server.
    verify
        Certificate authority to trust (a file), or a TLS context; None for the system's.
    cert
        Certificate and private key (files), for mutual TLS.
    transport
        Transport of httpx2 instead of sockets, such as one to an application in the same process.

    Examples
    --------
    >>> def server(request: httpx2.Request) -> httpx2.Response:  # replaces a running server
    ...     return httpx2.Response(200, json={"event_id": "e1", "status": "learnt"})
    >>> with Client("http://localhost", transport=httpx2.MockTransport(server)) as client:
    ...     client.reward("e1", 1.0)
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
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._connection = Connection(
            base_url, key=key, timeout_s=timeout_s, retries=retries, verify=verify, cert=cert
        )
        self._calls = Calls(campaign)
        self._http = httpx2.Client(**self._connection.options(), transport=transport)

    def rank(
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
        return self._send(self._calls.rank(request))

    def rank_many(self, requests: Iterable[schemas.RankRequest]) -> list[schemas.RankResult]:
        """One result for each request, in the order of the requests: an answer or a problem."""
        return self._send(self._calls.rank_many(requests)).results

    def reward(self, event_id: str, value: float, *, reward_id: str = "") -> schemas.RewardResponse:
        """Send the reward of an event.  Sending it again changes nothing."""
        return self._send(self._calls.reward(event_id, value, reward_id))

    def reward_many(self, rewards: Iterable[RewardLike]) -> list[schemas.RewardResult]:
        """Send several rewards: pairs of event id and value, or ``schemas.EventReward``."""
        return self._send(self._calls.reward_many(rewards)).results

    def activate(self, event_id: str) -> schemas.ActivateResponse:
        """Activate an event that was ranked with ``activate=False``: its arm is shown now."""
        return self._send(self._calls.activate(event_id))

    def retract(self, event_id: str) -> schemas.RetractResponse:
        """Retract a learnt reward; needs the scope "admin"."""
        return self._send(self._calls.retract(event_id))

    def event(self, event_id: str) -> schemas.EventResponse:
        """The state of an event."""
        return self._send(self._calls.event(event_id))

    def model(self) -> schemas.ModelResponse:
        """The state of the model, without its weights."""
        return self._send(self._calls.model())

    def config(self) -> schemas.ConfigResponse:
        """The settings in force."""
        return self._send(self._calls.config())

    def change_config(self, **changes: Unpack[Changes]) -> schemas.ConfigResponse:
        """Change settings, such as ``holdback=0.05``; those that are left out stay.

        Unlike the other calls this one is not sent again if its answer was lost.
        """
        return self._send(self._calls.change_config(changes))

    def rearm_guardrail(self) -> schemas.ConfigResponse:
        """Let the policy decide again, and compare it with the holdback from now on.

        Needs the scope "admin".  Not sent again if its answer was lost.
        """
        return self._send(self._calls.rearm_guardrail())

    def campaigns(self) -> list[str]:
        """Names of the campaigns."""
        return self._send(self._calls.campaigns()).campaigns

    def ready(self) -> schemas.Health:
        """Whether the server is ready for traffic, with the reasons if not."""
        return self._send(self._calls.ready())

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        """Enter a block, at the end of which the client is closed."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close all connections."""
        self.close()

    def __repr__(self) -> str:
        """URL and campaign, without the key."""
        return f"Client({self._connection.base_url!r}, campaign={self._calls.campaign!r})"

    def _send(self, call: Call[Answer]) -> Answer:
        tries = Tries(call, self._connection)
        while True:
            try:
                response = self._http.request(**tries.request())
            except httpx2.RequestError as error:
                pause_s = tries.pause_after_failure(error)
            else:
                wanted_s = tries.pause_after_answer(response)
                if wanted_s is None:
                    return call.read(response, retry_after_s=retry_after_s(response))
                pause_s = wanted_s
            time.sleep(pause_s)
