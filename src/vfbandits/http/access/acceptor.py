"""Accepts connections, within limits that hold before TLS and before any byte is read."""

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from vfbandits.http.access.limits import network_of
from vfbandits.http.access.slots import Slot, Slots
from vfbandits.http.connection import Connection
from vfbandits.telemetry.log_throttle import LogThrottle

HANDSHAKE_S: Final = 10.0
PAUSE_S: Final = 0.1
BATCH_SIZE: Final = 16  # connections that are accepted before other tasks run
_NO_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\n"
    b"cache-control: no-store\r\nconnection: close\r\n\r\n"
)

_log: Final = structlog.get_logger(__name__)


class Acceptor:
    """Hands connections of a listening socket to protocols; ``run`` it until it is cancelled.

    Attributes
    ----------
    make
        Makes the protocol of one connection.
    slots
        The slots for connections, within the limits.
    tls
        None for plain HTTP.
    is_trusted
        Whether an address is that of a trusted proxy, whose connections are not limited by address.
    """

    def __init__(
        self,
        listening: socket.socket,
        make: Callable[[], Connection],
        slots: Slots,
        *,
        tls: ssl.SSLContext | None,
        is_trusted: Callable[[str], bool],
    ) -> None:
        self._listening = listening
        self._make = make
        self._slots = slots
        self._tls = tls
        self._is_trusted = is_trusted
        self._throttle = LogThrottle()
        self._connecting: set[_Connection] = set()
        listening.settimeout(0.0)

    async def run(self) -> None:
        """Accept until cancelled; the listening socket is closed then."""
        loop = asyncio.get_running_loop()
        n_accepted = 0
        try:
            while True:
                try:
                    line, peer = await loop.sock_accept(self._listening)
                except OSError as error:
                    await self._recover(error)
                    continue
                self._take(line, str(peer[0]))
                n_accepted += 1
                if n_accepted % BATCH_SIZE == 0:
                    await asyncio.sleep(0)
        finally:
            self._listening.close()
            for connection in self._connecting:
                connection.drop()

    async def _recover(self, error: OSError) -> None:
        """Ignore a peer that gave up; without descriptors, drop unknown connections."""
        if error.errno not in _NO_DESCRIPTORS:
            await asyncio.sleep(0)
            return
        self._slots.counts.refused["descriptors"] += 1
        self._warn("descriptors", "")
        self._slots.drop_strangers(BATCH_SIZE)
        await asyncio.sleep(PAUSE_S)

    def _take(self, line: socket.socket, host: str) -> None:
        connection = _Connection(line)
        is_limited = not self._is_trusted(host)
        address = network_of(host)
        slot = self._slots.take(address, connection.drop, is_limited=is_limited)
        if slot is None:
            full = self._slots.counts.open >= self._slots.limits.total
            self._warn("total" if full else "address", address)
            self._turn_away(line)
            return
        task = asyncio.get_running_loop().create_task(self._connect(connection, slot))
        connection.connecting = task
        self._connecting.add(connection)
        task.add_done_callback(partial(self._end_connecting, connection, slot))

    async def _connect(self, connection: "_Connection", slot: Slot) -> None:
        protocol = self._make()
        protocol.on_lost = partial(self._slots.release, slot)
        connection.line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.is_handed_over = True
        await asyncio.get_running_loop().connect_accepted_socket(
            lambda: protocol,
            connection.line,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_S,
        )
        slot.occupant = protocol
        connection.abort = protocol.abort

    def _end_connecting(
        self, connection: "_Connection", slot: Slot, task: "asyncio.Task[None]"
    ) -> None:
        """Release the slot if no connection was established."""
        self._connecting.discard(connection)
        if not connection.is_handed_over:
            connection.line.close()  # otherwise the event loop does
        error = None if task.cancelled() else task.exception()
        if error is None and not task.cancelled():
            return
        self._slots.release(slot)
        if isinstance(error, OSError):
            self._slots.counts.closed["tls"] += not connection.is_dropped
        elif error is not None:
            _log.error("http_connection_failed", exc_info=error)

    def _turn_away(self, line: socket.socket) -> None:
        """Answer 503 over plain HTTP; over TLS that would take a handshake."""
        if self._tls is None:
            with contextlib.suppress(OSError):
                line.send(_FULL)
                line.shutdown(socket.SHUT_WR)
                line.recv(1 << 16)  # a socket closed on unread bytes resets the answer
        line.close()

    def _warn(self, reason: str, address: str) -> None:
        unlogged = self._throttle.admit(reason)
        if unlogged is not None:
            _log.warning(
                "http_connection_refused", reason=reason, address=address, unlogged=unlogged
            )


class _Connection:
    """An accepted socket, and its transport once there is one."""

    __slots__ = ("abort", "connecting", "is_dropped", "is_handed_over", "line")

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.is_dropped = False
        self.is_handed_over = False  # to the event loop, which closes it
        self.connecting: asyncio.Task[None] | None = None
        self.abort: Callable[[], None] | None = None  # of its transport, when there is one

    def drop(self) -> None:
        """Close the connection in any state.

        A task in which the event loop connects is not cancelled: uvloop would keep the socket.  The
        end of the stream ends a handshake on any loop.
        """
        self.is_dropped = True
        if self.abort is not None:
            self.abort()
        elif self.is_handed_over:
            with contextlib.suppress(OSError):
                self.line.shutdown(socket.SHUT_RDWR)
        elif self.connecting is not None:
            self.connecting.cancel()
