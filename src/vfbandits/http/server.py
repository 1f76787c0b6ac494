"""An HTTP server within our event loop."""

import asyncio
import contextlib
import gc
import logging
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from typing import cast

import uvicorn
from starlette.types import ASGIApp

from vfbandits.errors import ConfigError
from vfbandits.http.access.acceptor import Acceptor
from vfbandits.http.access.connection_limits import connection_limits
from vfbandits.http.access.proxies import proxies_of
from vfbandits.http.access.slots import Slots
from vfbandits.http.patience import PatientProtocol, close_stuck
from vfbandits.http.short_way import protocol_for
from vfbandits.settings.address import split_address
from vfbandits.settings.http import HttpSettings
from vfbandits.telemetry.connection_counts import ConnectionCounts
from vfbandits.telemetry.sparse_log import SparseWarnings
from vfbandits.telemetry.supervised import Supervised, Supervisor

BACKLOG = 2048
KEEP_ALIVE_S = 60
READ_S = 30.0
GRACE_S = 5
COLLECT_AFTER = (10_000, 20, 50)  # new objects, then how often younger ones were collected


class HttpServer:
    """Serves an application until it is stopped; signals are the caller's.

    Whoever has not sent the whole of a request after ``read_s``, or twice that, is hung up on.
    ``counts`` tells what became of connections; metrics read it.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: HttpSettings,
        *,
        read_s: float = READ_S,
        supervisor: Supervisor | None = None,
        counts: ConnectionCounts | None = None,
    ) -> None:
        self._supervisor = Supervisor() if supervisor is None else supervisor
        self.counts = ConnectionCounts() if counts is None else counts
        self._settings = settings
        self._slots = Slots(connection_limits(settings), self.counts)
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
            proxy_headers=False,
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
        self._accepting: Supervised | None = None
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
        port = int(listening.getsockname()[1])
        serve = partial(self._server.serve, [])  # we accept connections ourselves
        self._task = self._supervisor.start("http", serve, restart=False)
        while not self._server.started:
            if self._task.is_over:
                listening.close()
                raise ConfigError(f"cannot listen on {self._settings.address!r}")
            await asyncio.sleep(0.01)
        _quieten()
        accept = self._acceptor(listening).run  # closes the socket at its end
        self._accepting = self._supervisor.start("http accept", accept, restart=False)
        self._sweeping = self._supervisor.start("http connections", self._sweep)
        _settle_memory()
        return port

    async def stop(self) -> None:
        """Take no more requests, and finish those under way."""
        if self._accepting is not None:
            await self._accepting.stop()
        if self._sweeping is not None:
            await self._sweeping.stop()
        if self._task is not None:
            self._task.is_expected = True
            self._server.should_exit = True
            await self._task.finish()

    def _acceptor(self, listening: socket.socket) -> Acceptor:
        config, state = self._server.config, self._server.server_state
        make = cast(type[PatientProtocol], config.http_protocol_class)
        return Acceptor(
            listening,
            lambda: make(config=config, server_state=state, app_state={}),
            self._slots,
            tls=config.ssl,
            is_trusted=proxies_of(self._settings).trusts,
        )

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._read_s)
            close_stuck(tuple(self._server.server_state.connections))


def _quieten() -> None:
    """Let nobody fill the log of uvicorn with requests that are no HTTP."""
    logger = logging.getLogger("uvicorn.error")
    if not any(isinstance(one, SparseWarnings) for one in logger.filters):
        logger.addFilter(SparseWarnings())


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
