"""A TCP proxy on loopback that can slow down, cut off and record what goes through it."""

import contextlib
import select
import socket
import threading
import time


class Proxy:
    """Passes bytes on; ``upward`` holds what clients sent, ``downward`` what they heard."""

    def __init__(self, target_port):
        self.target_port = target_port
        self.delay_s = 0.0
        self.is_cut = False
        self.upward, self.downward = bytearray(), bytearray()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets = []
        self._running = True
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._running = False
        self._listener.close()
        self.drop()

    def cut(self):
        """Bytes go nowhere, and nobody is told: as behind a dead router."""
        self.is_cut = True

    def restore(self):
        """The way is free again; streams from before are gone."""
        self.is_cut = False
        self.drop()

    def drop(self):
        """Close every connection."""
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._sockets = []

    def _accept(self):
        while self._running:
            try:
                near, _ = self._listener.accept()
            except OSError:
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self.target_port))
            except OSError:
                near.close()
                continue
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets += [near, far]
            threading.Thread(target=self._pump, args=(near, far), daemon=True).start()

    def _pump(self, near, far):
        try:
            while self._running:
                ready, _, _ = select.select([near, far], [], [], 0.1)
                for source in ready:
                    while self.is_cut and self._running:
                        time.sleep(0.01)
                    data = source.recv(1 << 16)
                    if not data:
                        return
                    if self.delay_s:
                        time.sleep(self.delay_s)
                    record, sink = (self.upward, far) if source is near else (self.downward, near)
                    record += data
                    sink.sendall(data)
        except (OSError, ValueError):
            return
        finally:
            for end in (near, far):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()
