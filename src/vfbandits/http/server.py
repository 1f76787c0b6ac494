"""The HTTP server of a process, within its event loop: any ASGI application, one per port."""

import asyncio
import contextlib
import gc
import socket
import ssl
from typing import Final

from starlette.types import ASGIApp

from vfbandits.errors import ConfigError
from vfbandits.http.access.acceptor import Acceptor
from vfbandits.http.access.connection_limits import connection_limits
from vfbandits.http.access.proxies import proxies_of
from vfbandits.http.access.slots import Slots
from vfbandits.http.connection import Connection, ConnectionContext, sweep
from vfbandits.settings.address import split_address
from vfbandits.settings.http import HttpSettings
from vfbandits.telemetry.connection_counts import ConnectionCounts
from vfbandits.telemetry.supervised import Supervised, Supervisor

BACKLOG: Final = 2048
READ_S: Final = 30.0
GRACE_S: Final = 5.0
# Thresholds of the three generations of the garbage collector.
COLLECT_AFTER: Final = (10_000, 20, 50)


class HttpServer:
    """Serves an application until it is stopped; the caller handles signals.

    A connection is closed if it has not sent the whole of a request, or read the whole of an
    answer, after ``read_s`` to twice ``read_s``.  ``counts`` has how connections ended;
    metrics read it.
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
        self._context = ConnectionContext(app, self.counts)
        self._accepting: Supervised | None = None
        self._sweeping: Supervised | None = None

    async def start(self) -> int:
        """Listen; returns the port.  ConfigError if the address or a certificate cannot be used."""
        tls = tls_of(self._settings)
        host, port = split_address(self._settings.address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listening = socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError as error:
            reason = error.strerror
            raise ConfigError(f"cannot listen on {self._settings.address!r}: {reason}") from None
        port = int(listening.getsockname()[1])
        acceptor = Acceptor(
            listening,
            lambda: Connection(self._context),
            self._slots,
            tls=tls,
            is_trusted=proxies_of(self._settings).trusts,
        )
        # It closes the socket when it ends.
        self._accepting = self._supervisor.start("http accept", acceptor.run, restart=False)
        self._sweeping = self._supervisor.start("http connections", self._sweep)
        _settle_memory()
        return port

    def use(self, app: ASGIApp) -> None:
        """Answer with another application from the next request on."""
        self._context.app = app

    async def stop(self) -> None:
        """Take no more requests, and finish those under way, for ``GRACE_S`` at most."""
        if self._accepting is not None:
            await self._accepting.stop()
        if self._sweeping is not None:
            await self._sweeping.stop()
        context = self._context
        context.is_stopping = True
        for connection in tuple(context.connections):
            connection.shut_down()
        if context.tasks:
            await asyncio.wait(context.tasks, timeout=GRACE_S)
        for task in context.tasks:
            task.cancel()
        for connection in tuple(context.connections):
            connection.transport.close()  # after sending what is buffered
        if context.connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(context.is_empty.wait(), GRACE_S)
        for connection in tuple(context.connections):
            connection.abort()

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._read_s)
            sweep(self._context.connections, loop.time())


def tls_of(settings: HttpSettings) -> ssl.SSLContext | None:
    """The TLS context; None for plain HTTP."""
    if settings.certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(settings.certificate, settings.private_key)
        if settings.clients is not None:
            context.load_verify_locations(settings.clients)
            context.verify_mode = ssl.CERT_REQUIRED
    except OSError as error:
        names = [settings.certificate, settings.private_key, settings.clients]
        given = ", ".join(str(name) for name in names if name is not None)
        raise ConfigError(f"cannot use the certificates {given}: {error}") from None
    return context


def _settle_memory() -> None:
    """Collect cycles less often, and never scan what exists before the first request.

    A request leaves almost no cycles, while each full collection scans all pending decisions.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)
