"""A deadline for calls into a driver that has none of its own."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

TICKS = 20  # checks of the clock in one deadline


class Watchdog:
    """Shuts down connections that pass their deadline, from one thread of its own.

    A server that is frozen, or cut off, keeps a driver waiting for ever; its own statement timeout
    does not run.  Shutting the socket down makes the driver give up.  A deadline may be overrun by
    a twentieth.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._lines: dict[socket.socket, float] = {}
        self._is_needed = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def watch(self, connection: object) -> Iterator[None]:
        """Shut down the connection's socket, if it has one, unless the body ends in time."""
        fileno = getattr(connection, "fileno", None)
        if fileno is None:
            yield
            return
        # A descriptor of our own: the number of the driver's may soon be another connection's.
        with socket.socket(fileno=os.dup(fileno())) as line:
            self._start(line)
            try:
                yield
            finally:
                with self._lock:
                    self._lines.pop(line, None)

    def close(self) -> None:
        """End the thread; another ``watch`` starts it again."""
        with self._lock:
            self._thread = None
        self._is_needed.set()

    def _start(self, line: socket.socket) -> None:
        with self._lock:
            self._lines[line] = time.monotonic() + self._seconds
            self._is_needed.set()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while self._thread is threading.current_thread():
            self._is_needed.wait()
            time.sleep(self._seconds / TICKS)
            with self._lock:
                now = time.monotonic()
                for line in [line for line, end in self._lines.items() if end < now]:
                    del self._lines[line]
                    with suppress(OSError):  # the other end closed first
                        line.shutdown(socket.SHUT_RDWR)
                if not self._lines and self._thread is threading.current_thread():
                    self._is_needed.clear()
