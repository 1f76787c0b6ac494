"""An HTTP server within our event loop."""

import asyncio
import contextlib
import gc
import socket
import ssl
from collections.abc import Iterator
from functools import partial

import uvicorn
from starlette.types import ASGIApp

from vfbandits.errors import ConfigError
from vfbandits.service.address import split_address
from vfbandits.service.http_settings import HttpSettings
from vfbandits.service.supervised import Supervised, Supervisor
from vfbandits.web.patience import close_stuck
from vfbandits.web.short_way import protocol_for

BACKLOG = 2048
KEEP_ALIVE_S = 60
READ_S = 30.0
GRACE_S = 5
COLLECT_AFTER = (10_000, 20, 50)  # new objects, then how often younger ones were collected


class HttpServer:
    """Serves an application until it is stopped; signals are the caller's.

    Whoever has not sent the whole of a request after ``read_s``, or twice that, is hung up on.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: HttpSettings,
        *,
        read_s: float = READ_S,
        supervisor: Supervisor | None = None,
    ) -> None:
        self._supervisor = Supervisor() if supervisor is None else supervisor
        self._settings = settings
        self._read_s = read_s
        with_clients = settings.clients is not None
        config = uvicorn.Config(
            app,
            http=protocol_for(app),
            loop="none",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            backlog=BACKLOG,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=GRACE_S,
            ssl_certfile=settings.certificate,
            ssl_keyfile=settings.private_key,
            ssl_ca_certs=None if settings.clients is None else str(settings.clients),
            ssl_cert_reqs=ssl.CERT_REQUIRED if with_clients else ssl.CERT_NONE,
        )
        self._server = _Server(config)
        self._task: Supervised | None = None
        self._sweeping: Supervised | None = None

    async def start(self) -> int:
        """Listen; returns the port.  ConfigError if the address cannot be had."""
        host, port = split_address(self._settings.address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError as error:
            reason = error.strerror
            raise ConfigError(f"cannot listen on {self._settings.address!r}: {reason}") from None
        serve = partial(self._server.serve, [listening])
        self._task = self._supervisor.start("http", serve, restart=False)
        while not self._server.started:
            if self._task.is_over:
                raise ConfigError(f"cannot listen on {self._settings.address!r}")
            await asyncio.sleep(0.01)
        self._sweeping = self._supervisor.start("http connections", self._sweep)
        _settle_memory()
        return int(listening.getsockname()[1])

    async def stop(self) -> None:
        """Take no more requests, and finish those under way."""
        if self._sweeping is not None:
            await self._sweeping.stop()
        if self._task is not None:
            self._task.is_expected = True
            self._server.should_exit = True
            await self._task.finish()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._read_s)
            close_stuck(tuple(self._server.server_state.connections))


def _settle_memory() -> None:
    """Look for cycles less often, and not among what was there before the first request.

    A request leaves next to none behind, while what waits for a reward is looked through each time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to whoever runs us."""
        yield
