"""Says why gRPC's core turned a peer away during the TLS handshake.

The core checks certificates, and what it finds it only prints, to the standard error.  So that
stream is led through a pipe: lines about handshakes become calls of ours, other remarks of the
core below an error are dropped, and all else goes where it went before, unchanged.

Should the process die by a signal, what was in the pipe dies with it.
"""

import importlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Final, Self, TypeAlias

from vfbandits.errors import ConfigError
from vfbandits.transport.rpc.refusal import handshake_reason

OnRefused: TypeAlias = Callable[[str, str], None]

_STANDARD_ERROR: Final = 2
_TRACER: Final = "handshaker"
_RECORD: Final = re.compile(rb"([IWEF])\d{4} [\d:.]+ +\d+ [\w.]+:\d+\] ")
_START_OF_RECORD: Final = re.compile(rb"[IWEF]\d{0,4}( |\Z)")
_MORE_OF_RECORD: Final = (b"=== Source Location", b"src/core/", b" shutdown=")
_FAILED: Final = re.compile(rb"CallNextHandshakerLocked: error=(?!OK )")
_ADDRESS: Final = re.compile(rb"endpoint_peer_address=([^,}]+)")


class HandshakeLines:
    """Tells the core's lines from others, and finds refusals in them."""

    def __init__(self, on_refused: OnRefused, *, verbose: bool = False) -> None:
        self._on_refused = on_refused
        self._verbose = verbose
        self._in_record = False
        self._shown = False
        self._reason = ""

    def keep(self, line: bytes) -> bool:
        """Take one line; whether it is to be shown."""
        record = _RECORD.match(line)
        if record is not None:
            self._flush()
            self._in_record = True
            self._shown = self._verbose or record[1] in b"EF"
            if _FAILED.match(line, record.end()):
                self._reason = handshake_reason(line.decode(errors="replace"))
        elif not (self._in_record and (not line or line.startswith(_MORE_OF_RECORD))):
            self._flush()
            self._in_record = False
            return True
        address = _ADDRESS.search(line)
        if self._reason and address is not None:
            self._flush(address[1].decode(errors="replace"))
        return self._shown

    def is_whole(self, rest: bytes) -> bool:
        """Whether text without an end of line may be shown at once: a prompt, a progress bar."""
        return not (self._in_record or _START_OF_RECORD.match(rest))

    def _flush(self, address: str = "") -> None:
        if self._reason:
            reason, self._reason = self._reason, ""
            self._on_refused(reason, address)


class CoreLog:
    """Calls ``on_refused(reason, address)`` for each peer that the core turned away.

    Start it before anything imports grpc, whose core looks at its settings once.  The call comes
    in a thread of its own.  With ``GRPC_TRACE`` in the environment the core's lines are all shown.
    """

    def __init__(self, on_refused: OnRefused) -> None:
        self._lines = HandshakeLines(on_refused, verbose="GRPC_TRACE" in os.environ)
        self._real = -1
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Lead the standard error through the filter, and import grpc."""
        if "grpc" in sys.modules:
            raise ConfigError("the log of refused peers must be started before grpc is imported")
        self._real = os.dup(_STANDARD_ERROR)
        source, sink = os.pipe()
        os.dup2(sink, _STANDARD_ERROR)
        os.close(sink)
        self._thread = threading.Thread(target=self._run, args=(source,), daemon=True)
        self._thread.start()
        _import_talkative()

    def stop(self) -> None:
        """Give the standard error back, after what is still in the pipe."""
        if self._thread is None:
            return
        sys.stderr.flush()
        os.dup2(self._real, _STANDARD_ERROR)
        # A process that we started may hold the pipe open for longer than we live.
        self._thread.join(timeout=1.0)
        if not self._thread.is_alive():
            os.close(self._real)
        self._thread = None

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self.stop()

    def _run(self, source: int) -> None:
        try:
            for text in self._kept(source):
                _write_all(self._real, text)
        finally:
            # Whatever went wrong, a full pipe must never stop the process.
            os.dup2(self._real, _STANDARD_ERROR)
            os.close(source)

    def _kept(self, source: int) -> Iterator[bytes]:
        rest = b""
        while read := os.read(source, 1 << 16):
            *lines, rest = (rest + read).split(b"\n")
            yield b"".join(line + b"\n" for line in lines if self._lines.keep(line))
            if self._lines.is_whole(rest):
                yield rest
                rest = b""
        yield rest


def _import_talkative() -> None:
    """Import grpc, whose core then says what we need; processes that we start shall not."""
    wanted = {"GRPC_VERBOSITY": "INFO", "GRPC_TRACE": os.environ.get("GRPC_TRACE", "")}
    wanted["GRPC_TRACE"] = ",".join(filter(None, (wanted["GRPC_TRACE"], _TRACER)))
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        importlib.import_module("grpc")
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _write_all(descriptor: int, text: bytes) -> None:
    while text:
        text = text[os.write(descriptor, text) :]
