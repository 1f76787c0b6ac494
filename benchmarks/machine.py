"""What the figures were measured on; without it they mean nothing."""

import os
import platform
from pathlib import Path

from benchmarks.peers.environment import PeerEnvironment
from benchmarks.process import ONE_THREAD, start_worker
from benchmarks.roster import PEERS, TEXTBOOK
from benchmarks.stable import Stable

BASE = ("numpy", "scipy", "numba", "vfbandits")


def describe_machine(stable: Stable) -> dict[str, str]:
    """Processor and load, and the versions that the workers themselves report."""
    facts = {
        "CPU": _cpu_model(),
        "cores": str(os.cpu_count()),
        "load at the start": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "system": platform.platform(),
        "environment": ", ".join(f"{name}={value}" for name, value in ONE_THREAD.items()),
        "ours": _listed(stable.worker(TEXTBOOK).versions(BASE)),
    }
    if stable.peers is not None:
        facts["peers"] = _peer_versions(stable.peers)
    return facts


def _peer_versions(peers: PeerEnvironment) -> str:
    packages = dict.fromkeys(entry.package for entry in PEERS if entry.package)
    with start_worker(peers.python, {}) as worker:
        return _listed(worker.versions(["numpy", "scipy", *packages]))


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _cpu_model() -> str:
    """Linux says it in one file; elsewhere the platform's own word has to do."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
