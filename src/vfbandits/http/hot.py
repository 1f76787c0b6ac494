"""The two calls that come with every visitor, rank and reward: from a whole body to a whole answer.

They are known by method and path alone, so they need no router (``short_way.py``).  What they
answer is what the routes of the same paths do.  Calls of rank that come together are answered
together.
"""

import time
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from starlette.responses import Response
from starlette.types import Scope

from vfbandits.campaign.query import Query
from vfbandits.http.handlers import JSON, Handlers, refuse_unless_json
from vfbandits.http.refuse import problem_for
from vfbandits.serving.concurrency import Told
from vfbandits.telemetry.metrics import Metrics

RANK: Final = "/v1/rank"
EVENTS: Final = "/v1/events/"
REWARD: Final = "/reward"
REWARD_ROUTE: Final = "/v1/events/{event_id}/reward"
_LEAST: Final = len(EVENTS) + len(REWARD)
_JSON: Final = JSON.encode()


# JSON that goes with 200, or another response.
Answer: TypeAlias = bytes | Response


class HotCall(NamedTuple):
    """One of the two: a reward for an event, or rank, which is for none yet."""

    event_id: str | None


class Whole(NamedTuple):
    """A call that has come as a whole."""

    scope: Scope
    body: bytes


_RANK: Final = HotCall(None)


def find_call(path: str) -> HotCall | None:
    """What is called with POST at ``path``, if it is one of the two.

    >>> find_call("/v1/events/order-17/reward").event_id
    'order-17'
    >>> find_call("/v1/rank/batch") is None
    True
    """
    if path == RANK:
        return _RANK
    if path.startswith(EVENTS) and path.endswith(REWARD) and len(path) >= _LEAST:
        event_id = path[len(EVENTS) : -len(REWARD)]
        # What the pattern of a route does not match.
        return None if "\n" in event_id else HotCall(event_id)
    return None


class HotCalls:
    """Answers them for an application."""

    def __init__(self, handlers: Handlers, metrics: Metrics) -> None:
        self._handlers = handlers
        self._metrics = metrics

    async def reward(self, event_id: str, call: Whole) -> Answer:
        """The answer to a reward."""
        started = time.perf_counter()
        answer: Told
        try:
            campaign = self._handlers.campaign(call.scope, "reward")
            _refuse_unless_json(call.scope)
            answer = await self._handlers.reward_bytes(campaign, event_id, call.body)
        except Exception as error:  # noqa: BLE001  (told as a problem, and logged if it is ours)
            answer = error
        return self._told(REWARD_ROUTE, call.scope, answer, started)

    async def rank_all(self, calls: Sequence[Whole]) -> list[Answer]:
        """The answers to calls of rank that came together, in their order."""
        started = time.perf_counter()
        read = [self._read(call) for call in calls]
        try:
            answers = await self._handlers.rank_many(read)
        except Exception as error:  # noqa: BLE001  (told as a problem, and logged as ours)
            answers = [error if isinstance(one, Query) else one for one in read]
        return [
            self._told(RANK, call.scope, answer, started)
            for call, answer in zip(calls, answers, strict=True)
        ]

    def _read(self, call: Whole) -> Query | Exception:
        try:
            campaign = self._handlers.campaign(call.scope, "rank")
            _refuse_unless_json(call.scope)
            return self._handlers.query_in(campaign, call.body)
        except Exception as error:  # noqa: BLE001  (told as a problem, and logged if it is ours)
            return error

    def _told(self, route: str, scope: Scope, answer: Told, started: float) -> Answer:
        """The answer, counted, or the problem that it is."""
        status = 200
        told: Answer
        if isinstance(answer, bytes):
            told = answer
        else:
            told = problem_for(scope, answer)
            status = told.status_code
        self._metrics.http(route, "POST", status, time.perf_counter() - started)
        return told


def _refuse_unless_json(scope: Scope) -> None:
    """Raise Unsupported unless the body is announced as JSON."""
    for name, value in scope["headers"]:
        if name == b"content-type":
            if value != _JSON:
                refuse_unless_json(value.decode("latin-1"))
            return
    refuse_unless_json("")
