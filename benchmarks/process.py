"""The orchestrator's side of a worker: start it, ask it, and say how it died."""

import argparse
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from benchmarks.contestant import Task

ROOT = Path(__file__).resolve().parents[1]
LIBRARIES = ("OPENBLAS", "OMP", "MKL", "NUMBA")
ONE_THREAD = {f"{library}_NUM_THREADS": "1" for library in LIBRARIES}


def checkout(text: str) -> Path:
    """A folder with a checkout of this repository, as ``--against`` names it.

    >>> checkout(str(ROOT)) == ROOT
    True
    """
    tree = Path(text).resolve()
    if not (tree / "src" / "vfbandits").is_dir() or not (tree / "benchmarks").is_dir():
        raise argparse.ArgumentTypeError(f"wanted a checkout of this repository, got {text!r}")
    return tree


class WorkerDiedError(Exception):
    """A worker ended before it answered; the message is the last line it wrote."""


@dataclass(frozen=True, slots=True, eq=False)
class WorkerProcess:
    """A running worker; every method is one command and waits for its answer."""

    process: subprocess.Popen[str]
    errors: IO[str]

    def setup(self, slot: str, *, factory: str, task: Task) -> None:
        """Put a fresh contestant into a slot."""
        self._ask(do="setup", slot=slot, factory=factory, task=asdict(task))

    def run(self, slot: str, rounds: int) -> dict[str, float]:
        """Play rounds: ``cpu_s`` and ``wall_s`` are per round, ``regret`` is the sum."""
        return self._ask(do="run", slot=slot, rounds=rounds)

    def drop(self, slot: str) -> None:
        """Empty a slot."""
        self._ask(do="drop", slot=slot)

    def memory(self, *, factory: str, task: Task, rounds: int) -> dict[str, float]:
        """Weigh a fresh contestant: ``held_bytes`` and ``peak_bytes``."""
        return self._ask(do="memory", factory=factory, task=asdict(task), rounds=rounds)

    def versions(self, packages: Sequence[str]) -> dict[str, str]:
        """Say which of these packages the worker's Python has."""
        found = self._ask(do="versions", packages=list(packages))
        return {name: str(version) for name, version in found.items()}

    def _ask(self, **command: object) -> dict[str, float]:
        commands, answers = self.process.stdin, self.process.stdout
        if commands is None or answers is None:
            raise WorkerDiedError("started without pipes")
        try:
            commands.write(json.dumps(command) + "\n")
            commands.flush()
        except BrokenPipeError:
            raise WorkerDiedError(self._last_words()) from None
        answer = answers.readline()
        if not answer:
            raise WorkerDiedError(self._last_words())
        decoded: dict[str, float] = json.loads(answer)
        return decoded

    def _last_words(self) -> str:
        self.process.wait()
        self.errors.seek(0)
        return last_line(self.errors.read()) or f"exit code {self.process.returncode}"


@contextmanager
def start_worker(python: Path, environment: Mapping[str, str]) -> Iterator[WorkerProcess]:
    """Run a worker with one thread for every numerical library; it ends with the block."""
    with (
        # A file, not a pipe: nobody reads along, and a full pipe would stop the worker.
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            [str(python), "-m", "benchmarks.worker"],
            cwd=ROOT,
            env={**os.environ, **ONE_THREAD, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        yield WorkerProcess(process, errors)


def last_line(text: str) -> str:
    """Return the last line that says something, without addresses, which are nobody's business."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    return re.sub(r"\w+://\S+", "<address>", errors[-1]) if errors else ""
