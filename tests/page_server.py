"""A real server of the dashboard alone, in a thread; it can be stopped and started again."""

import socket
import threading
from types import TracebackType

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.types import Scope

from vfbandits.dashboard.observatory import Observatory
from vfbandits.http.access.caller import EVERYBODY, Caller
from vfbandits.http.dashboard import dashboard_routes
from vfbandits.http.refusals import Refusal, Unauthorized
from vfbandits.http.refuse import on_error


def dashboard_app(observatory: Observatory, *, key: str | None = None) -> Starlette:
    """The routes as the server mounts them; with a key, only its holder may read."""

    def require(scope: Scope, word: str) -> Caller:
        if word != "figures":
            raise AssertionError(f"the dashboard has figures, it wanted to {word}")
        sent = dict(scope["headers"]).get(b"authorization", b"")
        if key is not None and sent != f"Bearer {key}".encode():
            raise Unauthorized("an API key is needed")
        return EVERYBODY

    handlers = {Refusal: on_error, HTTPException: on_error, ValueError: on_error}
    return Starlette(
        routes=dashboard_routes(observatory, require=require), exception_handlers=handlers
    )


class PageServer:
    """Serves an observatory on a port of its own until the block ends."""

    def __init__(self, observatory: Observatory, *, key: str | None = None) -> None:
        self.observatory = observatory
        self._app = dashboard_app(observatory, key=key)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}/"
        self.start()

    def start(self) -> None:
        """Listen; returns when it does."""
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", self.port))
        listening.listen()
        config = uvicorn.Config(
            self._app, log_level="warning", ws="none", lifespan="off", timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([listening],))
        self._thread.start()

    def stop(self) -> None:
        """Let go of the port."""
        self._server.should_exit = True
        self._thread.join(10)

    def __enter__(self) -> "PageServer":
        """Nothing more to do: it listens already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()
