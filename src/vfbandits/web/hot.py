"""The two calls that come with every visitor, rank and reward: from a whole body to a whole answer.

They are known by method and path alone, so they need no router (``short_way.py``).  What they
answer is what the routes of the same paths do.
"""

import time
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from vfbandits.web.handlers import JSON, Handlers, refuse_unless_json
from vfbandits.web.metrics import Metrics
from vfbandits.web.refuse import on_error

RANK: Final = "/v1/rank"
EVENTS: Final = "/v1/events/"
REWARD: Final = "/reward"
_LEAST: Final = len(EVENTS) + len(REWARD)
_JSON: Final = JSON.encode()


class HotCall(NamedTuple):
    """One of the two: its route, and the event that a reward is for."""

    route: str
    event_id: str | None


_RANK: Final = HotCall(RANK, None)


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
        return None if "\n" in event_id else HotCall("/v1/events/{event_id}/reward", event_id)
    return None


class HotCalls:
    """Answers them for an application."""

    def __init__(self, handlers: Handlers, metrics: Metrics) -> None:
        self._handlers = handlers
        self._metrics = metrics

    async def answer(self, call: HotCall, scope: Scope, body: bytes) -> bytes | Response:
        """JSON that goes with 200, or another response."""
        started = time.perf_counter()
        handlers, event_id = self._handlers, call.event_id
        try:
            campaign = handlers.campaign(scope, "rank" if event_id is None else "reward")
            _refuse_unless_json(scope)
            if event_id is None:
                answer = await handlers.rank_bytes(campaign, body)
            else:
                answer = await handlers.reward_bytes(campaign, event_id, body)
        except Exception as error:  # noqa: BLE001  (told as a problem, and logged if it is ours)
            response = await on_error(Request(scope), error)
            seconds = time.perf_counter() - started
            self._metrics.http(call.route, "POST", response.status_code, seconds)
            return response
        self._metrics.http(call.route, "POST", 200, time.perf_counter() - started)
        return answer


def _refuse_unless_json(scope: Scope) -> None:
    """A body that does not say what it is may be JSON."""
    for name, value in scope["headers"]:
        if name == b"content-type":
            if value != _JSON:
                refuse_unless_json(value.decode("latin-1"))
            return
