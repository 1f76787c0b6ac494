"""Processes of a federation on this machine: started from their folders, watched and ended.

A folder for each member, as organisations have it: ``NAME/NAME.toml``; the log goes beside it.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from vfbandits.errors import ConfigError, LinkError
from vfbandits.settings.services import load_place

READY_S = 120.0  # of a busy machine; alone it takes a second or two
STOP_S = 10.0


class Processes:
    """Members that run; ``with`` starts ``participants``, the active one first, and ends them.

    ``program`` is the module that a process runs, and ``popen`` starts the process.
    """

    program = "vfbandits.cli.serve"

    def __init__(
        self,
        folder: Path,
        participants: Sequence[str],
        *,
        popen: "Callable[..., subprocess.Popen[bytes]]" = subprocess.Popen,
    ) -> None:
        self.folder = folder
        self._popen = popen
        self.participants = tuple(participants)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        """Start every participant and wait until all are connected."""
        try:
            self.start(*self.participants)
        except BaseException:
            self.stop_all()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every process that is still there."""
        self.stop_all()

    def config(self, name: str) -> Path:
        """The configuration file of a member."""
        return self.folder / name / f"{name}.toml"

    def start(self, *names: str, flags: Sequence[str] = ()) -> None:
        """Start processes side by side, and wait until each says that it is ready."""
        for name in names:
            self.processes[name] = self._launch(name, flags)
        for name in names:
            _wait_for_line(self.processes[name], b"ready", self.log_path(name))

    def _launch(self, name: str, flags: Sequence[str]) -> "subprocess.Popen[bytes]":
        role = load_place(self.config(name)).role
        with self.log_path(name).open("ab") as log:
            return self._popen(
                [sys.executable, "-m", self.program, role, "--config",
                 str(self.config(name)), *flags],
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            )  # fmt: skip

    def log_path(self, name: str) -> Path:
        """Where a participant's log goes."""
        return self.folder / name / f"{name}.log"

    def events(self, name: str) -> list[dict[str, object]]:
        """A participant's log so far, line by line."""
        lines = self.log_path(name).read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a participant's process."""
        self.processes[name].send_signal(number)

    def kill(self, name: str) -> None:
        """End a process without warning."""
        process = self.processes.pop(name)
        process.kill()
        _wait(process)

    def stop(self, name: str) -> int:
        """Ask a process to end, and wait; returns its exit code."""
        process = self.processes.pop(name)
        process.send_signal(signal.SIGCONT)
        process.terminate()
        return _wait(process, timeout_s=STOP_S)

    def stop_all(self) -> None:
        """Stop all; passive participants first, so that none is reported as lost."""
        for name in reversed(list(self.processes)):
            self.stop(name)

    def refuse_ended(self) -> None:
        """LinkError, with the end of the log, if a process has ended by itself."""
        for name, process in self.processes.items():
            if process.poll() is not None:
                raise _ended(process, self.log_path(name))


def _wait(process: "subprocess.Popen[bytes]", *, timeout_s: float | None = None) -> int:
    """Wait for the end of a process, and force it after ``timeout_s``; returns its exit code."""
    with process:  # closes its pipe
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _wait_for_line(process: "subprocess.Popen[bytes]", start: bytes, log: Path) -> None:
    """Wait until the process prints a line that starts so."""
    if process.stdout is None:
        raise LinkError("the process has no standard output")
    limit = time.monotonic() + READY_S
    os.set_blocking(process.stdout.fileno(), False)
    seen = b""
    while time.monotonic() < limit:
        chunk = process.stdout.read() or b""
        seen += chunk
        if any(line.startswith(start) for line in seen.splitlines()):
            return
        if process.poll() is not None:
            raise _ended(process, log)
        time.sleep(0.01)
    process.kill()
    raise LinkError(f"a process was not ready after {READY_S:g} s; its log is {log}")


def _ended(process: "subprocess.Popen[bytes]", log: Path) -> LinkError:
    """The error for a process that ended by itself: its own error, or the end of its log."""
    if process.returncode < 0:
        name = signal.Signals(-process.returncode).name
        return LinkError(f"{log.stem} was ended by {name}; its log is {log}")
    text = log.read_text(encoding="utf-8", errors="replace")
    errors = [line for line in text.splitlines() if line.startswith("error: ")]
    why = errors[-1].removeprefix("error: ") if errors else f"\n{text[-2_000:]}"
    return LinkError(f"{log.stem} ended with code {process.returncode}: {why}")


def refuse_port_in_use(port: int, flag: str) -> None:
    """ConfigError if something listens on this port of loopback already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise ConfigError(
                f"{flag} must be a free port, got {port}: {error.strerror}; 0 takes a free one"
            ) from error


def free_ports(count: int) -> list[int]:
    """Different ports of loopback that nothing listens on now."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
