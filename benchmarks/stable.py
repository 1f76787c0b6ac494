"""Where the workers live: one process for every contestant, kept from race to race."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.peers.environment import PeerEnvironment
from benchmarks.process import WorkerDiedError, WorkerProcess, start_worker
from benchmarks.roster import Entry


@dataclass(slots=True)
class Stable:
    """Workers by contestant, started when first asked for; peers run in their own Python."""

    peers: PeerEnvironment | None
    stack: ExitStack
    workers: dict[str, WorkerProcess] = field(default_factory=dict)

    def worker(self, entry: Entry) -> WorkerProcess:
        """Return the contestant's process; a dead one is replaced."""
        known = self.workers.get(entry.name)
        if known is None or known.process.poll() is not None:
            started = start_worker(self._python(entry), dict(entry.environment))
            known = self.workers[entry.name] = self.stack.enter_context(started)
        return known

    def _python(self, entry: Entry) -> Path:
        if entry.kind != "peer":
            return Path(sys.executable)
        if self.peers is None:
            raise WorkerDiedError("peers were not asked for")
        if entry.package in self.peers.failures:
            raise WorkerDiedError(f"did not install: {self.peers.failures[entry.package]}")
        return self.peers.python


@contextmanager
def open_stable(peers: PeerEnvironment | None) -> Iterator[Stable]:
    """Keep workers for the length of the block, then end them all."""
    with ExitStack() as stack:
        yield Stable(peers, stack)
