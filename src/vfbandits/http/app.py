"""The application behind HTTP: operations by their table, pages by routes, errors as problems.

Every request takes the same path: the router finds the operation, its body is read in full, its
handler answers.  Starlette serves the pages, which are not operations.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import TypeAlias

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from vfbandits.http import personalizer
from vfbandits.http.access.guard import require
from vfbandits.http.handlers import Handlers
from vfbandits.http.openapi.document import openapi_document
from vfbandits.http.openapi.paths import OPERATIONS, Operation
from vfbandits.http.personalizer import Personalizer
from vfbandits.http.refuse import ERROR_HANDLERS, problem_for
from vfbandits.http.request import JSON, BufferedRequest, read_body
from vfbandits.http.router import Match, Router
from vfbandits.telemetry.metrics import Metrics
from vfbandits.telemetry.tracer import Tracer

Handler: TypeAlias = Callable[[BufferedRequest], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of the application besides its handlers; ``personalizer`` is a facade."""

    metrics: Metrics
    tracer: Tracer | None = None
    pages: Iterable[BaseRoute] = ()
    personalizer: Personalizer | None = None


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An operation and its handler."""

    operation: Operation
    handler: Handler


@dataclass(frozen=True, slots=True)
class Application:
    """An ASGI application: all operations, and pages."""

    router: Router[Endpoint]
    pages: ASGIApp
    metrics: Metrics
    tracer: Tracer | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            match = self.router.find(scope["method"], scope["path"])
        except HTTPException as error:
            await problem_for(scope, error)(scope, receive, send)
            return
        app = self.pages if match is None else await self._answer(match, scope, receive)
        await app(scope, receive, send)

    async def _answer(self, match: Match[Endpoint], scope: Scope, receive: Receive) -> Response:
        """The handler's answer, timed and counted; its error as a problem."""
        started = time.perf_counter()
        operation = match.found.operation
        try:
            request = BufferedRequest(scope, await read_body(receive), match.params)
            if self.tracer is None:
                response = await match.found.handler(request)
            else:
                with self.tracer.incoming(Headers(scope=scope)):
                    response = await match.found.handler(request)
        except Exception as error:  # noqa: BLE001  (answered as a problem; logged if ours)
            response = problem_for(scope, error)
        seconds = time.perf_counter() - started
        self.metrics.http(operation.path, operation.method, response.status_code, seconds)
        return response


def build_app(handlers: Handlers, parts: Parts) -> Application:
    """All operations and pages, without a guard before them."""
    by_name = _handlers(handlers, parts)
    table = [(each.method, each.path, Endpoint(each, by_name[each.handler])) for each in OPERATIONS]
    facade = _facade(parts.personalizer)
    table += [
        (each.method, each.path, Endpoint(each, facade.get(each.handler, facade["other"])))
        for each in personalizer.OPERATIONS
    ]
    pages = Starlette(routes=[*parts.pages], exception_handlers=ERROR_HANDLERS)
    return Application(Router(table), pages, parts.metrics, parts.tracer)


def _facade(found: Personalizer | None) -> Mapping[str, Handler]:
    if found is None:
        return {"other": personalizer.refuse_all}
    return {
        "rank": found.rank,
        "reward": found.reward,
        "activate": found.activate,
        "other": personalizer.refuse_call,
    }


def _handlers(handlers: Handlers, parts: Parts) -> Mapping[str, Handler]:
    document = msgspec.json.encode(openapi_document(version("vfbandits")))

    async def metrics(request: BufferedRequest) -> Response:
        require(request.scope, "figures")
        return Response(parts.metrics.render(), media_type=parts.metrics.content_type)

    async def openapi(request: BufferedRequest) -> Response:
        del request
        return Response(document, media_type=JSON)

    return {
        "rank": handlers.rank,
        "rank_batch": handlers.rank_batch,
        "reward": handlers.reward,
        "reward_batch": handlers.reward_batch,
        "activate": handlers.activate,
        "retract": handlers.retract,
        "event": handlers.event,
        "model": handlers.model,
        "config": handlers.config,
        "change_config": handlers.change_config,
        "rearm_guardrail": handlers.rearm_guardrail,
        "campaigns": handlers.list_campaigns,
        "healthz": handlers.healthz,
        "readyz": handlers.readyz,
        "metrics": metrics,
        "openapi": openapi,
    }
