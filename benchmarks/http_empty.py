"""The least that an HTTP server of ours could do: one route that reads a request to rank.

``python -m benchmarks.http_empty`` serves it with the same server, uvloop, Starlette and msgspec,
set up by the same class, and nothing before it.  With a file of API keys as its argument it stands
behind what stands before every route: keys, limits of rate and size, and metrics.  Neither decides
anything or keeps a log.  As a program it serves until its input ends.
"""

import sys
import time
from pathlib import Path

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from benchmarks.http_federation import BURST, RATE
from benchmarks.http_line import Turn, answer_lines
from benchmarks.loopback_tls import HOST
from vfbandits.client.schemas import RankRequest
from vfbandits.http.access.gate import guarded, limits_of
from vfbandits.http.server import HttpServer
from vfbandits.settings.http import HttpSettings
from vfbandits.telemetry.metrics import Metrics
from vfbandits.telemetry.readings import Readings
from vfbandits.transport.event_loop import run

_decode = msgspec.json.Decoder(RankRequest).decode
_encode = msgspec.json.Encoder().encode


async def rank(request: Request) -> Response:
    """Read the request, and answer the first arm."""
    asked = _decode(await request.body())
    return Response(_encode({"arm": asked.arms[0]}), media_type="application/json")


def bare() -> tuple[ASGIApp, HttpSettings]:
    """The route, and nothing before it."""
    app = Starlette(routes=[Route("/v1/rank", rank, methods=["POST"])])
    return app, HttpSettings(f"{HOST}:0", insecure=True)


def behind_guard(keys: Path) -> tuple[ASGIApp, HttpSettings]:
    """The route as one of the server's own."""
    metrics = Metrics(Readings(list, list, lambda: 0, lambda: True))

    async def counted(request: Request) -> Response:
        started = time.perf_counter()
        response = await rank(request)
        metrics.http("/v1/rank", "POST", response.status_code, time.perf_counter() - started)
        return response

    app = Starlette(routes=[Route("/v1/rank", counted, methods=["POST"])])
    http = HttpSettings(f"{HOST}:0", keys=keys, rate=RATE, burst=BURST)
    return guarded(app, http, limits_of(http)), http


async def serve(keys: Path | None) -> None:
    """Serve until nobody listens any more."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    server = HttpServer(*(bare() if keys is None else behind_guard(keys)))
    port = await server.start()
    await answer_lines(_nothing, ready=port)
    await server.stop()


async def _nothing(line: str) -> Turn:
    raise ValueError(f"this process only serves, got {line!r}")


if __name__ == "__main__":
    run(serve(Path(sys.argv[1]) if sys.argv[1:] else None))
