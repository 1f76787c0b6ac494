"""The application behind HTTP: routes by the table of operations, errors as problems."""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import TypeAlias

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from vfbandits.http.access.guard import require
from vfbandits.http.handlers import Handlers
from vfbandits.http.hot import HotCalls
from vfbandits.http.openapi.document import openapi_document
from vfbandits.http.openapi.paths import OPERATIONS, Operation
from vfbandits.http.refuse import ERROR_HANDLERS, on_error
from vfbandits.telemetry.metrics import Metrics
from vfbandits.telemetry.tracer import NoTracer, Tracer

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Parts:
    """What the application is made of beside its handlers."""

    metrics: Metrics
    tracer: Tracer
    pages: Iterable[BaseRoute] = ()


@dataclass(frozen=True, slots=True)
class Application:
    """All routes; ``hot`` are those that can be called without them, if there are any."""

    routes: ASGIApp
    hot: HotCalls | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer by the routes."""
        await self.routes(scope, receive, send)


def build_app(handlers: Handlers, parts: Parts) -> Application:
    """All routes, without a guard before them."""
    deeds = _deeds(handlers, parts)
    by_path: dict[str, dict[str, Handler]] = {}
    for operation in sorted(OPERATIONS, key=_first_the_longer):
        path = operation.path.replace("{event_id}", "{event_id:path}")
        endpoint = _endpoint(operation, deeds[operation.deed], parts)
        by_path.setdefault(path, {})[operation.method] = endpoint
    routes: list[BaseRoute] = [
        Route(path, _by_method(endpoints), methods=list(endpoints))
        for path, endpoints in by_path.items()
    ]
    app = Starlette(routes=[*routes, *parts.pages], exception_handlers=ERROR_HANDLERS)
    # A trace begins with the headers that a route sees; without one there is a shorter way.
    hot = HotCalls(handlers, parts.metrics) if isinstance(parts.tracer, NoTracer) else None
    return Application(app, hot)


def _by_method(endpoints: Mapping[str, Handler]) -> Handler:
    """One route for a path: a method that it does not know is answered with all that it does."""
    if len(endpoints) == 1:
        return next(iter(endpoints.values()))

    async def endpoint(request: Request) -> Response:
        method = "GET" if request.method == "HEAD" else request.method
        return await endpoints[method](request)

    return endpoint


def _first_the_longer(operation: Operation) -> int:
    """``/v1/events/x/reward`` would fit ``/v1/events/{event_id}`` as well."""
    return -operation.path.count("/")


def _deeds(handlers: Handlers, parts: Parts) -> Mapping[str, Handler]:
    document = msgspec.json.encode(openapi_document(version("vfbandits")))

    async def metrics(request: Request) -> Response:
        require(request.scope, "read")
        return Response(parts.metrics.render(), media_type=parts.metrics.content_type)

    async def openapi(request: Request) -> Response:
        del request
        return Response(document, media_type="application/json")

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
        "campaigns": handlers.list_campaigns,
        "healthz": handlers.healthz,
        "readyz": handlers.readyz,
        "metrics": metrics,
        "openapi": openapi,
    }


def _endpoint(operation: Operation, handler: Handler, parts: Parts) -> Handler:
    """The handler, timed, counted, and with its errors told as problems."""
    path, method, metrics, tracer = operation.path, operation.method, parts.metrics, parts.tracer

    async def endpoint(request: Request) -> Response:
        started = time.perf_counter()
        try:
            with tracer.incoming(request.headers):
                response = await handler(request)
        except Exception as error:  # noqa: BLE001  (told as a problem, and logged if it is ours)
            response = await on_error(request, error)
        metrics.http(path, method, response.status_code, time.perf_counter() - started)
        return response

    return endpoint
