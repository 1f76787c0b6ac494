"""A small server that keeps the contract of the HTTP interface, over real sockets.

It decides nothing: the first arm wins.  What it does is count: requests as they came, events as
they are, connections, and how many calls it had at a time.  ``faults`` go wrong, one for each call.
"""

import asyncio
import socket
import threading
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from vfbandits.client import schemas
from vfbandits.http.openapi.examples import example_of
from vfbandits.http.openapi.paths import OPERATIONS

PROBLEM = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Seen:
    """One request; ``raw_path`` is the path as it was sent, ``port`` tells connections apart."""

    method: str
    path: str
    raw_path: bytes
    port: int
    headers: dict[str, str]
    body: object


@dataclass(frozen=True, slots=True)
class Lost:
    """The call is done, and its answer is cut off."""


@dataclass(frozen=True, slots=True)
class Slow:
    """The call takes this long."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Says:
    """The call is not done; this is answered."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


def problem(status, title, detail=""):
    return msgspec.json.encode(schemas.Problem("about:blank", title, status, detail))


class Contract:
    """The application: one method for each handler of the table."""

    def __init__(self):
        self.seen = []
        self.faults = deque()
        self.events = {}
        self.rewards = {}
        self.is_ready = True
        self.n_now = self.most_at_once = 0
        routes = [
            Route(
                each.path.replace("{event_id}", "{event_id:path}"),
                self._handler(each),
                methods=[each.method],
            )
            for each in OPERATIONS
            if hasattr(self, each.handler)
        ]
        self.app = Starlette(routes=routes)

    def _handler(self, operation):
        async def handle(request):
            self.n_now += 1
            self.most_at_once = max(self.most_at_once, self.n_now)
            try:
                return await self._answer(operation, request)
            finally:
                self.n_now -= 1

        return handle

    async def _answer(self, operation, request):
        text = await request.body()
        headers, port = dict(request.headers), request.client.port
        raw = request.scope["raw_path"]
        body = msgspec.json.decode(text) if text else None
        self.seen.append(Seen(request.method, request.url.path, raw, port, headers, body))
        fault = self.faults.popleft() if self.faults else None
        if isinstance(fault, Says):
            return Response(fault.body, fault.status, fault.headers)
        if isinstance(fault, Slow):
            await asyncio.sleep(fault.delay_s)
        asked = msgspec.json.decode(text, type=operation.request) if operation.request else None
        status, answer = getattr(self, operation.handler)(asked, request.path_params)
        media = PROBLEM if isinstance(answer, schemas.Problem) else "application/json"
        encoded = msgspec.json.encode(answer)
        # More is promised than sent, so the server has to close the connection.
        more = {"content-length": str(len(encoded) + 1)} if isinstance(fault, Lost) else {}
        return Response(encoded, status, more, media)

    def rank(self, asked, _):
        ids = [each if isinstance(each, str) else each.id for each in asked.arms]
        made = msgspec.structs.replace(
            example_of(schemas.RankResponse), event_id=asked.event_id, arm=ids[0]
        )
        return 200, self.events.setdefault(asked.event_id, made)

    def rank_batch(self, asked, _):
        answers = [self.rank(each, _)[1] for each in asked.requests]
        return 200, schemas.BatchRankResponse([schemas.RankResult(each) for each in answers])

    def reward(self, asked, named):
        event_id = named["event_id"]
        if event_id not in self.events:
            return 404, schemas.Problem("about:blank", "Unknown event", 404, "wanted a known id")
        before = self.rewards.setdefault((event_id, asked.reward_id), asked)
        if before is asked:
            return 200, schemas.RewardResponse(event_id, "learnt")
        if before == asked:
            return 200, schemas.RewardResponse(event_id, "repeated")
        return 409, schemas.Problem("about:blank", "Contradiction", 409, "wanted the same value")

    def reward_batch(self, asked, _):
        results = []
        for each in asked.rewards:
            request = schemas.RewardRequest(each.value, each.reward_id)
            status, told = self.reward(request, {"event_id": each.event_id})
            results.append(schemas.RewardResult(**{"answer" if status == 200 else "problem": told}))
        return 200, schemas.BatchRewardResponse(results)

    def activate(self, _, named):
        return 200, schemas.ActivateResponse(named["event_id"], activated=True)

    def retract(self, _, named):
        return 200, schemas.RetractResponse(named["event_id"], 1e5)

    def event(self, _, named):
        answer = self.events.get(named["event_id"])
        if answer is None:
            return 404, schemas.Problem("about:blank", "Unknown event", 404)
        made = example_of(schemas.EventResponse)
        return 200, msgspec.structs.replace(made, event_id=answer.event_id, answer=answer)

    def model(self, _, named):
        made = example_of(schemas.ModelResponse)
        return 200, msgspec.structs.replace(made, campaign=named.get("campaign", "default"))

    def config(self, _, named):
        made = example_of(schemas.ConfigResponse)
        return 200, msgspec.structs.replace(made, campaign=named.get("campaign", "default"))

    def change_config(self, _, named):
        return self.config(_, named)

    def campaigns(self, *_):
        return 200, schemas.CampaignsResponse(["default", "summer"])

    def readyz(self, *_):
        if self.is_ready:
            return 200, schemas.Health("ok")
        return 503, schemas.Health("unavailable", ["the journal is being read"])


def bound_socket(port=0):
    """A socket that is bound, and does not listen yet."""
    # The protocol is named so that asyncio turns Nagle's algorithm off, which costs 40 ms a call.
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    return made


@contextmanager
def running(app, *, port=0, **tls):
    """The application behind a real server; yields its port."""
    config = uvicorn.Config(app, log_config=None, lifespan="off", ws="none", loop="asyncio", **tls)
    server = uvicorn.Server(config)
    with bound_socket(port) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.005)
            yield listener.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            thread.join()
