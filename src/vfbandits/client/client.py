"""A typed client of the HTTP interface; ``async_client.py`` has the same, to be awaited."""

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self, TypeVar, Unpack

import httpx2

from vfbandits.client import schemas
from vfbandits.client.calls import ArmLike, Call, Calls, Changes, RewardLike, rank_request
from vfbandits.client.connection import LIMITS, Certificate, Connection, Verify
from vfbandits.client.retry import Tries, retry_after_s

Answer = TypeVar("Answer")


class Client:
    """Asks a server which arm to show, and tells it how that went.

    It keeps connections open: use one for the life of the process, in as many threads as there
    are.  Calls raise ``ApiError`` if the server refuses and ``ApiUnreachable`` if it cannot be
    reached.  Within ``timeout_s``, which is for the whole call, one that was lost or put off is
    sent again, ever later, and up to ``retries`` times if that is a number; since every event has
    an id, nothing is done twice.

    Parameters
    ----------
    base_url
        Of the server, such as ``https://bandit.internal:8443``.
    key
        API key; it is never shown.
    campaign
        Which of the server's models to use.
    verify
        Certificate authority to trust (a file), or a TLS context; None for the system's.
    cert
        Certificate and private key (files), for mutual TLS.
    transport
        Another way to send than over sockets, such as to an application in the same process.

    Examples
    --------
    >>> def server(request: httpx2.Request) -> httpx2.Response:  # stands for one that runs
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
        self._connection = Connection(base_url, key, timeout_s, retries, verify, cert)
        self._calls = Calls(campaign)
        self._http = httpx2.Client(
            base_url=base_url,
            headers=self._connection.headers(),
            verify=self._connection.tls(),
            limits=LIMITS,
            transport=transport,
        )

    def rank(
        self,
        user: str,
        arms: Iterable[ArmLike],
        *,
        event_id: str | None = None,
        exclude: Iterable[str] = (),
        baseline: str | None = None,
        features: Iterable[float] | None = None,
        activate: bool = True,
    ) -> schemas.RankResponse:
        """Which arm to show; ``schemas.RankRequest`` tells the rest.

        An arm is an id, a pair of id and features, or a ``schemas.Arm``.  The same ``event_id``
        gets the same answer; one is made up if there is none.
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
        """One result for each request, in their order: an answer, or a problem."""
        return self._send(self._calls.rank_many(requests)).results

    def reward(self, event_id: str, value: float, *, reward_id: str = "") -> schemas.RewardResponse:
        """Say how an event went.  The same reward again changes nothing."""
        return self._send(self._calls.reward(event_id, value, reward_id))

    def reward_many(self, rewards: Iterable[RewardLike]) -> list[schemas.RewardResult]:
        """Say how several events went: pairs of event id and value, or ``schemas.EventReward``."""
        return self._send(self._calls.reward_many(rewards)).results

    def activate(self, event_id: str) -> schemas.ActivateResponse:
        """The arm is shown now, for an event ranked with ``activate=False``."""
        return self._send(self._calls.activate(event_id))

    def retract(self, event_id: str) -> schemas.RetractResponse:
        """Take back a reward that was learnt; needs the scope "admin"."""
        return self._send(self._calls.retract(event_id))

    def event(self, event_id: str) -> schemas.EventResponse:
        """One event as it stands."""
        return self._send(self._calls.event(event_id))

    def model(self) -> schemas.ModelResponse:
        """What there is of the model that may be shown."""
        return self._send(self._calls.model())

    def config(self) -> schemas.ConfigResponse:
        """Settings in force."""
        return self._send(self._calls.config())

    def change_config(self, **changes: Unpack[Changes]) -> schemas.ConfigResponse:
        """Change settings, such as ``holdback=0.05``; what is left out stays.

        Unlike the others this is not sent again when its answer was lost.
        """
        return self._send(self._calls.change_config(changes))

    def campaigns(self) -> list[str]:
        """Names of the server's campaigns."""
        return self._send(self._calls.campaigns()).campaigns

    def ready(self) -> schemas.Health:
        """Whether the server may be sent traffic, and if not why."""
        return self._send(self._calls.ready())

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        """It closes with the block."""
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
        """Where it goes; not the key."""
        return f"Client({self._connection.base_url!r}, campaign={self._calls.campaign!r})"

    def _send(self, call: Call[Answer]) -> Answer:
        terms = self._connection
        tries = Tries(call, retries=terms.retries, timeout_s=terms.timeout_s)
        while True:
            try:
                response = self._http.request(
                    call.method,
                    call.path,
                    content=call.body,
                    headers=call.headers,
                    timeout=tries.left_s(),
                )
            except httpx2.RequestError as error:
                pause_s = tries.pause_after_failure(error)
            else:
                wanted_s = tries.pause_after_answer(response)
                if wanted_s is None:
                    return call.read(response, retry_after_s=retry_after_s(response))
                pause_s = wanted_s
            time.sleep(pause_s)
