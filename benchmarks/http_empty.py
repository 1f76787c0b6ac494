"""The least that an HTTP server of ours could do: one route that reads a request to rank.

The same uvicorn, uvloop, Starlette and msgspec, set up by the same class; no guard, no decision,
no log.  As a program it serves until its input ends.
"""

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.http_line import Turn, answer_lines
from benchmarks.loopback_tls import HOST
from vfbandits.service.event_loop import run
from vfbandits.service.http_settings import HttpSettings
from vfbandits.web.server import HttpServer
from vfbandits.web.types import RankRequest

_decode = msgspec.json.Decoder(RankRequest).decode
_encode = msgspec.json.Encoder().encode


async def rank(request: Request) -> Response:
    """Read the request, and answer the first arm."""
    asked = _decode(await request.body())
    return Response(_encode({"arm": asked.arms[0]}), media_type="application/json")


async def serve() -> None:
    """Serve until nobody listens any more."""
    app = Starlette(routes=[Route("/v1/rank", rank, methods=["POST"])])
    server = HttpServer(app, HttpSettings(f"{HOST}:0", insecure=True))
    port = await server.start()
    await answer_lines(_nothing, ready=port)
    await server.stop()


async def _nothing(line: str) -> Turn:
    raise ValueError(f"this process only serves, got {line!r}")


if __name__ == "__main__":
    run(serve())
